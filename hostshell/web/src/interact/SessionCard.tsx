// An app session in the main conversation: folded to one card; unfolded it is a history to read, never to write.

import { Button, Collapse, Group, Loader, Text } from "@mantine/core";
import { IconChevronDown, IconChevronUp, IconPlayerPlay } from "@tabler/icons-react";
import { memo, useEffect, useId, useState } from "react";
import { errorText, sessionName, useTimes, useWords } from "../i18n";
import type { Session } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import {
  hasPage,
  isConsent,
  openInteractions,
  progressOf,
  shownState,
  whyNotContinued,
} from "../state/select";
import { AppIcon } from "../ui/AppIcon";
import { Status, toneOf } from "../ui/Status";
import { toast } from "../ui/toasts";
import { InteractionCard } from "./cards/InteractionCard";
import classes from "./SessionCard.module.css";
import { SessionHistory } from "./SessionHistory";

export const SessionCard = memo(function SessionCard({ session }: { session: Session }) {
  const words = useWords();
  const [unfolded, setUnfolded] = useState(false);
  const name = useWorkspace((state) =>
    sessionName(words, state.apps[session.app_scope], session.app_scope, session.title),
  );
  const region = useId();
  return (
    <article className={classes.session} aria-label={words.session.label(name)} data-testid="session">
      <div className={classes.head}>
        <AppIcon scope={session.app_scope} size={34} />
        <div className={classes.names}>
          <Text fw={600} className={classes.title}>
            {name}
          </Text>
          <Summary session={session} />
        </div>
        <SessionState session={session} />
      </div>
      <Group gap="xs" mt="xs">
        <Button
          variant="default"
          size="compact-sm"
          aria-expanded={unfolded}
          aria-controls={region}
          leftSection={unfolded ? <IconChevronUp size={14} /> : <IconChevronDown size={14} />}
          onClick={() => setUnfolded(!unfolded)}
        >
          {unfolded ? words.session.hide : words.session.show}
        </Button>
        <NextStep session={session} />
      </Group>
      <WaitingQuestions session={session} />
      <div id={region}>
        <Collapse expanded={unfolded}>{unfolded && <History session={session} />}</Collapse>
      </div>
    </article>
  );
});

function SessionState({ session }: { session: Session }) {
  const words = useWords();
  const shown = useWorkspace((state) => {
    const instance = state.instances[session.instance_id];
    return instance && instance.state !== "closed" ? shownState(state, instance) : null;
  });
  if (session.state === "read_only") return <Status tone="calm">{words.session.ended}</Status>;
  return (
    <Status tone={shown ? toneOf(shown) : "accent"}>
      {shown ? words.states[shown] : words.session.running}
    </Status>
  );
}

function Summary({ session }: { session: Session }) {
  const words = useWords();
  const times = useTimes();
  const progress = useWorkspace((state) => progressOf(state, session.instance_id)?.message ?? null);
  const parts = [times.time(session.created_at)];
  if (session.ended_at) {
    parts.push(
      words.session.lasted(times.duration(Date.parse(session.ended_at) - Date.parse(session.created_at))),
    );
    if (session.outcome) parts.push(words.session.outcomes[session.outcome] ?? session.outcome);
  } else if (progress) {
    parts.push(progress);
  }
  if (session.continues) parts.push(words.session.continuesEarlier);
  return (
    <Text size="xs" c="dimmed">
      {parts.join(" · ")}
    </Text>
  );
}

/** Continue what has ended, or go to what is open. */
function NextStep({ session }: { session: Session }) {
  const client = useClient();
  const words = useWords();
  const [busy, setBusy] = useState(false);
  const inFront = useWorkspace(
    (state) => state.conversations[session.conversation_id]?.focus.at(-1) === session.instance_id,
  );
  const ended = session.state === "read_only";
  const whyNot = useWorkspace((state) => (ended ? whyNotContinued(state, session) : null));
  const nothingToShow = useWorkspace((state) => {
    const instance = state.instances[session.instance_id];
    return instance !== undefined && !hasPage(state, instance);
  });
  if (!ended && (inFront || nothingToShow)) return null;
  if (whyNot) {
    return (
      <Text size="xs" c="dimmed" data-testid="not-continued">
        {words.errors[whyNot]}
      </Text>
    );
  }

  const go = async () => {
    setBusy(true);
    const result = ended
      ? await client.act("session.continue", { session_id: session.session_id })
      : await client.act("instance.front", { instance_id: session.instance_id });
    setBusy(false);
    if (!result.accepted) {
      const text = errorText(words, result.code, result.message);
      toast({ id: `continue:${session.session_id}`, tone: "bad", title: session.title, text });
    }
  };
  return (
    <Button
      variant="light"
      size="compact-sm"
      loading={busy}
      title={ended ? words.session.continueHint : undefined}
      leftSection={ended ? <IconPlayerPlay size={14} /> : undefined}
      onClick={() => void go()}
    >
      {ended ? words.session.continue : words.session.goTo}
    </Button>
  );
}

/** A question of a MiniApp that is not on screen can be answered here. */
function WaitingQuestions({ session }: { session: Session }) {
  const questions = useWorkspace((state) =>
    state.conversations[session.conversation_id]?.focus.at(-1) === session.instance_id
      ? []
      : openInteractions(state, (row) => row.owner.instance_id === session.instance_id && !isConsent(row)),
  );
  return (
    <>
      {questions.map((question) => (
        <div key={question.interaction_id} className={classes.question}>
          <InteractionCard interaction={question} />
        </div>
      ))}
    </>
  );
}

function History({ session }: { session: Session }) {
  const client = useClient();
  const words = useWords();
  const history = useWorkspace((state) => state.histories[session.session_id]);
  const entries = useWorkspace((state) => state.conversations[session.conversation_id]?.entries ?? 0);
  const online = useWorkspace((state) => state.link === "online");
  const live = session.state === "open" ? entries : 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: an open session is read again when something was added
  useEffect(() => {
    if (!online) return;
    void client.readSession(session.session_id);
    void client.readArtifacts(session.conversation_id);
  }, [client, session.session_id, session.conversation_id, session.state, online, live]);
  if (!history) return <Loader size="sm" m="sm" aria-label={words.loading} />;
  return <SessionHistory session={session} history={history} />;
}
