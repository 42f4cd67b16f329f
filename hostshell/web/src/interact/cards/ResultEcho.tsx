// What became of a question: the person's own answer, or why there is none.

import { Text } from "@mantine/core";
import { useWords } from "../../i18n";
import type { Interaction, JsonObject } from "../../runtime/rows";
import { choicesOf } from "./answers";
import classes from "./InteractionCard.module.css";

export function ResultEcho({ interaction }: { interaction: Interaction }) {
  const { result, request, reason } = interaction;
  if (!result) {
    return reason && interaction.status === "failed" ? (
      <Text size="sm" c="dimmed">
        {reason}
      </Text>
    ) : null;
  }
  if (request.kind === "notice") return null;
  return (
    <div className={classes.echo} data-testid="answer">
      <Answer request={request} result={result} />
    </div>
  );
}

function Answer({ request, result }: { request: Interaction["request"]; result: JsonObject }) {
  const words = useWords();
  switch (request.kind) {
    case "notice":
      return <>{words.question.acknowledged}</>;
    case "confirm":
      return (
        <>
          {result.approved
            ? request.approve_label || words.question.approved
            : request.cancel_label || words.question.declined}
        </>
      );
    case "choice": {
      const labels = choicesOf(result).map(
        (id) => request.actions.find((action) => action.id === id)?.label ?? id,
      );
      return <>{labels.length > 0 ? labels.join(", ") : words.question.nothingChosen}</>;
    }
    case "input":
      return <Values fields={request.fields} values={result.values} />;
  }
}

function Values(props: {
  fields: Extract<Interaction["request"], { kind: "input" }>["fields"];
  values: JsonObject[string] | undefined;
}) {
  const words = useWords();
  const values =
    typeof props.values === "object" && props.values !== null && !Array.isArray(props.values)
      ? props.values
      : {};
  return (
    <dl className={classes.values}>
      {props.fields.map((field) => {
        const value = values[field.id];
        const empty = value === undefined || value === "";
        return (
          <div key={field.id}>
            <dt>{field.label}</dt>
            <dd data-empty={empty || undefined}>{empty ? words.question.noValue : String(value)}</dd>
          </div>
        );
      })}
    </dl>
  );
}
