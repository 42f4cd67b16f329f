// Short messages in the corner: what did not work, and what a MiniApp has to say. They go away by themselves.

import { CloseButton, Paper, Text } from "@mantine/core";
import { useEffect } from "react";
import { useStore } from "zustand";
import { createStore } from "zustand/vanilla";
import { useWords } from "../i18n";
import type { Tone } from "./Status";
import classes from "./toasts.module.css";

export interface Toast {
  id: string;
  tone: Tone;
  title: string;
  text?: string;
}

const SHOWN_MS = 7_000;
const TOASTS_MAX = 4;

const store = createStore<{ toasts: readonly Toast[] }>(() => ({ toasts: [] }));

/** Show it; one with the same id takes the place of the one that is there. */
export function toast(shown: Toast): void {
  store.setState(({ toasts }) => ({
    toasts: [...toasts.filter((known) => known.id !== shown.id), shown].slice(-TOASTS_MAX),
  }));
}

/** Take one away before its time. */
export function drop(id: string): void {
  store.setState(({ toasts }) => ({ toasts: toasts.filter((known) => known.id !== id) }));
}

export function Toasts() {
  const { toasts } = useStore(store);
  return (
    <div className={classes.toasts} role="status" aria-live="polite">
      {toasts.map((shown) => (
        <OneToast key={shown.id} shown={shown} />
      ))}
    </div>
  );
}

function OneToast({ shown }: { shown: Toast }) {
  const words = useWords();
  useEffect(() => {
    const timer = setTimeout(() => drop(shown.id), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [shown]);
  return (
    <Paper className={classes.toast} data-testid="toast" data-tone={shown.tone} withBorder shadow="md" p="sm">
      <div className={classes.body}>
        <Text size="sm" fw={600}>
          {shown.title}
        </Text>
        {shown.text && (
          <Text size="sm" c="dimmed" lineClamp={4}>
            {shown.text}
          </Text>
        )}
      </div>
      <CloseButton size="sm" aria-label={words.close} onClick={() => drop(shown.id)} />
    </Paper>
  );
}
