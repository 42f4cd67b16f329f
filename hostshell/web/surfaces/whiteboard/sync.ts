// The board's elements between this page and the Runtime: what the Runtime has, with what this page wants on top, so that
// nobody waits for a round trip, and no page undoes another's work.
//
// Laws:
//   1. What is shown of an element is the Runtime's value with this page's unsettled ops applied, oldest first.
//   2. One patch is under way at a time; what is wanted meanwhile is added up and goes next, not sooner than PACE_MS later.
//   3. A patch says only what its ops touch. An op that changes an element others may have removed is guarded by the
//      revision it was made on: on a conflict it is made anew on what is there now, or dropped with its element.
//   4. What has no answer when the page goes away is said once more, all at once: the Host still hears it.
//   5. An accepted op stays on top until the state that holds it has come, so that nothing flickers.

import type { Answer, Json, JsonObject } from "./bridge";
import { isObject } from "./elements";
import { applied, composed, type Op, type Ops, wireOf } from "./patches";

const PACE_MS = 80; // about twelve patches a second: smooth to look at from another tab, far below the Runtime's cap
const RETRY_MS = [100, 250, 500, 1000, 2000, 4000] as const;
const CONFLICTS_MAX = 5; // then without the guard: a person's work must get through on the busiest board
const BATCH_CHARS_MAX = 200_000; // a patch may have 512 KiB; characters outside ASCII take up to three bytes
const BATCH_ELEMENTS_MAX = 150; // a patch may have 16,384 values and change 160 parts of a state

/** Refusals that no retry changes. */
const HOPELESS = new Set([
  "state_too_large",
  "state_invalid",
  "message_invalid",
  "message_too_large",
  "surface_not_found",
  "app_closed",
  "unauthorized",
]);

export interface SyncPorts {
  update(patch: JsonObject, options: { base_revision?: number }): Promise<Answer>;
  later(work: () => void, ms: number): void;
  /** These elements are to be looked at again. */
  changed(ids: ReadonlySet<string>): void;
  refused(answer: Answer): void;
}

interface Layer {
  ops: Map<string, Op>;
  /** Set once accepted: the revision that holds it. */
  revision?: number;
}

export class Sync {
  private base: JsonObject = {};
  private revision = 0;
  private accepted: Layer[] = [];
  private flying: Layer | null = null;
  private waiting = new Map<string, Op>();
  private scheduled = false;
  private failures = 0;
  private conflicts = 0;
  private idleWaiters: (() => void)[] = [];
  /** How many patches have been accepted. */
  saves = 0;

  constructor(private readonly ports: SyncPorts) {}

  /** The raw element as it is to be shown, or undefined. */
  get(id: string): JsonObject | undefined {
    let value = this.known(id);
    for (const op of [this.flying?.ops.get(id), this.waiting.get(id)]) if (op) value = applied(value, op);
    return value;
  }

  /** The Runtime has said what the elements are at `revision`; those that no patch touched are the same objects. */
  heard(elements: Json | undefined, revision: number): void {
    const before = this.base;
    this.base = isObject(elements) ? elements : {};
    this.revision = revision;
    const settled = this.accepted.filter((layer) => (layer.revision ?? 0) <= revision);
    this.accepted = this.accepted.filter((layer) => (layer.revision ?? 0) > revision);
    const ids = differing(before, this.base);
    for (const layer of settled) for (const id of layer.ops.keys()) ids.add(id);
    if (ids.size) this.ports.changed(ids);
  }

  /** This page wants something: it is shown at once and sent soon. */
  want(ops: Ops): void {
    if (!ops.size) return;
    for (const [id, op] of ops) this.waiting.set(id, composed(this.waiting.get(id), op));
    this.ports.changed(new Set(ops.keys()));
    this.schedule(PACE_MS);
  }

  /** The page goes away: nothing waits for its turn any more. What is under way is said again, as its answer (a conflict,
   * say) would find nobody; said twice it says the same. */
  leave(): void {
    const { flying } = this;
    if (flying) {
      this.say(flying.ops);
      this.accepted.push(flying);
    }
    this.say(this.waiting);
    if (flying) this.accepted.pop();
  }

