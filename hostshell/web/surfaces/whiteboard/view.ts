// Two canvases: the scene (every element, kept as a picture) and above it the glass (what the person is doing just now).
//
// What keeps 10,000 elements usable: a change redraws only its own box of the scene; moving the camera shows the picture
// that is there at once, shifted, and draws it anew in slices that fit a frame; a drag draws on the glass alone.

import type { Board, Changed } from "./board";
import { type Camera, type Size, viewOf } from "./camera";
import type { Element } from "./elements";
import { type Box, boxOf, grow, overlaps, union } from "./geometry";
import { type Context, paint } from "./paint";
import { GROUND, type Theme } from "./palette";

const SLICE_MS = 4; // of drawing per frame (the browser needs as long again), so that input is never kept waiting
const DRAWN_AT_ONCE_MAX = 1000; // so many elements fit a frame
const BOXES_MAX = 64; // of so many changes at once the whole picture is drawn anew

type Damage = Box | "all";

export class View {
  camera: Camera = { x: 0, y: 0, zoom: 1 };
  theme: Theme = "light";
  /** Not in the scene: the ids that a gesture draws on the glass. */
  held: ReadonlySet<string> = new Set();
  /** Draws the glass, in board units. */
  drawGlass: (context: Context) => void = () => {};

  private readonly scene: Context;
  private readonly glass: Context;
  private picture: Context = newContext();
  private pictureCamera: Camera = this.camera;
  private spare: Context = newContext();
  private size: Size = { w: 1, h: 1 };
  private dpr = 1;
  private damage: Damage | null = "all";
  private frame = 0;
  private slice: { elements: Element[]; at: number; camera: Camera } | null = null;
  private stale = false; // something changed while a picture was being drawn: one more is due after it

  constructor(
    private readonly board: Board,
    private readonly sceneCanvas: HTMLCanvasElement,
    private readonly glassCanvas: HTMLCanvasElement,
  ) {
    this.scene = contextOf(sceneCanvas);
    this.glass = contextOf(glassCanvas);
    board.onchange((changed) => this.changed(changed));
  }

  get pageSize(): Size {
    return this.size;
  }

  resize(w: number, h: number, dpr: number): void {
    if (!w || !h) return;
    this.size = { w, h };
    this.dpr = dpr;
    for (const canvas of [this.sceneCanvas, this.glassCanvas]) {
      canvas.width = Math.round(w * dpr);
      canvas.height = Math.round(h * dpr);
    }
    this.damaged("all");
  }

  look(camera: Camera): void {
    this.camera = camera;
    this.damaged("all");
  }

  hold(ids: ReadonlySet<string>): void {
    const before = this.held;
    this.held = ids;
    for (const id of new Set([...before, ...ids])) {
      const element = before.has(id) === ids.has(id) ? undefined : this.board.get(id);
      if (element) this.damaged(boxOf(element));
    }
    this.refresh();
  }

  /** What a gesture holds is not in the picture, however often it changes. */
  private changed(changed: readonly Changed[]): void {
    const elements = changed.flatMap((pair) => pair.filter((each) => each !== undefined));
    const boxes = elements.filter(({ id }) => !this.held.has(id)).map(boxOf);
    const damage = boxes.length > BOXES_MAX ? "all" : union(boxes);
    if (damage) this.damaged(damage);
  }

  damaged(damage: Damage): void {
    const before = this.damage;
    this.damage = before === "all" || damage === "all" ? "all" : before ? union([before, damage]) : damage;
    this.refresh();
  }

  /** Draw at the next frame: at least the glass. */
  refresh(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    const damage = this.damage;
    this.damage = null;
    if (damage === "all") this.drawAll();
    else if (damage) this.drawBox(damage);
    if (this.slice) this.drawSlice();
    this.show();
    const glass = this.glass;
    this.clear(glass);
    this.place(glass, this.camera);
    this.drawGlass(glass);
  }

