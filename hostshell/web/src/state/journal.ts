// Durable actions that have no answer yet, kept in localStorage, so that a reload in the middle of one sends it again
// under the same action_id: whatever had reached the Runtime is not done twice.

import type { JsonObject } from "../runtime/rows";

const KEY = "lineup.journal";
// The Runtime remembers the answer to an action for a day; a resend after that would be a second action.
const AGE_MS_MAX = 23 * 3_600_000;
const ACTIONS_MAX = 200;

export interface Kept {
  action_id: string;
  name: string;
  args: JsonObject;
  at: string;
  refused?: { code: string; message: string };
}

export function kept(now: number = Date.now()): Kept[] {
  return read().filter((action) => now - Date.parse(action.at) < AGE_MS_MAX);
}

export function keep(action: Kept): void {
  const others = read().filter((known) => known.action_id !== action.action_id);
  write([...others, action].slice(-ACTIONS_MAX));
}

export function forget(actionId: string): void {
  const all = read();
  const rest = all.filter((action) => action.action_id !== actionId);
  if (rest.length !== all.length) write(rest);
}

function read(): Kept[] {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(value) ? value.filter(isKept) : [];
  } catch {
    return [];
  }
}

function write(actions: Kept[]): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(actions));
  } catch {
    // A full or forbidden storage costs the resend after a reload, nothing else.
  }
}

function isKept(value: unknown): value is Kept {
  const action = value as Partial<Kept> | null;
  return (
    typeof action?.action_id === "string" &&
    typeof action.name === "string" &&
    typeof action.at === "string" &&
    typeof action.args === "object"
  );
}
