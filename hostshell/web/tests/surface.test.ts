import { beforeEach, describe, expect, it, vi } from "vitest";
import type { JsonObject, Result, SurfacePatch } from "../src/runtime/rows";
import { SurfaceHost } from "../src/stage/surfaceHost";
import type { Client } from "../src/state/client";

const HOST = {
  theme: "light",
  locale: "en",
  timeZone: "UTC",
  visibility: "visible",
  reducedMotion: false,
  clockSkewMs: 0,
} as const;

class Runtime {
  state: JsonObject = { count: 1 };
  revision = 4;
  acts: { name: string; args: JsonObject }[] = [];
  answer: Result = { accepted: true, detail: { revision: 5 } };
  reading: () => Promise<void> = async () => undefined;
  snapshot: () => void = () => undefined;
  private patched: (patch: SurfacePatch) => void = () => undefined;
  readonly client = {
    onSnapshot: (listener: () => void) => {
      this.snapshot = listener;
      return () => {
        this.snapshot = () => undefined;
      };
    },
    onSurfacePatch: (listener: (patch: SurfacePatch) => void) => {
      this.patched = listener;
      return () => {
        this.patched = () => undefined;
      };
    },
    act: async (name: string, args: JsonObject) => {
      this.acts.push({ name, args });
      return this.answer;
    },
    query: async () => {
      const row = { state: this.state, revision: this.revision };
      await this.reading();
      return row;
    },
  } as unknown as Client;
  patch(revision: number, patch: JsonObject, surface_id = "f-1") {
    this.patched({ surface_id, revision, patch });
  }
}

let runtime: Runtime;
let host: SurfaceHost;
let port: MessagePort;
let said: JsonObject[];
const onReady = vi.fn();
const flushed = () => new Promise((resolve) => setTimeout(resolve, 20));

beforeEach(() => {
  runtime = new Runtime();
  said = [];
  host = new SurfaceHost(runtime.client, "f-1", "nonce", HOST, { operations: [], snapshot: null }, onReady);
  host.connect({
    postMessage: (message: JsonObject, _origin: string, ports: MessagePort[]) => {
      expect(message).toEqual({ nonce: "nonce" });
      port = ports[0] as MessagePort;
      port.onmessage = (event) => said.push(event.data as JsonObject);
    },
  } as unknown as Window);
});

