// Changes of a board as values: what a page wants for each element, how two wants add up, and the merge patch that says it.
// Pure; `sync` sends them.

import type { Json, JsonObject } from "./bridge";
import { isObject } from "./elements";

/** `put`: it shall be exactly this. `merge`: these fields of one that is there. `delete`: it shall be gone. */
export type Op =
  | { readonly kind: "put"; readonly element: JsonObject }
  | { readonly kind: "merge"; readonly fields: JsonObject; readonly guarded: boolean }
  | { readonly kind: "delete" };

export type Ops = ReadonlyMap<string, Op>;

/** JSON Merge Patch (RFC 7396); shares what the patch does not touch. */
export function mergePatch(target: Json | undefined, patch: Json): Json {
  if (!isObject(patch)) return patch;
  // A map, so that names such as "__proto__" are names like any other.
  const result = new Map<string, Json>(isObject(target) ? Object.entries(target) : []);
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) result.delete(name);
    else result.set(name, mergePatch(result.get(name), value));
  }
  return Object.fromEntries(result);
}

/** The merge patch that makes `before` into `after`; null if they are equal. */
export function difference(before: JsonObject, after: JsonObject): JsonObject | null {
  const patch = new Map<string, Json>();
  for (const name of Object.keys(before)) if (!Object.hasOwn(after, name)) patch.set(name, null);
  for (const [name, value] of Object.entries(after)) {
    const old = Object.hasOwn(before, name) ? before[name] : undefined;
    if (isObject(old) && isObject(value)) {
      const inner = difference(old, value);
      if (inner) patch.set(name, inner);
    } else if (JSON.stringify(old) !== JSON.stringify(value)) {
      patch.set(name, value);
    }
  }
  return patch.size ? Object.fromEntries(patch) : null;
}

/** What one element is after an op. */
export function applied(before: JsonObject | undefined, op: Op): JsonObject | undefined {
  switch (op.kind) {
    case "put":
      return op.element;
    case "delete":
      return undefined;
    case "merge":
      return before && (mergePatch(before, op.fields) as JsonObject);
  }
}

/** Two wants for one element, one after the other, as one. */
export function composed(first: Op | undefined, then: Op): Op {
  if (!first || then.kind !== "merge") return then;
  switch (first.kind) {
    case "put":
      return { kind: "put", element: mergePatch(first.element, then.fields) as JsonObject };
    case "merge":
      return {
        kind: "merge",
        fields: addFields(first.fields, then.fields),
        guarded: first.guarded || then.guarded,
      };
    case "delete":
      return first;
  }
}

/** One patch that does what two do: nulls are kept, as they are still to be said. */
function addFields(first: JsonObject, then: JsonObject): JsonObject {
  const sum: JsonObject = { ...first };
  for (const [name, value] of Object.entries(then)) {
    const old = sum[name];
    sum[name] = isObject(old) && isObject(value) ? addFields(old, value) : value;
  }
  return sum;
}

/** The patch of `elements` that says `op` to a Runtime which has `base`; undefined if there is nothing to say. */
export function wireOf(base: JsonObject | undefined, op: Op): Json | undefined {
  switch (op.kind) {
    case "delete":
      return base ? null : undefined;
    case "put":
      return base ? (difference(base, op.element) ?? undefined) : op.element;
    case "merge":
      return base ? op.fields : undefined;
  }
}

/** What someone did to one element: for undo. */
export interface Change {
  readonly id: string;
  readonly before: JsonObject | undefined;
  readonly after: JsonObject | undefined;
}

/** How to take a change back, given what the element is now. Only fields that the change touched are touched again, so
 * that what others did to the element meanwhile stays. Undefined: there is nothing left to take back. */
export function undoOf(change: Change, now: JsonObject | undefined): Op | undefined {
  if (!change.before) return now ? { kind: "delete" } : undefined;
  if (!change.after || !now)
    return now ? undefined : change.after ? undefined : { kind: "put", element: change.before };
  const fields = difference(change.after, change.before);
  return fields ? { kind: "merge", fields, guarded: true } : undefined;
}

export function flipped({ id, before, after }: Change): Change {
  return { id, before: after, after: before };
}
