import { beforeEach, describe, expect, it, vi } from "vitest";

interface Lineup {
  ready(): void;
  state: Record<string, unknown>;
  revision: number;
  host: { theme: string };
  operations: unknown[];
  onstate(listener: (state: unknown, revision: number) => void): () => void;
  update(patch: object, options?: { base_revision?: number }): Promise<unknown>;
  submit(payload: unknown): Promise<unknown>;
  event(name: string, payload?: unknown): Promise<unknown>;
}

let lineup: Lineup;
let host: MessagePort;
let heard: Record<string, unknown>[];
const settled = () => new Promise((resolve) => setTimeout(resolve, 20));

function hand(nonce: string, source: unknown = window): MessagePort {
  const channel = new MessageChannel();
  const event = new MessageEvent("message", { data: { nonce } });
  Object.defineProperty(event, "source", { value: source });
  Object.defineProperty(event, "ports", { value: [channel.port2] });
  window.dispatchEvent(event);
  return channel.port1;
}

function listen(port: MessagePort): MessagePort {
  port.onmessage = (event) => heard.push(event.data as Record<string, unknown>);
  return port;
}

beforeEach(async () => {
  vi.resetModules();
  heard = [];
  await import("../bridge/lineup-bridge");
  lineup = (window as unknown as { lineup: Lineup }).lineup;
});

describe("the handover", () => {
  it("takes the first port that comes with this load's nonce from the workspace, and no other", async () => {
    lineup.ready();
    listen(hand("forged"));
    listen(hand("__LINEUP_NONCE__", {}));
    await settled();
    expect(heard).toEqual([]);
    listen(hand("__LINEUP_NONCE__"));
    await settled();
    expect(heard).toEqual([{ t: "ready" }]);
    const second = listen(hand("__LINEUP_NONCE__"));
    second.postMessage({ t: "state", state: { stolen: true }, revision: 9 });
    await settled();
    expect(lineup.state).toEqual({});
  });
});

describe("an open bridge", () => {
  beforeEach(() => {
    host = listen(hand("__LINEUP_NONCE__"));
  });

  it("takes no name for more than a name", async () => {
    host.postMessage({ t: "state", state: {}, revision: 3 });
    const patch = JSON.parse('{"__proto__": {"x": 1}, "toString": {"y": null, "z": 2}}') as object;
    host.postMessage({ t: "patch", patch, revision: 4 });
    await settled();
    expect(JSON.stringify(lineup.state)).toBe('{"__proto__":{"x":1},"toString":{"z":2}}');
    expect((lineup.state as { x?: number }).x).toBeUndefined();
  });

  it("follows the state through patches, in order, each once", async () => {
    const states: unknown[] = [];
    lineup.onstate((state, revision) => states.push([state, revision]));
    host.postMessage({ t: "state", state: { a: { b: 1, c: 2 } }, revision: 3 });
    host.postMessage({ t: "patch", patch: { a: { b: null }, d: [1] }, revision: 4 });
    host.postMessage({ t: "patch", patch: { a: { c: 9 } }, revision: 4 });
    await settled();
    expect(states).toEqual([
      [{ a: { b: 1, c: 2 } }, 3],
      [{ a: { c: 2 }, d: [1] }, 4],
    ]);
  });

  it("answers an update when its own state has it", async () => {
    host.postMessage({ t: "state", state: { n: 1 }, revision: 1 });
    await settled();
    let answer: unknown = null;
    void lineup.update({ n: 2 }, { base_revision: 1 }).then((given) => {
      answer = given;
    });
    await settled();
    expect(heard).toEqual([{ t: "update", patch: { n: 2 }, base_revision: 1, id: 1 }]);
    host.postMessage({ t: "ack", id: 1, accepted: true, revision: 2 });
    await settled();
    expect(answer).toBeNull();
    host.postMessage({ t: "patch", patch: { n: 2 }, revision: 2 });
    await settled();
    expect(answer).toEqual({ accepted: true, revision: 2 });
    expect(lineup.state).toEqual({ n: 2 });
  });

  it("passes a refusal on at once", async () => {
    const answer = lineup.update({ n: 2 }, { base_revision: 0 });
    await settled();
    host.postMessage({ t: "ack", id: 1, accepted: false, code: "patch_conflict", message: "no" });
    expect(await answer).toEqual({ accepted: false, code: "patch_conflict", message: "no" });
  });

  it("sends JSON only", async () => {
    const loop: Record<string, unknown> = {};
    loop.self = loop;
    expect(await lineup.submit(loop)).toMatchObject({ accepted: false, code: "message_invalid" });
    void lineup.event("x", { a: undefined, b: Number.NaN, c: new Date(0) });
    await settled();
    expect(heard).toEqual([
      { t: "event", name: "x", payload: { b: null, c: "1970-01-01T00:00:00.000Z" }, id: 1 },
    ]);
  });

  it("keeps going when a listener throws", async () => {
    const seen: unknown[] = [];
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    lineup.onstate(() => {
      throw new Error("a page's fault");
    });
    lineup.onstate((state) => seen.push(state));
    host.postMessage({ t: "state", state: { a: 1 }, revision: 1 });
    await settled();
    expect(seen).toEqual([{ a: 1 }]);
  });
});
