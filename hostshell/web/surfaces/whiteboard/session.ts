// What the person has chosen on this page: tool, style, selection. Nothing of it is the board's.

import type { Board } from "./board";
import type { COLORS } from "./elements";
import { type Box, frameOf, union } from "./geometry";

export const TOOLS = ["select", "hand", "pen", "eraser", "rect", "ellipse", "line", "arrow", "text"] as const;
export type Tool = (typeof TOOLS)[number];

export interface Style {
  readonly color: (typeof COLORS)[number];
  readonly width: number;
  readonly fill: boolean;
}

export class Session {
  tool: Tool = "pen";
  style: Style = { color: "ink", width: 4, fill: false };
  selection: ReadonlySet<string> = new Set();
  private listeners: (() => void)[] = [];
  private readonly tab = crypto
    .getRandomValues(new Uint32Array(2))
    .reduce((text, n) => text + n.toString(36), "");
  private made = 0;

  constructor(private readonly board: Board) {
    board.onchange(() => {
      if ([...this.selection].some((id) => !board.get(id))) this.select([...this.selection]);
    });
  }

  onchange(listener: () => void): void {
    this.listeners.push(listener);
  }

  /** An id that no other page makes. */
  newId(): string {
    this.made += 1;
    return `${this.tab}-${this.made.toString(36)}`;
  }

  use(tool: Tool): void {
    this.tool = tool;
    if (tool !== "select") this.selection = new Set();
    this.tell();
  }

  /** Choose a style, for what comes and for what is selected. */
  wear(style: Partial<Style>): void {
    this.style = { ...this.style, ...style };
    const { color, width, fill } = style;
    const fields = new Map(
      [...this.selection].flatMap((id) => {
        const type = this.board.get(id)?.type;
        const patch = {
          ...(color !== undefined && { color }),
          ...(width !== undefined && type !== "text" && { width }),
          ...(fill !== undefined && (type === "rect" || type === "ellipse") && { fill }),
        };
        return Object.keys(patch).length ? [[id, patch] as const] : [];
      }),
    );
    if (fields.size) this.board.change(fields);
    this.tell();
  }

  select(ids: Iterable<string>): void {
    this.selection = new Set([...ids].filter((id) => this.board.get(id)));
    this.tell();
  }

  get frame(): Box | null {
    const elements = [...this.selection].flatMap((id) => this.board.get(id) ?? []);
    return union(elements.map(frameOf));
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }
}
