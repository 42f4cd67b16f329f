import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LinkEvents } from "../src/runtime/link";
import type { JsonObject, Result } from "../src/runtime/rows";
import { Client } from "../src/state/client";
import * as journal from "../src/state/journal";
import { entry, interaction, session, snapshot } from "./fixtures";

interface Asked {
  actionId: string;
  name: string;
  args: JsonObject;
  answer(result: Result): void;
}

let client: Client;
let asked: Asked[];

/** A client whose link only notes what it is asked, so that the test answers. */
function make(): Client {
  const made = new Client("ws://x", () => false);
  vi.spyOn(made.link, "action").mockImplementation(
    (actionId, name, args) => new Promise((answer) => asked.push({ actionId, name, args, answer })),
  );
  return made;
}

const settled = () => vi.advanceTimersByTimeAsync(0);
const echoes = () => client.store.getState().echoes;

beforeEach(() => {
  vi.useFakeTimers();
  localStorage.clear();
  asked = [];
  client = make();
});
afterEach(() => vi.useRealTimers());

describe("sending a text", () => {
  it("shows it at once, and as sent when it is durable", async () => {
    client.sendText("c-1", "hi");
    expect(echoes()).toMatchObject([{ text: "hi", state: "sending" }]);
    asked[0]?.answer({ accepted: true });
    await settled();
    expect(echoes()).toMatchObject([{ state: "sent" }]);
    expect(journal.kept()).toEqual([]);
  });

  it("goes on after a reload, under the same id", () => {
    client.sendText("c-1", "hi");
    const id = asked[0]?.actionId;
    client = make();
    client.start();
    expect(echoes()).toMatchObject([{ action_id: id, text: "hi", state: "sending" }]);
    expect(asked.map((each) => each.actionId)).toEqual([id, id]);
  });

  it("tells of a refusal and tries again under a new id", async () => {
    client.sendText("c-1", "hi");
    asked[0]?.answer({ accepted: false, code: "storage_full", message: "full" });
    await settled();
    expect(echoes()).toMatchObject([{ state: "failed", code: "storage_full" }]);
    client.retryText(asked[0]?.actionId ?? "");
    expect(echoes()).toHaveLength(1);
    expect(asked[1]?.actionId).not.toBe(asked[0]?.actionId);
    expect(asked[1]?.args).toEqual(asked[0]?.args);
  });

  it("expires when nobody takes it, and is sent again only when asked, under the same id", async () => {
    const abandon = vi.spyOn(client.link, "abandon").mockImplementation(() => {
      asked[0]?.answer({ accepted: false, code: "link_lost" });
    });
    client.sendText("c-1", "hi");
    await vi.advanceTimersByTimeAsync(10 * 60_000);
    expect(abandon).toHaveBeenCalledOnce();
    expect(echoes()).toMatchObject([{ state: "expired" }]);
    expect(asked).toHaveLength(1);
    client.retryText(asked[0]?.actionId ?? "");
    expect(asked[1]?.actionId).toBe(asked[0]?.actionId);
  });

  it("can be discarded", async () => {
    client.sendText("c-1", "hi");
    client.discardText(asked[0]?.actionId ?? "");
    expect(echoes()).toEqual([]);
    expect(journal.kept()).toEqual([]);
  });
});

describe("answers", () => {
  it("are kept until the Runtime has spoken, whatever it said", async () => {
    void client.act("interaction.answer", { interaction_id: "q-1", result: { approved: true } });
    expect(journal.kept()).toHaveLength(1);
    asked[0]?.answer({ accepted: false, code: "interaction_already_final" });
    await settled();
    expect(journal.kept()).toEqual([]);
  });

  it("are not sent again when they are too old to be known", () => {
    journal.keep({ action_id: "w-1", name: "interaction.answer", args: {}, at: "2020-01-01T00:00:00Z" });
    client.start();
    expect(asked).toEqual([]);
  });
});

describe("what has more pages", () => {
  /** The answers of a Runtime that has these pages, by the place that is asked. */
  function answering(pages: Record<string, Result["detail"]>): JsonObject[] {
    const asked: JsonObject[] = [];
    vi.spyOn(client.link, "query").mockImplementation(async (_name, args = {}) => {
      asked.push(args);
      const detail = pages[String(args.after ?? "")];
      return detail === undefined ? { accepted: false, code: "no_runtime" } : { accepted: true, detail };
    });
    return asked;
  }
  const row = (id: string) => interaction({ interaction_id: id, cut: true }) as unknown as JsonObject;
  const events = () => (client.link as unknown as { events: LinkEvents }).events;

  it("questions that a snapshot had no room for are read to the end", async () => {
    const asked = answering({
      a: { interactions: [row("q-2")], next: "b" },
      b: { interactions: [row("q-3")] },
    });
    events().snapshot(snapshot({ interactions: [interaction()], interactions_next: "a" }));
    await settled();
    expect(asked).toEqual([
      { after: "a", brief: true },
      { after: "b", brief: true },
    ]);
    expect(Object.keys(client.store.getState().interactions).sort()).toEqual(["q-1", "q-2", "q-3"]);
  });

  it("nothing more is read of a snapshot that is whole", async () => {
    const asked = answering({});
    events().snapshot(snapshot({ interactions: [interaction()] }));
    await settled();
    expect(asked).toEqual([]);
  });

  it("one question is read whole when it is shown", async () => {
    const asked = answering({ "": interaction() as unknown as JsonObject });
    client.dispatch({ type: "interactions.read", interactions: [interaction({ cut: true })] });
    await client.readInteraction("q-1");
    expect(asked).toEqual([{ interaction_id: "q-1" }]);
    expect(client.store.getState().interactions["q-1"]?.cut).toBeUndefined();
  });

  it("a session is read to its end", async () => {
    const part = (n: number, more: JsonObject) => ({
      session: session() as unknown as JsonObject,
      instance: null,
      snapshot: null,
      operations: [],
      entries: [entry(n) as unknown as JsonObject],
      interactions: [],
      sessions: [],
      calls: [],
      ...more,
    });
    answering({ "": part(1, { next: "1" }), "1": part(2, {}) });
    await client.readSession("s-1");
    expect(client.store.getState().histories["s-1"]?.entries.map((each) => each.n)).toEqual([1, 2]);
  });
});

describe("deltas in a burst", () => {
  it("change the page at once and then once per frame, in order", async () => {
    const take = (client as unknown as { take(n: number, changes: unknown[]): void }).take.bind(client);
    const row = (n: number) => ({ kind: "agent", id: "a", row: { agent_id: "a", outbox: n } });
    let renders = 0;
    client.store.subscribe(() => renders++);
    for (let n = 1; n <= 100; n++) take(n, [row(n)]);
    await vi.advanceTimersByTimeAsync(50);
    expect(renders).toBe(2);
    expect(client.store.getState().agents.a?.outbox).toBe(100);
    expect(client.store.getState().revision).toBe(100);
  });
});
