// One element onto a canvas. Paths are made once per element: elements never change, they are replaced.

import { type Element, LINE_HEIGHT } from "./elements";
import { arrowHead } from "./geometry";
import { shade, type Theme } from "./palette";
import { strokePath } from "./stroke";

export type Context = CanvasRenderingContext2D;

export const FONT = 'system-ui, -apple-system, "Segoe UI", "PingFang SC", "Noto Sans CJK SC", sans-serif';
const FILL_ALPHA = 0.18;

const paths = new WeakMap<Element, Path2D>();

export function paint(context: Context, element: Element, theme: Theme): void {
  const color = shade(element.color, theme);
  if (element.type === "text") {
    paintText(context, element, color);
    return;
  }
  let path = paths.get(element);
  if (!path) {
    path = pathOf(element);
    paths.set(element, path);
  }
  if (element.type === "pen") {
    context.fillStyle = color;
    context.fill(path);
    return;
  }
  if ((element.type === "rect" || element.type === "ellipse") && element.fill) {
    context.globalAlpha = FILL_ALPHA;
    context.fillStyle = color;
    context.fill(path);
    context.globalAlpha = 1;
  }
  context.strokeStyle = color;
  context.lineWidth = element.width;
  context.lineCap = context.lineJoin = "round";
  context.stroke(path);
}

function paintText(context: Context, element: Element & { type: "text" }, color: string): void {
  context.fillStyle = color;
  context.font = `${element.size}px ${FONT}`;
  context.textBaseline = "alphabetic";
  const step = element.size * LINE_HEIGHT;
  element.text.split("\n").forEach((line, i) => {
    context.fillText(line, element.x, element.y + i * step + element.size);
  });
}

function pathOf(element: Exclude<Element, { type: "text" }>): Path2D {
  const path = new Path2D();
  switch (element.type) {
    case "pen":
      return new Path2D(strokePath(element));
    case "rect":
      path.roundRect(element.x, element.y, element.w, element.h, cornerOf(element));
      break;
    case "ellipse":
      path.ellipse(
        element.x + element.w / 2,
        element.y + element.h / 2,
        element.w / 2,
        element.h / 2,
        0,
        0,
        7,
      );
      path.closePath();
      break;
    default:
      for (const [from, to] of lineParts(element)) {
        path.moveTo(from.x, from.y);
        path.lineTo(to.x, to.y);
      }
  }
  return path;
}

export function cornerOf({ w, h }: { w: number; h: number }): number {
  return Math.min(8, w / 4, h / 4);
}

/** The segments of a line, an arrow's head included. */
export function lineParts(element: Element & { type: "line" | "arrow" }) {
  const [from, to] = [
    { x: element.x, y: element.y },
    { x: element.x2, y: element.y2 },
  ];
  const parts = [[from, to] as const];
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  if (element.type === "arrow" && length > 0) {
    const head = Math.min(arrowHead(element.width), length / 2);
    const angle = Math.atan2(to.y - from.y, to.x - from.x);
    for (const turn of [-0.5, 0.5]) {
      const end = { x: to.x - head * Math.cos(angle + turn), y: to.y - head * Math.sin(angle + turn) };
      parts.push([to, end] as const);
    }
  }
  return parts;
}
