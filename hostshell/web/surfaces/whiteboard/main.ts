// The whiteboard's page: puts the parts together and speaks with the Host's bridge. The board itself is the surface's state
// `{elements: {id: …}}`, kept by the Runtime; this page shows it and says what the person changes.

import { Board } from "./board";
import type { Answer, JsonObject, LineUp } from "./bridge";
import { fitted, viewOf, zoomed } from "./camera";
import { isObject } from "./elements";
import { contains } from "./geometry";
import { type Desk, drawSelection } from "./gestures";
import { listen } from "./keys";
import { Messages } from "./messages";
import { pngOf, svgOf } from "./picture";
import { Pointers } from "./pointer";
import { Session } from "./session";
import { TextEditor } from "./textedit";
import { Toolbar } from "./toolbar";
import { View } from "./view";
import { type Words, wordsFor } from "./words";

const SUBMITTED_MS = 8000; // if the board is still there by then, it can be submitted again
const FIT_MARGIN = 72; // pixels, so that nothing hides under the controls

function part<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

class Page {
  private readonly glass = part<HTMLCanvasElement>("glass");
  private readonly messages = new Messages(
    { toast: part("toast"), saving: part("saving"), spoken: part("spoken") },
    () => this.words(),
  );
  private readonly board: Board;
  private readonly view: View;
  private readonly session: Session;
  private readonly editor: TextEditor;
  private readonly pointers: Pointers;
  private readonly toolbar: Toolbar;
  private seen = false; // something of the drawing has been shown
  private answered = ""; // the last ask that this page took on

  constructor(private readonly lineup: LineUp) {
    this.board = new Board({
      update: (patch, options) => lineup.update(patch, options),
      later: (work, ms) => void setTimeout(work, ms),
      refused: (answer) => this.messages.refused(answer),
    });
    this.view = new View(this.board, part<HTMLCanvasElement>("scene"), this.glass);
    this.session = new Session(this.board);
    const desk: Desk = {
      board: this.board,
      view: this.view,
      session: this.session,
      editText: (at, id) => this.editor.open(at, id),
    };
    this.editor = new TextEditor(desk, part<HTMLTextAreaElement>("writing"), this.glass);
    this.pointers = new Pointers(desk, this.glass);
    this.toolbar = new Toolbar(part("controls"), this.session, this.view, this);
    listen(desk, this.pointers, this.glass, this);
    this.view.drawGlass = (context) => {
      this.pointers.gesture?.draw?.(context);
      if (!this.pointers.gesture) drawSelection(desk, context);
    };
  }

  /** Show the page and follow the Host and the state from now on. */
  start(): void {
    const stage = part("stage");
    const resize = () => this.view.resize(stage.clientWidth, stage.clientHeight, devicePixelRatio);
    new ResizeObserver(resize).observe(stage);
    resize();
    this.session.onchange(() => this.sessionChanged());
    this.board.onchange(() => this.toolbar.update());
    this.messages.watch(this.board.sync);
    this.sessionChanged();
    this.lineup.onhost(() => this.dress());
    this.lineup.onstate((state, revision) => this.heard(state, revision));
    addEventListener("pagehide", () => {
      this.editor.finish();
      this.board.sync.leave();
    });
    part("unbuilt").remove();
    this.lineup.ready();
  }

  // -- commands of toolbar and keyboard --

  words(): Words {
    return wordsFor(this.lineup.host.locale).words;
  }

  announce(text: string): void {
    this.messages.announce(text);
  }

  undo(): void {
    this.board.undo();
  }

  redo(): void {
    this.board.redo();
  }

  canUndo(): boolean {
    return this.board.history.canUndo;
  }

  canRedo(): boolean {
    return this.board.history.canRedo;
  }

  remove(): void {
    const count = this.session.selection.size;
    if (!count) return;
    this.board.remove(this.session.selection);
    this.announce(this.words().removed(count));
  }

  zoom(by: number): void {
    const { w, h } = this.view.pageSize;
    this.view.look(zoomed(this.view.camera, { x: w / 2, y: h / 2 }, by));
  }

  fit(): void {
    const box = this.board.box;
    this.view.look(box ? fitted(box, this.view.pageSize, FIT_MARGIN) : { x: 0, y: 0, zoom: 1 });
  }

  /** Hand the board in. */
  async submit(): Promise<void> {
    const { toolbar } = this;
    toolbar.showSubmit(this.words().submitting, true);
    const answer = await this.picture()
      .then((payload) => this.lineup.submit(payload))
      .catch((error: unknown): Answer => {
        console.error(error);
        return { accepted: false };
      });
    if (answer.accepted) {
      toolbar.showSubmit(this.words().submitted, true);
      setTimeout(() => toolbar.showSubmit(this.words().submit, false), SUBMITTED_MS);
    } else {
      toolbar.showSubmit(this.words().submit, false);
      this.messages.toast(this.words().submitFailed);
    }
  }

  // -- what comes from outside --

  private dress(): void {
    const { host } = this.lineup;
    const { words, lang } = wordsFor(host.locale);
    this.view.theme = host.theme;
    document.documentElement.dataset.theme = host.theme;
    document.documentElement.lang = lang;
    this.glass.setAttribute("aria-label", words.canvas);
    part("writing").setAttribute("aria-label", words.typeHere);
    this.toolbar.speak(words);
    this.toolbar.showSubmit(words.submit, false);
    this.toolbar.update();
    this.view.damaged("all");
  }

  private heard(state: JsonObject, revision: number): void {
    this.board.sync.heard(state.elements, revision);
    if (!this.seen && this.board.elements.length) {
      this.seen = true;
      this.showAll();
    }
    part("title").textContent = typeof state.title === "string" ? state.title : this.words().board;
    if (isObject(state.trouble)) {
      this.toolbar.showSubmit(this.words().submit, false);
      this.messages.toast(this.words().submitFailed);
    }
    if (isObject(state.ask) && typeof state.ask.id === "string") void this.answerAsk(state.ask.id);
  }

  /** A board that was drawn on a larger page (or far out) is shown whole at first. */
  private showAll(): void {
    const box = this.board.box;
    if (box && !contains(viewOf(this.view.camera, this.view.pageSize), box)) this.fit();
  }

  /** The agent wants the picture: every page hands it in, the first is taken. */
  private async answerAsk(ask: string): Promise<void> {
    if (ask === this.answered) return;
    this.answered = ask;
    await this.lineup.submit({ ask, ...(await this.picture()) });
  }

  private async picture(): Promise<JsonObject> {
    this.editor.finish();
    await this.board.sync.settled();
    const { elements } = this.board;
    const svg = svgOf(elements, part("title").textContent ?? "");
    return { png: await pngOf(elements), elements: elements.length, ...(svg !== undefined && { svg }) };
  }

  private sessionChanged(): void {
    this.glass.dataset.tool = this.session.tool;
    this.toolbar.update();
    this.view.refresh();
  }
}

new Page(window.lineup).start();
