// One standard interaction as a card: what is asked, the form while it waits, the result after it. The same card
// stands in the timeline, over a MiniApp and in a MiniApp's container.

import { Loader, Text } from "@mantine/core";
import {
  IconAlertTriangle,
  IconBan,
  IconBell,
  IconCheck,
  IconClockOff,
  IconHelpCircle,
} from "@tabler/icons-react";
import { memo } from "react";
import { appName, useTimes, useWords } from "../../i18n";
import type { Interaction, InteractionRequest } from "../../runtime/rows";
import { useWorkspace } from "../../state/react";
import { isOpen } from "../../state/select";
import { useRuntimeNow } from "../../ui/hooks";
import { Status } from "../../ui/Status";
import { Markdown } from "../Markdown";
import { ConfirmForm, NoticeForm } from "./ButtonForms";
import { ChoiceForm } from "./ChoiceForm";
import { usePresented, useWhole } from "./hooks";
import { InputForm } from "./InputForm";
import classes from "./InteractionCard.module.css";
import { ResultEcho } from "./ResultEcho";

interface Props {
  interaction: Interaction;
  headingId?: string;
  plain?: boolean; // inside a dialog that has its own frame
}

export const InteractionCard = memo(function InteractionCard({
  interaction,
  headingId,
  plain = false,
}: Props) {
  const words = useWords();
  const scope = interaction.owner.app_scope;
  const app = useWorkspace((state) => appName(words, state.apps, scope));
  usePresented(interaction);
  useWhole(interaction);
  const open = isOpen(interaction);
  const { request } = interaction;
  const id = headingId ?? `q-${interaction.interaction_id}`;
  return (
    <article
      className={classes.card}
      data-status={interaction.status}
      data-plain={plain || undefined}
      data-testid="interaction"
      data-interaction={interaction.interaction_id}
      aria-labelledby={id}
    >
      <header className={classes.head}>
        <span className={classes.icon} aria-hidden="true">
          {request.kind === "notice" ? <IconBell size={18} /> : <IconHelpCircle size={18} />}
        </span>
        <h2 id={id} className={classes.title}>
          {request.title}
        </h2>
        <CardStatus interaction={interaction} />
      </header>
      {interaction.owner.source !== "agent_tool" && !plain && (
        <Text size="xs" c="dimmed">
          {words.question.from(app)}
        </Text>
      )}
      <div className={classes.prompt}>
        <Markdown text={request.kind === "notice" ? request.message : request.prompt} />
      </div>
      {interaction.cut ? (
        <Loader size="sm" aria-label={words.loading} />
      ) : open ? (
        <Form interaction={interaction} request={request} />
      ) : (
        <ResultEcho interaction={interaction} />
      )}
    </article>
  );
});

function Form({ interaction, request }: { interaction: Interaction; request: InteractionRequest }) {
  switch (request.kind) {
    case "notice":
      return <NoticeForm interaction={interaction} request={request} />;
    case "confirm":
      return <ConfirmForm interaction={interaction} request={request} />;
    case "choice":
      return <ChoiceForm interaction={interaction} request={request} />;
    case "input":
      return <InputForm interaction={interaction} request={request} />;
  }
}

function CardStatus({ interaction }: { interaction: Interaction }) {
  const words = useWords();
  switch (interaction.status) {
    case "pending":
    case "presented":
      return interaction.expires_at ? <Expiry at={interaction.expires_at} /> : null;
    case "submitted":
    case "completed":
      return (
        <Status tone="good" icon={<IconCheck />}>
          {interaction.kind === "notice" ? words.question.acknowledged : words.question.answered}
        </Status>
      );
    case "cancelled":
      return (
        <Status tone="calm" icon={<IconBan />}>
          {words.question.cancelled}
        </Status>
      );
    case "expired":
      return (
        <Status tone="warn" icon={<IconClockOff />}>
          {words.question.expired}
        </Status>
      );
    case "failed":
      return (
        <Status tone="bad" icon={<IconAlertTriangle />}>
          {words.question.failed}
        </Status>
      );
  }
}

function Expiry({ at }: { at: string }) {
  const words = useWords();
  const times = useTimes();
  const left = Date.parse(at) - useRuntimeNow(1_000);
  return (
    <Status tone={left < 60_000 ? "warn" : "calm"}>{words.question.expiresIn(times.duration(left))}</Status>
  );
}
