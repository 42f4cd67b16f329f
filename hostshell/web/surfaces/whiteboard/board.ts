// The elements as drawn, in drawing order, kept in step with `Sync`; and what this page does to them, with undo.

import type { JsonObject } from "./bridge";
import { byHeight, type Element, readElement } from "./elements";
import { type Box, boxOf, contains, overlaps, touches, union, type XY } from "./geometry";
import { History } from "./history";
import { type Change, difference, mergePatch, type Op } from "./patches";
import { Sync, type SyncPorts } from "./sync";

/** One element that looks different now: what it was and what it is. */
export type Changed = readonly [before: Element | undefined, after: Element | undefined];

export class Board {
  readonly sync: Sync;
  readonly history = new History();
  private byId = new Map<string, Element>();
  private sorted: Element[] | null = null;
  private listeners: ((changed: readonly Changed[]) => void)[] = [];

  constructor(ports: Omit<SyncPorts, "changed">) {
    this.sync = new Sync({ ...ports, changed: (ids) => this.refresh(ids) });
  }

  onchange(listener: (changed: readonly Changed[]) => void): void {
    this.listeners.push(listener);
  }

  get(id: string): Element | undefined {
    return this.byId.get(id);
  }

  /** From the bottom up. */
  get elements(): readonly Element[] {
    this.sorted ??= [...this.byId.values()].sort(byHeight);
    return this.sorted;
  }

  get nextZ(): number {
    return Math.floor(this.elements.at(-1)?.z ?? 0) + 1;
  }

  get box(): Box | null {
    return union(this.elements.map(boxOf));
  }

  /** The topmost element at a point. */
  at(point: XY, slack: number): Element | undefined {
    return this.elements.findLast((element) => touches(element, point, slack));
  }

  within(box: Box): Element[] {
    return this.elements.filter((element) => contains(box, boxOf(element)));
  }

  seen(view: Box): Element[] {
    return this.elements.filter((element) => overlaps(view, boxOf(element)));
  }

  // -- what the person does: shown at once, sent soon, one step of undo each --

  create(id: string, raw: JsonObject): void {
    this.step([{ id, before: undefined, after: raw }], new Map([[id, { kind: "put", element: raw }]]));
  }

  remove(ids: Iterable<string>): void {
    const there = [...ids].filter((id) => this.sync.get(id));
    this.step(
      there.map((id) => ({ id, before: this.sync.get(id), after: undefined })),
      new Map(there.map((id) => [id, { kind: "delete" }])),
    );
  }

  /** Change fields of elements. Those that stay as they are are not said, so that two pages can each change their own. */
  change(fields: ReadonlyMap<string, JsonObject>): void {
    const changes: Change[] = [];
    const ops = new Map<string, Op>();
    for (const [id, patch] of fields) {
      const before = this.sync.get(id);
      if (!before) continue;
      const after = mergePatch(before, patch) as JsonObject;
      const changed = difference(before, after);
      if (!changed) continue;
      changes.push({ id, before, after });
      ops.set(id, { kind: "merge", fields: changed, guarded: true });
    }
    this.step(changes, ops);
  }

  /** Let others see something that is not done yet; no step of undo. */
  preview(id: string, op: Op): void {
    this.sync.want(new Map([[id, op]]));
  }

  /** What was previewed is done: `raw` is how it ends. */
  finish(id: string, raw: JsonObject): void {
    this.step([{ id, before: undefined, after: raw }], new Map([[id, { kind: "put", element: raw }]]));
    // What is drawn may be what the preview was, but now there is a step that can be undone.
    for (const listener of this.listeners) listener([]);
  }

  undo(): void {
    this.sync.want(this.history.undo((id) => this.sync.get(id)));
  }

  redo(): void {
    this.sync.want(this.history.redo((id) => this.sync.get(id)));
  }

  private step(changes: readonly Change[], ops: ReadonlyMap<string, Op>): void {
    this.history.add(changes);
    this.sync.want(ops);
  }

  /** Look at these elements again. */
  private refresh(ids: ReadonlySet<string>): void {
    const changed: Changed[] = [];
    for (const id of ids) {
      const before = this.byId.get(id);
      const after = readElement(id, this.sync.get(id)) ?? undefined;
      if (!before && !after) continue;
      if (before && after && JSON.stringify(before) === JSON.stringify(after)) continue;
      changed.push([before, after]);
      this.place(id, before, after);
    }
    if (changed.length) for (const listener of this.listeners) listener(changed);
  }

  private place(id: string, before: Element | undefined, after: Element | undefined): void {
    if (!after) {
      this.byId.delete(id);
      this.sorted = null;
      return;
    }
    this.byId.set(id, after);
    if (!this.sorted) return;
    const top = this.sorted.at(-1);
    if (before && before.z === after.z) this.sorted[this.sorted.indexOf(before)] = after;
    else if (!before && (!top || byHeight(top, after) < 0)) this.sorted.push(after);
    else this.sorted = null;
  }
}
