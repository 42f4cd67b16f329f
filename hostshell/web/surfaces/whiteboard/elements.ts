// What is on a board: the elements as they are drawn, made from whatever stands in the state. Others write there too (the
// agent, another tab, an older version), so nothing of it is believed: what is no element is not shown.

import type { Json, JsonObject } from "./bridge";
import { decodePoints, type Point } from "./points";

export const COLORS = ["ink", "grey", "red", "orange", "green", "teal", "blue", "violet"] as const;
export const WIDTHS = [2, 4, 8, 16] as const;
export const TEXT_LENGTH_MAX = 2000;
const COORDINATE_MAX = 1e6;

export type ShapeType = "rect" | "ellipse";
export type LineType = "line" | "arrow";

interface Common {
  readonly id: string;
  readonly z: number;
  readonly color: string;
  readonly width: number;
}

export interface Stroke extends Common {
  readonly type: "pen";
  readonly points: readonly Point[];
  /** True when the device knew no pressure: it is then made up from the speed. */
  readonly simulated: boolean;
}

export interface Shape extends Common {
  readonly type: ShapeType;
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
  readonly fill: boolean;
}

export interface Line extends Common {
  readonly type: LineType;
  readonly x: number;
  readonly y: number;
  readonly x2: number;
  readonly y2: number;
}

export interface Text extends Common {
  readonly type: "text";
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
  readonly size: number;
  readonly text: string;
}

export type Element = Stroke | Shape | Line | Text;

/** The element that `raw` describes, or null if it describes none. */
export function readElement(id: string, raw: Json | undefined): Element | null {
  if (!isObject(raw)) return null;
  const common: Common = {
    id,
    z: number(raw.z, 0),
    color: readColor(raw.color),
    width: Math.min(64, Math.max(1, number(raw.width, 4))),
  };
  switch (raw.type) {
    case "pen":
      return readStroke(common, raw);
    case "rect":
    case "ellipse":
      return readShape(common, raw.type, raw);
    case "line":
    case "arrow":
      return readLine(common, raw.type, raw);
    case "text":
      return readText(common, raw);
    default:
      return null;
  }
}

function readStroke(common: Common, raw: JsonObject): Stroke | null {
  const points = chunksOf(raw.d).flatMap(decodePoints);
  if (!points.length) return null;
  const [x, y] = [number(raw.x, 0), number(raw.y, 0)];
  const [sx, sy] = [number(raw.sx, 1), number(raw.sy, 1)];
  const still = x === 0 && y === 0 && sx === 1 && sy === 1;
  const placed = still
    ? points
    : points.map(({ x: px, y: py, p }) => ({ x: px * sx + x, y: py * sy + y, p }));
  return { ...common, type: "pen", points: placed, simulated: raw.sim === true };
}

function readShape(common: Common, type: ShapeType, raw: JsonObject): Shape | null {
  const { x, y, w, h } = raw;
  if (!isNumber(x) || !isNumber(y) || !isNumber(w) || !isNumber(h)) return null;
  return { ...common, type, ...upright(x, y, w, h), fill: raw.fill === true };
}

function readLine(common: Common, type: LineType, raw: JsonObject): Line | null {
  const { x, y, x2, y2 } = raw;
  if (!isNumber(x) || !isNumber(y) || !isNumber(x2) || !isNumber(y2)) return null;
  return { ...common, type, x, y, x2, y2 };
}

function readText(common: Common, raw: JsonObject): Text | null {
  const { x, y, text } = raw;
  if (!isNumber(x) || !isNumber(y) || typeof text !== "string" || !text.trim()) return null;
  const size = Math.min(400, Math.max(4, number(raw.size, 24)));
  const shown = text.slice(0, TEXT_LENGTH_MAX);
  const guess = textSize(shown, size);
  return {
    ...common,
    type: "text",
    x,
    y,
    size,
    text: shown,
    w: Math.max(0, number(raw.w, guess.w)),
    h: Math.max(0, number(raw.h, guess.h)),
  };
}

export const LINE_HEIGHT = 1.3;

/** How much room a text takes, without a page to measure it on. */
export function textSize(text: string, size: number): { w: number; h: number } {
  const lines = text.split("\n");
  const widths = lines.map((line) => [...line].reduce((sum, char) => sum + (char > "\u2e7f" ? 1 : 0.56), 0));
  return { w: Math.max(...widths) * size, h: lines.length * size * LINE_HEIGHT };
}

export function upright(x: number, y: number, w: number, h: number) {
  return { x: w < 0 ? x + w : x, y: h < 0 ? y + h : y, w: Math.abs(w), h: Math.abs(h) };
}

function chunksOf(d: Json | undefined): string[] {
  if (typeof d === "string") return [d];
  if (!isObject(d)) return [];
  const keys = Object.keys(d).sort((a, b) => Number(a) - Number(b));
  return keys.map((key) => d[key]).filter((chunk) => typeof chunk === "string");
}

function readColor(value: Json | undefined): string {
  if (typeof value !== "string") return "ink";
  return (COLORS as readonly string[]).includes(value) || /^#[0-9a-f]{6}$/i.test(value) ? value : "ink";
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isNumber(value: Json | undefined): value is number {
  return typeof value === "number" && Math.abs(value) <= COORDINATE_MAX;
}

function number(value: Json | undefined, otherwise: number): number {
  return isNumber(value) ? value : otherwise;
}

/** Below it comes first; equal heights in the order of their ids, so that every page draws the same. */
export function byHeight(one: Element, other: Element): number {
  return one.z - other.z || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0);
}
