// The language of the page: the person's choice, else the browser's. Words, times and durations in it.

import { createContext, type ReactNode, useContext, useEffect } from "react";
import type { App } from "../runtime/rows";
import { useSettings } from "../state/settings";
import { en, type Words } from "./en";
import { zh } from "./zh";

export type Language = "en" | "zh";

const WORDS: Record<Language, Words> = { en, zh };
const LanguageContext = createContext<Words>(en);

export function languageOf(chosen: Language | null, browser: readonly string[]): Language {
  if (chosen) return chosen;
  for (const tag of browser) {
    if (tag.toLowerCase().startsWith("zh")) return "zh";
    if (tag.toLowerCase().startsWith("en")) return "en";
  }
  return "en";
}

export function LanguageProvider({ children }: { children: ReactNode }) {
  const { language } = useSettings();
  const words = WORDS[languageOf(language, navigator.languages)];
  useEffect(() => {
    document.documentElement.lang = words.locale;
  }, [words]);
  return <LanguageContext value={words}>{children}</LanguageContext>;
}

export function useWords(): Words {
  return useContext(LanguageContext);
}

/** Times and durations as this person reads them; instants come as RFC 3339 or milliseconds. */
export interface Times {
  time(at: string | number): string;
  date(at: string | number): string;
  full(at: string | number): string;
  day(at: string | number): string;
  duration(ms: number): string;
}

const madeTimes = new WeakMap<Words, Times>();

/** One set per language: making a formatter costs more than showing a row of the timeline. */
export function timesIn(words: Words): Times {
  const known = madeTimes.get(words);
  if (known) return known;
  const made = makeTimes(words);
  madeTimes.set(words, made);
  return made;
}

function makeTimes(words: Words): Times {
  const time = new Intl.DateTimeFormat(words.locale, { hour: "2-digit", minute: "2-digit" });
  const date = new Intl.DateTimeFormat(words.locale, { dateStyle: "medium" });
  const full = new Intl.DateTimeFormat(words.locale, { dateStyle: "medium", timeStyle: "medium" });
  const long = new Intl.DateTimeFormat(words.locale, {
    weekday: "long",
    day: "numeric",
    month: "long",
    year: "numeric",
  });
  return {
    time: (at) => time.format(new Date(at)),
    date: (at) => date.format(new Date(at)),
    full: (at) => full.format(new Date(at)),
    day: (at) => {
      const today = new Date();
      const away = daysBetween(new Date(at), today);
      return away === 0 ? words.today : away === 1 ? words.yesterday : long.format(new Date(at));
    },
    duration: (ms) => durationIn(words, ms),
  };
}

export function useTimes(): Times {
  return timesIn(useWords());
}

/** Two units at most: ``1 hour 5 minutes``. */
export function durationIn(words: Words, ms: number): string {
  const total = Math.max(0, Math.round(ms / 1000));
  const { days, hours, minutes, seconds } = words.duration;
  const units: [number, (n: number) => string][] = [
    [86_400, days],
    [3_600, hours],
    [60, minutes],
    [1, seconds],
  ];
  const parts: string[] = [];
  let rest = total;
  for (const [size, say] of units) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n > 0) parts.push(say(n));
    if (parts.length === 2) break;
  }
  return parts.length > 0 ? parts.join(" ") : seconds(0);
}

/** ``mm:ss``, or ``h:mm:ss`` from an hour on; rounded up, so that it reads 0:00 only when the time is over. */
export function clock(ms: number): string {
  const total = Math.max(0, Math.ceil(ms / 1000));
  const [h, m, s] = [Math.floor(total / 3600), Math.floor((total % 3600) / 60), total % 60];
  const two = (n: number) => String(n).padStart(2, "0");
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function daysBetween(earlier: Date, later: Date): number {
  const midnight = (d: Date) => Date.UTC(d.getFullYear(), d.getMonth(), d.getDate());
  return Math.round((midnight(later) - midnight(earlier)) / 86_400_000);
}

/** What is known of an agent now; while the page is offline that is nothing, whatever it was before. */
export function presence(words: Words, agentId: string, online: boolean, connected: boolean): string {
  if (!online) return words.agent.unknown(agentId);
  return connected ? words.agent.connected(agentId) : words.agent.away(agentId);
}

/** A MiniApp's name: the language's own for those that come with LineUp, else its manifest's. */
export function appName(words: Words, apps: Readonly<Record<string, App>>, scope: string): string {
  return words.apps[scope] ?? (apps[scope]?.title || scope);
}

/** What a session or MiniApp is called; a session that has no name of its own has its MiniApp's. */
export function sessionName(words: Words, app: App | undefined, scope: string, title: string): string {
  const name = words.apps[scope] ?? (app?.title || scope);
  return title && title !== app?.title && title !== scope ? `${name} · ${title}` : name;
}

/** What went wrong, in the person's words where there are some, else in the Runtime's. */
export function errorText(words: Words, code: string | undefined, message: string | undefined): string {
  return (code && words.errors[code]) || message || code || words.unknownError;
}
