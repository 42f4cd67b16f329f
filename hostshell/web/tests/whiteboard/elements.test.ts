import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Json } from "../../surfaces/whiteboard/bridge";
import { byHeight, type Element, readElement, type Stroke } from "../../surfaces/whiteboard/elements";
import { boxOf, frameOf, moveBy, touches, transformed, union } from "../../surfaces/whiteboard/geometry";
import { pulled } from "../../surfaces/whiteboard/gestures";
import { mergePatch } from "../../surfaces/whiteboard/patches";
import { svgOf } from "../../surfaces/whiteboard/picture";
import { encodePoints } from "../../surfaces/whiteboard/points";

const RECT = { type: "rect", z: 1, color: "blue", width: 4, x: 10, y: 20, w: 100, h: 50 };
const ELLIPSE = { ...RECT, type: "ellipse" };
const ARROW = { type: "arrow", z: 2, width: 4, x: 0, y: 0, x2: 100, y2: 0 };
const TEXT = { type: "text", x: 0, y: 0, size: 20, text: "one\n二", w: 40, h: 52 };
const PEN = {
  type: "pen",
  width: 4,
  d: {
    "0": encodePoints([0, 10].map((x) => ({ x, y: 0, p: 0.5 }))),
    "1": encodePoints([{ x: 20, y: 20, p: 1 }]),
  },
};

function read(raw: Json, id = "e"): Element {
  const element = readElement(id, raw);
  if (!element) throw new Error(`not an element: ${JSON.stringify(raw)}`);
  return element;
}

describe("readElement", () => {
  it("takes what the page writes", () => {
    expect(read(RECT)).toMatchObject({
      type: "rect",
      x: 10,
      y: 20,
      w: 100,
      h: 50,
      color: "blue",
      fill: false,
    });
    expect(read(PEN)).toMatchObject({ type: "pen", color: "ink", simulated: false });
    expect((read(PEN) as Stroke).points).toHaveLength(3);
    expect(read(TEXT)).toMatchObject({ text: "one\n二", size: 20 });
  });

  it("orders chunks by number, not by text", () => {
    const chunk = (x: number) => encodePoints([{ x, y: 0, p: 0 }]);
    const d = Object.fromEntries([...Array(12).keys()].map((i) => [String(i), chunk(i)]));
    const stroke = read({ type: "pen", d }) as Stroke;
    expect(stroke.points.map(({ x }) => x)).toEqual([...Array(12).keys()]);
  });

  it("turns a box that was drawn backwards the right way up", () => {
    expect(read({ ...RECT, w: -100, h: -50 })).toMatchObject({ x: -90, y: -30, w: 100, h: 50 });
  });

  it.each([
    ["nothing", null],
    ["a fragment that a late patch left behind", { x: 5 }],
    ["an unknown type", { ...RECT, type: "script" }],
    ["a rect without a width", { ...RECT, w: "wide" }],
    ["a place off the world", { ...RECT, x: 1e9 }],
    ["an empty text", { ...TEXT, text: "  " }],
    ["a stroke without points", { type: "pen", d: { "0": "~" } }],
    ["a list", [RECT]],
  ])("passes over %s", (_, raw) => {
    expect(readElement("e", raw as Json)).toBeNull();
  });

  it("never throws and never lets a colour through that is none", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom("pen", "rect", "line", "text"), (value, type) => {
        const raw = {
          ...RECT,
          ...ARROW,
          ...TEXT,
          ...PEN,
          type,
          color: value,
          z: value,
          width: value,
          d: value,
        };
        const element = readElement("e", raw as Json);
        if (element) expect(element.color).toMatch(/^([a-z]+|#[0-9a-f]{6})$/i);
      }),
    );
  });

  it("draws equal heights in the order of their ids, on every page", () => {
    const all = ["b", "a", "c"].map((id) => read(RECT, id));
    expect([...all].sort(byHeight).map(({ id }) => id)).toEqual(["a", "b", "c"]);
    expect(byHeight(read({ ...RECT, z: 9 }, "a"), read(RECT, "z"))).toBeGreaterThan(0);
  });
});

