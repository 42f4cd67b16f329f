// Questions while a MiniApp is in front: its own ones in its container, Interact's over it. Neither changes the focus.

import { ActionIcon, Button, FocusTrap, Text } from "@mantine/core";
import { IconChevronUp, IconMessageCircleQuestion } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { useWords } from "../i18n";
import { InteractionCard } from "../interact/cards/InteractionCard";
import type { Conversation, Instance } from "../runtime/rows";
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

/** What waits in Interact, on top of the MiniApp; it can be put aside and never takes the focus. */
export function InteractQuestions({ conversation }: { conversation: Conversation }) {
  const words = useWords();
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
  const first = questions[0];
  const newestId = questions.at(-1)?.interaction_id;
  useAnnounced(newestId, questions.at(-1)?.request.title);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new question comes out again
  useEffect(() => setAside(false), [newestId]);
  if (!first) return null;
  if (aside) {
    return (
      <Button
        className={classes.overPill}
        radius="xl"
        leftSection={<IconMessageCircleQuestion size={16} aria-hidden="true" />}
        onClick={() => setAside(false)}
      >
        {words.question.overAppMinimised(questions.length)}
      </Button>
    );
  }
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
          onClick={() => setAside(true)}
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
