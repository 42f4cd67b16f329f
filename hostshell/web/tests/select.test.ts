import { describe, expect, it } from "vitest";
import { isLine } from "../src/interact/items";
import type { App, Call, Surface } from "../src/runtime/rows";
import { EMPTY } from "../src/state/model";
import { hasNoReader, hasPage, shownCallStatus, whyNotContinued } from "../src/state/select";
import { AT, conversation, entry, instance, interaction, session } from "./fixtures";

const app: App = {
  app_scope: "task-dashboard",
  digest: "d",
  kind: "installed",
  enabled: true,
  quarantined: false,
  installed_at: AT,
};

const call: Call = {
  call_id: "k-1",
  tool_id: "chat.confirm",
  inventory_revision: "r",
  app_scope: "chat",
  conversation_id: "c-1",
  status: "waiting_for_app",
  input: {},
  attempt: 1,
  created_at: AT,
  updated_at: AT,
  agent_id: "demo",
};

const surface: Surface = {
  surface_id: "f-1",
  instance_id: "i-1",
  conversation_id: "c-1",
  app_scope: "board",
  digest: "d",
  entry: "index.html",
  title: "",
  status: "open",
  revision: 1,
  bytes: 1,
  created_at: AT,
};

describe("an ended session", () => {
  const ended = session({ state: "read_only" });
  const withApp = (change: Partial<App>) => ({ ...EMPTY, apps: { "task-dashboard": { ...app, ...change } } });

  it("can be continued while its MiniApp can be opened", () => {
    expect(whyNotContinued(withApp({}), ended)).toBeNull();
    const closed = { ...withApp({}), instances: { "i-1": instance({ state: "closed" }) } };
    expect(whyNotContinued(closed, ended)).toBeNull();
  });

  it("says why it cannot be continued", () => {
    expect(whyNotContinued(EMPTY, ended)).toBe("app_not_found");
    expect(whyNotContinued(withApp({ enabled: false }), ended)).toBe("app_disabled");
    expect(whyNotContinued(withApp({ enabled: false, quarantined: true }), ended)).toBe("app_quarantined");
    const open = { ...withApp({}), instances: { "i-2": instance({ instance_id: "i-2" }) } };
    expect(whyNotContinued(open, ended)).toBe("app_open");
    expect(whyNotContinued(open, session({ state: "read_only", conversation_id: "c-2" }))).toBeNull();
  });
});

describe("an instance", () => {
  const board = instance({ app_scope: "board", kind: "installed" });

  it("has a page if it is a part of the workspace, has a surface, or is just being started", () => {
    expect(hasPage(EMPTY, instance())).toBe(true);
    expect(hasPage({ ...EMPTY, surfaces: { "f-1": surface } }, board)).toBe(true);
    expect(hasPage(EMPTY, { ...board, state: "starting" })).toBe(true);
  });

  it("has none otherwise", () => {
    expect(hasPage(EMPTY, board)).toBe(false);
    expect(hasPage({ ...EMPTY, surfaces: { "f-1": { ...surface, status: "closed" } } }, board)).toBe(false);
    expect(hasPage(EMPTY, instance({ kind: "installed" }))).toBe(false);
  });
});

describe("a call", () => {
  it("waits for a person while its question is open", () => {
    expect(shownCallStatus(call)).toBe("waiting_for_app");
    expect(shownCallStatus({ ...call, interaction_id: "q-1" })).toBe("waiting_for_person");
    expect(shownCallStatus({ ...call, interaction_id: "q-1", status: "running" })).toBe("waiting_for_person");
    expect(shownCallStatus({ ...call, interaction_id: "q-1", status: "completed" })).toBe("completed");
  });
});

describe("a line of a session's history", () => {
  it("is something that was said, asked or got", () => {
    const kinds = ["text", "call", "session", "continue"];
    expect(kinds.filter((kind) => isLine(entry(1, { kind }), {}))).toEqual(["text", "call"]);
  });

  it("is a question that is known", () => {
    const asked = entry(1, { kind: "interaction", ref: "q-1" });
    expect(isLine(asked, {})).toBe(false);
    expect(isLine(asked, { "q-1": interaction() })).toBe(true);
  });
});

describe("a conversation", () => {
  it("has nobody who reads it if the command line has opened it", () => {
    expect(hasNoReader(conversation({ agent_id: "cli", opened_by: "agent" }))).toBe(true);
    expect(hasNoReader(conversation())).toBe(false);
    expect(hasNoReader(undefined)).toBe(false);
  });
});
