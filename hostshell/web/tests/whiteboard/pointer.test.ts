import { beforeEach, describe, expect, it } from "vitest";
import { Board } from "../../surfaces/whiteboard/board";
import type { Desk } from "../../surfaces/whiteboard/gestures";
import { Pointers } from "../../surfaces/whiteboard/pointer";
import { Session } from "../../surfaces/whiteboard/session";

let board: Board;
let canvas: HTMLCanvasElement;

beforeEach(() => {
  board = new Board({ update: () => new Promise(() => {}), later: () => {}, refused: () => {} });
  const view = { camera: { x: 0, y: 0, zoom: 1 }, theme: "light", hold: () => {}, refresh: () => {} };
  canvas = document.createElement("canvas");
  canvas.setPointerCapture = () => {};
  const desk = { board, view, session: new Session(board), editText: () => {} } as unknown as Desk;
  new Pointers(desk, canvas);
});

function pointer(type: string, x: number, y: number, pointerId = 1, pointerType = "mouse"): void {
  canvas.dispatchEvent(
    new PointerEvent(`pointer${type}`, { pointerId, pointerType, clientX: x, clientY: y, buttons: 1 }),
  );
}

function stroke(y: number, ...rest: [pointerId?: number, pointerType?: string]): void {
  pointer("down", 0, y, ...rest);
  pointer("move", 50, y, ...rest);
  pointer("move", 100, y, ...rest);
}

describe("a pointer on the board", () => {
  it("draws one element per stroke", () => {
    stroke(10);
    pointer("up", 100, 10);
    stroke(20);
    pointer("up", 100, 20);
    expect(board.elements).toHaveLength(2);
  });

  it("draws the next stroke although the release of the last was never told, and keeps both", () => {
    stroke(10);
    stroke(20);
    pointer("up", 100, 20);
    expect(board.elements).toHaveLength(2);
  });

  it("does not draw with a second pointer while the first one does", () => {
    stroke(10, 1, "pen");
    stroke(20, 2, "mouse");
    pointer("up", 100, 20, 2);
    expect(board.elements).toHaveLength(0);
    pointer("up", 100, 10, 1, "pen");
    expect(board.elements).toHaveLength(1);
  });

  it("forgets a stroke that the browser takes back", () => {
    stroke(10);
    pointer("cancel", 100, 10);
    expect(board.elements).toHaveLength(0);
  });
});
