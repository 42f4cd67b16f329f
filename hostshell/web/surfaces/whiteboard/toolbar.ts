// The controls: tools, style, history, zoom, submit. Built once, brought up to date after every change.

import { COLORS, WIDTHS } from "./elements";
import { type IconName, icon } from "./icons";
import { shade } from "./palette";
import { type Session, TOOLS } from "./session";
import type { View } from "./view";
import type { Words } from "./words";

export interface Actions {
  undo(): void;
  redo(): void;
  remove(): void;
  zoom(by: number): void;
  fit(): void;
  submit(): void | Promise<void>;
  canUndo(): boolean;
  canRedo(): boolean;
}

const SHORTCUTS: Record<string, string> = {
  select: "V",
  hand: "H",
  pen: "P",
  eraser: "E",
  rect: "R",
  ellipse: "O",
  line: "L",
  arrow: "A",
  text: "T",
  undo: "Ctrl+Z",
  redo: "Ctrl+Shift+Z",
  remove: "Delete",
  zoomIn: "+",
  zoomOut: "-",
  fit: "0",
};

const WIDTH_WORDS = ["thin", "medium", "thick", "heavy"] as const;

export class Toolbar {
  private readonly labels: [HTMLElement, (words: Words) => string, (string | undefined)?][] = [];
  private readonly updates: (() => void)[] = [];
  private readonly submit: HTMLButtonElement;
  private readonly submitText = document.createElement("span");
  private readonly styleButton: HTMLButtonElement;
  private readonly stylePanel: HTMLElement;

  constructor(
    root: HTMLElement,
    private readonly session: Session,
    private readonly view: View,
    private readonly actions: Actions,
  ) {
    this.stylePanel = this.makeStylePanel();
    this.styleButton = this.makeStyleButton();
    this.submit = document.createElement("button");
    this.submit.type = "button";
    this.submit.className = "submit";
    this.submit.append(icon("submit"), this.submitText);
    this.submit.addEventListener("click", () => void actions.submit());
    root.append(this.makeTop(), this.makeTools(), this.stylePanel);
    this.update();
  }

  speak(words: Words): void {
    for (const [element, text, key] of this.labels) {
      element.setAttribute("aria-label", text(words));
      if (element.tagName === "BUTTON") element.title = key ? `${text(words)} (${key})` : text(words);
    }
  }

  update(): void {
    for (const update of this.updates) update();
  }

  showSubmit(text: string, disabled: boolean): void {
    this.submitText.textContent = text;
    this.submit.disabled = disabled;
  }

  private makeTop(): HTMLElement {
    const { actions } = this;
    const left = group("row");
    left.append(
      this.button(
        "undo",
        () => actions.undo(),
        () => actions.canUndo(),
      ),
      this.button(
        "redo",
        () => actions.redo(),
        () => actions.canRedo(),
      ),
    );
    const zoom = group("row zoom");
    zoom.append(
      this.button("zoomOut", () => actions.zoom(0.8)),
      this.button("fit", () => actions.fit()),
      this.button("zoomIn", () => actions.zoom(1.25)),
    );
    const top = group("top");
    top.append(left, zoom, this.submit);
    return top;
  }

  private makeTools(): HTMLElement {
    const bar = group("tools");
    bar.setAttribute("role", "toolbar");
    this.labels.push([bar, (words) => words.tools]);
    for (const tool of TOOLS) {
      const button = this.button(tool, () => this.session.use(tool));
      this.updates.push(() => button.setAttribute("aria-pressed", String(this.session.tool === tool)));
      bar.append(button);
    }
    const remove = this.button(
      "remove",
      () => this.actions.remove(),
      () => this.session.selection.size > 0,
    );
    bar.append(this.styleButton, remove);
    rove(bar);
    return bar;
  }

  private makeStyleButton(): HTMLButtonElement {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "style-button";
    const dot = document.createElement("span");
    dot.className = "dot";
    button.append(dot);
    button.setAttribute("aria-controls", this.stylePanel.id);
    button.addEventListener("click", () => this.toggleStyle(this.stylePanel.hidden !== false));
    this.labels.push([button, (words) => words.style]);
    this.updates.push(() => {
      dot.style.background = shade(this.session.style.color, this.view.theme);
      dot.style.width = dot.style.height = `${8 + this.session.style.width}px`;
      button.setAttribute("aria-expanded", this.stylePanel.hidden ? "false" : "true");
    });
    return button;
  }

