// The two questions that are only buttons: a notice to acknowledge, an action to agree to.

import { Button, Group } from "@mantine/core";
import { useWords } from "../../i18n";
import type { Interaction, InteractionRequest } from "../../runtime/rows";
import { FormError } from "./FormError";
import { useAnswering } from "./hooks";

type Of<K extends InteractionRequest["kind"]> = Extract<InteractionRequest, { kind: K }>;

export function NoticeForm({ interaction, request }: { interaction: Interaction; request: Of<"notice"> }) {
  const words = useWords();
  const { busy, error, answer } = useAnswering(interaction);
  return (
    <>
      <Group justify="flex-end">
        <Button loading={busy} onClick={() => answer({ acknowledged: true })}>
          {request.acknowledge_label || words.question.acknowledge}
        </Button>
      </Group>
      <FormError error={error} />
    </>
  );
}

export function ConfirmForm({ interaction, request }: { interaction: Interaction; request: Of<"confirm"> }) {
  const words = useWords();
  const { busy, error, answer } = useAnswering(interaction);
  return (
    <>
      <Group justify="flex-end">
        <Button variant="default" disabled={busy} onClick={() => answer({ approved: false })}>
          {request.cancel_label || words.question.decline}
        </Button>
        <Button loading={busy} onClick={() => answer({ approved: true })}>
          {request.approve_label || words.question.approve}
        </Button>
      </Group>
      <FormError error={error} />
    </>
  );
}
