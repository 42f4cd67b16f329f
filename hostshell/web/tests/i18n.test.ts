import { describe, expect, it } from "vitest";
import { clock, daysBetween, durationIn, errorText, languageOf } from "../src/i18n";
import { en } from "../src/i18n/en";
import { storyWords as storyEn } from "../src/i18n/story.en";
import { storyWords as storyZh } from "../src/i18n/story.zh";
import { zh } from "../src/i18n/zh";

function paths(value: object, prefix = ""): string[] {
  return Object.entries(value).flatMap(([key, inner]) =>
    typeof inner === "object" && inner !== null ? paths(inner, `${prefix}${key}.`) : [`${prefix}${key}`],
  );
}

describe("languages", () => {
  it("have the same words", () => {
    expect(paths(zh).toSorted()).toEqual(paths(en).toSorted());
    expect(Object.keys(storyZh).toSorted()).toEqual(Object.keys(storyEn).toSorted());
  });

  it("follow the person, then the browser", () => {
    expect(languageOf("zh", ["en-US"])).toBe("zh");
    expect(languageOf(null, ["zh-Hans-CN", "en"])).toBe("zh");
    expect(languageOf(null, ["fr", "zh-TW"])).toBe("zh");
    expect(languageOf(null, ["fr"])).toBe("en");
  });

  it("say what went wrong in their own words where there are some", () => {
    expect(errorText(en, "app_closed", "raw")).toBe(en.errors.app_closed);
    expect(errorText(en, "something_new", "raw")).toBe("raw");
    expect(errorText(en, undefined, undefined)).toBe(en.unknownError);
  });
});

describe("times", () => {
  it("round a countdown up, so that 0:00 means over", () => {
    expect(clock(1)).toBe("0:01");
    expect(clock(0)).toBe("0:00");
    expect(clock(59_001)).toBe("1:00");
    expect(clock(3_600_000)).toBe("1:00:00");
    expect(clock(-5)).toBe("0:00");
  });

  it("say durations in two units", () => {
    expect(durationIn(en, 0)).toBe("0 seconds");
    expect(durationIn(en, 61_000)).toBe("1 minute 1 second");
    expect(durationIn(en, 90_061_000)).toBe("1 day 1 hour");
    expect(durationIn(zh, 1_500_000)).toBe("25 分钟");
  });

  it("count days by the calendar", () => {
    expect(daysBetween(new Date(2026, 10, 29, 23, 59), new Date(2026, 10, 30, 0, 1))).toBe(1);
    expect(daysBetween(new Date(2026, 2, 28, 12), new Date(2026, 2, 29, 12))).toBe(1);
  });
});
