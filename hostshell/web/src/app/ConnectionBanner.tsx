// What stands between this page and the Runtime just now, if anything does.

import { Loader } from "@mantine/core";
import { IconPlugConnected } from "@tabler/icons-react";
import { useEffect, useRef, useState } from "react";
import { useWords } from "../i18n";
import { useWorkspace } from "../state/react";
import classes from "./ConnectionBanner.module.css";

const PATIENCE_MS = 400; // a blink of the link is no news
const RESTORED_MS = 2_500;

export function ConnectionBanner() {
  const words = useWords();
  const link = useWorkspace((state) => state.link);
  const ever = useWorkspace((state) => state.everOnline);
  const [shown, setShown] = useState<"none" | "lost" | "restored">("none");
  const online = link === "online";
  const connectedBefore = useRef(false);

  useEffect(() => {
    if (!online) {
      const timer = setTimeout(() => setShown("lost"), PATIENCE_MS);
      return () => clearTimeout(timer);
    }
    const restores = connectedBefore.current; // the first connection restores nothing
    connectedBefore.current = true;
    setShown((before) => (before === "lost" && restores ? "restored" : "none"));
    const timer = setTimeout(() => setShown("none"), RESTORED_MS);
    return () => clearTimeout(timer);
  }, [online]);

  const text = !online
    ? link === "runtime_down"
      ? words.link.runtimeDown
      : ever
        ? words.link.offline
        : words.link.connecting
    : words.link.restored;
  const visible = shown === (online ? "restored" : "lost");
  return (
    <div role="status" aria-live="polite" data-testid="connection">
      {visible && (
        <div className={classes.banner} data-tone={online ? "good" : "warn"}>
          {online ? (
            <IconPlugConnected size={16} aria-hidden="true" />
          ) : (
            <Loader size={14} aria-hidden="true" />
          )}
          {text}
        </div>
      )}
    </div>
  );
}
