// The whiteboard's page: puts the parts together and speaks with the Host's bridge. The board itself is the surface's state
// `{elements: {id: …}}`, kept by the Runtime; this page shows it and says what the person changes.

import { Board } from "./board";
import type { Answer, JsonObject, LineUp } from "./bridge";
import { fitted, viewOf, zoomed } from "./camera";
import { isObject } from "./elements";
import { contains } from "./geometry";
import { type Desk, drawSelection } from "./gestures";
import { listen } from "./keys";
import { pngOf, svgOf } from "./picture";
import { Pointers } from "./pointer";
import { Session } from "./session";
import { TextEditor } from "./textedit";
import { Toolbar } from "./toolbar";
import { View } from "./view";
import { wordsFor } from "./words";

const SUBMITTED_MS = 8000; // if the board is still there by then, it can be submitted again
const TROUBLE_MS = 1500; // shorter hiccups are nobody's concern

function start(lineup: LineUp): void {
  const part = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
  const glass = part<HTMLCanvasElement>("glass");
  const stage = part<HTMLElement>("stage");
  let words = wordsFor(lineup.host.locale).words;
  let unsavedSince = 0;

  const board = new Board({
    update: (patch, options) => lineup.update(patch, options),
    later: (work, ms) => void setTimeout(work, ms),
    refused: (answer) => complain(answer),
  });
  const view = new View(board, part<HTMLCanvasElement>("scene"), glass);
  const session = new Session(board);
  const editor = new TextEditor(() => desk, part<HTMLTextAreaElement>("writing"), glass);
  const desk: Desk = { board, view, session, editText: (at, id) => editor.open(at, id) };
  const pointers = new Pointers(desk, glass);

  const middle = () => ({ x: view.pageSize.w / 2, y: view.pageSize.h / 2 });
  const commands = {
    undo: () => board.undo(),
    redo: () => board.redo(),
    canUndo: () => board.history.canUndo,
    canRedo: () => board.history.canRedo,
    remove() {
      const count = session.selection.size;
      board.remove(session.selection);
      if (count) commands.announce(words.removed(count));
    },
    zoom: (by: number) => view.look(zoomed(view.camera, middle(), by)),
    fit() {
      const box = board.box;
      view.look(box ? fitted(box, view.pageSize, 72) : { x: 0, y: 0, zoom: 1 });
    },
    announce(text: string) {
      part("spoken").textContent = text;
    },
    words: () => words,
    submit: () => void submit(),
  };
  const toolbar = new Toolbar(part("controls"), session, view, commands);
  listen(desk, pointers, glass, commands);

  view.drawGlass = (context) => {
    pointers.gesture?.draw?.(context);
    if (!pointers.gesture) drawSelection(desk, context);
  };
  session.onchange(() => {
    glass.dataset.tool = session.tool;
    toolbar.update();
    view.refresh();
  });
  board.onchange(() => toolbar.update());

  // -- the Host --

  function dress(): void {
    view.theme = lineup.host.theme;
    document.documentElement.dataset.theme = view.theme;
    const spoken = wordsFor(lineup.host.locale);
    words = spoken.words;
    document.documentElement.lang = spoken.lang;
    glass.setAttribute("aria-label", words.canvas);
    part("writing").setAttribute("aria-label", words.typeHere);
    toolbar.speak(words);
    toolbar.showSubmit(words.submit, false);
    toolbar.update();
    view.damaged("all");
  }

  let seen = false;
  function heard(state: JsonObject, revision: number): void {
    board.sync.heard(state.elements, revision);
    if (!seen && board.elements.length) {
      seen = true;
      showAll();
    }
    part("title").textContent = typeof state.title === "string" ? state.title : words.board;
    if (isObject(state.trouble)) toast(words.submitFailed);
    void answerAsk(state);
  }

  /** A board that was drawn on a larger page (or far out) is shown whole at first. */
  function showAll(): void {
    const box = board.box;
    if (box && !contains(viewOf(view.camera, view.pageSize), box)) commands.fit();
  }

  // -- handing in --

  async function picture(): Promise<JsonObject> {
    editor.finish();
    await board.sync.settled();
    const svg = svgOf(board.elements, part("title").textContent ?? "");
    const png = await pngOf(board.elements);
    return { png, elements: board.elements.length, ...(svg !== undefined && { svg }) };
  }

  async function submit(): Promise<void> {
    toolbar.showSubmit(words.submitting, true);
    const answer = await picture()
      .then((payload) => lineup.submit(payload))
      .catch((error: unknown): Answer => {
        console.error(error);
        return { accepted: false };
      });
    if (!answer.accepted) {
      toolbar.showSubmit(words.submit, false);
      toast(words.submitFailed);
      return;
    }
    toolbar.showSubmit(words.submitted, true);
    setTimeout(() => toolbar.showSubmit(words.submit, false), SUBMITTED_MS);
  }

  /** The agent wants the picture: one page hands it in, whichever is first. */
  let answered = "";
  async function answerAsk(state: JsonObject): Promise<void> {
    const ask = isObject(state.ask) && typeof state.ask.id === "string" ? state.ask.id : "";
    if (!ask || ask === answered) return;
    answered = ask;
    await lineup.submit({ ask, ...(await picture()) });
  }

  // -- what the person has to know --

  function complain(answer: Answer): void {
    if (answer.code === "state_too_large") toast(words.full);
    else if (answer.code === "surface_not_found" || answer.code === "app_closed") toast(words.closed);
    else toast(words.refused);
  }

  let toasting = 0;
  function toast(text: string): void {
    const element = part("toast");
    element.textContent = text;
    element.hidden = false;
    clearTimeout(toasting);
    toasting = window.setTimeout(() => {
      element.hidden = true;
    }, 6000);
  }

  setInterval(() => {
    if (!board.sync.pending) unsavedSince = 0;
    else unsavedSince ||= performance.now();
    const trouble = unsavedSince > 0 && performance.now() - unsavedSince > TROUBLE_MS;
    part("saving").textContent = trouble ? words.offline : "";
  }, 500);

  new ResizeObserver(() => view.resize(stage.clientWidth, stage.clientHeight, devicePixelRatio)).observe(
    stage,
  );
  view.resize(stage.clientWidth, stage.clientHeight, devicePixelRatio);
  glass.dataset.tool = session.tool;
  lineup.onhost(dress);
  lineup.onstate(heard);
  lineup.ready();
}

start(window.lineup);
