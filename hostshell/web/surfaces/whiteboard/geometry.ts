// Where elements are, what a point touches, and how an element's raw fields change when it is moved or resized. No page.

import type { JsonObject } from "./bridge";
import type { Element } from "./elements";
import type { Point } from "./points";

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
}

export interface XY {
  readonly x: number;
  readonly y: number;
}

const boxes = new WeakMap<Element, Box>();

/** The box that everything of the element lies in, its line's thickness included. */
export function boxOf(element: Element): Box {
  let box = boxes.get(element);
  if (!box) {
    const head = element.type === "arrow" ? arrowHead(element.width) : 0;
    box = grow(frameOf(element), element.type === "text" ? 0 : element.width / 2 + head + 1);
    boxes.set(element, box);
  }
  return box;
}

/** The box of the element's own coordinates: what the handles of a selection stand on. */
export function frameOf(element: Element): Box {
  switch (element.type) {
    case "pen":
      return around(element.points);
    case "line":
    case "arrow":
      return around([element, { x: element.x2, y: element.y2 }]);
    default:
      return { x: element.x, y: element.y, w: element.w, h: element.h };
  }
}

function around(points: readonly XY[]): Box {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y } of points) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return { x: left, y: top, w: right - left, h: bottom - top };
}

export function union(boxes: readonly Box[]): Box | null {
  if (!boxes.length) return null;
  return around(boxes.flatMap((box) => [box, { x: box.x + box.w, y: box.y + box.h }]));
}

export function grow(box: Box, by: number): Box {
  return { x: box.x - by, y: box.y - by, w: box.w + 2 * by, h: box.h + 2 * by };
}

export function overlaps(one: Box, other: Box): boolean {
  return (
    one.x <= other.x + other.w &&
    other.x <= one.x + one.w &&
    one.y <= other.y + other.h &&
    other.y <= one.y + one.h
  );
}

export function contains(outer: Box, inner: Box): boolean {
  return (
    outer.x <= inner.x &&
    outer.y <= inner.y &&
    outer.x + outer.w >= inner.x + inner.w &&
    outer.y + outer.h >= inner.y + inner.h
  );
}

export function arrowHead(width: number): number {
  return 8 + width * 2;
}

/** Does a touch at `at` meet the element? `slack` is how far beside it still counts. */
export function touches(element: Element, at: XY, slack: number): boolean {
  const reach = element.width / 2 + slack;
  const box = boxOf(element);
  const away = Math.max(box.x - at.x, at.x - box.x - box.w, box.y - at.y, at.y - box.y - box.h);
  if (away > slack) return false;
  switch (element.type) {
    case "pen":
      return nearPath(element.points, at, reach);
    case "line":
    case "arrow":
      return toSegment(at, element, { x: element.x2, y: element.y2 }) <= reach;
    case "text":
      return true;
    case "rect":
      return inRing(element, reach, element.fill, (box) => inBox(at, box));
    case "ellipse":
      return inRing(element, reach, element.fill, (box) => inEllipse(at, box));
  }
}

function inRing(box: Box, reach: number, filled: boolean, inside: (box: Box) => boolean): boolean {
  if (!inside(grow(box, reach))) return false;
  const hole = grow(box, -reach);
  return filled || hole.w <= 0 || hole.h <= 0 || !inside(hole);
}

function inBox(at: XY, box: Box): boolean {
  return at.x >= box.x && at.x <= box.x + box.w && at.y >= box.y && at.y <= box.y + box.h;
}

function inEllipse(at: XY, box: Box): boolean {
  const [rx, ry] = [box.w / 2, box.h / 2];
  return ((at.x - box.x - rx) / rx) ** 2 + ((at.y - box.y - ry) / ry) ** 2 <= 1;
}

function nearPath(points: readonly Point[], at: XY, reach: number): boolean {
  if (points.length === 1) return toSegment(at, points[0] as Point, points[0] as Point) <= reach;
  return points.some((point, i) => i > 0 && toSegment(at, points[i - 1] as Point, point) <= reach);
}

function toSegment(at: XY, from: XY, to: XY): number {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const whole = dx * dx + dy * dy;
  const t = whole ? Math.min(1, Math.max(0, ((at.x - from.x) * dx + (at.y - from.y) * dy) / whole)) : 0;
  return Math.hypot(at.x - from.x - t * dx, at.y - from.y - t * dy);
}

/** How a selection's frame changes: everything in `from` goes to the same place in `to`. */
export interface Transform {
  readonly from: Box;
  readonly to: Box;
}

export function moveBy(from: Box, dx: number, dy: number): Transform {
  return { from, to: { x: from.x + dx, y: from.y + dy, w: from.w, h: from.h } };
}

/** The raw fields that change when `raw`, shown as `element`, is transformed. */
export function transformed(element: Element, raw: JsonObject, { from, to }: Transform): JsonObject {
  const [sx, sy] = [from.w ? to.w / from.w : 1, from.h ? to.h / from.h : 1];
  const x = (value: number) => tidy(to.x + (value - from.x) * sx);
  const y = (value: number) => tidy(to.y + (value - from.y) * sy);
  switch (element.type) {
    case "pen": {
      const scaled = sx === 1 && sy === 1 ? {} : { sx: scale(raw.sx, sx), sy: scale(raw.sy, sy) };
      return { x: x(Number(raw.x) || 0), y: y(Number(raw.y) || 0), ...scaled };
    }
    case "line":
    case "arrow":
      return { x: x(element.x), y: y(element.y), x2: x(element.x2), y2: y(element.y2) };
    case "text": {
      const size = Math.min(400, Math.max(4, element.size * Math.max(sx, sy)));
      const by = size / element.size;
      const grown = by === 1 ? {} : { size: tidy(size), w: tidy(element.w * by), h: tidy(element.h * by) };
      return { x: x(element.x), y: y(element.y), ...grown };
    }
    default:
      return { x: x(element.x), y: y(element.y), w: tidy(element.w * sx), h: tidy(element.h * sy) };
  }
}

function scale(before: unknown, by: number): number {
  return Math.round((typeof before === "number" ? before : 1) * by * 1e6) / 1e6;
}

/** Hundredths are finer than any screen and keep the patches short. */
export function tidy(value: number): number {
  return Math.round(value * 100) / 100;
}
