// Questions while a MiniApp is in front: its own ones in its container, Interact's beside it, where they cover
// nothing of it. Neither changes the focus.

import { ActionIcon, Button, FocusTrap, Text } from "@mantine/core";
import { IconChevronUp, IconMessageCircleQuestion } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { useWords } from "../i18n";
import { InteractionCard } from "../interact/cards/InteractionCard";
import type { Conversation, Instance, Interaction } from "../runtime/rows";
import { useWorkspace } from "../state/react";
import { isConsent, openInteractions } from "../state/select";
import { announce } from "../ui/announce";
import classes from "./Stage.module.css";

/** The questions of the MiniApp itself: a modal covers its container and nothing else, the rest is a sheet. */
export function AppQuestions({ instance }: { instance: Instance }) {
  const question = useWorkspace(
    (state) =>
      openInteractions(
        state,
        (row) => row.owner.instance_id === instance.instance_id && !isConsent(row),
      )[0] ?? null,
  );
  useAnnounced(question?.interaction_id, question?.request.title);
  if (!question) return null;
  const heading = `stage-q-${question.interaction_id}`;
  const card = <InteractionCard interaction={question} headingId={heading} />;
  if (question.presentation !== "modal") return <div className={classes.sheet}>{card}</div>;
  return (
    <div className={classes.veil}>
      <FocusTrap active>
        <div className={classes.dialog} role="dialog" aria-modal="true" aria-labelledby={heading}>
          {card}
        </div>
      </FocusTrap>
    </div>
  );
}

export interface Waiting {
  questions: readonly Interaction[];
  aside: boolean;
  setAside(aside: boolean): void;
}

/** What waits in Interact while a MiniApp is in front; it can be put aside, and a new question comes out again. */
export function useWaiting(conversation: Conversation): Waiting {
  const [aside, setAside] = useState(false);
  const questions = useWorkspace((state) =>
    openInteractions(
      state,
      (row) =>
        row.owner.conversation_id === conversation.conversation_id &&
        row.owner.instance_id === conversation.chat_instance_id &&
        !isConsent(row),
    ),
  );
  const newestId = questions.at(-1)?.interaction_id;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new question comes out again
  useEffect(() => setAside(false), [newestId]);
  return { questions, aside, setAside };
}

/** In the title bar: how many questions wait, and the way to put them aside and back. */
export function WaitingPill({ waiting: { questions, aside, setAside } }: { waiting: Waiting }) {
  const words = useWords();
  if (questions.length === 0) return null;
  return (
    <Button
      id={PILL}
      variant={aside ? "filled" : "light"}
      radius="xl"
      size="compact-sm"
      leftSection={<IconMessageCircleQuestion size={16} aria-hidden="true" />}
      aria-expanded={!aside}
      onClick={() => setAside(!aside)}
      data-testid="waiting-pill"
    >
      <span className={classes.wide}>{words.question.overAppMinimised(questions.length)}</span>
      <span className={classes.count} aria-hidden="true">
        {questions.length}
      </span>
    </Button>
  );
}

const PILL = "waiting-pill";

/** The first of the questions, in a pane of its own; it never takes the focus. */
export function InteractQuestions({ waiting: { questions, aside, setAside } }: { waiting: Waiting }) {
  const words = useWords();
  const first = questions[0];
  useAnnounced(questions.at(-1)?.interaction_id, questions.at(-1)?.request.title);
  if (!first || aside) return null;
  const minimise = () => {
    setAside(true);
    document.getElementById(PILL)?.focus();
  };
  return (
    <section className={classes.over} aria-label={words.question.overApp} data-testid="over-app">
      <div className={classes.overHead}>
        <Text size="sm" fw={600} c="dimmed">
          {words.question.overApp}
          {questions.length > 1 && ` (${questions.length})`}
        </Text>
        <ActionIcon
          variant="subtle"
          color="gray"
          c="dimmed"
          aria-label={words.question.minimise}
          onClick={minimise}
        >
          <IconChevronUp size={16} />
        </ActionIcon>
      </div>
      <InteractionCard
        key={first.interaction_id}
        interaction={first}
        headingId={`over-q-${first.interaction_id}`}
      />
    </section>
  );
}

function useAnnounced(id: string | undefined, title: string | undefined): void {
  const words = useWords();
  useEffect(() => {
    if (id && title) announce(`${words.question.label}: ${title}`);
  }, [id, title, words]);
}