  /** Begin the whole picture anew, on the spare canvas; small ones are done at once. */
  private drawAll(): void {
    if (this.slice) {
      this.stale = true;
      return;
    }
    const { width, height } = this.sceneCanvas;
    Object.assign(this.spare.canvas, { width, height }); // clears it, too
    this.place(this.spare, this.camera);
    const elements = this.shown(viewOf(this.camera, this.size));
    this.slice = { elements, at: 0, camera: this.camera };
    if (elements.length <= DRAWN_AT_ONCE_MAX) this.drawSlice(Number.POSITIVE_INFINITY);
  }

  private drawSlice(budget = SLICE_MS): void {
    const slice = this.slice;
    if (!slice) return;
    const end = performance.now() + budget;
    for (; slice.at < slice.elements.length; slice.at++) {
      if (slice.at % 32 === 31 && performance.now() > end) {
        this.refresh();
        return;
      }
      paint(this.spare, slice.elements[slice.at] as Element, this.theme);
    }
    this.slice = null;
    [this.picture, this.spare] = [this.spare, this.picture];
    this.pictureCamera = slice.camera;
    if (this.stale) {
      this.stale = false;
      this.damaged("all");
    }
  }

  /** One box of the picture anew. If the next picture is under way it may have passed that box already. */
  private drawBox(box: Box): void {
    if (this.slice) this.stale = true;
    const context = this.picture;
    const pixel = 1 / (this.pictureCamera.zoom * this.dpr);
    const dirty = this.wholePixels(grow(box, 2 * pixel));
    context.save();
    context.beginPath();
    context.rect(dirty.x, dirty.y, dirty.w, dirty.h);
    context.clip();
    context.clearRect(dirty.x, dirty.y, dirty.w, dirty.h);
    for (const element of this.shown(dirty)) paint(context, element, this.theme);
    context.restore();
  }

  /** Grown to whole pixels of the picture: a part of a pixel that is cleared and drawn again leaves a seam. */
  private wholePixels({ x, y, w, h }: Box): Box {
    const { x: left, y: top, zoom } = this.pictureCamera;
    const scale = zoom * this.dpr;
    const [x0, y0] = [Math.floor((x - left) * scale), Math.floor((y - top) * scale)];
    const [x1, y1] = [Math.ceil((x + w - left) * scale), Math.ceil((y + h - top) * scale)];
    return { x: left + x0 / scale, y: top + y0 / scale, w: (x1 - x0) / scale, h: (y1 - y0) / scale };
  }

  private shown(box: Box): Element[] {
    return this.board.elements.filter(
      (element) => !this.held.has(element.id) && overlaps(box, boxOf(element)),
    );
  }

  /** The picture onto the page, shifted if the camera has gone on since. */
  private show(): void {
    const { scene, camera, pictureCamera: drawn, dpr } = this;
    scene.setTransform(1, 0, 0, 1, 0, 0);
    scene.fillStyle = GROUND[this.theme];
    scene.fillRect(0, 0, scene.canvas.width, scene.canvas.height);
    const by = camera.zoom / drawn.zoom;
    const [dx, dy] = [(drawn.x - camera.x) * camera.zoom * dpr, (drawn.y - camera.y) * camera.zoom * dpr];
    scene.setTransform(by, 0, 0, by, dx, dy);
    scene.drawImage(this.picture.canvas, 0, 0);
  }

  private place(context: Context, camera: Camera): void {
    const scale = camera.zoom * this.dpr;
    context.setTransform(scale, 0, 0, scale, -camera.x * scale, -camera.y * scale);
  }

  private clear(context: Context): void {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  }
}

function newContext(w = 1, h = 1): Context {
  const canvas = document.createElement("canvas");
  canvas.width = w;
  canvas.height = h;
  return contextOf(canvas);
}

function contextOf(canvas: HTMLCanvasElement): Context {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser has no canvas");
  return context;
}
