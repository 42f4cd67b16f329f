// The Task Dashboard's saved state, read with care: it comes from a MiniApp.

import type { Json, JsonObject } from "../runtime/rows";

export interface Step {
  call_id: string;
  at: string;
  status: string;
  progress: number;
  note?: string;
}

export interface Task {
  task_id: string;
  title: string;
  status: string;
  progress: number;
  note?: string;
  history: Step[];
}

export function tasksOf(state: JsonObject | undefined): Task[] {
  return list(state?.tasks).flatMap((value) => {
    if (!isObject(value) || typeof value.task_id !== "string") return [];
    return [
      {
        task_id: value.task_id,
        title: text(value.title),
        status: text(value.status),
        progress: fraction(value.progress),
        ...noteOf(value),
        history: list(value.history).flatMap((step) =>
          isObject(step)
            ? [
                {
                  call_id: text(step.call_id),
                  at: text(step.at),
                  status: text(step.status),
                  progress: fraction(step.progress),
                  ...noteOf(step),
                },
              ]
            : [],
        ),
      },
    ];
  });
}

function noteOf(value: JsonObject): { note?: string } {
  return typeof value.note === "string" && value.note !== "" ? { note: value.note } : {};
}

function list(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

function fraction(value: Json | undefined): number {
  return typeof value === "number" ? Math.min(1, Math.max(0, value)) : 0;
}

function isObject(value: Json): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
