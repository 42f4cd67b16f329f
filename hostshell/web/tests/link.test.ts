import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type LinkEvents, type LinkStatus, RuntimeLink } from "../src/runtime/link";
import type { JsonObject, Result } from "../src/runtime/rows";
import { snapshot } from "./fixtures";

class Socket {
  static all: Socket[] = [];
  sent: JsonObject[] = [];
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  closed: number | null = null;
  constructor() {
    Socket.all.push(this);
  }
  send(text: string) {
    this.sent.push(JSON.parse(text));
  }
  close(code = 1000) {
    this.closed = code;
    this.onclose?.({ code });
  }
  say(frame: object) {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
  get requests() {
    return this.sent.filter((frame) => frame.t !== "auth");
  }
}

const socket = () => Socket.all.at(-1) as Socket;
let heard: { status: LinkStatus[]; revisions: number[]; snapshots: number[] };
let link: RuntimeLink;

function make(mayTry = true): RuntimeLink {
  heard = { status: [], revisions: [], snapshots: [] };
  const events: LinkEvents = {
    status: (status) => heard.status.push(status),
    hello: () => undefined,
    snapshot: (taken) => heard.snapshots.push(taken.revision),
    changes: (revision) => heard.revisions.push(revision),
    torn: () => undefined,
  };
  return new RuntimeLink(
    "ws://x",
    () => mayTry,
    async (nonce) => ({ id: "lws1", proof: `signed ${nonce}` }),
    events,
    () => new Socket() as unknown as WebSocket,
  );
}

async function online(revision = 1): Promise<void> {
  socket().say({ t: "challenge", nonce: "n" });
  await vi.advanceTimersByTimeAsync(0);
  socket().say({ t: "hello", boot_id: "b", version: "1" });
  socket().say({ t: "snapshot", snapshot: snapshot({ revision }) });
}

beforeEach(async () => {
  vi.useFakeTimers();
  Socket.all = [];
  link = make();
  link.start();
  await online();
});
afterEach(() => {
  link.stop();
  vi.useRealTimers();
});

describe("the link", () => {
  it("signs the challenge and never shows the token", () => {
    expect(socket().sent[0]).toEqual({ t: "auth", id: "lws1", proof: "signed n" });
    expect(heard.status.at(-1)).toBe("online");
  });

  it("is locked without a token and when the token is refused", () => {
    const other = make(false);
    other.start();
    expect(heard.status).toEqual(["locked"]);
    link = make();
    link.start();
    socket().close(4401);
    expect(heard.status.at(-1)).toBe("locked");
    vi.advanceTimersByTime(60_000);
    expect(heard.status.at(-1)).toBe("locked");
  });

  it("passes on revisions without a gap and drops repeats", () => {
    socket().say({ t: "delta", revision: 2, changes: [] });
    socket().say({ t: "delta", revision: 2, changes: [] });
    socket().say({ t: "delta", revision: 3, changes: [] });
    expect(heard.revisions).toEqual([2, 3]);
  });

  it("asks for a snapshot after a gap and goes on from it", async () => {
    socket().say({ t: "delta", revision: 5, changes: [] });
    socket().say({ t: "delta", revision: 6, changes: [] });
    expect(heard.revisions).toEqual([]);
    const query = socket().requests[0];
    expect(query).toMatchObject({ t: "query", name: "snapshot" });
    socket().say({ t: "result", re: query?.id, accepted: true, detail: snapshot({ revision: 5 }) });
    await vi.advanceTimersByTimeAsync(0);
    expect(heard.snapshots).toEqual([1, 5]);
    expect(heard.revisions).toEqual([6]);
  });

  it("sends an action again under the same ids until it is answered", async () => {
    let result: Result | null = null;
    void link.action("w-1", "person.text", { text: "hi" }).then((answer) => {
      result = answer;
    });
    const first = socket().requests[0];
    socket().close(1006);
    await vi.advanceTimersByTimeAsync(2_000);
    await online(7);
    expect(Socket.all).toHaveLength(2);
    expect(socket().requests[0]).toEqual(first);
    expect(result).toBeNull();
    socket().say({ t: "result", re: first?.id, accepted: true, detail: { n: 1 } });
    await vi.advanceTimersByTimeAsync(0);
    expect(result).toEqual({ accepted: true, detail: { n: 1 } });
  });

  it("ends a query that meets no link, and an action that was given up", async () => {
    const query = link.query("status");
    const action = link.action("w-2", "person.text", {});
    socket().close(1006);
    expect((await query).code).toBe("link_lost");
    link.abandon("w-2");
    expect((await action).code).toBe("link_lost");
    await vi.advanceTimersByTimeAsync(2_000);
    await online();
    expect(socket().requests).toEqual([]);
  });

  it("comes back within three seconds, and at once when the page wakes up", async () => {
    socket().close(1012);
    expect(heard.status.at(-1)).toBe("offline");
    for (let n = 0; n < 6; n++) {
      await vi.advanceTimersByTimeAsync(3_000);
      socket().close(1006);
    }
    const before = Socket.all.length;
    link.hurry();
    expect(Socket.all.length).toBe(before + 1);
  });

  it("hears nothing more from a socket that was replaced", async () => {
    const old = socket();
    old.close(1006);
    await vi.advanceTimersByTimeAsync(500);
    await online(4);
    old.say({ t: "delta", revision: 5, changes: [] });
    expect(heard.revisions).toEqual([]);
  });
});
