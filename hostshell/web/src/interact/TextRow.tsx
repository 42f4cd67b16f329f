// What people and agents say. The agent's words stand in the column as Markdown, the person's in a bubble as written.

import { Button, Group, Loader } from "@mantine/core";
import { IconAlertTriangle, IconCheck, IconClockOff, IconRobot } from "@tabler/icons-react";
import { memo } from "react";
import { errorText, useTimes, useWords } from "../i18n";
import type { Entry } from "../runtime/rows";
import type { Echo } from "../state/model";
import { useClient, useWorkspace } from "../state/react";
import { Markdown } from "./Markdown";
import classes from "./TextRow.module.css";

export const TextRow = memo(function TextRow({ entry, first }: { entry: Entry; first: boolean }) {
  const words = useWords();
  const times = useTimes();
  const mine = entry.author === "person";
  const name = mine ? words.interact.you : words.interact.agent;
  return (
    <article
      className={classes.text}
      data-mine={mine || undefined}
      data-first={first || undefined}
      aria-label={name}
    >
      {!mine && first && (
        <span className={classes.avatar} aria-hidden="true">
          <IconRobot size={18} stroke={1.7} />
        </span>
      )}
      {first && (
        <header className={classes.by}>
          <span className={mine ? "visually-hidden" : classes.name}>{name}</span>
          <time dateTime={entry.at} title={times.full(entry.at)}>
            {times.time(entry.at)}
          </time>
        </header>
      )}
      <div className={classes.body}>
        {!mine && entry.format !== "plain" ? (
          <Markdown text={entry.text ?? ""} />
        ) : (
          <Plain text={entry.text ?? ""} />
        )}
      </div>
    </article>
  );
});

export const EchoRow = memo(function EchoRow({ echo, first }: { echo: Echo; first: boolean }) {
  const words = useWords();
  return (
    <article
      className={classes.text}
      data-mine
      data-first={first || undefined}
      data-state={echo.state}
      data-testid="echo"
      aria-label={words.interact.you}
    >
      <div className={classes.body}>
        <Plain text={echo.text} />
      </div>
      <EchoState echo={echo} />
    </article>
  );
});

function EchoState({ echo }: { echo: Echo }) {
  const words = useWords();
  const client = useClient();
  const online = useWorkspace((state) => state.link === "online");
  if (echo.state === "sending") {
    return (
      <p className={classes.state}>
        <Loader size={10} color="gray" aria-hidden="true" />
        {online ? words.interact.sending : words.interact.waitingForLink}
      </p>
    );
  }
  if (echo.state === "sent") {
    return (
      <p className={classes.state}>
        <IconCheck size={14} aria-hidden="true" />
        {words.interact.sent}
      </p>
    );
  }
  const expired = echo.state === "expired";
  return (
    <div className={classes.state} data-bad role="alert">
      {expired ? (
        <IconClockOff size={14} aria-hidden="true" />
      ) : (
        <IconAlertTriangle size={14} aria-hidden="true" />
      )}
      <span>
        {expired
          ? words.interact.expired
          : `${words.interact.failed}: ${errorText(words, echo.code, echo.message)}`}
      </span>
      <Group gap={4}>
        <Button size="compact-xs" variant="default" onClick={() => client.retryText(echo.action_id)}>
          {words.interact.resend}
        </Button>
        <Button size="compact-xs" variant="default" onClick={() => client.discardText(echo.action_id)}>
          {words.interact.discard}
        </Button>
      </Group>
    </div>
  );
}

function Plain({ text }: { text: string }) {
  return <div className={classes.plain}>{text}</div>;
}
