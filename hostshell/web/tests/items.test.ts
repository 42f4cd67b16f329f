import { describe, expect, it } from "vitest";
import { buildItems, type ItemOptions } from "../src/interact/items";
import { AT, entry } from "./fixtures";

const options: ItemOptions = { complete: true, newAfter: null, unfolded: null };
const kinds = (...args: Parameters<typeof buildItems>) => buildItems(...args).map((item) => item.kind);

describe("the rows of a timeline", () => {
  it("begin with the start and the day", () => {
    expect(kinds([entry(1), entry(2)], [], options)).toEqual(["start", "day", "text", "text"]);
  });

  it("fold the entries of app sessions, but for the one in front", () => {
    const entries = [entry(1, { kind: "session", ref: "s-1" }), entry(2, { session_id: "s-1" }), entry(3)];
    expect(kinds(entries, [], options)).toEqual(["start", "day", "session", "text"]);
    expect(kinds(entries, [], { ...options, unfolded: "s-1" })).toEqual([
      "start",
      "day",
      "session",
      "text",
      "text",
    ]);
  });

  it("separate days", () => {
    const entries = [entry(1, { at: "2026-11-28T12:00:00Z" }), entry(2, { at: "2026-11-30T12:00:00Z" })];
    expect(kinds(entries, [], { ...options, complete: false })).toEqual(["day", "text", "day", "text"]);
  });

  it("mark what is new once, before the first entry of somebody else", () => {
    const entries = [entry(1), entry(2, { author: "person" }), entry(3), entry(4)];
    const shown = buildItems(entries, [], { ...options, newAfter: 1 });
    expect(shown.map((item) => item.key)).toEqual(["start", "day:1", "n:1", "n:2", "new", "n:3", "n:4"]);
  });

  it("name a speaker once while they go on", () => {
    const entries = [
      entry(1),
      entry(2),
      entry(3, { at: "2026-11-30T10:09:00Z" }),
      entry(4, { author: "person" }),
    ];
    const first = buildItems(entries, [], options).flatMap((item) =>
      item.kind === "text" ? [item.first] : [],
    );
    expect(first).toEqual([true, false, true, true]);
  });

  it("end with what the person has just sent", () => {
    const echo = { action_id: "w", conversation_id: "c-1", text: "hi", at: AT, state: "sending" } as const;
    expect(kinds([entry(1)], [echo], options).at(-1)).toBe("echo");
  });

  it("have stable keys", () => {
    const entries = Array.from({ length: 50 }, (_, n) => entry(n + 1));
    const keys = buildItems(entries, [], options).map((item) => item.key);
    expect(new Set(keys).size).toBe(keys.length);
  });
});
