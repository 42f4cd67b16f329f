// Writing on the board: a textarea that lies exactly where the text will be.

import type { JsonObject } from "./bridge";
import { toPage } from "./camera";
import { LINE_HEIGHT, TEXT_LENGTH_MAX, textSize } from "./elements";
import { tidy, type XY } from "./geometry";
import type { Desk } from "./gestures";
import { FONT } from "./paint";
import { shade } from "./palette";

const measuring = document.createElement("canvas").getContext("2d");

export class TextEditor {
  private close: (() => void) | null = null;

  constructor(
    private readonly desk: Desk,
    private readonly area: HTMLTextAreaElement,
    canvas: HTMLCanvasElement,
  ) {
    area.maxLength = TEXT_LENGTH_MAX;
    area.addEventListener("input", () => this.fit());
    area.addEventListener("blur", () => this.close?.());
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) {
        event.preventDefault();
        this.close?.();
        canvas.focus({ preventScroll: true });
      }
    });
  }

  /** Write at a point, or (with `id`) change a text that is there. */
  open(at: XY, id?: string): void {
    this.close?.();
    const { board, view, session } = this.desk;
    const old = id === undefined ? undefined : board.get(id);
    const before = old?.type === "text" ? old : undefined;
    const size = before?.size ?? 12 + session.style.width * 3;
    const place = before ? at : { x: at.x, y: at.y - (size * LINE_HEIGHT) / 2 };
    const color = before?.color ?? session.style.color;
    if (before) view.hold(new Set([before.id]));
    this.show(place, size, shade(color, view.theme), before?.text ?? "");
    this.close = () => {
      this.close = null;
      const text = this.area.value.replace(/\s+$/, "");
      this.area.hidden = true;
      view.hold(new Set());
      const measured = { text, ...measure(text, size) };
      if (before) {
        if (!text) board.remove([before.id]);
        else if (text !== before.text) board.change(new Map([[before.id, measured]]));
      } else if (text.trim()) {
        const raw: JsonObject = {
          type: "text",
          z: board.nextZ,
          color,
          x: tidy(place.x),
          y: tidy(place.y),
          size,
        };
        const made = session.newId();
        board.create(made, { ...raw, ...measured });
        session.use("select");
        session.select([made]);
      }
    };
  }

  /** Finish what is being written. */
  finish(): void {
    this.close?.();
  }

  private show(place: XY, size: number, color: string, text: string): void {
    const { view } = this.desk;
    const { area } = this;
    const page = toPage(view.camera, place);
    const pixels = size * view.camera.zoom;
    Object.assign(area.style, {
      left: `${page.x}px`,
      top: `${page.y}px`,
      font: `${pixels}px/${LINE_HEIGHT} ${FONT}`,
      color,
      maxWidth: `${Math.max(120, view.pageSize.w - page.x - 8)}px`,
    });
    area.value = text;
    area.hidden = false;
    this.fit();
    // A press on the canvas would take the focus back right after its pointerdown.
    requestAnimationFrame(() => {
      area.focus({ preventScroll: true });
      area.select();
    });
  }

  private fit(): void {
    const { style } = this.area;
    style.width = style.height = "0";
    style.width = `${Math.max(24, this.area.scrollWidth + 4)}px`;
    style.height = `${this.area.scrollHeight}px`;
  }
}

function measure(text: string, size: number): { w: number; h: number } {
  const guess = textSize(text, size);
  if (!measuring) return guess;
  measuring.font = `${size}px ${FONT}`;
  const widths = text.split("\n").map((line) => measuring.measureText(line).width);
  return { w: tidy(Math.max(...widths)), h: tidy(guess.h) };
}
