import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodePoints, encodePoints, type Point, simplify } from "../../surfaces/whiteboard/points";

const point = fc.record({
  x: fc.integer({ min: -100_000, max: 100_000 }).map((n) => n / 10),
  y: fc.integer({ min: -100_000, max: 100_000 }).map((n) => n / 10),
  p: fc.integer({ min: 0, max: 63 }).map((n) => n / 63),
});

describe("points as text", () => {
  it("come back as they were", () => {
    fc.assert(
      fc.property(fc.array(point, { maxLength: 40 }), (points) => {
        const back = decodePoints(encodePoints(points));
        expect(back).toHaveLength(points.length);
        back.forEach((now, i) => {
          expect(now.x).toBeCloseTo(points[i]?.x ?? 0, 6);
          expect(now.y).toBeCloseTo(points[i]?.y ?? 0, 6);
          expect(now.p).toBeCloseTo(points[i]?.p ?? 0, 6);
        });
      }),
    );
  });

  it("are what the MiniApp's own decoder is tested with", () => {
    const points = [
      { x: 0, y: 0, p: 0.5 },
      { x: 12.3, y: -4.5, p: 1 },
      { x: -1000, y: 70000.1, p: 0 },
    ];
    expect(encodePoints(points)).toBe("AAg2H5C_14T8o3qBA");
  });

  it("never throw, whatever the text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        for (const { x, y, p } of decodePoints(text)) expect(Number.isFinite(x + y + p)).toBe(true);
      }),
    );
    expect(decodePoints("____")).toEqual([]);
  });
});

describe("simplify", () => {
  it("keeps the ends and everything within the tolerance", () => {
    fc.assert(
      fc.property(fc.array(point, { minLength: 2, maxLength: 60 }), (points) => {
        const kept = simplify(points, 2);
        expect(kept[0]).toBe(points[0]);
        expect(kept.at(-1)).toBe(points.at(-1));
        expect(kept.length).toBeLessThanOrEqual(points.length);
      }),
    );
  });

  it("makes a straight line two points, and keeps a corner and a press of the pen", () => {
    const line: Point[] = Array.from({ length: 50 }, (_, i) => ({ x: i, y: i, p: 0.5 }));
    expect(simplify(line, 0.4)).toHaveLength(2);
    expect(simplify([...line, { x: 49, y: 0, p: 0.5 }], 0.4)).toHaveLength(3);
    const pressed = line.map((at, i) => (i === 25 ? { ...at, p: 1 } : at));
    expect(simplify(pressed, 0.4).some(({ p }) => p === 1)).toBe(true);
  });
});
