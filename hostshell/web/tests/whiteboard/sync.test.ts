import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Answer, JsonObject, Json as JsonValue } from "../../surfaces/whiteboard/bridge";
import { History } from "../../surfaces/whiteboard/history";
import {
  composed,
  difference,
  flipped,
  mergePatch,
  type Op,
  undoOf,
} from "../../surfaces/whiteboard/patches";
import { Sync } from "../../surfaces/whiteboard/sync";

const put = (element: JsonObject): Op => ({ kind: "put", element });
const merge = (fields: JsonObject, guarded = true): Op => ({ kind: "merge", fields, guarded });
const GONE: Op = { kind: "delete" };

/** A Runtime with one surface; what it says reaches each page in order, when the test lets it. */
class Bench {
  state: JsonObject = { elements: {} };
  revision = 0;
  readonly pages: Page[] = [];

  update(patch: JsonObject, base?: number): Answer {
    if (base !== undefined && base !== this.revision) return { accepted: false, code: "patch_conflict" };
    this.state = mergePatch(this.state, patch) as JsonObject;
    this.revision += 1;
    const [state, revision] = [this.state, this.revision];
    for (const page of this.pages) page.mail.push(() => page.sync.heard(state.elements, revision));
    return { accepted: true, revision };
  }

  open(): Page {
    const page = new Page(this);
    this.pages.push(page);
    return page;
  }
}

class Page {
  readonly mail: (() => void)[] = [];
  readonly timers: (() => void)[] = [];
  readonly sent: { patch: JsonObject; base: number | undefined }[] = [];
  readonly refused: Answer[] = [];
  readonly changed: string[] = [];
  answerWith: Answer | null = null;
  readonly sync: Sync;

  constructor(bench: Bench) {
    this.sync = new Sync({
      update: (patch, { base_revision }) => {
        this.sent.push({ patch, base: base_revision });
        const answer = this.answerWith ?? bench.update(patch, base_revision);
        return new Promise((resolve) => this.mail.push(() => resolve(answer)));
      },
      later: (work) => this.timers.push(work),
      changed: (ids) => this.changed.push(...ids),
      refused: (answer) => this.refused.push(answer),
    });
  }

  want(ops: Record<string, Op>): void {
    this.sync.want(new Map(Object.entries(ops)));
  }

  /** Let one thing happen. False: there is nothing left. */
  async step(): Promise<boolean> {
    const next = this.mail.shift() ?? this.timers.shift();
    next?.();
    for (let i = 0; i < 5; i++) await Promise.resolve();
    return next !== undefined;
  }

  async settle(): Promise<void> {
    for (let i = 0; i < 500; i++) if (!(await this.step())) return;
    throw new Error("this page never comes to rest");
  }
}

async function settleAll(bench: Bench): Promise<void> {
  for (let i = 0; i < 500; i++) {
    const moved = await Promise.all(bench.pages.map((page) => page.step()));
    if (!moved.includes(true)) return;
  }
  throw new Error("the pages never come to rest");
}

