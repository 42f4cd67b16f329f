import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { JsonObject, Result } from "../src/runtime/rows";
import { Client } from "../src/state/client";
import * as journal from "../src/state/journal";

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
