// Undo and redo of what this page did; what others did stays.

import type { JsonObject } from "./bridge";
import { type Change, flipped, type Op, undoOf } from "./patches";

const STEPS_MAX = 500;

export class History {
  private past: (readonly Change[])[] = [];
  private future: (readonly Change[])[] = [];

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  /** One step of the person's, however many elements it changed. */
  add(changes: readonly Change[]): void {
    if (!changes.length) return;
    this.past.push(changes);
    if (this.past.length > STEPS_MAX) this.past.shift();
    this.future = [];
  }

  /** The ops that take the newest step back. A step of which nothing is left is passed over. */
  undo(now: (id: string) => JsonObject | undefined): Map<string, Op> {
    return this.turn(this.past, this.future, now);
  }

  redo(now: (id: string) => JsonObject | undefined): Map<string, Op> {
    return this.turn(this.future, this.past, now);
  }

  private turn(
    from: (readonly Change[])[],
    to: (readonly Change[])[],
    now: (id: string) => JsonObject | undefined,
  ): Map<string, Op> {
    for (let step = from.pop(); step; step = from.pop()) {
      const ops = new Map<string, Op>();
      for (const change of step) {
        const op = undoOf(change, now(change.id));
        if (op) ops.set(change.id, op);
      }
      if (ops.size) {
        to.push(step.map(flipped));
        return ops;
      }
    }
    return new Map();
  }
}
