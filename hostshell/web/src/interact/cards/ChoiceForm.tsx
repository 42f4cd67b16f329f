// A choice: one of a few, any number of them in the order of choosing, or plain buttons.

import { Button, Checkbox, Group, Radio, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { useWords } from "../../i18n";
import type { ChoiceAction, Interaction, InteractionRequest } from "../../runtime/rows";
import { choicesOf } from "./answers";
import { FormError } from "./FormError";
import { useAnswering, useDraft } from "./hooks";
import classes from "./InteractionCard.module.css";

type Request = Extract<InteractionRequest, { kind: "choice" }>;

export function ChoiceForm({ interaction, request }: { interaction: Interaction; request: Request }) {
  return request.mode === "button" ? (
    <Buttons interaction={interaction} actions={request.actions} />
  ) : (
    <Picks interaction={interaction} request={request} />
  );
}

function Buttons({ interaction, actions }: { interaction: Interaction; actions: ChoiceAction[] }) {
  const words = useWords();
  const { busy, error, answer, cancel } = useAnswering(interaction);
  return (
    <>
      <Stack gap="xs">
        {actions.map((action) => (
          <Button
            key={action.id}
            variant="default"
            disabled={busy}
            className={classes.wide}
            onClick={() => answer({ action_ids: [action.id] })}
          >
            <ActionText action={action} />
          </Button>
        ))}
      </Stack>
      <Group justify="flex-end" mt="xs">
        <Button variant="subtle" color="gray" c="dimmed" size="compact-sm" disabled={busy} onClick={cancel}>
          {words.question.dismiss}
        </Button>
      </Group>
      <FormError error={error} />
    </>
  );
}

function Picks({ interaction, request }: { interaction: Interaction; request: Request }) {
  const words = useWords();
  const { busy, error, answer, cancel } = useAnswering(interaction);
  const [chosen, setChosen] = useDraft(interaction, choicesOf, (ids) => ({ action_ids: ids }));
  const [missing, setMissing] = useState(false);
  const single = request.mode === "single-choice";

  const submit = () => {
    if (single && chosen.length !== 1) setMissing(true);
    else answer({ action_ids: chosen });
  };
  const choose = (ids: string[]) => {
    setMissing(false);
    setChosen(ids);
  };

  const options = request.actions.map((action) => {
    const props = { value: action.id, label: action.label, description: action.description, disabled: busy };
    return single ? <Radio key={action.id} {...props} /> : <Checkbox key={action.id} {...props} />;
  });
  return (
    <>
      {single ? (
        <Radio.Group
          label={words.question.choose}
          value={chosen[0] ?? ""}
          onChange={(id) => choose([id])}
          error={missing && words.question.invalid.pick}
        >
          <Stack gap="xs" mt="xs">
            {options}
          </Stack>
        </Radio.Group>
      ) : (
        <Checkbox.Group label={words.question.chooseMany} value={chosen} onChange={choose}>
          <Stack gap="xs" mt="xs">
            {options}
          </Stack>
        </Checkbox.Group>
      )}
      <Group justify="flex-end" mt="sm">
        <Button variant="default" disabled={busy} onClick={cancel}>
          {words.question.dismiss}
        </Button>
        <Button loading={busy} onClick={submit}>
          {words.question.confirmChoice}
        </Button>
      </Group>
      <FormError error={error} />
    </>
  );
}

function ActionText({ action }: { action: ChoiceAction }) {
  return (
    <span>
      {action.label}
      {action.description && (
        <Text component="span" size="xs" c="dimmed" display="block" fw={400}>
          {action.description}
        </Text>
      )}
    </span>
  );
}