  private say(ops: Ops): void {
    const left = new Map(ops);
    for (let batch = this.takeBatch(left); batch; batch = this.takeBatch(left))
      void this.ports.update({ elements: batch.patch }, {});
  }

  /** Resolves when everything wanted so far has been taken or refused. */
  settled(): Promise<void> {
    if (!this.flying && !this.waiting.size) return Promise.resolve();
    return new Promise((resolve) => this.idleWaiters.push(resolve));
  }

  get pending(): boolean {
    return this.flying !== null || this.waiting.size > 0;
  }

  private known(id: string): JsonObject | undefined {
    const raw = this.base[id];
    let value = isObject(raw) ? raw : undefined;
    for (const layer of this.accepted) {
      const op = layer.ops.get(id);
      if (op) value = applied(value, op);
    }
    return value;
  }

  private schedule(ms: number): void {
    if (this.scheduled || this.flying) return;
    this.scheduled = true;
    this.ports.later(() => {
      this.scheduled = false;
      void this.send();
    }, ms);
  }

  private async send(): Promise<void> {
    if (this.flying) return;
    const batch = this.takeBatch(this.waiting);
    if (!batch) {
      this.rest();
      return;
    }
    const { layer, patch, guarded } = batch;
    this.flying = layer;
    const guard = guarded && this.conflicts < CONFLICTS_MAX ? { base_revision: this.revision } : {};
    const answer = await this.ports
      .update({ elements: patch }, guard)
      .catch((): Answer => ({ accepted: false, code: "bridge_failed" }));
    this.flying = null;
    this.answered(layer, answer);
  }

  /** As much of what waits as fits one patch. Ops that have become pointless are dropped here. */
  private takeBatch(waiting: Map<string, Op>): { layer: Layer; patch: JsonObject; guarded: boolean } | null {
    const [ops, patch] = [new Map<string, Op>(), {} as JsonObject];
    let [chars, guarded] = [0, false];
    for (const [id, op] of waiting) {
      const wire = wireOf(this.known(id), op);
      const size = wire === undefined ? 0 : id.length + JSON.stringify(wire).length;
      if (ops.size && (chars + size > BATCH_CHARS_MAX || ops.size >= BATCH_ELEMENTS_MAX)) break;
      waiting.delete(id);
      if (wire === undefined) {
        this.ports.changed(new Set([id]));
        continue;
      }
      ops.set(id, op);
      patch[id] = wire;
      chars += size;
      guarded ||= op.kind === "merge" && op.guarded;
    }
    return ops.size ? { layer: { ops }, patch, guarded } : null;
  }

  private answered(layer: Layer, answer: Answer): void {
    if (answer.accepted) {
      this.failures = this.conflicts = 0;
      this.saves += 1;
      const revision = answer.revision ?? 0;
      if (revision > this.revision) this.accepted.push({ ops: layer.ops, revision });
      this.ports.changed(new Set(layer.ops.keys()));
    } else if (HOPELESS.has(answer.code ?? "")) {
      this.ports.changed(new Set(layer.ops.keys()));
      this.ports.refused(answer);
    } else {
      this.again(layer, answer);
      return;
    }
    if (this.waiting.size) this.schedule(PACE_MS);
    else this.rest();
  }

  /** Put the batch back in front of what has been wanted since, and try again. */
  private again(layer: Layer, answer: Answer): void {
    const newer = this.waiting;
    this.waiting = layer.ops;
    for (const [id, op] of newer) this.waiting.set(id, composed(this.waiting.get(id), op));
    if (answer.code === "patch_conflict") {
      this.conflicts += 1;
      this.schedule(PACE_MS / 4); // the state that was in the way is about to come, if it has not come already
      return;
    }
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)] ?? PACE_MS;
    this.failures += 1;
    this.schedule(wait);
  }

  private rest(): void {
    const waiters = this.idleWaiters;
    this.idleWaiters = [];
    for (const done of waiters) done();
  }
}

function differing(before: JsonObject, after: JsonObject): Set<string> {
  const ids = new Set<string>();
  for (const id of Object.keys(before)) if (!Object.hasOwn(after, id)) ids.add(id);
  for (const [id, value] of Object.entries(after)) if (before[id] !== value) ids.add(id);
  return ids;
}
