// What the page can do, as functions: ask the Runtime for an action, read a page of history, send a text. Joins the
// link, the store and the journal; the answers change the state through the reducer only.

import { createStore, type StoreApi } from "zustand/vanilla";
import { type Connect, LINK_LOST, RuntimeLink, type Sign } from "../runtime/link";
import type {
  Artifact,
  Change,
  Interaction,
  Json,
  JsonObject,
  Result,
  SessionPage,
  SurfacePatch,
  TimelinePage,
} from "../runtime/rows";
import { currentToken, signChallenge } from "../runtime/session";
import * as journal from "./journal";
import { EMPTY, type Workspace } from "./model";
import { reduce, type WorkspaceEvent } from "./reducer";

export const PAGE_ENTRIES = 100;
const TEXT_WAIT_MS_MAX = 10 * 60_000; // a text that no Runtime took for so long is not sent behind the person's back
const FLUSH_MS = 16;

interface InteractionPage {
  interactions: Interaction[];
  next?: string;
}

/** Actions that must survive a reload; the rest is safe to lose or to ask again. */
const KEPT_ACTIONS = new Set(["person.text", "interaction.answer", "interaction.cancel"]);

export class Client {
  readonly store: StoreApi<Workspace> = createStore(() => EMPTY);
  readonly link: RuntimeLink;
  private surfaceListeners = new Set<(patch: SurfacePatch) => void>();
  private snapshotListeners = new Set<() => void>();
  private tornListeners = new Set<(loadId: string) => void>();
  private surfaceOrigin = "";
  private pending: { revision: number; changes: Change[] } | null = null;
  private flushTimer: ReturnType<typeof setTimeout> | null = null;
  private reading = 0; // which snapshot's further questions are being read
  private readonly asked = new Set<string>(); // rows that are being read just now

  constructor(
    url: string,
    mayTry: () => boolean = () => currentToken() !== null,
    sign: Sign = signChallenge,
    connect?: Connect,
  ) {
    this.link = new RuntimeLink(
      url,
      mayTry,
      sign,
      {
        status: (status) => this.dispatch({ type: "link", status }),
        hello: ({ surface_origin, ...hello }) => {
          this.checkSurfaceOrigin(surface_origin);
          this.dispatch({ type: "hello", ...hello });
        },
        snapshot: (snapshot) => {
          this.pending = null;
          this.dispatch({ type: "snapshot", snapshot, at: Date.now() });
          for (const listener of this.snapshotListeners) listener();
          void this.readFurtherInteractions(snapshot.interactions_next);
        },
        changes: (revision, changes) => this.take(revision, changes),
        torn: (loadId) => {
          for (const listener of this.tornListeners) listener(loadId);
        },
      },
      connect,
    );
  }

  start(): void {
    for (const action of journal.kept()) this.resume(action);
    this.link.start();
  }

  dispatch(event: WorkspaceEvent): void {
    this.store.setState((state) => reduce(state, event), true);
  }

  /** Every patch of every surface, as it comes. Returns a function that stops it. */
  onSurfacePatch(listener: (patch: SurfacePatch) => void): () => void {
    this.surfaceListeners.add(listener);
    return () => this.surfaceListeners.delete(listener);
  }

  /** The rows have been read anew: changes before now may never have come as such. Returns a function that stops it. */
  onSnapshot(listener: () => void): () => void {
    this.snapshotListeners.add(listener);
    return () => this.snapshotListeners.delete(listener);
  }

  /** Every load of a surface that the server has ended. Returns a function that stops it. */
  onTorn(listener: (loadId: string) => void): () => void {
    this.tornListeners.add(listener);
    return () => this.tornListeners.delete(listener);
  }

  /** This page's policy lets it frame one origin only; if surfaces have moved, a new page is needed. */
  private checkSurfaceOrigin(origin: string): void {
    if (this.surfaceOrigin !== "" && origin !== this.surfaceOrigin) location.reload();
    this.surfaceOrigin = origin;
  }

  // actions