describe("Sync", () => {
  it("shows at once, sends in one patch, and asks nothing when nobody is in the way", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.want({ a: put({ type: "rect", x: 1 }) });
    page.want({ a: merge({ x: 2 }), b: put({ type: "line" }) });
    expect(page.sync.get("a")).toEqual({ type: "rect", x: 2 });
    expect(page.sent).toEqual([]);
    await page.settle();
    expect(page.sent).toEqual([
      { patch: { elements: { a: { type: "rect", x: 2 }, b: { type: "line" } } }, base: undefined },
    ]);
    expect(bench.state.elements).toEqual({ a: { type: "rect", x: 2 }, b: { type: "line" } });
    expect(page.sync.pending).toBe(false);
  });

  it("has one patch under way and adds up what comes meanwhile", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.want({ a: put({ d: { 0: "x" } }) });
    page.timers.shift()?.();
    page.want({ a: merge({ d: { 1: "y" } }, false) });
    page.want({ a: merge({ d: { 2: "z" } }, false) });
    expect(page.sent).toHaveLength(1);
    await page.settle();
    expect(page.sent[1]?.patch).toEqual({ elements: { a: { d: { 1: "y", 2: "z" } } } });
    expect(bench.state.elements).toEqual({ a: { d: { 0: "x", 1: "y", 2: "z" } } });
  });

  it("keeps showing an accepted change until the state that holds it has come", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.want({ a: put({ x: 1 }) });
    page.timers.shift()?.();
    const [news, ack] = [page.mail.shift(), page.mail.shift()];
    ack?.();
    await Promise.resolve();
    await Promise.resolve();
    expect(page.sync.get("a")).toEqual({ x: 1 });
    news?.();
    expect(page.sync.get("a")).toEqual({ x: 1 });
  });

  it("makes a guarded change anew after a conflict, on top of what others did", async () => {
    const bench = new Bench();
    const [one, other] = [bench.open(), bench.open()];
    one.want({ a: put({ type: "rect", x: 0, y: 0 }) });
    await settleAll(bench);
    one.want({ a: merge({ x: 5 }) });
    other.want({ a: merge({ y: 7 }) });
    for (const page of [one, other]) page.timers.shift()?.(); // both are sent before either hears of the other's
    await settleAll(bench);
    expect(bench.state.elements).toEqual({ a: { type: "rect", x: 5, y: 7 } });
    expect([...one.sent, ...other.sent].filter(({ base }) => base === 1)).toHaveLength(2);
    expect(one.sync.get("a")).toEqual(other.sync.get("a"));
  });

  it("does not bring a removed element back in pieces", async () => {
    const bench = new Bench();
    const [one, other] = [bench.open(), bench.open()];
    one.want({ a: put({ type: "rect", x: 0 }) });
    await settleAll(bench);
    other.want({ a: GONE });
    one.want({ a: merge({ x: 5 }) });
    while (await other.step());
    await settleAll(bench);
    expect(bench.state.elements).toEqual({});
    expect(one.sync.get("a")).toBeUndefined();
  });

  it("gets through on a board that never rests", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.want({ a: put({ x: 0 }) });
    await page.settle();
    const update = bench.update.bind(bench);
    bench.update = (patch, base) => {
      update({ elements: { noise: { n: bench.revision } } });
      return update(patch, base);
    };
    page.want({ a: merge({ x: 1 }) });
    await page.settle();
    expect(bench.state.elements).toMatchObject({ a: { x: 1 } });
    expect(page.sent.length).toBeLessThan(10);
  });

  it("keeps work through a time without a Runtime and tries again", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.answerWith = { accepted: false, code: "rate_limited" };
    page.want({ a: put({ x: 1 }) });
    for (let i = 0; i < 6; i++) await page.step();
    expect(page.sync.pending).toBe(true);
    expect(page.sync.get("a")).toEqual({ x: 1 });
    page.answerWith = null;
    await page.settle();
    expect(bench.state.elements).toEqual({ a: { x: 1 } });
    expect(page.refused).toEqual([]);
  });

  it("takes a hopeless change back and says so", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.answerWith = { accepted: false, code: "state_too_large" };
    page.want({ a: put({ x: 1 }) });
    await page.settle();
    expect(page.sync.get("a")).toBeUndefined();
    expect(page.refused).toHaveLength(1);
    expect(page.changed.filter((id) => id === "a").length).toBeGreaterThan(1);
  });

  it("sends much work in several patches", async () => {
    const bench = new Bench();
    const page = bench.open();
    const text = "x".repeat(60_000);
    page.want(Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`e${i}`, put({ text })])));
    const settled = page.sync.settled();
    await page.settle();
    await settled;
    expect(page.sent.length).toBeGreaterThan(2);
    expect(Object.keys(bench.state.elements as JsonObject)).toHaveLength(10);
  });

  it("moves or removes any number of elements, a few hundred in each patch", async () => {
    const bench = new Bench();
    const page = bench.open();
    const all = <T>(op: T) => Object.fromEntries(Array.from({ length: 1_800 }, (_, i) => [`e${i}`, op]));
    page.want(all(put({ type: "rect", x: 1 })));
    await page.settle();
    page.want(all(merge({ x: 2 })));
    await page.settle();
    expect(bench.state.elements).toEqual(all({ type: "rect", x: 2 }));
    page.want(all(GONE));
    await page.settle();
    expect(bench.state.elements).toEqual({});
    for (const { patch } of page.sent)
      expect(Object.keys(patch.elements as JsonObject).length).toBeLessThanOrEqual(150);
  });

  it("says everything at once when its page goes away, and what comes of it is whole", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.want({ s: put({ type: "pen", d: { "0": "a" } }) });
    await page.settle();
    page.want({ s: merge({ d: { "1": "b" } }, false) });
    page.timers.shift()?.(); // under way
    page.want({ s: put({ type: "pen", d: { "0": "whole" } }), t: put({ type: "text", text: "x" }) });
    page.sync.leave();
    expect(bench.state.elements).toEqual({
      s: { type: "pen", d: { "0": "whole" } },
      t: { type: "text", text: "x" },
    });
    expect(page.sync.get("s")).toEqual({ type: "pen", d: { "0": "whole" } });
    await page.settle(); // a page that comes back after all says nothing wrong
    expect(bench.state.elements).toEqual({
      s: { type: "pen", d: { "0": "whole" } },
      t: { type: "text", text: "x" },
    });
  });

  it("loses no guarded change to a conflict when its page goes away", async () => {
    const bench = new Bench();
    const [page, other] = [bench.open(), bench.open()];
    page.want({ a: put({ type: "rect", x: 0, y: 0 }) });
    await page.settle();
    await other.settle();
    other.want({ b: put({ type: "rect", x: 9 }) });
    await other.settle(); // the page has not heard of it
    page.want({ a: merge({ x: 5 }) });
    page.timers.shift()?.();
    page.want({ a: merge({ y: 7 }) });
    page.sync.leave();
    expect(bench.state.elements).toMatchObject({ a: { x: 5, y: 7 } });
  });

  it("sends nothing when its page goes away with everything said", async () => {
    const bench = new Bench();
    const page = bench.open();
    page.want({ a: put({ type: "rect" }) });
    await page.settle();
    const before = page.sent.length;
    page.sync.leave();
    expect(page.sent).toHaveLength(before);
  });

  it("brings any number of pages to the same board, whatever they do", async () => {
    const op = fc.oneof(
      fc.record({ x: fc.nat(9) }).map((fields) => merge(fields)),
      fc.record({ y: fc.nat(9) }).map((fields) => merge(fields)),
      fc.record({ type: fc.constant("rect"), x: fc.nat(9) }).map((element) => put(element)),
      fc.constant(GONE),
    );
    const act = fc.record({ page: fc.nat(2), id: fc.constantFrom("a", "b"), op, steps: fc.nat(4) });
    await fc.assert(
      fc.asyncProperty(fc.array(act, { maxLength: 30 }), async (acts) => {
        const bench = new Bench();
        const pages = [bench.open(), bench.open(), bench.open()];
        for (const { page, id, op: wanted, steps } of acts) {
          pages[page]?.want({ [id]: wanted });
          for (let i = 0; i < steps; i++) await pages[(page + i) % 3]?.step();
        }
        await settleAll(bench);
        for (const page of pages) {
          for (const id of ["a", "b"]) {
            expect(page.sync.get(id)).toEqual((bench.state.elements as JsonObject)[id]);
          }
          expect(page.refused).toEqual([]);
        }
      }),
    );
  });
});

