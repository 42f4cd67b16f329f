// The board as a picture that leaves it: SVG text and PNG bytes, always in the light theme, cut to what is drawn.

import type { Element } from "./elements";
import { LINE_HEIGHT } from "./elements";
import { type Box, boxOf, grow, tidy, union } from "./geometry";
import { cornerOf, FONT, lineParts, paint } from "./paint";
import { GROUND, shade } from "./palette";
import { strokePath } from "./stroke";

const MARGIN = 24;
const EMPTY: Box = { x: 0, y: 0, w: 640, h: 400 };
const SIDE_PIXELS_MAX = 4096;
const SCALE = 2;
const PNG_BYTES_MAX = 1_400_000; // with the SVG, in base64, it has to fit one submission of 3 MiB
const SVG_BYTES_MAX = 1_000_000;
const SHRINK = 0.7;

export function pictureBox(elements: readonly Element[]): Box {
  const box = union(elements.map(boxOf));
  return box ? grow(box, MARGIN) : EMPTY;
}

/** Undefined if it would be too large to hand in; the PNG then stands alone. */
export function svgOf(elements: readonly Element[], title: string): string | undefined {
  const box = pictureBox(elements);
  const head =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${tidy(box.w)}" height="${tidy(box.h)}" ` +
    `viewBox="${[box.x, box.y, box.w, box.h].map(tidy).join(" ")}">`;
  const ground = `<rect x="${tidy(box.x)}" y="${tidy(box.y)}" width="100%" height="100%" fill="${GROUND.light}"/>`;
  const parts = [
    head,
    title ? `<title>${escaped(title)}</title>` : "",
    ground,
    ...elements.map(tagOf),
    "</svg>",
  ];
  const svg = parts.filter(Boolean).join("\n");
  return new TextEncoder().encode(svg).length <= SVG_BYTES_MAX ? svg : undefined;
}

function tagOf(element: Element): string {
  const color = shade(element.color, "light");
  const line = `fill="none" stroke="${color}" stroke-width="${element.width}" stroke-linecap="round" stroke-linejoin="round"`;
  switch (element.type) {
    case "pen":
      return `<path fill="${color}" d="${strokePath(element)}"/>`;
    case "rect":
    case "ellipse":
      return shapeTag(
        element,
        element.fill ? `${line.replace('"none"', `"${color}"`)} fill-opacity="0.18"` : line,
      );
    case "text":
      return textTag(element, color);
    default: {
      const d = lineParts(element).map(([a, b]) => `M${tidy(a.x)} ${tidy(a.y)}L${tidy(b.x)} ${tidy(b.y)}`);
      return `<path ${line} d="${d.join("")}"/>`;
    }
  }
}

function shapeTag(element: Element & { type: "rect" | "ellipse" }, look: string): string {
  const { x, y, w, h } = element;
  if (element.type === "rect") {
    const corner = tidy(cornerOf(element));
    return `<rect x="${tidy(x)}" y="${tidy(y)}" width="${tidy(w)}" height="${tidy(h)}" rx="${corner}" ${look}/>`;
  }
  const [cx, cy] = [tidy(x + w / 2), tidy(y + h / 2)];
  return `<ellipse cx="${cx}" cy="${cy}" rx="${tidy(w / 2)}" ry="${tidy(h / 2)}" ${look}/>`;
}

function textTag(element: Element & { type: "text" }, color: string): string {
  const lines = element.text.split("\n").map((line, i) => {
    const y = tidy(element.y + element.size + i * element.size * LINE_HEIGHT);
    return `<tspan x="${tidy(element.x)}" y="${y}">${escaped(line)}</tspan>`;
  });
  const font = escaped(FONT);
  return `<text fill="${color}" font-size="${tidy(element.size)}" font-family="${font}" xml:space="preserve">${lines.join("")}</text>`;
}

/** Text for XML; characters that XML cannot hold are left out. */
function escaped(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "")
    .replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** A PNG in base64, as large as the limits allow. */
export async function pngOf(elements: readonly Element[]): Promise<string> {
  const box = pictureBox(elements);
  const largest = Math.min(SCALE, SIDE_PIXELS_MAX / box.w, SIDE_PIXELS_MAX / box.h);
  for (let scale = largest; ; scale *= SHRINK) {
    const blob = await pngAt(elements, box, scale);
    if (blob.size <= PNG_BYTES_MAX) return base64(new Uint8Array(await blob.arrayBuffer()));
  }
}

function pngAt(elements: readonly Element[], box: Box, scale: number): Promise<Blob> {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(box.w * scale));
  canvas.height = Math.max(1, Math.round(box.h * scale));
  const context = canvas.getContext("2d");
  if (!context) return Promise.reject(new Error("this browser has no canvas"));
  context.fillStyle = GROUND.light;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.setTransform(scale, 0, 0, scale, -box.x * scale, -box.y * scale);
  for (const element of elements) paint(context, element, "light");
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png");
  });
}

function base64(bytes: Uint8Array): string {
  let binary = "";
  for (let i = 0; i < bytes.length; i += 0x8000)
    binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(binary);
}
