// The message box. What is typed is kept per conversation until it is sent; a reload finds it again.

import { ActionIcon, Text, Textarea } from "@mantine/core";
import { IconSend2 } from "@tabler/icons-react";
import { type KeyboardEvent, useState } from "react";
import { useWords } from "../i18n";
import { useClient, useWorkspace } from "../state/react";
import { hasNoReader } from "../state/select";
import { loadDraft, saveDraft } from "../state/settings";
import classes from "./Composer.module.css";

const TEXT_LENGTH_MAX = 65_536; // the Runtime's own bound, said before it is met

export function Composer({ conversationId }: { conversationId: string }) {
  const client = useClient();
  const words = useWords();
  const [text, setText] = useState(() => loadDraft(conversationId));
  const agentAway = useWorkspace((state) => {
    const agent = state.conversations[conversationId]?.agent_id;
    return state.link === "online" && agent !== undefined && !(state.agents[agent]?.connected ?? false);
  });
  const unread = useWorkspace((state) => hasNoReader(state.conversations[conversationId]));
  const tooLong = text.length > TEXT_LENGTH_MAX;

  const change = (next: string) => {
    setText(next);
    saveDraft(conversationId, next);
  };
  const send = () => {
    if (text.trim() === "" || tooLong || unread) return;
    client.sendText(conversationId, text);
    change("");
  };
  const pressed = (event: KeyboardEvent) => {
    // Enter that ends an input method's composition is not for us.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };

  return (
    <form
      className={classes.composer}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div className={classes.column}>
        {(unread || agentAway) && (
          <Text size="xs" c="dimmed" mb={4} role="status">
            {unread ? words.agent.unread : words.agent.waits}
          </Text>
        )}
        <div className={classes.box}>
          <Textarea
            id="composer"
            className={classes.input}
            variant="unstyled"
            autosize
            minRows={1}
            maxRows={10}
            value={text}
            disabled={unread}
            placeholder={words.interact.placeholder}
            aria-label={words.interact.composer}
            aria-describedby="composer-hint"
            error={tooLong && words.interact.tooLong(TEXT_LENGTH_MAX)}
            onChange={(event) => change(event.currentTarget.value)}
            onKeyDown={pressed}
          />
          <ActionIcon
            type="submit"
            size="lg"
            radius="xl"
            aria-label={words.interact.send}
            disabled={text.trim() === "" || tooLong || unread}
          >
            <IconSend2 size={18} aria-hidden="true" />
          </ActionIcon>
        </div>
        <Text id="composer-hint" size="xs" c="dimmed" className={classes.hint}>
          {words.interact.sendHint}
        </Text>
      </div>
    </form>
  );
}
