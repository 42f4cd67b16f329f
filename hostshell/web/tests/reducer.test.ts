import { describe, expect, it } from "vitest";
import type { Change } from "../src/runtime/rows";
import { EMPTY, type Workspace } from "../src/state/model";
import { reduce, type WorkspaceEvent } from "../src/state/reducer";
import { AT, conversation, entry, instance, interaction, session, snapshot } from "./fixtures";

function given(events: WorkspaceEvent[], start: Workspace = EMPTY): Workspace {
  return events.reduce(reduce, start);
}

function changes(revision: number, ...rows: Change[]): WorkspaceEvent {
  return { type: "changes", revision, changes: rows };
}

function page(before: number | null, ...ns: number[]): WorkspaceEvent {
  const more = ns[0] !== 1; // a conversation begins with its entry 1
  const read = { entries: ns.map((n) => entry(n)), interactions: [], sessions: [], calls: [], more };
  return { type: "page.read", conversation_id: "c-1", before, page: read };
}

const started = given([
  { type: "snapshot", snapshot: snapshot({ conversations: [conversation()] }), at: Date.parse(AT) },
]);
const numbers = (state: Workspace) => state.timelines["c-1"]?.entries.map((row) => row.n);

describe("questions of which there is the beginning only", () => {
  const cut = interaction({ cut: true });
  const read = (row = interaction()): WorkspaceEvent => ({ type: "interactions.read", interactions: [row] });
  const taken = (row = cut): WorkspaceEvent => ({
    type: "snapshot",
    snapshot: snapshot({ interactions: [row], truncated: ["interactions"] }),
    at: 0,
  });

  it("become whole when they are read, and stay so", () => {
    const some = given([taken()]);
    expect(some.interactions["q-1"]?.cut).toBe(true);
    expect(some.truncated).toEqual(["interactions"]);
    const all = given([read()], some);
    expect(all.interactions["q-1"]?.cut).toBeUndefined();
    expect(given([taken()], all).interactions["q-1"]?.cut).toBeUndefined();
    expect(given([read(cut)], all).interactions["q-1"]?.cut).toBeUndefined();
  });

  it("are read again after they have changed", () => {
    const newer = interaction({ cut: true, updated_at: "2026-11-30T10:00:09Z" });
    expect(given([read(), taken(newer)]).interactions["q-1"]?.cut).toBe(true);
    expect(given([read(), read(newer)]).interactions["q-1"]?.cut).toBe(true);
  });
});

describe("snapshots", () => {
  it("take the place of everything that is live", () => {
    const old = given([changes(2, { kind: "interaction", id: "q-1", row: interaction() })], started);
    const next = given([{ type: "snapshot", snapshot: snapshot({ revision: 9 }), at: 0 }], old);
    expect(next.conversations).toEqual({});
    expect(next.interactions).toEqual({});
    expect(next.revision).toBe(9);
  });

  it("keep what was read of the past and cannot change any more", () => {
    const done = interaction({ status: "completed", result: { approved: true } });
    const old = given(
      [
        changes(2, { kind: "interaction", id: "q-1", row: done }),
        changes(3, { kind: "session", id: "s-1", row: session({ state: "read_only" }) }),
      ],
      started,
    );
    const next = given([{ type: "snapshot", snapshot: snapshot(), at: 0 }], old);
    expect(next.interactions["q-1"]).toEqual(done);
    expect(next.sessions["s-1"]?.state).toBe("read_only");
  });

  it("mark timelines as stale without dropping their entries", () => {
    const old = given([page(null, 1, 2)], started);
    const next = given([{ type: "snapshot", snapshot: snapshot(), at: 0 }], old);
    expect(numbers(next)).toEqual([1, 2]);
    expect(next.timelines["c-1"]?.stale).toBe(true);
  });

  it("tell how far the Runtime's clock is from the page's", () => {
    const state = given([{ type: "snapshot", snapshot: snapshot(), at: Date.parse(AT) - 5_000 }]);
    expect(state.skewMs).toBe(5_000);
  });
});

describe("deltas", () => {
  it("put and remove rows by kind and id", () => {
    const put = given(
      [changes(2, { kind: "notification", id: "n-1", row: { notification_id: "n-1" } })],
      started,
    );
    expect(Object.keys(put.notices)).toEqual(["n-1"]);
    const gone = given([changes(3, { kind: "notification", id: "n-1", row: null })], put);
    expect(gone.notices).toEqual({});
    expect(gone.revision).toBe(3);
  });

  it("leave unknown kinds and surface patches alone", () => {
    const next = given(
      [changes(2, { kind: "weather", id: "x", row: {} }, { kind: "surface_patch", id: "f-1", row: {} })],
      started,
    );
    expect({ ...next, revision: 1 }).toEqual(started);
  });

  it("keep an app's title when its row changes", () => {
    const app = {
      app_scope: "pomodoro",
      digest: "d",
      kind: "bundled",
      enabled: true,
      quarantined: false,
      installed_at: AT,
    };
    const state = given([
      { type: "snapshot", snapshot: snapshot({ apps: [{ ...app, title: "Pomodoro" }] }), at: 0 },
    ]);
    const next = given(
      [changes(2, { kind: "app", id: "pomodoro", row: { ...app, quarantined: true } })],
      state,
    );
    expect(next.apps.pomodoro).toMatchObject({ title: "Pomodoro", quarantined: true });
  });

  it("report a MiniApp that ended by a fault once, and no other end", () => {
    const broke = instance({ state: "closed", close_code: "app_crashed", close_reason: "5 crashes" });
    const row = (value: unknown): Change => ({ kind: "instance", id: "i-1", row: value });
    const open = given([changes(2, row(instance({ state: "starting" })))], started);
    const failed = given([changes(3, row(broke)), changes(4, row(broke))], open);
    expect(failed.failures).toHaveLength(1);
    expect(failed.failures[0]).toMatchObject({ code: "app_crashed", started: false });
    const closed = given([changes(3, row({ ...broke, close_code: "closed_by_person" }))], open);
    expect(closed.failures).toEqual([]);
    expect(given([{ type: "failure.dismissed", instance_id: "i-1" }], failed).failures).toEqual([]);
  });
});

