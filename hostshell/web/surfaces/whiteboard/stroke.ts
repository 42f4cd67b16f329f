// A pen stroke's outline: perfect-freehand turns points with pressure into a polygon, this file into a path.

import { getStroke } from "perfect-freehand";
import type { Stroke } from "./elements";
import type { Point } from "./points";

type Vec = readonly number[];

/** SVG path data. `done` false while the pen is still down: the end then follows it closely. */
export function strokePath(stroke: Pick<Stroke, "points" | "width" | "simulated">, done = true): string {
  const { points, width, simulated } = stroke;
  const outline = getStroke(
    points.map(({ x, y, p }) => [x, y, p]),
    {
      size: width * 1.6,
      thinning: simulated ? 0.45 : 0.6,
      smoothing: 0.5,
      streamline: 0.35,
      simulatePressure: simulated,
      last: done,
    },
  );
  return outline.length > 2 ? smoothed(outline) : dot(points[0], width);
}

/** A closed curve through the middles of the outline's edges. */
function smoothed(outline: readonly Vec[]): string {
  const at = (i: number) => outline[i % outline.length] as Vec;
  const middle = (i: number) => {
    const [one, other] = [at(i), at(i + 1)];
    return `${short(((one[0] ?? 0) + (other[0] ?? 0)) / 2)} ${short(((one[1] ?? 0) + (other[1] ?? 0)) / 2)}`;
  };
  let path = `M${middle(0)}`;
  for (let i = 1; i <= outline.length; i++)
    path += `Q${short(at(i)[0] ?? 0)} ${short(at(i)[1] ?? 0)} ${middle(i)}`;
  return `${path}Z`;
}

function dot(point: Point | undefined, width: number): string {
  if (!point) return "";
  const r = short(width * 0.8);
  return `M${short(point.x - r)} ${short(point.y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}

function short(value: number): number {
  return Math.round(value * 10) / 10;
}
