// What one press, drag and release does, tool by tool. A gesture draws on the glass; the board changes when it ends.

import type { Board } from "./board";
import type { JsonObject } from "./bridge";
import { panned, toPage } from "./camera";
import { type Element, readElement, upright } from "./elements";
import { type Box, frameOf, moveBy, type Transform, tidy, transformed, type XY } from "./geometry";
import { type Context, paint } from "./paint";
import { shade } from "./palette";
import { mergePatch } from "./patches";
import { encodePoints, type Point, simplify } from "./points";
import type { Session } from "./session";
import { strokePath } from "./stroke";
import type { View } from "./view";

export interface Desk {
  readonly board: Board;
  readonly view: View;
  readonly session: Session;
  editText(at: XY, id?: string): void;
}

export interface Press extends XY {
  /** On the page, in pixels; x and y are on the board. */
  readonly page: XY;
  /** 0 to 1, or undefined if the device knows none. */
  readonly pressure: number | undefined;
  readonly shift: boolean;
}

export interface Gesture {
  move(presses: readonly Press[]): void;
  end(): void;
  cancel(): void;
  draw?(context: Context): void;
}

const PREVIEW_MS = 80;
const POINTS_MAX = 4000; // of one stroke; far longer than any hand draws
const CLICK_PIXELS = 4;

export function penGesture({ board, view, session }: Desk, first: Press): Gesture {
  const id = session.newId();
  const { color, width } = session.style;
  const simulated = first.pressure === undefined;
  const common = { type: "pen", z: board.nextZ, color, width, ...(simulated && { sim: true }) };
  const points: Point[] = [pointOf(first)];
  let [sent, chunk, previewed] = [0, 0, performance.now()];
  view.hold(new Set([id]));

  function preview(): void {
    const news = { [chunk]: encodePoints(points.slice(sent)) };
    if (chunk === 0) board.preview(id, { kind: "put", element: { ...common, d: news } });
    else board.preview(id, { kind: "merge", fields: { d: news }, guarded: false });
    [sent, chunk, previewed] = [points.length, chunk + 1, performance.now()];
  }

  return {
    move(presses) {
      for (const press of presses) if (points.length < POINTS_MAX) points.push(pointOf(press));
      if (performance.now() - previewed >= PREVIEW_MS) preview();
      view.refresh();
    },
    end() {
      view.hold(new Set());
      const kept = simplify(points, 0.4 / Math.max(1, view.camera.zoom));
      board.finish(id, { ...common, d: { "0": encodePoints(kept) } });
    },
    cancel() {
      view.hold(new Set());
      if (chunk > 0) board.preview(id, { kind: "delete" });
    },
    draw(context) {
      context.fillStyle = shade(color, view.theme);
      context.fill(new Path2D(strokePath({ points, width, simulated }, false)));
    },
  };
}

function pointOf({ x, y, pressure }: Press): Point {
  return { x, y, p: pressure ?? 0.5 };
}

/** Rectangle, ellipse, line, arrow. Shift: a square, a circle, a line at a multiple of 15°. */
export function shapeGesture({ board, view, session }: Desk, first: Press): Gesture {
  const type = session.tool as "rect" | "ellipse" | "line" | "arrow";
  const { color, width, fill } = session.style;
  const isLine = type === "line" || type === "arrow";
  let last = first;

  function raw(): JsonObject {
    const common = { type, z: board.nextZ, color, width };
    const end = last.shift ? (isLine ? straight(first, last) : square(first, last)) : last;
    if (isLine) return { ...common, x: tidy(first.x), y: tidy(first.y), x2: tidy(end.x), y2: tidy(end.y) };
    const { x, y, w, h } = upright(first.x, first.y, end.x - first.x, end.y - first.y);
    return { ...common, x: tidy(x), y: tidy(y), w: tidy(w), h: tidy(h), ...(fill && { fill }) };
  }

  return {
    move(presses) {
      last = presses.at(-1) ?? last;
      view.refresh();
    },
    end() {
      view.refresh();
      if (Math.hypot(last.page.x - first.page.x, last.page.y - first.page.y) < CLICK_PIXELS) return;
      const id = session.newId();
      board.create(id, raw());
      session.use("select");
      session.select([id]);
    },
    cancel: () => view.refresh(),
    draw(context) {
      const element = readElement("new", raw());
      if (element) paint(context, element, view.theme);
    },
  };
}

