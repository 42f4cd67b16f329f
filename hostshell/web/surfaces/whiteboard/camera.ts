// Where the person looks: board units to pixels of the page and back.

import type { Box, XY } from "./geometry";

export const ZOOM_MIN = 0.05;
export const ZOOM_MAX = 16;

export interface Camera {
  /** The board's point at the page's top left corner. */
  readonly x: number;
  readonly y: number;
  readonly zoom: number;
}

export interface Size {
  readonly w: number;
  readonly h: number;
}

export function toBoard(camera: Camera, page: XY): XY {
  return { x: camera.x + page.x / camera.zoom, y: camera.y + page.y / camera.zoom };
}

export function toPage(camera: Camera, board: XY): XY {
  return { x: (board.x - camera.x) * camera.zoom, y: (board.y - camera.y) * camera.zoom };
}

export function viewOf(camera: Camera, size: Size): Box {
  return { x: camera.x, y: camera.y, w: size.w / camera.zoom, h: size.h / camera.zoom };
}

export function panned(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x - dx / camera.zoom, y: camera.y - dy / camera.zoom };
}

/** Zoom so that the board's point under `page` stays there. */
export function zoomed(camera: Camera, page: XY, by: number): Camera {
  const zoom = Math.min(ZOOM_MAX, Math.max(ZOOM_MIN, camera.zoom * by));
  const at = toBoard(camera, page);
  return { x: at.x - page.x / zoom, y: at.y - page.y / zoom, zoom };
}

/** Everything in sight, never larger than life. */
export function fitted(box: Box, size: Size, margin: number): Camera {
  const zoom = Math.min(
    1,
    Math.max(ZOOM_MIN, Math.min((size.w - 2 * margin) / (box.w || 1), (size.h - 2 * margin) / (box.h || 1))),
  );
  return {
    x: box.x + box.w / 2 - size.w / 2 / zoom,
    y: box.y + box.h / 2 - size.h / 2 / zoom,
    zoom,
  };
}
