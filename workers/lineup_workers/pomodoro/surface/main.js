// Draws the session that the Runtime keeps. Everything shown follows from `ends_at` and the time of day at each look, so
// that a page that slept, was reloaded or was throttled is right again at its next look. Decides nothing.
"use strict";

const DIM_AFTER_MS = 60_000;
const LONGEST_WAIT_MS = 30_000; // a clock that was set meanwhile is noticed at the latest then
const RING = 1000; // the ring's pathLength

const parts = Object.fromEntries(
  ["activity", "ring", "clock", "until", "hint", "spoken"].map((id) => [id, document.getElementById(id)]),
);
let words = wordsFor("en");
let session = null;
let ticking = 0;
let dimming = 0;

/** The Runtime's wall clock, as well as the Host knows it. */
function now() {
  return Date.now() + lineup.host.clockSkewMs;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function look() {
  clearTimeout(ticking);
  document.body.classList.toggle("idle", session === null);
  if (session === null) return;
  const at = now();
  const seconds = secondsLeft(session.endsMs, at);
  const face = clockFace(seconds);
  setText(parts.clock, face.days ? `${words.days(face.days)} ${face.clock}` : face.clock);
  parts.clock.classList.toggle("hours", !face.days && face.clock.length > 5);
  parts.clock.classList.toggle("days", face.days > 0);
  parts.ring.style.strokeDashoffset = String(RING * fractionOver(session.startedMs, session.endsMs, at));
  const minutes = Math.ceil(seconds / 60);
  setText(parts.spoken, minutes > 1 ? spokenAt(minutes) : seconds > 0 ? words.lessThanAMinute : "");
  const wait = untilNextChange(session.endsMs, at);
  if (wait > 0) ticking = setTimeout(look, Math.min(wait + 5, LONGEST_WAIT_MS));
}

/** A screen reader hears the time every five minutes, and each of the last five. */
function spokenAt(minutes) {
  return minutes <= 5 || minutes % 5 === 0 ? words.minutesLeft(minutes) : parts.spoken.textContent;
}

function describe() {
  const host = lineup.host;
  words = wordsFor(host.locale);
  document.documentElement.lang = words === WORDS.zh ? "zh-CN" : "en";
  document.documentElement.dataset.theme = host.theme;
  setText(parts.activity, session?.activity || words.focus);
  setText(parts.hint, session === null ? words.idle : "");
  setText(parts.until, session === null ? "" : words.until(endTime(session.endsMs, host)));
  look();
}

/** "14:35", with the date when the session does not end today. */
function endTime(endsMs, host) {
  const { timeZone } = host;
  const options = { hour: "2-digit", minute: "2-digit", timeZone };
  const day = (ms) => new Date(ms).toLocaleDateString(host.locale, { timeZone });
  if (day(endsMs) !== day(now())) Object.assign(options, { month: "short", day: "numeric" });
  return new Date(endsMs).toLocaleString(host.locale, options);
}

function project() {
  session = sessionOf(lineup.operations, lineup.snapshot);
  describe();
}

/** Somebody is there: bright again, and dim once nothing has moved for a while. */
function wake() {
  clearTimeout(dimming);
  document.body.classList.remove("dim");
  dimming = setTimeout(() => document.body.classList.add("dim"), DIM_AFTER_MS);
}

for (const name of ["pointermove", "pointerdown", "keydown", "focus"]) {
  window.addEventListener(name, wake, { passive: true });
}
document.addEventListener("visibilitychange", look);
window.addEventListener("pageshow", look);
lineup.onhost(describe);
lineup.onprojection(project);
project();
wake();
lineup.ready();