function square(from: XY, to: XY): XY {
  const side = Math.max(Math.abs(to.x - from.x), Math.abs(to.y - from.y));
  return { x: from.x + (to.x < from.x ? -side : side), y: from.y + (to.y < from.y ? -side : side) };
}

function straight(from: XY, to: XY): XY {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  const step = Math.PI / 12;
  const angle = Math.round(Math.atan2(to.y - from.y, to.x - from.x) / step) * step;
  return { x: from.x + length * Math.cos(angle), y: from.y + length * Math.sin(angle) };
}

/** What the eraser has met fades at once and goes when it is lifted. */
export function eraseGesture({ board, view }: Desk, first: Press): Gesture {
  const met = new Set<string>();
  let last: XY = first;

  function wipe(to: XY): void {
    const slack = 8 / view.camera.zoom;
    const steps = Math.ceil(Math.hypot(to.x - last.x, to.y - last.y) / slack);
    for (let i = 1; i <= Math.max(1, steps); i++) {
      const t = steps ? i / steps : 1;
      const at = { x: last.x + (to.x - last.x) * t, y: last.y + (to.y - last.y) * t };
      const element = board.at(at, slack);
      if (element && !met.has(element.id)) {
        met.add(element.id);
        view.hold(new Set(met));
      }
    }
    last = to;
  }

  wipe(first);
  return {
    move: (presses) => presses.forEach(wipe),
    end() {
      board.remove(met);
      view.hold(new Set());
    },
    cancel: () => view.hold(new Set()),
    draw(context) {
      context.globalAlpha = 0.25;
      for (const id of met) {
        const element = board.get(id);
        if (element) paint(context, element, view.theme);
      }
      context.globalAlpha = 1;
    },
  };
}

export function panGesture({ view }: Desk, first: Press): Gesture {
  let last = first.page;
  return {
    move(presses) {
      const page = presses.at(-1)?.page ?? last;
      view.look(panned(view.camera, page.x - last.x, page.y - last.y));
      last = page;
    },
    end: () => {},
    cancel: () => {},
  };
}

export function selectGesture(desk: Desk, first: Press, touch: boolean): Gesture {
  const { board, view, session } = desk;
  const handle = handleAt(desk, first.page, touch ? 24 : 12);
  if (handle) return resizeGesture(desk, handle);
  const hit = board.at(first, (touch ? 14 : 6) / view.camera.zoom);
  if (!hit) return marqueeGesture(desk, first);
  if (first.shift) {
    const ids = new Set(session.selection);
    if (!ids.delete(hit.id)) ids.add(hit.id);
    session.select(ids);
  } else if (!session.selection.has(hit.id)) {
    session.select([hit.id]);
  }
  return dragGesture(desk, first);
}

function marqueeGesture({ board, view, session }: Desk, first: Press): Gesture {
  const before = first.shift ? session.selection : new Set<string>();
  let last: XY = first;
  const box = (): Box => upright(first.x, first.y, last.x - first.x, last.y - first.y);
  return {
    move(presses) {
      last = presses.at(-1) ?? last;
      view.refresh();
    },
    end() {
      session.select([...before, ...board.within(box()).map((element) => element.id)]);
      view.refresh();
    },
    cancel: () => view.refresh(),
    draw(context) {
      const { x, y, w, h } = box();
      context.lineWidth = 1 / view.camera.zoom;
      context.strokeStyle = context.fillStyle = shade("blue", view.theme);
      context.strokeRect(x, y, w, h);
      context.globalAlpha = 0.08;
      context.fillRect(x, y, w, h);
      context.globalAlpha = 1;
    },
  };
}

function dragGesture(desk: Desk, first: Press): Gesture {
  const { board, view, session } = desk;
  const ids = session.selection;
  let [dx, dy] = [0, 0];
  let moved = false;
  return {
    move(presses) {
      const last = presses.at(-1);
      if (!last) return;
      [dx, dy] = [last.x - first.x, last.y - first.y];
      if (!moved && Math.hypot(dx, dy) * view.camera.zoom >= CLICK_PIXELS) {
        moved = true;
        view.hold(ids);
      }
      view.refresh();
    },
    end() {
      const frame = session.frame;
      if (moved && frame) transform(desk, ids, moveBy(frame, dx, dy));
      view.hold(new Set());
    },
    cancel: () => view.hold(new Set()),
    draw(context) {
      if (!moved) return;
      context.translate(dx, dy);
      for (const element of elementsOf(board, ids)) paint(context, element, view.theme);
      context.translate(-dx, -dy);
    },
  };
}

