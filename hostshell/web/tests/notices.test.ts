import { describe, expect, it } from "vitest";
import { news } from "../src/app/notices";
import { parseRoute } from "../src/app/route";
import { tasksOf } from "../src/stage/tasks";
import { EMPTY } from "../src/state/model";
import { frontInstance, shownState } from "../src/state/select";
import { AT, conversation, instance } from "./fixtures";

const notice = {
  notification_id: "n",
  app_scope: "a",
  instance_id: "i",
  conversation_id: "c",
  title: "t",
  body: "",
  at: AT,
  count: 1,
};

describe("news", () => {
  it("are new notifications and those that were said again", () => {
    const before = { ...EMPTY, notices: { n: notice, m: { ...notice, notification_id: "m" } } };
    const after = {
      ...EMPTY,
      notices: { n: { ...notice, count: 2 }, m: before.notices.m, x: { ...notice, notification_id: "x" } },
    };
    expect(news(after, before).map((row) => row.notification_id)).toEqual(["n", "x"]);
  });
});

describe("the address", () => {
  it.each([
    ["", { page: "home" }],
    ["#/c/c-1", { page: "conversation", id: "c-1" }],
    ["#/inspector", { page: "inspector", id: null }],
    ["#/inspector/a%3Ab", { page: "inspector", id: "a:b" }],
    ["#/inspector/%E0%A4%A", { page: "inspector", id: "%E0%A4%A" }],
    ["#/grants", { page: "grants" }],
    ["#/nowhere", { page: "home" }],
  ])("%s", (hash, route) => {
    expect(parseRoute(hash)).toEqual(route);
  });
});

describe("what is in front", () => {
  const open = conversation({ focus: ["i-chat", "i-1"] });

  it("is the top of the focus stack, if that is a live MiniApp", () => {
    expect(frontInstance({ ...EMPTY, instances: { "i-1": instance() } }, open)?.instance_id).toBe("i-1");
    expect(frontInstance(EMPTY, open)).toBeNull();
    expect(frontInstance({ ...EMPTY, instances: { "i-1": instance({ state: "closed" }) } }, open)).toBeNull();
    expect(frontInstance(EMPTY, conversation())).toBeNull();
  });

  it("shows a restart and a quarantine before its own state", () => {
    const row = instance({ crashes: 1 });
    const worker = { instance_id: "i-1", incarnation: 2, state: "starting", pid: null } as const;
    expect(shownState({ ...EMPTY, workers: { "i-1": worker } }, row)).toBe("restarting");
    expect(shownState({ ...EMPTY, workers: { "i-1": { ...worker, state: "ready" } } }, row)).toBe(
      "foreground",
    );
    const app = {
      app_scope: "task-dashboard",
      digest: "",
      kind: "",
      enabled: true,
      quarantined: true,
      installed_at: AT,
    };
    expect(shownState({ ...EMPTY, apps: { "task-dashboard": app } }, row)).toBe("quarantined");
  });
});

describe("a dashboard's state", () => {
  it("is read with care", () => {
    expect(tasksOf(undefined)).toEqual([]);
    expect(tasksOf({ tasks: [1, null, {}, { task_id: "t", title: 3, progress: 9, history: "x" }] })).toEqual([
      { task_id: "t", title: "", status: "", progress: 1, history: [] },
    ]);
  });
});