describe("timelines", () => {
  const add = (n: number, change = {}): WorkspaceEvent =>
    changes(n, { kind: "entry", id: `c-1/${n}`, row: entry(n, change) });

  it("ignore entries of conversations that were not opened", () => {
    expect(given([add(1)], started).timelines).toEqual({});
  });

  it("grow at the end, once per entry", () => {
    expect(numbers(given([page(null, 1, 2), add(3), add(3), add(2)], started))).toEqual([1, 2, 3]);
  });

  it("are stale after a gap instead of having a hole", () => {
    const state = given([page(null, 1, 2), add(5)], started);
    expect(numbers(state)).toEqual([1, 2]);
    expect(state.timelines["c-1"]?.stale).toBe(true);
  });

  it("join earlier pages and know their beginning", () => {
    const some = given([page(null, 7, 8, 9), page(7, 4, 5, 6)], started);
    expect(numbers(some)).toEqual([4, 5, 6, 7, 8, 9]);
    expect(some.timelines["c-1"]?.complete).toBe(false);
    const all = given([page(4, 1, 2, 3)], some);
    expect(all.timelines["c-1"]?.complete).toBe(true);
  });

  it("may be shorter than was asked, and still have more before them", () => {
    const empty = { entries: [], interactions: [], sessions: [], calls: [], more: false };
    const short = given([page(null, 9), page(9, 8)], started);
    expect(short.timelines["c-1"]?.complete).toBe(false);
    const cut: WorkspaceEvent = { type: "page.read", conversation_id: "c-1", before: 8, page: empty };
    expect(given([cut], short).timelines["c-1"]?.complete).toBe(true);
    const trimmed = { ...empty, entries: [entry(7)] };
    const first: WorkspaceEvent = { type: "page.read", conversation_id: "c-1", before: 8, page: trimmed };
    expect(given([first], short).timelines["c-1"]?.complete).toBe(true);
  });

  it("keep entries that came while a page was on its way", () => {
    expect(numbers(given([page(null, 7, 8), add(9), page(null, 7, 8)], started))).toEqual([7, 8, 9]);
  });

  it("drop the older stretch when the newest page does not touch it", () => {
    expect(numbers(given([page(null, 1, 2), page(null, 7, 8, 9)], started))).toEqual([7, 8, 9]);
  });
});

describe("rows that history refers to", () => {
  const read = (row: ReturnType<typeof interaction>): WorkspaceEvent => ({
    type: "entry.read",
    page: { interactions: [row], sessions: [], calls: [] },
  });

  it("do not take the place of newer ones", () => {
    const newer = interaction({ status: "completed", updated_at: "2026-11-30T10:00:09Z" });
    const state = given(
      [changes(2, { kind: "interaction", id: "q-1", row: newer }), read(interaction())],
      started,
    );
    expect(state.interactions["q-1"]?.status).toBe("completed");
  });

  it("are taken when nothing is known", () => {
    expect(given([read(interaction())], started).interactions["q-1"]?.status).toBe("pending");
  });
});

describe("echoes", () => {
  const echo: WorkspaceEvent = {
    type: "echo.added",
    echo: { action_id: "w-1", conversation_id: "c-1", text: "hi", at: AT, state: "sending" },
  };

  it("are there once and change state", () => {
    const state = given(
      [echo, echo, { type: "echo.changed", action_id: "w-1", change: { state: "sent" } }],
      started,
    );
    expect(state.echoes).toHaveLength(1);
    expect(state.echoes[0]?.state).toBe("sent");
  });

  it("give way to the entry that they became, from a delta or a page", () => {
    const mine = entry(1, { author: "person", action_id: "w-1" });
    expect(given([echo, changes(2, { kind: "entry", id: "c-1/1", row: mine })], started).echoes).toEqual([]);
    const read = { entries: [mine], interactions: [], sessions: [], calls: [], more: false };
    const paged = given(
      [echo, { type: "page.read", conversation_id: "c-1", before: null, page: read }],
      started,
    );
    expect(paged.echoes).toEqual([]);
  });
});
