// Pointers to gestures: mouse, pen, fingers, wheel. Two fingers always move the camera; once a pen has been seen, one does.

import { panned, toBoard, zoomed } from "./camera";
import type { XY } from "./geometry";
import {
  type Desk,
  eraseGesture,
  type Gesture,
  type Press,
  panGesture,
  penGesture,
  selectGesture,
  shapeGesture,
} from "./gestures";

const WHEEL_ZOOM = 0.0022;
const PEN_ERASER = 32; // the bit of PointerEvent.buttons for the pen's other end

export class Pointers {
  gesture: Gesture | null = null;
  /** Held space bar: pan whatever the tool is. */
  panning = false;
  private active: number | null = null;
  private readonly fingers = new Map<number, XY>();
  private penSeen = false;
  private lastTap = { at: 0, page: { x: 0, y: 0 } };

  constructor(
    private readonly desk: Desk,
    private readonly canvas: HTMLCanvasElement,
  ) {
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    canvas.addEventListener("pointerup", (event) => this.up(event, false));
    canvas.addEventListener("pointercancel", (event) => this.up(event, true));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", () => delete canvas.dataset.pressed);
    canvas.addEventListener("blur", () => delete canvas.dataset.pressed);
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  cancel(): void {
    this.gesture?.cancel();
    this.gesture = null;
    this.active = null;
    this.desk.view.refresh();
  }

  private down(event: PointerEvent): void {
    this.canvas.dataset.pressed = ""; // a ring around the whole board is for those who come by keyboard
    this.canvas.focus({ preventScroll: true });
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    if (event.pointerType === "pen") this.penSeen = true;
    if (event.pointerType === "touch") {
      this.fingers.set(event.pointerId, this.page(event));
      if (this.fingers.size > 1) {
        this.cancel();
        return;
      }
    }
    // Its last release was never told, as can be when the browser itself takes the pointer away: a stroke ends with it.
    if (this.active === event.pointerId) this.up(event, false);
    if (this.active !== null || event.button === 2) return;
    this.active = event.pointerId;
    this.gesture = this.begin(event);
    this.desk.view.refresh();
  }

  private begin(event: PointerEvent): Gesture | null {
    const { desk } = this;
    const press = this.press(event);
    const touch = event.pointerType === "touch";
    const pans = this.panning || event.button === 1 || (touch && this.penSeen);
    if (pans) return panGesture(desk, press);
    if (event.pointerType === "pen" && event.buttons & PEN_ERASER) return eraseGesture(desk, press);
    switch (desk.session.tool) {
      case "hand":
        return panGesture(desk, press);
      case "pen":
        return penGesture(desk, press);
      case "eraser":
        return eraseGesture(desk, press);
      case "select":
        return this.isDoubleTap(event) && this.editAt(press) ? null : selectGesture(desk, press, touch);
      case "text":
        if (!this.editAt(press)) desk.editText(press);
        return null;
      default:
        return shapeGesture(desk, press);
    }
  }

  private isDoubleTap(event: PointerEvent): boolean {
    const page = this.page(event);
    const before = this.lastTap;
    this.lastTap = { at: event.timeStamp, page };
    return (
      event.timeStamp - before.at < 350 && Math.hypot(page.x - before.page.x, page.y - before.page.y) < 12
    );
  }

  private editAt(press: Press): boolean {
    const hit = this.desk.board.at(press, 4 / this.desk.view.camera.zoom);
    if (hit?.type !== "text") return false;
    this.desk.editText({ x: hit.x, y: hit.y }, hit.id);
    return true;
  }

  private moved(event: PointerEvent): void {
    if (this.fingers.size > 1) {
      this.pinch(event);
      return;
    }
    if (event.pointerId !== this.active || !this.gesture) return;
    const all = event.getCoalescedEvents?.() ?? [];
    this.gesture.move((all.length ? all : [event]).map((each) => this.press(each)));
  }

  /** Whatever two fingers hold stays under them. */
  private pinch(event: PointerEvent): void {
    if (!this.fingers.has(event.pointerId)) return;
    const before = twoOf(this.fingers);
    this.fingers.set(event.pointerId, this.page(event));
    const after = twoOf(this.fingers);
    const { view } = this.desk;
    const by = before.apart ? after.apart / before.apart : 1;
    const shifted = panned(view.camera, after.middle.x - before.middle.x, after.middle.y - before.middle.y);
    view.look(zoomed(shifted, after.middle, by));
  }

  private up(event: PointerEvent, cancelled: boolean): void {
    this.fingers.delete(event.pointerId);
    if (event.pointerId !== this.active) return;
    const gesture = this.gesture;
    this.gesture = null;
    this.active = null;
    if (cancelled) gesture?.cancel();
    else gesture?.end();
    this.desk.view.refresh();
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const { view } = this.desk;
    const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
    if (event.ctrlKey || event.metaKey) {
      const by = Math.exp(-Math.max(-120, Math.min(120, dy)) * WHEEL_ZOOM * 2);
      view.look(zoomed(view.camera, this.page(event), by));
    } else {
      view.look(event.shiftKey && !dx ? panned(view.camera, -dy, 0) : panned(view.camera, -dx, -dy));
    }
  }

  private page(event: MouseEvent): XY {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private press(event: PointerEvent): Press {
    const page = this.page(event);
    const pressure = event.pointerType === "pen" ? event.pressure : undefined;
    return { ...toBoard(this.desk.view.camera, page), page, pressure, shift: event.shiftKey };
  }
}

function twoOf(fingers: ReadonlyMap<number, XY>): { middle: XY; apart: number } {
  const [one, other] = [...fingers.values()];
  if (!one || !other) return { middle: one ?? { x: 0, y: 0 }, apart: 0 };
  return {
    middle: { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 },
    apart: Math.hypot(one.x - other.x, one.y - other.y),
  };
}