describe("patches", () => {
  const element = fc.dictionary(fc.constantFrom("x", "y", "d", "text"), fc.jsonValue({ maxDepth: 2 }), {
    maxKeys: 4,
  });
  const clean = element.map((value) => mergePatch({}, value as JsonObject) as JsonObject);

  it("a difference makes one into the other", () => {
    fc.assert(
      fc.property(clean, clean, (before, after) => {
        expect(mergePatch(before, difference(before, after) ?? {})).toEqual(after);
      }),
    );
  });

  it.each(["__proto__", "toString", "constructor", "valueOf"])("%s is a name like any other", (name) => {
    const named = (value: JsonValue) => ({ d: Object.fromEntries([[name, value]]) });
    for (const [before, after] of [
      [named({ x: 1 }), { d: {} }],
      [{ d: {} }, named({ x: 1 })],
      [named({ x: 1 }), named({ x: 2, y: 1 })],
    ] as [JsonObject, JsonObject][]) {
      const made = mergePatch(before, difference(before, after) ?? {});
      expect(JSON.stringify(made)).toEqual(JSON.stringify(after));
    }
  });

  it("two ops as one do what they did one after the other", () => {
    const ops = fc.array(
      fc.oneof(
        clean.map(put),
        element.map((fields) => merge(fields as JsonObject)),
        fc.constant(GONE),
      ),
      {
        minLength: 1,
        maxLength: 5,
      },
    );
    fc.assert(
      fc.property(clean, ops, (before, all) => {
        const bench = new Bench();
        bench.state = { elements: { a: before } };
        const page = bench.open();
        page.sync.heard(bench.state.elements, 0);
        for (const op of all) page.want({ a: op });
        const sum = all.reduce<Op | undefined>((first, then) => composed(first, then), undefined);
        const other = new Bench().open();
        other.sync.heard({ a: before }, 0);
        if (sum) other.want({ a: sum });
        expect(other.sync.get("a")).toEqual(page.sync.get("a"));
      }),
    );
  });
});

