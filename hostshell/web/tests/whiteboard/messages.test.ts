import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Answer, JsonObject } from "../../surfaces/whiteboard/bridge";
import { Messages } from "../../surfaces/whiteboard/messages";
import { Sync } from "../../surfaces/whiteboard/sync";
import { wordsFor } from "../../surfaces/whiteboard/words";

const { words } = wordsFor("en");
let saving: HTMLElement;
let sync: Sync;
let revision: number;
let runtime: () => Answer;

beforeEach(() => {
  vi.useFakeTimers();
  const [toast, spoken] = [document.createElement("p"), document.createElement("p")];
  saving = document.createElement("p");
  revision = 0;
  runtime = () => ({ accepted: true, revision: ++revision });
  sync = new Sync({
    update: async () => {
      await new Promise((resolve) => setTimeout(resolve, 30)); // the way to the Runtime and back
      return runtime();
    },
    later: (work, ms) => void setTimeout(work, ms),
    changed: () => {},
    refused: () => {},
  });
  new Messages({ toast, saving, spoken }, () => words).watch(sync);
});

afterEach(() => {
  vi.useRealTimers();
});

/** Draw without a pause; what has been said of saving meanwhile. */
async function draw(ms: number): Promise<Set<string>> {
  const said = new Set<string>();
  for (let at = 0; at < ms; at += 20) {
    const element: JsonObject = { type: "pen", z: 1, d: { "0": `${at}` } };
    sync.want(new Map([[`e${at}`, { kind: "put", element }]]));
    await vi.advanceTimersByTimeAsync(20);
    said.add(saving.textContent ?? "");
  }
  return said;
}

describe("what the page says of saving", () => {
  it("is nothing while someone draws for long, as long as it goes through", async () => {
    expect(await draw(5_000)).toEqual(new Set([""]));
    expect(sync.saves).toBeGreaterThan(20);
  });

  it("is that it is not saved when nothing goes through, and nothing again once it does", async () => {
    runtime = () => ({ accepted: false, code: "rate_limited" });
    expect(await draw(3_000)).toContain(words.offline);
    runtime = () => ({ accepted: true, revision: ++revision });
    await vi.advanceTimersByTimeAsync(6_000);
    expect(sync.pending).toBe(false);
    expect(saving.textContent).toBe("");
  });

  it("is nothing after a hiccup", async () => {
    runtime = () => ({ accepted: false, code: "rate_limited" });
    await draw(400);
    runtime = () => ({ accepted: true, revision: ++revision });
    expect(await draw(3_000)).toEqual(new Set([""]));
  });
});
