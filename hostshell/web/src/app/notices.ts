// News from MiniApps and waiting questions: when something pops up, and when it only waits in the list.

import { useEffect } from "react";
import { appName, useWords } from "../i18n";
import type { Notice } from "../runtime/rows";
import type { Workspace } from "../state/model";
import { useClient } from "../state/react";
import { isOpen } from "../state/select";
import { settingsStore } from "../state/settings";
import { announce } from "../ui/announce";
import { drop, toast } from "../ui/toasts";

let listed = false; // their list is on the page

/** The list of them has come or gone. Over it nothing pops up that stands in it. */
export function showsNotices(shown: boolean, ids: Iterable<string>): void {
  listed = shown;
  if (shown) for (const id of ids) drop(id);
}

export function useNotices(): void {
  const { store } = useClient();
  const words = useWords();
  useEffect(
    () =>
      store.subscribe((state, before) => {
        if (state.notices !== before.notices && before.everOnline) {
          for (const row of news(state, before)) show(row, appName(words, state.apps, row.app_scope));
          for (const id of Object.keys(before.notices)) if (!state.notices[id]) drop(id);
        }
        if (state.interactions !== before.interactions && before.everOnline) {
          for (const row of Object.values(state.interactions)) {
            if (isOpen(row) && !before.interactions[row.interaction_id]) {
              browserNotice(row.interaction_id, words.notices.question, row.request.title);
            }
          }
        }
      }),
    [store, words],
  );
}

/** New ones, and old ones that were said again. */
export function news(state: Workspace, before: Workspace): Notice[] {
  return Object.values(state.notices).filter((row) => {
    const known = before.notices[row.notification_id];
    return !known || known.count < row.count;
  });
}

function show(row: Notice, app: string): void {
  const { quiet, silenced } = settingsStore.getState();
  if (quiet || silenced.includes(row.app_scope)) return;
  if (document.visibilityState === "visible") {
    if (!listed) {
      toast({
        id: row.notification_id,
        tone: "accent",
        title: `${app}: ${row.title}${row.count > 1 ? ` (${row.count})` : ""}`,
        text: row.body,
      });
    }
    announce(`${app}: ${row.title}`);
  }
  browserNotice(row.notification_id, `${app}: ${row.title}`, row.body);
}

/** Only while the page is in the background, only if the person has allowed it; the same tag replaces itself. */
function browserNotice(tag: string, title: string, body: string): void {
  const { quiet, browserNotices } = settingsStore.getState();
  if (quiet || !browserNotices || document.visibilityState === "visible") return;
  if (typeof Notification === "undefined" || Notification.permission !== "granted") return;
  const shown = new Notification(title, { body, tag });
  shown.onclick = () => {
    window.focus();
    shown.close();
  };
}