  /** Ask for one action. ``actionId`` given again asks for the same one, once. */
  async act(name: string, args: JsonObject, actionId: string = newId()): Promise<Result> {
    if (!KEPT_ACTIONS.has(name)) return this.link.action(actionId, name, args);
    journal.keep({ action_id: actionId, name, args, at: new Date().toISOString() });
    const result = await this.link.action(actionId, name, args);
    if (result.code !== LINK_LOST.code) journal.forget(actionId);
    return result;
  }

  async query<T>(name: string, args: JsonObject = {}): Promise<T> {
    const result = await this.link.query(name, args);
    if (!result.accepted) throw new Refused(result);
    return result.detail as T;
  }

  /** Say something; the echo shows at once how far it has come. */
  sendText(conversationId: string, text: string, sessionId?: string): void {
    const action: journal.Kept = {
      action_id: newId(),
      name: "person.text",
      args: { conversation_id: conversationId, text, ...(sessionId ? { session_id: sessionId } : {}) },
      at: new Date().toISOString(),
    };
    journal.keep(action);
    this.resume(action);
  }

  /** Resolves once a conversation's row is on the page; the answer to its opening may be here before. */
  conversationShown(conversationId: string): Promise<void> {
    const isShown = (state: Workspace) => state.conversations[conversationId] !== undefined;
    if (isShown(this.store.getState())) return Promise.resolve();
    return new Promise((resolve) => {
      const stop = this.store.subscribe((state) => {
        if (!isShown(state)) return;
        stop();
        resolve();
      });
    });
  }

  /** Once more. One that may have arrived keeps its id; one that was refused needs a new one. */
  retryText(actionId: string): void {
    const echo = this.store.getState().echoes.find((e) => e.action_id === actionId);
    if (!echo) return;
    const known = journal.kept().find((action) => action.action_id === actionId);
    this.discardText(actionId);
    const again: journal.Kept = {
      action_id: echo.state === "failed" ? newId() : actionId,
      name: "person.text",
      args: known?.args ?? { conversation_id: echo.conversation_id, text: echo.text },
      at: new Date().toISOString(),
    };
    journal.keep(again);
    this.resume(again);
  }

  discardText(actionId: string): void {
    journal.forget(actionId);
    this.link.abandon(actionId);
    this.dispatch({ type: "echo.dropped", action_id: actionId });
  }

  private resume(action: journal.Kept): void {
    if (action.name === "person.text") void this.carryText(action);
    else void this.act(action.name, action.args, action.action_id);
  }

  private async carryText(action: journal.Kept): Promise<void> {
    const { action_id, args, at, refused } = action;
    const left = TEXT_WAIT_MS_MAX - (Date.now() - Date.parse(at));
    this.dispatch({
      type: "echo.added",
      echo: {
        action_id,
        conversation_id: String(args.conversation_id),
        text: String(args.text),
        at,
        state: refused ? "failed" : left <= 0 ? "expired" : "sending",
        ...refused,
      },
    });
    if (refused || left <= 0) return;
    const timer = setTimeout(() => this.link.abandon(action_id), left);
    const result = await this.link.action(action_id, action.name, args);
    clearTimeout(timer);
    if (result.accepted) {
      journal.forget(action_id);
      this.dispatch({ type: "echo.changed", action_id, change: { state: "sent" } });
    } else if (result.code === LINK_LOST.code) {
      this.dispatch({ type: "echo.changed", action_id, change: { state: "expired" } });
    } else {
      const why = { code: result.code ?? "", message: result.message ?? "" };
      journal.keep({ ...action, refused: why });
      this.dispatch({ type: "echo.changed", action_id, change: { state: "failed", ...why } });
    }
  }

  // history

  /** Read the newest page of a conversation, or (``older``) the page before what is there. */
  async readTimeline(conversationId: string, older = false): Promise<void> {
    const timeline = this.store.getState().timelines[conversationId];
    const first = timeline?.entries[0]?.n;
    if (timeline?.loading || (older && (first === undefined || timeline?.complete))) return;
    const before = older ? (first ?? null) : null;
    this.dispatch({ type: "page.asked", conversation_id: conversationId });
    try {
      const args = {
        conversation_id: conversationId,
        limit: PAGE_ENTRIES,
        ...(before === null ? {} : { before }),
      };
      const page = await this.query<TimelinePage>("timeline", args);
      const event = {
        type: "page.read",
        conversation_id: conversationId,
        before,
        page,
      } as const;
      this.dispatch(event);
    } catch {
      this.dispatch({ type: "page.failed", conversation_id: conversationId });
    }
  }

