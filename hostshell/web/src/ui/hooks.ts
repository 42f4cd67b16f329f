// Small pieces of behaviour that several components share.

import { useEffect, useState, useSyncExternalStore } from "react";
import { useClient } from "../state/react";
import { runtimeNow } from "../state/select";

/** The Runtime's wall clock in ms, renewed every ``everyMs`` while ``active``, and at once when the page wakes up. */
export function useRuntimeNow(everyMs: number, active = true): number {
  const { store } = useClient();
  const [now, setNow] = useState(() => runtimeNow(store.getState()));
  useEffect(() => {
    if (!active) return;
    const tick = () => setNow(runtimeNow(store.getState()));
    tick();
    const timer = setInterval(tick, everyMs);
    document.addEventListener("visibilitychange", tick);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, [store, everyMs, active]);
  return now;
}

export function useVisible(): boolean {
  return useSyncExternalStore(
    (changed) => {
      document.addEventListener("visibilitychange", changed);
      return () => document.removeEventListener("visibilitychange", changed);
    },
    () => document.visibilityState === "visible",
  );
}
