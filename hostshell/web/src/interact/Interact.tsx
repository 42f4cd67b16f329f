// Interact: the conversation with the agent, as the whole page or beside a MiniApp.

import { Button, Group } from "@mantine/core";
import { IconMessages } from "@tabler/icons-react";
import { useEffect } from "react";
import { useWords } from "../i18n";
import { useClient, useWorkspace } from "../state/react";
import { announce } from "../ui/announce";
import { Empty } from "../ui/Empty";
import { Composer } from "./Composer";
import classes from "./Interact.module.css";
import { Timeline } from "./Timeline";

const DEMO_AGENT = "demo";

export function Interact({
  conversationId,
  unfolded = null,
}: {
  conversationId: string;
  unfolded?: string | null;
}) {
  useSpokenNews(conversationId);
  return (
    <div className={classes.interact} data-testid="interact">
      <Timeline
        key={conversationId}
        conversationId={conversationId}
        unfolded={unfolded}
        empty={<EmptyConversation conversationId={conversationId} />}
      />
      <Composer key={`composer:${conversationId}`} conversationId={conversationId} />
    </div>
  );
}

function EmptyConversation({ conversationId }: { conversationId: string }) {
  const client = useClient();
  const words = useWords();
  const demo = useWorkspace((state) => state.conversations[conversationId]?.agent_id === DEMO_AGENT);
  return (
    <Empty
      icon={<IconMessages size={44} stroke={1.3} />}
      title={words.interact.empty}
      hint={demo ? words.interact.emptyHint : words.interact.emptyHintPlain}
    >
      {demo && (
        <Group justify="center" gap="xs" mt="xs">
          {words.interact.suggestions.map((text) => (
            <Button
              key={text}
              variant="default"
              radius="xl"
              size="compact-md"
              onClick={() => client.sendText(conversationId, text)}
            >
              {text}
            </Button>
          ))}
        </Group>
      )}
    </Empty>
  );
}

/** What the agent says is read out by a screen reader; history that is only being read is not. */
function useSpokenNews(conversationId: string): void {
  const { store } = useClient();
  const words = useWords();
  useEffect(
    () =>
      store.subscribe((state, before) => {
        const now = state.timelines[conversationId]?.entries.at(-1);
        const old = before.timelines[conversationId]?.entries.at(-1);
        if (!now || !old || now.n !== old.n + 1 || now.author !== "agent" || now.kind !== "text") return;
        announce(words.interact.newFromAgent((now.text ?? "").slice(0, 300)));
      }),
    [store, conversationId, words],
  );
}
