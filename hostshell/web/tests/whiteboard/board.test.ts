import { describe, expect, it } from "vitest";
import { Board, type Changed } from "../../surfaces/whiteboard/board";
import type { Answer, JsonObject } from "../../surfaces/whiteboard/bridge";
import { mergePatch } from "../../surfaces/whiteboard/patches";
import { Session } from "../../surfaces/whiteboard/session";

const RECT = { type: "rect", z: 1, x: 0, y: 0, w: 10, h: 10, fill: true };

/** A board whose Runtime answers at once; `flush` sends what waits. */
function bench() {
  let [state, revision] = [{ elements: {} } as JsonObject, 0];
  const timers: (() => void)[] = [];
  const sent: JsonObject[] = [];
  const board: Board = new Board({
    update: async (patch): Promise<Answer> => {
      sent.push(patch);
      state = mergePatch(state, patch) as JsonObject;
      revision += 1;
      board.sync.heard(state.elements, revision);
      return { accepted: true, revision };
    },
    later: (work) => timers.push(work),
    refused: () => {},
  });
  const flush = async () => {
    for (let work = timers.shift(); work; work = timers.shift()) {
      work();
      for (let i = 0; i < 5; i++) await Promise.resolve();
    }
  };
  const remote = (patch: JsonObject) => {
    state = mergePatch(state, { elements: patch }) as JsonObject;
    revision += 1;
    board.sync.heard(state.elements, revision);
  };
  return { board, sent, flush, remote };
}

describe("Board", () => {
  it("keeps the drawing order through everything that comes and goes", () => {
    const { board, remote } = bench();
    remote({ b: { ...RECT, z: 2 }, a: { ...RECT, z: 2 }, c: { ...RECT, z: 1 } });
    expect(board.elements.map(({ id }) => id)).toEqual(["c", "a", "b"]);
    expect(board.nextZ).toBe(3);
    board.create("d", { ...RECT, z: board.nextZ });
    expect(board.elements.at(-1)?.id).toBe("d");
    remote({ c: { z: 9 }, a: null });
    expect(board.elements.map(({ id }) => id)).toEqual(["b", "d", "c"]);
  });

  it("finds the topmost element", () => {
    const { board, remote } = bench();
    remote({ below: RECT, above: { ...RECT, z: 2 } });
    expect(board.at({ x: 5, y: 5 }, 1)?.id).toBe("above");
    expect(board.at({ x: 50, y: 50 }, 1)).toBeUndefined();
    expect(board.within({ x: -20, y: -20, w: 60, h: 60 })).toHaveLength(2);
  });

  it("says only the fields that change, so that another page's stay", async () => {
    const { board, sent, flush } = bench();
    board.create("a", RECT);
    await flush();
    board.change(new Map([["a", { x: 5, y: 0 }]]));
    board.change(new Map([["a", { x: 5 }]]));
    await flush();
    expect(sent.at(-1)).toEqual({ elements: { a: { x: 5 } } });
    board.undo();
    expect(board.sync.get("a")).toEqual(RECT);
    board.undo();
    expect(board.get("a")).toBeUndefined();
    expect(board.history.canUndo).toBe(false);
  });

  it("tells what an element was and is, once, and nothing about what looks the same", () => {
    const { board, remote } = bench();
    const heard: (readonly Changed[])[] = [];
    board.onchange((changed) => heard.push(changed));
    remote({ a: RECT });
    remote({ a: { note: "not drawn" } });
    remote({ a: { x: 7 } });
    remote({ junk: { x: 1 } });
    remote({ a: null });
    expect(heard).toHaveLength(3);
    expect(heard[1]?.[0]?.map((element) => element && "x" in element && element.x)).toEqual([0, 7]);
    expect(heard[2]?.[0]?.[1]).toBeUndefined();
  });

  it("a stroke that others saw growing is one step of undo", async () => {
    const { board, flush } = bench();
    board.preview("s", { kind: "put", element: { type: "pen", d: { 0: "AAg" } } });
    await flush();
    board.preview("s", { kind: "merge", fields: { d: { 1: "oGAg" } }, guarded: false });
    await flush();
    board.finish("s", { type: "pen", d: { 0: "AAgoGAg" } });
    await flush();
    expect(board.sync.get("s")).toEqual({ type: "pen", d: { 0: "AAgoGAg" } });
    board.undo();
    expect(board.get("s")).toBeUndefined();
    expect(board.history.canUndo).toBe(false);
  });
});

describe("Session", () => {
  it("dresses the selection, as far as a style means something there", () => {
    const { board, remote } = bench();
    remote({ a: RECT, t: { type: "text", x: 0, y: 0, text: "hi" } });
    const session = new Session(board);
    session.use("select");
    session.select(["a", "t", "nobody"]);
    session.wear({ color: "red", width: 16, fill: false });
    expect(board.get("a")).toMatchObject({ color: "red", width: 16, fill: false });
    expect(board.get("t")).toMatchObject({ color: "red", width: 4 });
    expect(session.selection.size).toBe(2);
  });

  it("lets go of what others removed, and of everything with another tool", () => {
    const { board, remote } = bench();
    remote({ a: RECT, b: RECT });
    const session = new Session(board);
    session.use("select");
    session.select(["a", "b"]);
    remote({ a: null });
    expect([...session.selection]).toEqual(["b"]);
    session.use("pen");
    expect(session.selection.size).toBe(0);
    expect(session.frame).toBeNull();
  });

  it("makes ids that no other page makes", () => {
    const { board } = bench();
    const pages = [new Session(board), new Session(board)];
    const ids = pages.flatMap((page) => [page.newId(), page.newId()]);
    expect(new Set(ids).size).toBe(4);
  });
});
