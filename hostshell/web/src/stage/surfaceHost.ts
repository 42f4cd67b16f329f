// The workspace's side of one load of one surface: hands over a port, answers what comes through it, and tears the load
// down when the document leaves its place. Everything that comes is attributed to this load's surface; nothing that it
// says about itself is believed. Knows nothing of React.

import type { Json, JsonObject, Operation, Result, SurfacePatch } from "../runtime/rows";
import type { Client } from "../state/client";

export interface HostInfo {
  theme: "light" | "dark";
  locale: string;
  timeZone: string;
  visibility: "visible" | "hidden";
  reducedMotion: boolean;
  clockSkewMs: number;
}

export interface Projection {
  operations: readonly Operation[];
  snapshot: JsonObject | null;
}

const MESSAGE_BYTES_MAX = 3_400_000; // a little over the Runtime's own bound, which gives the exact answer
const WAITING_MAX = 100;
const READ_AGAIN_MS = 1_000;
const GREET_APART_MS = 1_000; // a page that says again that it is ready is given the whole state again, which costs all
const LAST_WORDS_MS = 2_000; // for a document's process to come to an end

export class SurfaceHost {
  private port: MessagePort | null = null;
  private ready = false;
  private leaving = false;
  private revision = 0;
  private reading = false;
  private stale = false; // what is being read may be from before the newest gap
  private waiting = 0; // requests of the page without an answer
  private held: SurfacePatch[] = [];
  private readAgain: ReturnType<typeof setTimeout> | null = null;
  private greetAgain: ReturnType<typeof setTimeout> | null = null;
  private greeted = Number.NEGATIVE_INFINITY; // when
  private readonly stops: (() => void)[];
  private host: HostInfo;
  private projection: Projection;

  constructor(
    private readonly client: Client,
    private readonly surfaceId: string,
    private readonly nonce: string,
    host: HostInfo,
    projection: Projection,
    private readonly onReady: () => void,
  ) {
    this.host = host;
    this.projection = projection;
    this.stops = [
      client.onSurfacePatch((patch) => {
        if (patch.surface_id === surfaceId) this.patched(patch);
      }),
      // Each closes a gap of the link, and patches that fell into it come no more.
      client.onSnapshot(() => void this.resync()),
    ];
  }

  /** Hand a fresh port to the document that has just been loaded. */
  connect(target: Window): void {
    const channel = new MessageChannel();
    this.port = channel.port1;
    this.port.onmessage = (event: MessageEvent<unknown>) => void this.receive(event.data);
    // "*": an opaque origin has no name. Only a document with this load's bridge knows the nonce.
    target.postMessage({ nonce: this.nonce }, "*", [channel.port2]);
  }

  close(): void {
    for (const stop of this.stops) stop();
    if (this.readAgain) clearTimeout(this.readAgain);
    if (this.greetAgain) clearTimeout(this.greetAgain);
    this.port?.close();
    this.port = null;
  }

  /** The person goes elsewhere and the document with its frame. What it has not saved yet it says on its way out. */
  leave(): void {
    this.leaving = true;
    this.ready = false;
    if (this.readAgain) clearTimeout(this.readAgain);
    if (this.greetAgain) clearTimeout(this.greetAgain);
    setTimeout(() => this.close(), LAST_WORDS_MS);
  }

  setHost(host: HostInfo): void {
    this.host = host;
    if (this.ready) this.send({ t: "host", host: { ...host } });
  }

  setProjection(projection: Projection): void {
    this.projection = projection;
    if (this.ready) this.sendProjection();
  }

