// Pure arithmetic and wording of the countdown: no page, no clock.
"use strict";

const SECOND_MS = 1000;

const WORDS = {
  en: {
    focus: "Focus",
    until: (time) => `until ${time}`,
    idle: "No focus session is under way. Ask the agent to start one.",
    days: (count) => `${count} d`,
    minutesLeft: (count) => (count === 1 ? "1 minute left" : `${count} minutes left`),
    lessThanAMinute: "Less than a minute left",
  },
  zh: {
    focus: "专注",
    until: (time) => `至 ${time}`,
    idle: "当前没有进行中的专注。请让智能体开始一段。",
    days: (count) => `${count} 天`,
    minutesLeft: (count) => `还剩 ${count} 分钟`,
    lessThanAMinute: "还剩不到一分钟",
  },
};

/** The words for a BCP 47 locale; English for every language that there is none of. */
function wordsFor(locale) {
  return String(locale || "").toLowerCase().startsWith("zh") ? WORDS.zh : WORDS.en;
}

/** Whole seconds left, rounded up so that a session of 60 s begins at 1:00 and 0:00 is shown when it is over. */
function secondsLeft(endsMs, nowMs) {
  return Math.max(0, Math.ceil((endsMs - nowMs) / SECOND_MS));
}

/** Milliseconds until `secondsLeft` changes; 0 when it will not change any more. */
function untilNextChange(endsMs, nowMs) {
  const left = endsMs - nowMs;
  return left <= 0 ? 0 : left - (secondsLeft(endsMs, nowMs) - 1) * SECOND_MS;
}

/** 0 to 1: how much of the session is over. */
function fractionOver(startedMs, endsMs, nowMs) {
  const whole = endsMs - startedMs;
  return whole <= 0 ? 1 : Math.min(1, Math.max(0, (nowMs - startedMs) / whole));
}

/** 59 → "0:59", 3600 → "1:00:00", 90061 → {days: 1, clock: "01:01:01"}. */
function clockFace(seconds) {
  const two = (value) => String(value).padStart(2, "0");
  const days = Math.floor(seconds / 86400);
  const hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  const rest = `${two(minutes)}:${two(seconds % 60)}`;
  if (days) return { days, clock: `${two(hours)}:${rest}` };
  if (hours) return { days, clock: `${hours}:${rest}` };
  return { days, clock: `${minutes}:${two(seconds % 60)}` };
}

/** The session to show, as {activity, startedMs, endsMs}, or null. The Runtime's operation comes before the snapshot. */
function sessionOf(operations, snapshot) {
  const all = Array.isArray(operations) ? operations : Object.values(operations || {});
  const saved = snapshot && snapshot.state ? snapshot.state : snapshot;
  const focusing = all.find((operation) => operation.state === "focusing");
  const found = focusing || (all.length === 0 && saved && saved.display_state === "focusing" ? saved : null);
  if (!found) return null;
  const startedMs = Date.parse(found.started_at);
  const endsMs = Date.parse(found.ends_at);
  return Number.isNaN(endsMs) ? null : { activity: found.activity || "", startedMs, endsMs };
}

if (typeof module !== "undefined") {
  module.exports = { clockFace, fractionOver, secondsLeft, sessionOf, untilNextChange, wordsFor };
}
