// The WebSocket to the Runtime: authentication, reconnecting, answers by id, and a gapless stream of revisions.
// Owns the connection and nothing of what the rows mean. The token itself is never sent: the page signs the server's
// challenge with it, so that whoever takes the port over while the Runtime is away learns nothing. A lost link loses nothing: actions in flight are sent again
// under the same action_id, and a new snapshot follows.

import type { Change, Json, JsonObject, Result, Snapshot } from "./rows";

export type LinkStatus = "connecting" | "online" | "offline" | "runtime_down" | "locked";

export interface LinkEvents {
  status(status: LinkStatus): void;
  hello(hello: { boot_id: string; version: string; surface_origin: string }): void;
  snapshot(snapshot: Snapshot): void;
  changes(revision: number, changes: Change[]): void;
  /** The server ended a load of a surface: its document went somewhere else. */
  torn(loadId: string): void;
}

/** Signs a challenge: what goes into the ``auth`` frame beside its type; null if there is no token. */
export type Sign = (nonce: string) => Promise<{ id: string; proof: string } | null>;

/** The part of WebSocket that the link uses, so that tests can stand in for it. */
export type Connect = (url: string) => WebSocket;

const RETRY_MS_FIRST = 150;
const RETRY_MS_MAX = 1_000;
const QUERY_MS_MAX = 20_000;
const HELD_DELTAS_MAX = 2_000;
const TOKEN_REFUSED = 4401;

interface Waiting {
  frame: JsonObject;
  action: boolean;
  resolve(result: Result): void;
  timer: ReturnType<typeof setTimeout> | null;
}

export const LINK_LOST: Result = { accepted: false, code: "link_lost", message: "the connection was lost" };

export class RuntimeLink {
  private socket: WebSocket | null = null;
  private greeted = false; // hello came: the token is good
  private synced = false; // a snapshot came on this socket
  private revision = 0;
  private held: { revision: number; changes: Change[] }[] = []; // deltas that wait for a snapshot
  private waiting = new Map<string, Waiting>();
  private retryMs = RETRY_MS_FIRST;
  private retryTimer: ReturnType<typeof setTimeout> | null = null;
  private nextId = 1;
  private stopped = false;

  constructor(
    private readonly url: string,
    private readonly mayTry: () => boolean,
    private readonly sign: Sign,
    private readonly events: LinkEvents,
    private readonly connect: Connect = (target) => new WebSocket(target),
  ) {}

  start(): void {
    this.stopped = false;
    this.open();
  }

  stop(): void {
    this.stopped = true;
    if (this.retryTimer) clearTimeout(this.retryTimer);
    this.socket?.close(1000);
    this.socket = null;
  }

  /** Try now instead of later: the page woke up, or the network came back. */
  hurry(): void {
    if (this.stopped || this.socket || !this.retryTimer) return;
    clearTimeout(this.retryTimer);
    this.retryTimer = null;
    this.retryMs = RETRY_MS_FIRST;
    this.open();
  }

  /** A durable action; it is kept and sent again over reconnects until the Runtime answers. */
  action(actionId: string, name: string, args: JsonObject): Promise<Result> {
    return this.send({ t: "action", action_id: actionId, name, args }, true);
  }

  /** Stop sending an action that has no answer yet; its promise ends as ``link_lost``. */
  abandon(actionId: string): void {
    for (const [id, waiting] of this.waiting)
      if (waiting.action && waiting.frame.action_id === actionId) this.settle(id, LINK_LOST);
  }

  /** A question; one that meets no open link, or no answer, ends as ``link_lost``. */
  query(name: string, args: JsonObject = {}): Promise<Result> {
    if (!this.greeted) return Promise.resolve(LINK_LOST);
    return this.send({ t: "query", name, args }, false);
  }

  private send(body: JsonObject, action: boolean): Promise<Result> {
    const id = `p${this.nextId++}`;
    const frame = { ...body, id };
    return new Promise((resolve) => {
      const timer = action ? null : setTimeout(() => this.settle(id, LINK_LOST), QUERY_MS_MAX);
      this.waiting.set(id, { frame, action, resolve, timer });
      if (this.greeted) this.write(frame);
    });
  }

