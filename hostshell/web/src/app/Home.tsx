// No conversation is shown: go to the one used last, or say what to do first.

import { Code, Stack } from "@mantine/core";
import { IconMessagePlus, IconPlugConnectedX } from "@tabler/icons-react";
import { useEffect } from "react";
import { useWords } from "../i18n";
import { useWorkspace } from "../state/react";
import { agentsToTalkTo, conversationsByUse } from "../state/select";
import { Empty } from "../ui/Empty";
import { PageHead } from "./PageHead";
import { goTo, useRoute } from "./route";
import { NewConversation } from "./Sidebar";

const UNKNOWN_MS = 2_000; // the address of a conversation made just now may be known before its row has come

export function Home({ openSidebar }: { openSidebar: (() => void) | null }) {
  const words = useWords();
  const route = useRoute();
  const latest = useWorkspace((state) => conversationsByUse(state)[0]?.conversation_id ?? null);
  const online = useWorkspace((state) => state.revision > 0 || state.everOnline);
  const agents = useWorkspace((state) => agentsToTalkTo(state).length > 0);
  useEffect(() => {
    if (!online || !latest || (route.page !== "home" && route.page !== "conversation")) return;
    const wait = route.page === "home" ? 0 : UNKNOWN_MS;
    const timer = setTimeout(() => goTo({ page: "conversation", id: latest }), wait);
    return () => clearTimeout(timer);
  }, [online, latest, route.page]);
  return (
    <>
      <PageHead title={words.appName} openSidebar={openSidebar} />
      {online && !latest && (
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
      )}
    </>
  );
}
