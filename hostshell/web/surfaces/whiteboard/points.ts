// A stroke's points as text: three numbers a point in a few characters, so that thousands of strokes fit one board.
//
// Each point is the zigzag of its step in x, then in y, in tenths of a unit, in base-32 digits with a continuation bit,
// lowest digit first; then one character of pressure (0 to 63). The first step starts at (0, 0), in every chunk anew.

export interface Point {
  readonly x: number;
  readonly y: number;
  /** 0 to 1 */
  readonly p: number;
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const VALUES = new Map([...DIGITS].map((digit, value) => [digit, value]));
const PER_UNIT = 10;
const COORDINATE_MAX = 1e7; // in tenths; everything further out is no drawing

export function encodePoints(points: readonly Point[]): string {
  let out = "";
  let [x, y] = [0, 0];
  for (const point of points) {
    const [nextX, nextY] = [Math.round(point.x * PER_UNIT), Math.round(point.y * PER_UNIT)];
    out += encodeNumber(nextX - x) + encodeNumber(nextY - y);
    out += DIGITS[Math.round(Math.min(1, Math.max(0, point.p)) * 63)];
    [x, y] = [nextX, nextY];
  }
  return out;
}

/** The points of one chunk; stops at the first thing that is none. */
export function decodePoints(text: string): Point[] {
  const points: Point[] = [];
  let [at, x, y] = [0, 0, 0];
  const number = (): number => {
    let [value, scale] = [0, 1];
    for (; ; scale *= 32) {
      const digit = VALUES.get(text[at++] ?? "") ?? Number.NaN;
      value += (digit % 32) * scale;
      if (!(digit >= 32)) return value % 2 ? -(value + 1) / 2 : value / 2;
    }
  };
  while (at < text.length) {
    x += number();
    y += number();
    const p = (VALUES.get(text[at++] ?? "") ?? Number.NaN) / 63;
    if (!(Math.abs(x) <= COORDINATE_MAX && Math.abs(y) <= COORDINATE_MAX && p >= 0)) break;
    points.push({ x: x / PER_UNIT, y: y / PER_UNIT, p });
  }
  return points;
}

function encodeNumber(value: number): string {
  let rest = value < 0 ? -2 * value - 1 : 2 * value;
  let out = "";
  while (rest >= 32) {
    out += DIGITS[32 + (rest % 32)];
    rest = Math.floor(rest / 32);
  }
  return out + DIGITS[rest];
}

/** Leave out the points that a hand would not miss (Ramer, Douglas and Peucker), with pressure as a third dimension. */
export function simplify(points: readonly Point[], tolerance: number): Point[] {
  if (points.length < 3) return [...points];
  const keep = new Uint8Array(points.length);
  keep[0] = keep[points.length - 1] = 1;
  const spans: [number, number][] = [[0, points.length - 1]];
  for (let span = spans.pop(); span; span = spans.pop()) {
    const [first, last] = span;
    let [worst, at] = [tolerance, -1];
    for (let i = first + 1; i < last; i++) {
      const far = distance(points[i] as Point, points[first] as Point, points[last] as Point);
      if (far > worst) [worst, at] = [far, i];
    }
    if (at > 0) {
      keep[at] = 1;
      spans.push([first, at], [at, last]);
    }
  }
  return points.filter((_, i) => keep[i]);
}

const PRESSURE_WEIGHT = 8; // a change from no pressure to full weighs as much as so many units of way

function distance(point: Point, from: Point, to: Point): number {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const whole = dx * dx + dy * dy;
  const t = whole ? Math.min(1, Math.max(0, ((point.x - from.x) * dx + (point.y - from.y) * dy) / whole)) : 0;
  const p = (point.p - (from.p + t * (to.p - from.p))) * PRESSURE_WEIGHT;
  return Math.hypot(point.x - from.x - t * dx, point.y - from.y - t * dy, p);
}