  private toggleStyle(open: boolean): void {
    this.stylePanel.hidden = !open;
    this.update();
    if (open) this.stylePanel.querySelector<HTMLElement>("[aria-checked=true]")?.focus();
  }

  private makeStylePanel(): HTMLElement {
    const panel = group("style-panel");
    panel.id = "style-panel";
    panel.hidden = true;
    const colors = this.radios("colors", COLORS.length, (i, button) => {
      const color = COLORS[i] ?? "ink";
      const dot = document.createElement("span");
      dot.className = "swatch";
      button.append(dot);
      this.labels.push([button, (words) => words[color]]);
      this.updates.push(() => {
        dot.style.background = shade(color, this.view.theme);
      });
      return { chosen: () => this.session.style.color === color, choose: () => this.session.wear({ color }) };
    });
    const widths = this.radios("widths", WIDTHS.length, (i, button) => {
      const width = WIDTHS[i] ?? 4;
      const bar = document.createElement("span");
      bar.className = "bar";
      bar.style.height = `${width}px`;
      button.append(bar);
      this.labels.push([button, (words) => words[WIDTH_WORDS[i] ?? "medium"]]);
      return { chosen: () => this.session.style.width === width, choose: () => this.session.wear({ width }) };
    });
    panel.append(colors, widths, this.makeFill());
    panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.toggleStyle(false);
      this.styleButton.focus();
    });
    document.addEventListener("pointerdown", (event) => {
      const target = event.target as Node;
      if (panel.hidden || panel.contains(target) || this.styleButton.contains(target)) return;
      this.toggleStyle(false);
    });
    return panel;
  }

  private makeFill(): HTMLElement {
    const label = document.createElement("label");
    label.className = "fill";
    const box = document.createElement("input");
    box.type = "checkbox";
    const text = document.createElement("span");
    label.append(box, text);
    box.addEventListener("change", () => this.session.wear({ fill: box.checked }));
    this.updates.push(() => {
      box.checked = this.session.style.fill;
    });
    this.labels.push([
      box,
      (words) => {
        text.textContent = words.fill;
        return words.fill;
      },
    ]);
    return label;
  }

  private radios(
    name: "colors" | "widths",
    count: number,
    make: (i: number, button: HTMLButtonElement) => { chosen(): boolean; choose(): void },
  ): HTMLElement {
    const list = group(name);
    list.setAttribute("role", "radiogroup");
    this.labels.push([list, (words) => words[name]]);
    for (let i = 0; i < count; i++) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "radio");
      const { chosen, choose } = make(i, button);
      button.addEventListener("click", choose);
      button.addEventListener("focus", () => {
        if (!chosen() && button.matches(":focus-visible")) choose();
      });
      this.updates.push(() => {
        button.setAttribute("aria-checked", String(chosen()));
        button.tabIndex = chosen() ? 0 : -1;
      });
      list.append(button);
    }
    rove(list, false);
    return list;
  }

  private button(name: IconName, act: () => void, possible?: () => boolean): HTMLButtonElement {
    const button = document.createElement("button");
    button.type = "button";
    button.append(icon(name));
    button.addEventListener("click", act);
    this.labels.push([button, (words) => words[name], SHORTCUTS[name]]);
    if (possible) {
      this.updates.push(() => {
        button.setAttribute("aria-disabled", String(!possible()));
      });
    }
    return button;
  }
}

function group(className: string): HTMLElement {
  const element = document.createElement("div");
  element.className = className;
  return element;
}

/** Arrow keys go through the buttons, Tab passes the group in one step. */
function rove(bar: HTMLElement, own = true): void {
  const buttons = () => [...bar.querySelectorAll<HTMLButtonElement>("button")];
  if (own) {
    buttons().forEach((button, i) => {
      button.tabIndex = i ? -1 : 0;
    });
  }
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const all = buttons();
    const next = all[(all.indexOf(event.target as HTMLButtonElement) + by + all.length) % all.length];
    next?.focus();
  });
  bar.addEventListener("focusin", (event) => {
    if (!own) return;
    for (const button of buttons()) button.tabIndex = button === event.target ? 0 : -1;
  });
}
