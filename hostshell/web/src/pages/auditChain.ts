// The audit's hash chain, checked here: what the Runtime says of its own past is not believed but computed.
// hash = sha256(previous hash as 32 bytes ‖ canonical JSON of the row without prev and hash).

import type { Json, JsonObject } from "../runtime/rows";

export interface AuditRow extends JsonObject {
  seq: number;
  prev: string;
  hash: string;
}

interface Link {
  seq: number;
  hash: string;
}

export interface AuditPage {
  rows: AuditRow[];
  head: Link;
  anchor: Link; // the last row that the store has let go of into the archive's files; seq 0 for none
}

export type Verdict = { ok: true; rows: number; archived: number } | { ok: false; seq: number };

const TRIES = 5; // a busy Runtime may archive rows that were about to be read

/**
 * Walk the store's chain, from its anchor to its head; ``read`` gives the page after a row, ``seen`` hears how far the
 * walk has come. Throws when rows went into the archive in front of each of a few walks.
 */
export async function verifyChain(
  read: (after: number) => Promise<AuditPage>,
  seen: (rows: number) => void,
): Promise<Verdict> {
  for (let tries = 0; tries < TRIES; tries++) {
    const verdict = await walk(read, seen);
    if (verdict !== null) return verdict;
  }
  throw new Error("rows moved into the archive while they were being read");
}

/** ``null`` when the rows that come next have gone into the archive meanwhile. */
async function walk(
  read: (after: number) => Promise<AuditPage>,
  seen: (rows: number) => void,
): Promise<Verdict | null> {
  const first = await read(0);
  const { head, anchor } = first; // what comes after the start of the walk is the next walk's business
  let { seq: after, hash: prev } = anchor;
  for (let page = first; ; page = await read(after)) {
    if (page.anchor.seq > after) return null;
    for (const row of page.rows) {
      if (row.seq > head.seq) break;
      if (row.seq !== after + 1 || row.prev !== prev || row.hash !== (await hashOf(prev, row))) {
        return { ok: false, seq: after + 1 };
      }
      after = row.seq;
      prev = row.hash;
    }
    seen(after - anchor.seq);
    if (after >= head.seq) {
      const ok = prev === head.hash;
      return ok ? { ok, rows: after - anchor.seq, archived: anchor.seq } : { ok, seq: after };
    }
    if (page.rows.length === 0) return { ok: false, seq: after + 1 };
  }
}

export async function hashOf(prev: string, row: JsonObject): Promise<string> {
  const { prev: _prev, hash: _hash, ...body } = row;
  const text = new TextEncoder().encode(canonicalJson(body));
  const bytes = new Uint8Array(32 + text.length);
  bytes.set(fromHex(prev));
  bytes.set(text, 32);
  return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

/** Sorted keys (by code point), no spaces, numbers as the shortest text that reads back the same. */
export function canonicalJson(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "number") return canonicalNumber(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const keys = Object.keys(value).sort(byCodePoint);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key] ?? null)}`).join(",")}}`;
}

/** Exponents have two digits at least, as Python writes them; the digits themselves are the same shortest ones. */
function canonicalNumber(value: number): string {
  if (Object.is(value, -0)) return "0";
  const magnitude = Math.abs(value);
  if (Number.isInteger(value) && magnitude <= Number.MAX_SAFE_INTEGER) return String(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e16)) {
    return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }
  const text = String(value);
  return Number.isInteger(value) && !text.includes("e") ? `${text}.0` : text;
}

function byCodePoint(a: string, b: string): number {
  const [left, right] = [[...a], [...b]];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const by = (left[i]?.codePointAt(0) ?? 0) - (right[i]?.codePointAt(0) ?? 0);
    if (by !== 0) return by;
  }
  return left.length - right.length;
}

function fromHex(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