describe("touches", () => {
  it.each([
    ["a rectangle's edge", RECT, { x: 10, y: 40 }, true],
    ["an empty rectangle's middle", RECT, { x: 60, y: 45 }, false],
    ["a filled rectangle's middle", { ...RECT, fill: true }, { x: 60, y: 45 }, true],
    ["an ellipse's edge", ELLIPSE, { x: 60, y: 20 }, true],
    ["the corner that an ellipse leaves free", { ...ELLIPSE, fill: true }, { x: 11, y: 21 }, false],
    ["a filled ellipse's middle", { ...ELLIPSE, fill: true }, { x: 60, y: 45 }, true],
    ["a line's middle", ARROW, { x: 50, y: 3 }, true],
    ["beside a line", ARROW, { x: 50, y: 12 }, false],
    ["between two points of a stroke", PEN, { x: 5, y: 1 }, true],
    ["beside a stroke", PEN, { x: 0, y: 15 }, false],
    ["anywhere in a text", TEXT, { x: 20, y: 30 }, true],
    ["below a text", TEXT, { x: 20, y: 80 }, false],
  ])("%s", (_, raw, at, hit) => {
    expect(touches(read(raw as Json), at, 2)).toBe(hit);
  });

  it("holds for a single dot", () => {
    const dot = read({ type: "pen", width: 4, d: encodePoints([{ x: 5, y: 5, p: 0.5 }]) });
    expect(touches(dot, { x: 6, y: 6 }, 1)).toBe(true);
    expect(touches(dot, { x: 20, y: 5 }, 1)).toBe(false);
  });
});

describe("transformed", () => {
  const all: Json[] = [RECT, ELLIPSE, ARROW, TEXT, PEN];

  it("moves everything by the same way", () => {
    for (const raw of all) {
      const before = read(raw);
      const patch = transformed(before, raw as typeof RECT, moveBy(frameOf(before), 30, -7));
      const after = read(mergePatch(raw, patch));
      expect(frameOf(after)).toEqual({
        ...frameOf(before),
        x: frameOf(before).x + 30,
        y: frameOf(before).y - 7,
      });
    }
  });

  it("resizes into the new frame, and twice is the product", () => {
    for (const raw of [RECT, ELLIPSE, PEN] as Json[]) {
      let now = raw;
      for (const by of [2, 1.5]) {
        const element = read(now);
        const from = frameOf(element);
        now = mergePatch(
          now,
          transformed(element, now as typeof RECT, { from, to: { ...from, w: from.w * by } }),
        );
      }
      expect(frameOf(read(now)).w).toBeCloseTo(frameOf(read(raw)).w * 3, 3);
    }
  });

  it("keeps a text's proportions", () => {
    const element = read(TEXT);
    const from = frameOf(element);
    const patch = transformed(element, TEXT, { from, to: { ...from, w: from.w * 2 } });
    expect(patch).toMatchObject({ size: 40, w: 80, h: 104 });
  });
});

describe("pulled", () => {
  const frame = { x: 0, y: 0, w: 100, h: 50 };
  it("keeps the opposite corner", () => {
    expect(pulled(frame, 1, 1, { x: 158, y: 88 }, 8, false)).toEqual({ x: 0, y: 0, w: 150, h: 80 });
    expect(pulled(frame, 0, 0, { x: -28, y: -18 }, 8, false)).toEqual({ x: -20, y: -10, w: 120, h: 60 });
  });
  it("never turns it inside out, and with shift keeps the proportions", () => {
    expect(pulled(frame, 1, 1, { x: -500, y: -500 }, 8, false)).toEqual({ x: 0, y: 0, w: 8, h: 8 });
    expect(pulled(frame, 1, 1, { x: 208, y: 10 }, 8, true)).toEqual({ x: 0, y: 0, w: 200, h: 100 });
  });
});

describe("svgOf", () => {
  it("draws every type once, and text cannot become markup", () => {
    const elements = [RECT, ELLIPSE, ARROW, PEN, { ...TEXT, text: '<script>&"\u0000\ud800' }].map((raw, i) =>
      read(raw as Json, `e${i}`),
    );
    const svg = svgOf(elements, "<b>") ?? "";
    expect(svg.match(/<(rect|ellipse|path|text) /g)).toHaveLength(6);
    expect(svg).not.toContain("<script");
    expect(svg).toContain("<title>&#60;b&#62;</title>");
    const parsed = new DOMParser().parseFromString(svg, "image/svg+xml");
    expect(parsed.querySelector("parsererror")).toBeNull();
  });

  it("has room for a blank board and is left out when it would be too large", () => {
    expect(svgOf([], "")).toContain('viewBox="0 0 640 400"');
    const many = Array.from({ length: 12_000 }, (_, i) => read({ ...RECT, x: i }, `e${i}`));
    expect(svgOf(many, "")).toBeUndefined();
    expect(union(many.map(boxOf))?.w).toBeGreaterThan(12_000);
  });
});
