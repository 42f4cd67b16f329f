// The keyboard: tools and commands by letter, and a way to make, find, move and resize elements without a pointer.

import type { JsonObject } from "./bridge";
import { panned, toBoard } from "./camera";
import { type Box, moveBy } from "./geometry";
import { type Desk, transform } from "./gestures";
import type { Pointers } from "./pointer";
import type { Tool } from "./session";
import type { Words } from "./words";

export interface Commands {
  undo(): void;
  redo(): void;
  remove(): void;
  zoom(by: number): void;
  fit(): void;
  announce(text: string): void;
  words(): Words;
}

const TOOL_KEYS: Record<string, Tool> = {
  v: "select",
  h: "hand",
  p: "pen",
  e: "eraser",
  r: "rect",
  o: "ellipse",
  l: "line",
  a: "arrow",
  t: "text",
};

const ARROWS: Record<string, readonly [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

const NEW_SHAPE = { w: 160, h: 100 };

export function listen(desk: Desk, pointers: Pointers, canvas: HTMLCanvasElement, commands: Commands): void {
  window.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (target.closest("textarea, input")) return;
    const handled =
      onCommand(desk, pointers, commands, event) || (target === canvas && onCanvas(desk, commands, event));
    if (handled) event.preventDefault();
  });
  window.addEventListener("keyup", (event) => {
    if (event.key === " ") pointers.panning = false;
  });
  window.addEventListener("blur", () => {
    pointers.panning = false;
  });
}

function onCommand({ session }: Desk, pointers: Pointers, commands: Commands, event: KeyboardEvent): boolean {
  const key = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    if (key === "z") event.shiftKey ? commands.redo() : commands.undo();
    else if (key === "y") commands.redo();
    else return false;
    return true;
  }
  if (event.altKey) return false;
  if (key === "escape") {
    pointers.cancel();
    session.select([]);
  } else if (key === "+" || key === "=") commands.zoom(1.25);
  else if (key === "-") commands.zoom(0.8);
  else if (key === "0") commands.fit();
  else if (TOOL_KEYS[key]) session.use(TOOL_KEYS[key]);
  else return false;
  return true;
}

/** Keys that only mean something while the drawing area has the focus. */
function onCanvas(desk: Desk, commands: Commands, event: KeyboardEvent): boolean {
  const { board, session } = desk;
  const arrow = ARROWS[event.key];
  if (arrow) arrowKey(desk, arrow, event);
  else if (event.key === "Delete" || event.key === "Backspace") commands.remove();
  else if (event.key === "Enter") enterKey(desk, commands);
  else if (event.key === "[" || event.key === "]") step(desk, commands, event.key === "]" ? 1 : -1);
  else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) {
    session.use("select");
    session.select(board.elements.map((element) => element.id));
    commands.announce(commands.words().selectedCount(session.selection.size));
  } else return false;
  return true;
}

/** Move the selection, or resize it with Alt; with nothing selected the camera moves. */
function arrowKey(desk: Desk, [dx, dy]: readonly [number, number], event: KeyboardEvent): void {
  const { view, session } = desk;
  const frame = session.frame;
  const by = event.shiftKey ? 40 : 8;
  if (!frame) view.look(panned(view.camera, -dx * by * 2, -dy * by * 2));
  else if (event.altKey)
    transform(desk, session.selection, { from: frame, to: resized(frame, dx * by, dy * by) });
  else transform(desk, session.selection, moveBy(frame, dx * by, dy * by));
}

function resized(frame: Box, dw: number, dh: number): Box {
  return { ...frame, w: Math.max(4, frame.w + dw), h: Math.max(4, frame.h + dh) };
}

/** Edit the selected text, or put the chosen shape into the middle of what is in sight. */
function enterKey(desk: Desk, commands: Commands): void {
  const { board, view, session } = desk;
  const [only] = session.selection.size === 1 ? session.selection : [];
  const text = only === undefined ? undefined : board.get(only);
  if (text?.type === "text") {
    desk.editText({ x: text.x, y: text.y }, text.id);
    return;
  }
  const middle = toBoard(view.camera, { x: view.pageSize.w / 2, y: view.pageSize.h / 2 });
  const { tool, style } = session;
  if (tool === "text") {
    desk.editText(middle);
    return;
  }
  const raw = newShape(tool, middle, { color: style.color, width: style.width, z: board.nextZ });
  if (!raw) return;
  const id = session.newId();
  board.create(id, style.fill && "w" in raw ? { ...raw, fill: true } : raw);
  session.use("select");
  session.select([id]);
  commands.announce(commands.words().added(commands.words()[tool]));
}

function newShape(tool: Tool, at: { x: number; y: number }, common: JsonObject): JsonObject | null {
  const { w, h } = NEW_SHAPE;
  const [x, y] = [Math.round(at.x - w / 2), Math.round(at.y - h / 2)];
  if (tool === "rect" || tool === "ellipse") return { type: tool, ...common, x, y, w, h };
  if (tool === "line" || tool === "arrow") return { type: tool, ...common, x, y, x2: x + w, y2: y + h };
  return null;
}

/** Select the next or previous element, bottom to top, and say which it is. */
function step({ board, session, view }: Desk, commands: Commands, by: number): void {
  const { elements } = board;
  if (!elements.length) return;
  const [only] = session.selection;
  const now = elements.findIndex((element) => element.id === only);
  const at = now < 0 ? (by > 0 ? 0 : elements.length - 1) : (now + by + elements.length) % elements.length;
  const element = elements[at];
  if (!element) return;
  session.use("select");
  session.select([element.id]);
  view.refresh();
  const words = commands.words();
  const what = element.type === "text" ? `${words.text}: ${element.text.slice(0, 80)}` : words[element.type];
  commands.announce(words.selected(what, at + 1, elements.length));
}
