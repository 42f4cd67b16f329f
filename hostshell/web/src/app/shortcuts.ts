// Keys that work everywhere. All of them hold Alt, so that none gets in the way of typing or of a screen reader.

import { useEffect } from "react";
import { useClient } from "../state/react";
import { conversationsByUse } from "../state/select";
import { setSettings, settingsStore } from "../state/settings";
import { goTo, parseRoute } from "./route";

export type Shortcut =
  | "help"
  | "composer"
  | "newConversation"
  | "previous"
  | "next"
  | "interact"
  | "apps"
  | "notices"
  | "talk";

export const KEYS: readonly { shortcut: Shortcut; code: string; shown: string }[] = [
  { shortcut: "composer", code: "KeyC", shown: "C" },
  { shortcut: "newConversation", code: "KeyN", shown: "N" },
  { shortcut: "previous", code: "ArrowUp", shown: "↑" },
  { shortcut: "next", code: "ArrowDown", shown: "↓" },
  { shortcut: "interact", code: "KeyI", shown: "I" },
  { shortcut: "apps", code: "KeyA", shown: "A" },
  { shortcut: "talk", code: "KeyT", shown: "T" },
  { shortcut: "notices", code: "KeyB", shown: "B" },
  { shortcut: "help", code: "Slash", shown: "/" },
];

const heard = new EventTarget();

/** Do something when a shortcut is pressed. Returns a function that stops it. */
export function onShortcut(shortcut: Shortcut, act: () => void): () => void {
  heard.addEventListener(shortcut, act);
  return () => heard.removeEventListener(shortcut, act);
}

export function useShortcuts({ help }: { help(): void }): void {
  const client = useClient();
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const key = KEYS.find((known) => known.code === event.code);
      if (!key) return;
      event.preventDefault();
      act(key.shortcut);
    };
    const act = (shortcut: Shortcut) => {
      switch (shortcut) {
        case "help":
          help();
          return;
        case "composer":
          document.getElementById("composer")?.focus();
          return;
        case "talk":
          setSettings({ talkOpen: !settingsStore.getState().talkOpen });
          return;
        case "previous":
        case "next":
          step(shortcut === "next" ? 1 : -1);
          return;
        case "interact":
          // The button asks first where leaving would end something.
          document.querySelector<HTMLElement>("[data-testid='return-to-interact']")?.click();
          return;
        case "newConversation":
          document.querySelector<HTMLElement>("[data-testid='new-conversation']")?.click();
          return;
        case "apps":
        case "notices":
          heard.dispatchEvent(new Event(shortcut));
      }
    };
    const step = (by: number) => {
      const all = conversationsByUse(client.store.getState());
      const route = parseRoute(location.hash);
      const at =
        route.page === "conversation" ? all.findIndex((row) => row.conversation_id === route.id) : -1;
      const to = all[Math.min(all.length - 1, Math.max(0, at + by))];
      if (to) goTo({ page: "conversation", id: to.conversation_id });
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [client, help]);
}
