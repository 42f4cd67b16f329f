// From a conversation's entries to the rows of the timeline: days, the mark of what is new, texts, questions, folded
// app sessions, and what the person has just sent. Pure.

import type { Entry, Interaction } from "../runtime/rows";
import type { Echo, Rows } from "../state/model";

export type Item =
  | { kind: "start"; key: string }
  | { kind: "day"; key: string; at: string }
  | { kind: "new"; key: string }
  | { kind: "text"; key: string; entry: Entry; first: boolean }
  | { kind: "interaction"; key: string; entry: Entry }
  | { kind: "session"; key: string; entry: Entry }
  | { kind: "echo"; key: string; echo: Echo; first: boolean };

const SAME_SPEAKER_MS_MAX = 5 * 60_000;

export interface ItemOptions {
  complete: boolean; // the first entry is the conversation's first
  newAfter: number | null; // entries beyond this number are new to the person
  unfolded: string | null; // an app session whose entries stand in the main timeline: the one in front
}

export function buildItems(entries: readonly Entry[], echoes: readonly Echo[], options: ItemOptions): Item[] {
  const items: Item[] = [];
  if (options.complete && entries.length > 0) items.push({ kind: "start", key: "start" });
  let day = NO_DAY;
  let speaker: { author: string; at: number } | null = null;
  let marked = options.newAfter === null;
  for (const entry of entries) {
    const kind = shownAs(entry, options.unfolded);
    if (!kind) continue;
    const at = timeOf(entry);
    if (at < day.begin || at >= day.end) {
      items.push({ kind: "day", key: `day:${entry.n}`, at: entry.at });
      day = dayOf(at);
      speaker = null;
    }
    if (!marked && entry.n > (options.newAfter ?? 0) && entry.author !== "person") {
      items.push({ kind: "new", key: "new" });
      marked = true;
      speaker = null;
    }
    const key = `n:${entry.n}`;
    if (kind === "text") {
      const first: boolean = speaker?.author !== entry.author || at - speaker.at > SAME_SPEAKER_MS_MAX;
      items.push({ kind, key, entry, first });
      speaker = { author: entry.author, at };
    } else {
      items.push({ kind, key, entry });
      speaker = null;
    }
  }
  for (const echo of echoes) {
    items.push({ kind: "echo", key: `echo:${echo.action_id}`, echo, first: speaker?.author !== "person" });
    speaker = { author: "person", at: Date.parse(echo.at) };
  }
  return items;
}

// A long history is built anew with every page of it: what is costly about an entry is found out once.
const times = new WeakMap<Entry, number>();

function timeOf(entry: Entry): number {
  let at = times.get(entry);
  if (at === undefined) {
    at = Date.parse(entry.at);
    times.set(entry, at);
  }
  return at;
}

const NO_DAY = { begin: Number.POSITIVE_INFINITY, end: Number.NEGATIVE_INFINITY };

/** The local day around a time; one of a clock change has 23 or 25 hours. */
function dayOf(at: number): { begin: number; end: number } {
  const date = new Date(at);
  const [year, month, day] = [date.getFullYear(), date.getMonth(), date.getDate()];
  return { begin: new Date(year, month, day).getTime(), end: new Date(year, month, day + 1).getTime() };
}

function shownAs(entry: Entry, unfolded: string | null): "text" | "interaction" | "session" | null {
  if (entry.session_id && entry.session_id !== unfolded) return null;
  switch (entry.kind) {
    case "text":
    case "interaction":
    case "session":
      return entry.kind as "text" | "interaction" | "session";
    default:
      return null; // an app session's own lines are read in the session
  }
}

/** Whether an entry of an app session is something to read in its history; the session's own beginning and end are not. */
export function isLine(entry: Entry, interactions: Rows<Interaction>): boolean {
  if (entry.kind === "interaction") return interactions[entry.ref ?? ""] !== undefined;
  return entry.kind === "text" || entry.kind === "call";
}
