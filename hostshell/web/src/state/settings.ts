// What the person has set for this browser: language, colours, silence, and how far each conversation was read.
// Kept in localStorage; all tabs of this origin follow.

import { useStore } from "zustand";
import { createStore } from "zustand/vanilla";
import type { Language } from "../i18n";

export type Scheme = "light" | "dark" | "auto";

export interface Settings {
  language: Language | null; // null: the browser's
  scheme: Scheme;
  quiet: boolean; // no pop-ups
  browserNotices: boolean;
  silenced: readonly string[]; // app scopes
  talkOpen: boolean; // the conversation beside a MiniApp
}

const SETTINGS_KEY = "lineup.settings";
const READ_KEY = "lineup.read";
const DRAFT_PREFIX = "lineup.draft.";

const DEFAULTS: Settings = {
  language: null,
  scheme: "auto",
  quiet: false,
  browserNotices: false,
  silenced: [],
  talkOpen: false,
};

export const settingsStore = createStore<Settings>(() => ({ ...DEFAULTS, ...load(SETTINGS_KEY) }));
export const readStore = createStore<Record<string, number>>(() => numbers(load(READ_KEY)));

export function useSettings(): Settings {
  return useStore(settingsStore);
}

export function setSettings(change: Partial<Settings>): void {
  settingsStore.setState(change);
  save(SETTINGS_KEY, settingsStore.getState());
}

/** The number of the last entry that the person has seen in a conversation. */
export function useRead(conversationId: string): number {
  return useStore(readStore, (read) => read[conversationId] ?? 0);
}

export function markRead(conversationId: string, n: number): void {
  if ((readStore.getState()[conversationId] ?? 0) >= n) return;
  readStore.setState({ [conversationId]: n });
  save(READ_KEY, readStore.getState());
}

// drafts: what is typed but not sent, per conversation or question

export function loadDraft(key: string): string {
  try {
    return localStorage.getItem(DRAFT_PREFIX + key) ?? "";
  } catch {
    return "";
  }
}

export function saveDraft(key: string, text: string): void {
  try {
    if (text === "") localStorage.removeItem(DRAFT_PREFIX + key);
    else localStorage.setItem(DRAFT_PREFIX + key, text);
  } catch {
    // Without storage the draft lives as long as the page.
  }
}

/** Follow what other tabs set. Returns a function that stops it. */
export function followOtherTabs(): () => void {
  const heard = (event: StorageEvent) => {
    if (event.key === SETTINGS_KEY) settingsStore.setState({ ...DEFAULTS, ...load(SETTINGS_KEY) });
    if (event.key === READ_KEY) readStore.setState(numbers(load(READ_KEY)));
  };
  addEventListener("storage", heard);
  return () => removeEventListener("storage", heard);
}

function load(key: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(key) ?? "{}");
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function numbers(value: Record<string, unknown>): Record<string, number> {
  return Object.fromEntries(Object.entries(value).filter(([, n]) => typeof n === "number")) as Record<
    string,
    number
  >;
}

function save(key: string, value: object): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Without storage the setting lives as long as the page.
  }
}