  /** Patches may be missing: read the whole state again. Until that has worked it is tried again, as a page that never
   * sees its own patch come back sends no more. */
  private async resync(): Promise<void> {
    if (!this.ready || !this.port) return;
    if (this.reading) {
      this.stale = true;
      return;
    }
    if (this.readAgain) clearTimeout(this.readAgain);
    this.readAgain = null;
    this.reading = true;
    this.stale = false;
    try {
      const row = await this.client.query<JsonObject>("surface", { surface_id: this.surfaceId });
      this.revision = row.revision as number;
      if (this.ready) this.send({ t: "state", state: row.state ?? {}, revision: this.revision });
    } catch {
      // No link, no answer in time, or the surface is gone; then this load is about to be closed.
      if (this.port) this.readAgain = setTimeout(() => void this.resync(), READ_AGAIN_MS);
    } finally {
      this.reading = false;
      for (const patch of this.held.splice(0)) this.patched(patch);
      if (this.stale) void this.resync();
    }
  }

  private patched(patch: SurfacePatch): void {
    if (this.reading) {
      this.held.push(patch);
      return;
    }
    if (!this.ready || patch.revision <= this.revision) return;
    if (patch.revision > this.revision + 1) {
      void this.resync();
      return;
    }
    this.revision = patch.revision;
    this.send({ t: "patch", patch: patch.patch, revision: patch.revision });
  }

  private async receive(data: unknown): Promise<void> {
    if (!isObject(data) || (this.leaving && data.t !== "update")) return;
    if (data.t === "ready") {
      await this.greet();
      return;
    }
    const id = data.id;
    if (typeof id !== "number") return;
    const request = this.requestOf(data);
    if (!request) {
      this.acknowledge(id, {
        accepted: false,
        code: "message_invalid",
        message: "unknown message of a surface",
      });
      return;
    }
    if (this.waiting >= WAITING_MAX) {
      this.acknowledge(id, {
        accepted: false,
        code: "rate_limited",
        message: "too many requests without an answer",
      });
      return;
    }
    if (sizeOf(request.args) > MESSAGE_BYTES_MAX) {
      this.acknowledge(id, {
        accepted: false,
        code: "message_too_large",
        message: "the message is too large",
      });
      return;
    }
    this.waiting++;
    const result = await this.client.act(request.name, request.args);
    this.waiting--;
    this.acknowledge(id, result);
  }

  private requestOf(data: Record<string, unknown>): { name: string; args: JsonObject } | null {
    const surface_id = this.surfaceId;
    switch (data.t) {
      case "update": {
        if (!isObject(data.patch)) return null;
        const base = data.base_revision === undefined ? {} : { base_revision: data.base_revision as Json };
        return { name: "surface.patch", args: { surface_id, patch: data.patch as JsonObject, ...base } };
      }
      case "submit":
        return { name: "surface.submit", args: { surface_id, payload: (data.payload ?? null) as Json } };
      case "event":
        if (typeof data.name !== "string") return null;
        return {
          name: "surface.event",
          args: { surface_id, name: data.name, payload: (data.payload ?? null) as Json },
        };
      default:
        return null;
    }
  }

  private async greet(): Promise<void> {
    if (this.greetAgain) return;
    const early = this.greeted + GREET_APART_MS - performance.now();
    if (early > 0) {
      this.greetAgain = setTimeout(() => {
        this.greetAgain = null;
        void this.greet();
      }, early);
      return;
    }
    this.greeted = performance.now();
    this.ready = true;
    this.send({ t: "host", host: { ...this.host } });
    await this.resync();
    this.sendProjection();
    this.onReady();
  }

  private sendProjection(): void {
    const { operations, snapshot } = this.projection;
    this.send({ t: "projection", operations: operations as unknown as Json[], snapshot });
  }

  private acknowledge(id: number, result: Result): void {
    const detail = isObject(result.detail) ? result.detail : {};
    this.send({
      t: "ack",
      id,
      accepted: result.accepted,
      ...(typeof detail.revision === "number" ? { revision: detail.revision } : {}),
      ...(result.code === undefined ? {} : { code: result.code }),
      ...(result.message === undefined ? {} : { message: result.message }),
    });
  }

  private send(message: JsonObject): void {
    this.port?.postMessage(message);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Characters of the JSON text; a value that is none counts as too large. */
function sizeOf(value: Json): number {
  try {
    return JSON.stringify(value).length;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