/** Apply a transform to elements: one step of undo. */
export function transform({ board }: Desk, ids: Iterable<string>, change: Transform): void {
  const fields = new Map<string, JsonObject>();
  for (const element of elementsOf(board, ids)) {
    const raw = board.sync.get(element.id);
    if (raw) fields.set(element.id, transformed(element, raw, change));
  }
  board.change(fields);
}

export interface Handle {
  /** Where it is pulled, in the frame: 0 or 1 each. */
  readonly fx: number;
  readonly fy: number;
  readonly page: XY;
}

/** The corners of the selection's frame; none while a text is alone with less than a frame. */
export function handlesOf({ view, session }: Desk): Handle[] {
  const frame = session.frame;
  if (!frame) return [];
  return [0, 1].flatMap((fx) =>
    [0, 1].map((fy) => {
      const corner = toPage(view.camera, { x: frame.x + fx * frame.w, y: frame.y + fy * frame.h });
      return { fx, fy, page: { x: corner.x + (fx * 2 - 1) * 8, y: corner.y + (fy * 2 - 1) * 8 } };
    }),
  );
}

function handleAt(desk: Desk, page: XY, reach: number): Handle | undefined {
  return handlesOf(desk).find(
    (handle) => Math.hypot(handle.page.x - page.x, handle.page.y - page.y) <= reach,
  );
}

/** Pull a corner; the opposite one stays. Shift keeps the proportions. */
function resizeGesture(desk: Desk, { fx, fy }: Handle): Gesture {
  const { board, view, session } = desk;
  const ids = session.selection;
  const from = session.frame as Box;
  let to = from;
  view.hold(ids);
  return {
    move(presses) {
      const last = presses.at(-1);
      if (last) to = pulled(from, fx, fy, last, 8 / view.camera.zoom, last.shift);
      view.refresh();
    },
    end() {
      if (to !== from) transform(desk, ids, { from, to });
      view.hold(new Set());
    },
    cancel: () => view.hold(new Set()),
    draw(context) {
      for (const element of elementsOf(board, ids)) {
        const raw = board.sync.get(element.id) ?? {};
        const now = readElement(element.id, mergePatch(raw, transformed(element, raw, { from, to })));
        if (now) paint(context, now, view.theme);
      }
    },
  };
}

/** The frame after its corner (fx, fy) was pulled to `at`, never thinner than `least`. */
export function pulled(from: Box, fx: number, fy: number, at: XY, least: number, keep: boolean): Box {
  const pad = least; // the handle stands a little outside of its corner
  let w = from.w && Math.max(least, fx ? at.x - pad - from.x : from.x + from.w - at.x - pad);
  let h = from.h && Math.max(least, fy ? at.y - pad - from.y : from.y + from.h - at.y - pad);
  if (keep && from.w && from.h) {
    const by = Math.max(w / from.w, h / from.h);
    [w, h] = [from.w * by, from.h * by];
  }
  return { x: fx ? from.x : from.x + from.w - w, y: fy ? from.y : from.y + from.h - h, w, h };
}

function elementsOf(board: Board, ids: Iterable<string>): Element[] {
  return [...ids].flatMap((id) => board.get(id) ?? []);
}

/** Frame and handles of the selection, and a thin line around each of a few elements. */
export function drawSelection(desk: Desk, context: Context): void {
  const { board, view, session } = desk;
  const frame = session.frame;
  if (!frame || view.held.size) return;
  const pixel = 1 / view.camera.zoom;
  context.strokeStyle = shade("blue", view.theme);
  context.lineWidth = pixel;
  if (session.selection.size > 1 && session.selection.size <= 200) {
    for (const box of elementsOf(board, session.selection).map(frameOf)) strokeBox(context, box, 3 * pixel);
  }
  context.lineWidth = 1.5 * pixel;
  strokeBox(context, frame, 8 * pixel);
  context.fillStyle = view.theme === "dark" ? "#16191d" : "#ffffff";
  for (const { fx, fy } of handlesOf(desk)) {
    const x = frame.x + fx * frame.w + (fx * 2 - 1) * 8 * pixel;
    const y = frame.y + fy * frame.h + (fy * 2 - 1) * 8 * pixel;
    context.beginPath();
    context.arc(x, y, 5.5 * pixel, 0, 7);
    context.fill();
    context.stroke();
  }
}

function strokeBox(context: Context, box: Box, by: number): void {
  context.strokeRect(box.x - by, box.y - by, box.w + 2 * by, box.h + 2 * by);
}
