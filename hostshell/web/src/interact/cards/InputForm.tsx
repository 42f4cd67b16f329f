// A small form. A slip shows at its field as soon as the person has left it; the draft is kept all the while.

import { Button, Group, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { type FocusEvent, type FormEvent, useRef, useState } from "react";
import { useWords } from "../../i18n";
import type { InputField, Interaction, InteractionRequest } from "../../runtime/rows";
import { checkInput, textsOf, type Values } from "./answers";
import { FormError } from "./FormError";
import { useAnswering, useDraft } from "./hooks";

type Request = Extract<InteractionRequest, { kind: "input" }>;

export function InputForm({ interaction, request }: { interaction: Interaction; request: Request }) {
  const words = useWords();
  const { busy, error, answer, cancel } = useAnswering(interaction);
  const [typed, setTyped] = useDraft<Values>(interaction, textsOf, (values) => ({ values }));
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const form = useRef<HTMLFormElement>(null);
  const { errors, values } = checkInput(request.fields, typed, words);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const wrong = request.fields.find((field) => errors[field.id]);
    if (!wrong) {
      answer({ values });
      return;
    }
    setLeft(new Set(request.fields.map((field) => field.id)));
    form.current?.querySelector<HTMLElement>(`[name="${CSS.escape(wrong.id)}"]`)?.focus();
  };

  return (
    <form ref={form} onSubmit={submit} noValidate>
      <Stack gap="sm">
        {request.fields.map((field) => (
          <Field
            key={field.id}
            field={field}
            value={typed[field.id] ?? ""}
            error={left.has(field.id) ? errors[field.id] : undefined}
            disabled={busy}
            onChange={(text) => setTyped({ ...typed, [field.id]: text })}
            onLeave={() => typed[field.id] && setLeft(new Set([...left, field.id]))}
          />
        ))}
      </Stack>
      <Group justify="flex-end" mt="md">
        <Button variant="default" disabled={busy} onClick={cancel}>
          {request.cancel_label || words.question.dismiss}
        </Button>
        <Button type="submit" loading={busy}>
          {request.submit_label || words.question.submit}
        </Button>
      </Group>
      <FormError error={error} />
    </form>
  );
}

interface FieldProps {
  field: InputField;
  value: string;
  error: string | undefined;
  disabled: boolean;
  onChange(text: string): void;
  onLeave(): void;
}

function Field({ field, value, error, disabled, onChange, onLeave }: FieldProps) {
  const words = useWords();
  const shared = {
    name: field.id,
    label: (
      <>
        {field.label}
        {!field.required && (
          <Text component="span" size="xs" c="dimmed" ml={6} fw={400}>
            {words.question.optional}
          </Text>
        )}
      </>
    ),
    description: bounds(field, words.question.between),
    placeholder: field.placeholder ?? "",
    required: field.required ?? false,
    value,
    error,
    disabled,
    onChange: (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value),
    // A message that appears under the pointer would move the button away that is just being pressed.
    onBlur: (event: FocusEvent) => event.relatedTarget instanceof HTMLButtonElement || onLeave(),
  };
  if (field.type === "textarea") return <Textarea {...shared} autosize minRows={3} maxRows={12} />;
  return (
    <TextInput {...shared} inputMode={field.type === "number" ? "decimal" : "text"} autoComplete="off" />
  );
}

function bounds(field: InputField, between: (low: number, high: number) => string): string | undefined {
  const { minimum: low, maximum: high } = field;
  if (low !== undefined && high !== undefined) return between(low, high);
  if (low !== undefined) return `≥ ${low}`;
  return high !== undefined ? `≤ ${high}` : undefined;
}