describe("a surface's load", () => {
  it("gets its world when it is ready, and nothing before", async () => {
    host.setHost({ ...HOST, theme: "dark" });
    await flushed();
    expect(said).toEqual([]);
    port.postMessage({ t: "ready" });
    await flushed();
    expect(said.map((message) => message.t)).toEqual(["host", "state", "projection"]);
    expect(said[0]).toMatchObject({ host: { theme: "dark" } });
    expect(said[1]).toMatchObject({ state: { count: 1 }, revision: 4 });
    expect(onReady).toHaveBeenCalled();
  });

  it("gets its world again when it says again that it is ready, but not at once", async () => {
    let reads = 0;
    runtime.reading = async () => {
      reads += 1;
    };
    for (let i = 0; i < 50; i++) port.postMessage({ t: "ready" });
    await flushed();
    expect(reads).toBe(1);
    await vi.waitFor(
      () => expect(said.filter((message) => message.t === "projection")).toHaveLength(2),
      5_000,
    );
    expect(reads).toBe(2);
    port.postMessage({ t: "ready" });
    await flushed();
    host.close();
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    expect(reads).toBe(2);
  });

  it("speaks for its own surface, whatever it says of itself", async () => {
    port.postMessage({ t: "update", id: 1, surface_id: "f-9", patch: { count: 2 }, base_revision: 4 });
    port.postMessage({ t: "event", id: 2, surface_id: "f-9", name: "x", payload: 1 });
    port.postMessage({ t: "submit", id: 3, payload: { a: 1 }, args: { surface_id: "f-9" } });
    await flushed();
    expect(runtime.acts).toEqual([
      { name: "surface.patch", args: { surface_id: "f-1", patch: { count: 2 }, base_revision: 4 } },
      { name: "surface.event", args: { surface_id: "f-1", name: "x", payload: 1 } },
      { name: "surface.submit", args: { surface_id: "f-1", payload: { a: 1 } } },
    ]);
    expect(said[0]).toEqual({ t: "ack", id: 1, accepted: true, revision: 5 });
  });

  it("cannot ask for anything else", async () => {
    for (const t of ["action", "query", "person.text", "state", 7]) port.postMessage({ t, id: 1, name: "x" });
    port.postMessage("text");
    port.postMessage({ t: "update", id: 2, patch: [1] });
    port.postMessage({ t: "update", patch: {} });
    await flushed();
    expect(runtime.acts).toEqual([]);
    expect(said.every((message) => message.accepted === false && message.code === "message_invalid")).toBe(
      true,
    );
  });

  it("is told of too large messages without troubling the Runtime", async () => {
    port.postMessage({ t: "submit", id: 1, payload: "x".repeat(4_000_000) });
    await flushed();
    expect(said).toMatchObject([{ t: "ack", id: 1, accepted: false, code: "message_too_large" }]);
    expect(runtime.acts).toEqual([]);
  });

  it("gets patches in order, its own surface's only, and the whole state after a gap", async () => {
    port.postMessage({ t: "ready" });
    await flushed();
    said = [];
    runtime.patch(5, { count: 2 });
    runtime.patch(5, { count: 9 });
    runtime.patch(6, { other: 1 }, "f-2");
    await flushed();
    expect(said).toEqual([{ t: "patch", patch: { count: 2 }, revision: 5 }]);
    said = [];
    runtime.state = { count: 7 };
    runtime.revision = 8;
    runtime.patch(8, { count: 7 });
    await flushed();
    expect(said).toEqual([{ t: "state", state: { count: 7 }, revision: 8 }]);
  });

  it("reads the whole state again with every snapshot, as patches may have been lost before it", async () => {
    port.postMessage({ t: "ready" });
    await flushed();
    said = [];
    runtime.state = { count: 3 };
    runtime.revision = 6; // the last patch of them: no later one would show the gap
    runtime.snapshot();
    await flushed();
    expect(said).toEqual([{ t: "state", state: { count: 3 }, revision: 6 }]);
  });

  it("reads once more what a snapshot may have overtaken", async () => {
    port.postMessage({ t: "ready" });
    await flushed();
    let answer = () => {};
    runtime.reading = () => new Promise((resolve) => (answer = resolve));
    runtime.snapshot();
    await flushed();
    runtime.state = { count: 9 };
    runtime.revision = 7;
    runtime.snapshot();
    runtime.reading = async () => undefined;
    answer();
    await flushed();
    expect(said.at(-1)).toEqual({ t: "state", state: { count: 9 }, revision: 7 });
  });

  it("tries again when a read fails, until it is closed", async () => {
    port.postMessage({ t: "ready" });
    await flushed();
    said = [];
    let reads = 0;
    runtime.reading = async () => {
      reads += 1;
      if (reads === 1) throw new Error("no answer in time");
    };
    runtime.revision = 6;
    runtime.snapshot();
    await vi.waitFor(() => expect(said.at(-1)).toMatchObject({ t: "state", revision: 6 }), 5_000);
    expect(reads).toBe(2);
    runtime.reading = async () => {
      reads += 1;
      throw new Error("no answer in time");
    };
    runtime.snapshot();
    await flushed();
    host.close();
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    expect(reads).toBe(3);
  });

  it("is heard out when the person goes elsewhere, in its changes only and not for long", async () => {
    port.postMessage({ t: "ready" });
    await flushed();
    said = [];
    host.leave();
    runtime.patch(5, { count: 2 });
    host.setHost({ ...HOST, theme: "dark" });
    for (const t of ["submit", "event", "ready"]) port.postMessage({ t, id: 1, name: "x", payload: 1 });
    port.postMessage({ t: "update", id: 2, patch: { count: 3 } });
    await flushed();
    expect(runtime.acts).toEqual([
      { name: "surface.patch", args: { surface_id: "f-1", patch: { count: 3 } } },
    ]);
    expect(said.map((message) => message.t)).toEqual(["ack"]);
    await new Promise((resolve) => setTimeout(resolve, 2_100));
    port.postMessage({ t: "update", id: 3, patch: { count: 4 } });
    await flushed();
    expect(runtime.acts).toHaveLength(1);
  });

  it("has no way in or out once it is closed", async () => {
    port.postMessage({ t: "ready" });
    await flushed();
    said = [];
    host.close();
    runtime.patch(5, { count: 2 });
    port.postMessage({ t: "submit", id: 1, payload: 1 });
    await flushed();
    expect(said).toEqual([]);
    expect(runtime.acts).toEqual([]);
  });
});
