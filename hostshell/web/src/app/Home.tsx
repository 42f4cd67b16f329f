// No conversation is shown: go to the one used last, or say what to do first.

import { Anchor, Code, Stack } from "@mantine/core";
import { IconMessageOff, IconMessagePlus, IconPlugConnectedX } from "@tabler/icons-react";
import { useEffect } from "react";
import { useWords } from "../i18n";
import { useWorkspace } from "../state/react";
import { agentsToTalkTo, conversationsByUse } from "../state/select";
import { Empty } from "../ui/Empty";
import { PageHead } from "./PageHead";
import { hrefOf, passOnTo, useRoute } from "./route";
import { NewConversation } from "./Sidebar";

export function Home({ openSidebar }: { openSidebar: (() => void) | null }) {
  const words = useWords();
  const route = useRoute();
  const latest = useWorkspace((state) => conversationsByUse(state)[0]?.conversation_id ?? null);
  const known = useWorkspace((state) => state.everOnline);
  useEffect(() => {
    if (known && latest && route.page === "home") passOnTo({ page: "conversation", id: latest });
  }, [known, latest, route.page]);
  return (
    <>
      <PageHead title={words.appName} openSidebar={openSidebar} />
      {known && (latest ? route.page === "conversation" && <Unknown latest={latest} /> : <First />)}
    </>
  );
}

/** The Runtime has said what there is, and the conversation of this address is not among it. */
function Unknown({ latest }: { latest: string }) {
  const words = useWords();
  return (
    <Stack justify="center" flex={1} data-testid="unknown-conversation">
      <Empty
        icon={<IconMessageOff size={44} stroke={1.3} />}
        title={words.sidebar.unknown}
        hint={words.sidebar.unknownHint}
      >
        <Anchor href={hrefOf({ page: "conversation", id: latest })}>{words.sidebar.toLatest}</Anchor>
      </Empty>
    </Stack>
  );
}

function First() {
  const words = useWords();
  const agents = useWorkspace((state) => agentsToTalkTo(state).length > 0);
  return (
    <Stack justify="center" flex={1}>
      {agents ? (
        <Empty
          icon={<IconMessagePlus size={44} stroke={1.3} />}
          title={words.sidebar.empty}
          hint={words.sidebar.emptyHint}
        >
          <NewConversation big />
        </Empty>
      ) : (
        <Empty
          icon={<IconPlugConnectedX size={44} stroke={1.3} />}
          title={words.agent.none}
          hint={words.agent.noneHint}
        >
          <Code>lineup up --demo</Code>
        </Empty>
      )}
    </Stack>
  );
}
