// What the page checks before it sends an answer, so that a person hears of a slip at once. The Runtime checks again
// and its word counts.

import type { Words } from "../../i18n/en";
import type { InputField, Json, JsonObject } from "../../runtime/rows";

export type Values = Record<string, string>;

export interface Checked {
  errors: Record<string, string>;
  values: JsonObject;
}

/** Check typed texts against the fields; ``values`` holds what would be sent. */
export function checkInput(fields: readonly InputField[], typed: Values, words: Words): Checked {
  const errors: Record<string, string> = {};
  const values: JsonObject = {};
  for (const field of fields) {
    const text = typed[field.id] ?? "";
    if (text === "" || (field.type === "number" && text.trim() === "")) {
      if (field.required) errors[field.id] = words.question.invalid.required;
      continue;
    }
    const error = field.type === "number" ? checkNumber(field, text, words) : checkText(field, text, words);
    if (error) errors[field.id] = error;
    else values[field.id] = field.type === "number" ? Number(text.trim()) : text;
  }
  return { errors, values };
}

function checkNumber(field: InputField, text: string, words: Words): string | null {
  const { number, minimum, maximum } = words.question.invalid;
  if (!/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text.trim()) || !Number.isFinite(Number(text)))
    return number;
  const value = Number(text);
  if (field.minimum !== undefined && value < field.minimum) return minimum(field.minimum);
  if (field.maximum !== undefined && value > field.maximum) return maximum(field.maximum);
  return null;
}

/** Lengths count characters as the Runtime does: code points. */
function checkText(field: InputField, text: string, words: Words): string | null {
  const { minLength, maxLength } = words.question.invalid;
  const length = [...text].length;
  if (field.min_length !== undefined && length < field.min_length) return minLength(field.min_length);
  if (field.max_length !== undefined && length > field.max_length) return maxLength(field.max_length);
  return null;
}

/** Texts out of a kept draft, whatever form it has. */
export function textsOf(draft: Json | undefined): Values {
  const values: Values = {};
  if (typeof draft !== "object" || draft === null || Array.isArray(draft)) return values;
  const inner = draft.values;
  if (typeof inner !== "object" || inner === null || Array.isArray(inner)) return values;
  for (const [id, value] of Object.entries(inner)) {
    if (typeof value === "string" || typeof value === "number") values[id] = String(value);
  }
  return values;
}

export function choicesOf(draft: Json | undefined): string[] {
  if (typeof draft !== "object" || draft === null || Array.isArray(draft)) return [];
  return Array.isArray(draft.action_ids) ? draft.action_ids.filter((id) => typeof id === "string") : [];
}