  private open(): void {
    if (!this.mayTry()) {
      this.events.status("locked");
      return;
    }
    this.events.status("connecting");
    const socket = this.connect(this.url);
    this.socket = socket;
    this.greeted = false;
    this.synced = false;
    socket.onmessage = (event: MessageEvent) => {
      if (socket === this.socket) this.receive(socket, event.data);
    };
    socket.onclose = (event: CloseEvent) => {
      if (socket === this.socket) this.lost(event.code);
    };
  }

  private lost(code: number): void {
    const refused = code === TOKEN_REFUSED;
    this.socket = null;
    this.greeted = false;
    this.synced = false;
    this.held = [];
    for (const [id, waiting] of this.waiting) if (!waiting.action) this.settle(id, LINK_LOST);
    if (this.stopped) return;
    if (refused) {
      this.events.status("locked");
      return;
    }
    this.events.status("offline");
    this.retryTimer = setTimeout(() => {
      this.retryTimer = null;
      this.open();
    }, this.retryMs);
    this.retryMs = Math.min(RETRY_MS_MAX, this.retryMs * 1.8);
  }

  private receive(socket: WebSocket, data: unknown): void {
    const frame = parse(data);
    switch (frame?.t) {
      case "challenge":
        void this.authenticate(socket, String(frame.nonce));
        return;
      case "hello":
        this.greet(frame);
        return;
      case "snapshot":
        this.take(frame.snapshot as unknown as Snapshot);
        return;
      case "delta":
        this.delta(frame.revision as number, frame.changes as unknown as Change[]);
        return;
      case "runtime":
        this.events.status(frame.up ? "connecting" : "runtime_down");
        return;
      case "torn":
        this.events.torn(String(frame.load_id));
        return;
      case "result":
        this.settle(String(frame.re), resultOf(frame));
        return;
    }
  }

  private async authenticate(socket: WebSocket, nonce: string): Promise<void> {
    const signed = await this.sign(nonce);
    if (socket !== this.socket) return;
    if (signed) socket.send(JSON.stringify({ t: "auth", ...signed }));
    else socket.close(1000);
  }

  private greet(frame: JsonObject): void {
    this.greeted = true;
    this.retryMs = RETRY_MS_FIRST;
    this.events.hello({
      boot_id: String(frame.boot_id ?? ""),
      version: String(frame.version ?? ""),
      surface_origin: String(frame.surface_origin ?? ""),
    });
    for (const waiting of this.waiting.values()) this.write(waiting.frame);
  }

  private take(snapshot: Snapshot): void {
    this.synced = true;
    this.revision = snapshot.revision;
    this.events.snapshot(snapshot);
    this.events.status("online");
    const held = this.held;
    this.held = [];
    for (const delta of held) this.delta(delta.revision, delta.changes);
  }

  /** Revisions come one by one; after a gap nothing is shown until a snapshot has closed it. */
  private delta(revision: number, changes: Change[]): void {
    if (!this.synced) {
      if (this.held.length < HELD_DELTAS_MAX) this.held.push({ revision, changes });
      return;
    }
    if (revision <= this.revision) return;
    if (revision > this.revision + 1) {
      this.synced = false;
      this.held.push({ revision, changes });
      void this.resync();
      return;
    }
    this.revision = revision;
    this.events.changes(revision, changes);
  }

  private async resync(): Promise<void> {
    const socket = this.socket;
    const answer = await this.query("snapshot");
    if (socket !== this.socket) return;
    if (answer.accepted) this.take(answer.detail as unknown as Snapshot);
    else socket?.close(4000, "no snapshot");
  }

  private settle(id: string, result: Result): void {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    if (waiting.timer) clearTimeout(waiting.timer);
    waiting.resolve(result);
  }

  private write(frame: JsonObject): void {
    this.socket?.send(JSON.stringify(frame));
  }
}

function parse(data: unknown): JsonObject | null {
  if (typeof data !== "string") return null;
  try {
    const value = JSON.parse(data) as Json;
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** An answer's own fields beside the fixed ones are its detail: hostshell may send either form. */
function resultOf(frame: JsonObject): Result {
  const { t: _t, re: _re, accepted, code, message, detail, ...rest } = frame;
  const body = detail !== undefined ? detail : Object.keys(rest).length > 0 ? rest : undefined;
  return {
    accepted: accepted === true,
    ...(typeof code === "string" ? { code } : {}),
    ...(typeof message === "string" ? { message } : {}),
    ...(body !== undefined ? { detail: body } : {}),
  };
}
