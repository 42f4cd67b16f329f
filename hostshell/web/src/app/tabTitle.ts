// The tab's title: the time left of a focus, what waits for the person, the conversation.

import { useEffect } from "react";
import { clock, useWords } from "../i18n";
import { useWorkspace } from "../state/react";
import { isOpen } from "../state/select";
import { useRuntimeNow } from "../ui/hooks";
import { useRoute } from "./route";

export function useTabTitle(): void {
  const words = useWords();
  const route = useRoute();
  const focusing = useWorkspace((state) =>
    Object.values(state.operations).find((row) => row.state === "focusing"),
  );
  const waiting = useWorkspace((state) => Object.values(state.interactions).filter(isOpen).length);
  const conversation = useWorkspace((state) =>
    route.page === "conversation" ? (state.conversations[route.id]?.title ?? "") : "",
  );
  const now = useRuntimeNow(1_000, focusing !== undefined);
  useEffect(() => {
    const place = {
      home: "",
      conversation,
      grants: words.grants.title,
      inspector: words.inspector.title,
    }[route.page];
    const left = focusing ? clock(Date.parse(focusing.ends_at) - now) : "";
    const parts = [left, focusing?.activity ?? "", place, words.appName].filter(Boolean);
    document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${parts.join(" · ")}`;
  }, [words, route.page, conversation, focusing, waiting, now]);
}
