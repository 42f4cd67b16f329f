import { createRequire } from "node:module";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const time = createRequire(import.meta.url)("../../../../workers/lineup_workers/pomodoro/surface/time.js");
const { clockFace, fractionOver, secondsLeft, sessionOf, untilNextChange, wordsFor } = time;

describe("the countdown", () => {
  it.each([
    [0, 0, "0:00"],
    [59, 0, "0:59"],
    [1500, 0, "25:00"],
    [3600, 0, "1:00:00"],
    [90_061, 1, "01:01:01"],
    [365 * 86_400, 365, "00:00:00"],
  ])("%i s", (seconds, days, clock) => {
    expect(clockFace(seconds)).toEqual({ days, clock });
  });

  it("begins at the full length, shows 0:00 at the end and never less", () => {
    expect(secondsLeft(60_000, 0)).toBe(60);
    expect(secondsLeft(60_000, 59_999)).toBe(1);
    expect(secondsLeft(60_000, 60_000)).toBe(0);
    expect(secondsLeft(60_000, 99_999)).toBe(0);
    expect(untilNextChange(60_000, 60_000)).toBe(0);
  });

  it("looks again exactly when the second changes", () => {
    fc.assert(
      fc.property(fc.nat(10_000_000), (left) => {
        fc.pre(left > 0);
        const wait = untilNextChange(left, 0);
        expect(wait).toBeGreaterThan(0);
        expect(wait).toBeLessThanOrEqual(1000);
        expect(secondsLeft(left, wait)).toBe(secondsLeft(left, 0) - 1);
      }),
    );
  });

  it("knows how much is over, whatever the clock says", () => {
    expect(fractionOver(0, 100, 25)).toBe(0.25);
    expect(fractionOver(0, 100, -50)).toBe(0);
    expect(fractionOver(0, 100, 500)).toBe(1);
    expect(fractionOver(100, 100, 100)).toBe(1);
  });
});

describe("the session that is shown", () => {
  const running = { state: "focusing", started_at: "2026-11-30T08:00:00Z", ends_at: "2026-11-30T08:25:00Z" };
  const saved = { state: { ...running, state: undefined, display_state: "focusing", activity: "Reading" } };

  it("is the Runtime's operation, else the snapshot", () => {
    const endsMs = Date.parse(running.ends_at);
    expect(sessionOf([{ ...running, activity: "Writing" }], saved)).toMatchObject({
      activity: "Writing",
      endsMs,
    });
    expect(sessionOf([], saved)).toMatchObject({ activity: "Reading", endsMs });
  });

  it("is none when the Runtime says that it is over", () => {
    expect(sessionOf([{ ...running, state: "completed" }], saved)).toBeNull();
    expect(sessionOf([], null)).toBeNull();
    expect(sessionOf([{ ...running, ends_at: "soon" }], null)).toBeNull();
  });

  it("has words in English and Chinese", () => {
    expect(wordsFor("zh-Hans-CN").until("14:35")).toBe("至 14:35");
    expect(wordsFor("de").minutesLeft(1)).toBe("1 minute left");
    expect(Object.keys(wordsFor("zh"))).toEqual(Object.keys(wordsFor("en")));
  });
});