describe("undo", () => {
  const RECT = { type: "rect", x: 0, color: "ink" };

  it("takes back only what this page did to an element", () => {
    const change = { id: "a", before: RECT, after: { ...RECT, x: 9 } };
    expect(undoOf(change, { ...RECT, x: 9, color: "red" })).toEqual(merge({ x: 0 }));
    expect(undoOf(change, undefined)).toBeUndefined();
    expect(undoOf(flipped(change), RECT)).toEqual(merge({ x: 9 }));
  });

  it("removes what was made and makes again what was removed", () => {
    expect(undoOf({ id: "a", before: undefined, after: RECT }, RECT)).toEqual(GONE);
    expect(undoOf({ id: "a", before: RECT, after: undefined }, undefined)).toEqual(put(RECT));
    expect(undoOf({ id: "a", before: RECT, after: undefined }, RECT)).toBeUndefined();
  });

  it("goes back and forth, passes over steps of which nothing is left, and forgets redo after something new", () => {
    const history = new History();
    const board = new Map<string, JsonObject>();
    const now = (id: string) => board.get(id);
    const apply = (ops: Map<string, Op>) => {
      for (const [id, op] of ops) {
        if (op.kind === "delete") board.delete(id);
        else
          board.set(
            id,
            op.kind === "put" ? op.element : (mergePatch(board.get(id), op.fields) as JsonObject),
          );
      }
    };
    for (const id of ["a", "b", "c"]) {
      board.set(id, RECT);
      history.add([{ id, before: undefined, after: RECT }]);
    }
    board.delete("c"); // someone else did
    apply(history.undo(now));
    expect([...board.keys()]).toEqual(["a"]);
    apply(history.redo(now));
    expect([...board.keys()]).toEqual(["a", "b"]);
    apply(history.undo(now));
    history.add([{ id: "a", before: RECT, after: { ...RECT, x: 1 } }]);
    expect(history.canRedo).toBe(false);
    expect(history.canUndo).toBe(true);
  });
});