  /** One entry's rows, when the timeline points at something that the page does not have. */
  async readEntry(conversationId: string, n: number): Promise<void> {
    await this.once(`entry:${conversationId}/${n}`, async () => {
      const args = { conversation_id: conversationId, before: n + 1, limit: 1 };
      this.dispatch({ type: "entry.read", page: await this.query<TimelinePage>("timeline", args) });
    });
  }

  /** A question of which the page has the beginning only. */
  async readInteraction(interactionId: string): Promise<void> {
    await this.once(`interaction:${interactionId}`, async () => {
      const row = await this.query<Interaction>("interaction", { interaction_id: interactionId });
      this.dispatch({ type: "interactions.read", interactions: [row] });
    });
  }

  /** The questions that a snapshot had no room for. */
  private async readFurtherInteractions(next: string | undefined): Promise<void> {
    if (next === undefined) return;
    this.reading += 1;
    const reading = this.reading; // a later snapshot begins anew
    try {
      for (let after: string | undefined = next; after !== undefined && reading === this.reading; ) {
        const page: InteractionPage = await this.query("interactions", { after, brief: true });
        this.dispatch({ type: "interactions.read", interactions: page.interactions });
        after = page.next;
      }
    } catch {
      // The link was lost; the next snapshot says again where to go on.
    }
  }

  async readSession(sessionId: string): Promise<void> {
    await this.once(`session:${sessionId}`, async () => {
      const page = await this.query<SessionPage>("session", { session_id: sessionId });
      for (let after = page.next; after !== undefined; ) {
        const more: SessionPage = await this.query("session", { session_id: sessionId, after });
        for (const list of ["entries", "interactions", "sessions", "calls"] as const)
          (page[list] as unknown[]).push(...more[list]);
        after = more.next;
      }
      this.dispatch({ type: "session.read", page });
    });
  }

  async readArtifacts(conversationId: string): Promise<void> {
    await this.once(`artifacts:${conversationId}`, async () => {
      let after: string | undefined;
      do {
        const args = { conversation_id: conversationId, ...(after === undefined ? {} : { after }) };
        const page: { artifacts: Artifact[]; next?: string } = await this.query("artifacts", args);
        this.dispatch({ type: "artifacts.read", artifacts: page.artifacts });
        after = page.next;
      } while (after !== undefined);
    });
  }

  private async once(key: string, read: () => Promise<void>): Promise<void> {
    if (this.asked.has(key)) return;
    this.asked.add(key);
    try {
      await read();
    } catch {
      // The link was lost or the row is gone; whoever still needs it asks again.
    } finally {
      this.asked.delete(key);
    }
  }

  // deltas

  /** Bursts become one change of the page per frame; the first of a burst shows at once. */
  private take(revision: number, changes: Change[]): void {
    for (const change of changes)
      if (change.kind === "surface_patch" && change.row)
        for (const listener of this.surfaceListeners) listener(change.row as SurfacePatch);
    if (this.pending) {
      this.pending.changes.push(...changes);
      this.pending.revision = revision;
    } else {
      this.pending = { revision, changes: [...changes] };
    }
    if (this.flushTimer === null) {
      this.flush();
      this.flushTimer = setTimeout(() => {
        this.flushTimer = null;
        this.flush();
      }, FLUSH_MS);
    }
  }

  private flush(): void {
    const pending = this.pending;
    this.pending = null;
    if (pending) this.dispatch({ type: "changes", ...pending });
  }
}

/** A query that the Runtime refused, or that met no link. */
export class Refused extends Error {
  constructor(readonly result: Result) {
    super(result.message ?? result.code ?? "refused");
  }

  get detail(): Json {
    return this.result.detail ?? null;
  }
}

export function newId(): string {
  return `w-${crypto.randomUUID()}`;
}
