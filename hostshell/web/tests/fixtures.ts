// Rows as the Runtime projects them, with only what a test cares about spelled out.

import type { Conversation, Entry, Instance, Interaction, Session, Snapshot } from "../src/runtime/rows";

export const AT = "2026-11-30T10:00:00Z";

export function conversation(change: Partial<Conversation> = {}): Conversation {
  return {
    conversation_id: "c-1",
    agent_id: "demo",
    title: "",
    opened_by: "person",
    created_at: AT,
    updated_at: AT,
    focus: ["i-chat"],
    chat_instance_id: "i-chat",
    entries: 0,
    ...change,
  };
}

export function entry(n: number, change: Partial<Entry> = {}): Entry {
  return { conversation_id: "c-1", n, kind: "text", author: "agent", at: AT, text: `text ${n}`, ...change };
}

export function instance(change: Partial<Instance> = {}): Instance {
  return {
    instance_id: "i-1",
    app_scope: "task-dashboard",
    conversation_id: "c-1",
    kind: "bundled-reference",
    state: "foreground",
    incarnation: 1,
    session_id: "s-1",
    digest: "d",
    created_at: AT,
    crashes: 0,
    ...change,
  };
}

export function interaction(change: Partial<Interaction> = {}): Interaction {
  return {
    interaction_id: "q-1",
    owner: { app_scope: "chat", instance_id: "i-chat", conversation_id: "c-1", source: "agent_tool" },
    kind: "confirm",
    request: { kind: "confirm", title: "May I?", prompt: "Please." },
    status: "pending",
    presentation: "default",
    created_at: AT,
    updated_at: AT,
    ...change,
  };
}

export function session(change: Partial<Session> = {}): Session {
  return {
    session_id: "s-1",
    instance_id: "i-1",
    app_scope: "task-dashboard",
    conversation_id: "c-1",
    state: "open",
    title: "Task Dashboard",
    created_at: AT,
    ...change,
  };
}

export function snapshot(change: Partial<Snapshot> = {}): Snapshot {
  return {
    revision: 1,
    boot_id: "b-1",
    isolation: "S3",
    now: AT,
    conversations: [],
    instances: [],
    workers: [],
    apps: [],
    agents: [],
    calls: [],
    interactions: [],
    operations: [],
    sessions: [],
    surfaces: [],
    snapshots: [],
    grants: [],
    notifications: [],
    ...change,
  };
}
