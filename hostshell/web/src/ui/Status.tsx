// A state as a small label: colour for the eye, words for everybody.

import type { ReactNode } from "react";
import classes from "./Status.module.css";

export type Tone = "good" | "warn" | "bad" | "calm" | "accent";

export function Status({ tone, children, icon }: { tone: Tone; children: ReactNode; icon?: ReactNode }) {
  return (
    <span className={classes.status} data-tone={tone}>
      {icon}
      {children}
    </span>
  );
}

export function Dot({ tone, pulse = false }: { tone: Tone; pulse?: boolean }) {
  return <span className={classes.dot} data-tone={tone} data-pulse={pulse || undefined} aria-hidden="true" />;
}

const TONES: Record<string, Tone> = {
  foreground: "accent",
  background: "calm",
  suspended: "calm",
  starting: "warn",
  restarting: "warn",
  quarantined: "bad",
  queued: "calm",
  received: "calm",
  routing: "calm",
  waiting_for_app: "warn",
  running: "accent",
  submitted: "accent",
  pending: "warn",
  presented: "warn",
  completed: "good",
  failed: "bad",
  rejected: "bad",
  cancelled: "calm",
  expired: "warn",
  closed: "calm",
  focusing: "accent",
  interrupted: "warn",
};

export function toneOf(state: string): Tone {
  return TONES[state] ?? "calm";
}
