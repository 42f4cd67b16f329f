// The one place where the page's state changes: (state, event) → state, pure. Rows come from the Runtime and are taken
// as they are; nothing here decides what may happen.

import type { LinkStatus } from "../runtime/link";
import type {
  Artifact,
  Call,
  Change,
  Entry,
  Grant,
  Instance,
  Interaction,
  Referred,
  SessionPage,
  Snapshot,
  TimelinePage,
} from "../runtime/rows";
import { type Echo, EMPTY_TIMELINE, type Failure, type Rows, type Timeline, type Workspace } from "./model";

export type WorkspaceEvent =
  | { type: "link"; status: LinkStatus }
  | { type: "hello"; boot_id: string; version: string }
  | { type: "snapshot"; snapshot: Snapshot; at: number }
  | { type: "changes"; revision: number; changes: readonly Change[] }
  | { type: "page.asked"; conversation_id: string }
  | { type: "page.read"; conversation_id: string; before: number | null; page: TimelinePage }
  | { type: "page.failed"; conversation_id: string }
  | { type: "entry.read"; page: Referred }
  | { type: "interactions.read"; interactions: readonly Interaction[] }
  | { type: "session.read"; page: SessionPage }
  | { type: "artifacts.read"; artifacts: readonly Artifact[] }
  | { type: "echo.added"; echo: Echo }
  | { type: "echo.changed"; action_id: string; change: Partial<Echo> }
  | { type: "echo.dropped"; action_id: string }
  | { type: "failure.dismissed"; instance_id: string };

export function reduce(state: Workspace, event: WorkspaceEvent): Workspace {
  switch (event.type) {
    case "link":
      return { ...state, link: event.status, everOnline: state.everOnline || event.status === "online" };
    case "hello":
      return { ...state, bootId: event.boot_id, version: event.version };
    case "snapshot":
      return fromSnapshot(state, event.snapshot, event.at);
    case "changes":
      return { ...event.changes.reduce(applyChange, state), revision: event.revision };
    case "page.asked":
      return withTimeline(state, event.conversation_id, (t) => ({ ...t, loading: true, failed: false }));
    case "page.failed":
      return withTimeline(state, event.conversation_id, (t) => ({ ...t, loading: false, failed: true }));
    case "page.read":
      return readPage(state, event.conversation_id, event.before, event.page);
    case "entry.read":
      return withReferred(state, event.page);
    case "interactions.read":
      return { ...state, interactions: keepNewer(state.interactions, event.interactions, questionId) };
    case "session.read":
      return readSession(state, event.page);
    case "artifacts.read":
      return { ...state, artifacts: { ...state.artifacts, ...byId(event.artifacts, (a) => a.artifact_id) } };
    case "echo.added":
      if (state.echoes.some((echo) => echo.action_id === event.echo.action_id)) return state;
      return { ...state, echoes: [...state.echoes, event.echo] };
    case "echo.changed":
      return {
        ...state,
        echoes: state.echoes.map((e) => (e.action_id === event.action_id ? { ...e, ...event.change } : e)),
      };
    case "echo.dropped":
      return { ...state, echoes: state.echoes.filter((echo) => echo.action_id !== event.action_id) };
    case "failure.dismissed":
      return { ...state, failures: state.failures.filter((f) => f.instance_id !== event.instance_id) };
  }
}

// snapshots

/** Everything that is live comes anew. What was read of the past stays where it cannot have changed. */
function fromSnapshot(state: Workspace, snapshot: Snapshot, at: number): Workspace {
  const ended = <T extends { state?: string; status?: string }>(rows: Rows<T>, final: readonly string[]) =>
    Object.fromEntries(
      Object.entries(rows).filter(([, row]) => final.includes(row.status ?? row.state ?? "")),
    ) as Rows<T>;
  const timelines = Object.fromEntries(
    Object.entries(state.timelines).map(([id, t]) => [
      id,
      { ...t, loading: false, failed: false, stale: true },
    ]),
  );
  return {
    ...state,
    bootId: snapshot.boot_id || state.bootId,
    isolation: snapshot.isolation,
    revision: snapshot.revision,
    truncated: snapshot.truncated ?? [],
    skewMs: Date.parse(snapshot.now) - at,
    conversations: byId(snapshot.conversations, (row) => row.conversation_id),
    instances: {
      ...ended(state.instances, ["closed"]),
      ...byId(snapshot.instances, (row) => row.instance_id),
    },
    workers: byId(snapshot.workers, (row) => row.instance_id),
    apps: byId(snapshot.apps, (row) => row.app_scope),
    agents: byId(snapshot.agents, (row) => row.agent_id),
    calls: { ...ended(state.calls, FINAL_CALLS), ...byId(snapshot.calls, callKey) },
    interactions: {
      ...ended(state.interactions, FINAL_INTERACTIONS),
      ...byId(
        snapshot.interactions.map((row) => whole(state.interactions, row)),
        questionId,
      ),
    },
    operations: {
      ...ended(state.operations, ["completed", "interrupted"]),
      ...byId(snapshot.operations, (row) => row.operation_id),
    },
    sessions: {
      ...ended(state.sessions, ["read_only"]),
      ...byId(snapshot.sessions, (row) => row.session_id),
    },
    surfaces: byId(
      snapshot.surfaces.filter((row) => row.status === "open"),
      (row) => row.surface_id,
    ),
    snapshots: byId(snapshot.snapshots, (row) => row.instance_id),
    grants: byId(snapshot.grants, grantKey),
    notices: byId(snapshot.notifications ?? [], (row) => row.notification_id),
    artifacts: { ...state.artifacts, ...byId(snapshot.artifacts ?? [], (row) => row.artifact_id) },
    timelines,
    histories: {},
  };
}

const FINAL_CALLS = ["completed", "failed", "cancelled", "expired", "rejected"];
const FINAL_INTERACTIONS = ["completed", "cancelled", "expired", "failed"];

function questionId(row: Interaction): string {
  return row.interaction_id;
}

/** What was read whole stays whole while it is the same. */
function whole(have: Rows<Interaction>, row: Interaction): Interaction {
  const known = have[row.interaction_id];
  return row.cut && known && !known.cut && known.updated_at === row.updated_at ? known : row;
}

function callKey(call: Call): string {
  return `${call.agent_id}/${call.call_id}`;
}

function grantKey(grant: Grant): string {
  return `${grant.app_scope}/${grant.capability}`;
}

// deltas

type Slice =
  | "conversations"
  | "workers"
  | "agents"
  | "calls"
  | "interactions"
  | "operations"
  | "sessions"
  | "surfaces"
  | "snapshots"
  | "grants"
  | "notices"
  | "artifacts";

const SLICES: Readonly<Record<string, Slice>> = {
  conversation: "conversations",
  worker: "workers",
  agent: "agents",
  call: "calls",
  interaction: "interactions",
  operation: "operations",
  session: "sessions",
  surface: "surfaces",
  snapshot: "snapshots",
  grant: "grants",
  notification: "notices",
  artifact: "artifacts",
};

function applyChange(state: Workspace, change: Change): Workspace {
  const slice = SLICES[change.kind];
  if (slice) return { ...state, [slice]: put(state[slice] as Rows<unknown>, change.id, change.row) };
  switch (change.kind) {
    case "app":
      return { ...state, apps: putApp(state.apps, change) };
    case "instance":
      return putInstance(state, change.id, change.row as Instance | null);
    case "entry":
      return change.row ? appendEntry(state, change.row as Entry) : state;
    default:
      return state; // surface patches go to the surface itself; unknown kinds are a newer Runtime's business
  }
}

function put<T>(rows: Rows<T>, id: string, row: unknown): Rows<T> {
  if (row !== null) return { ...rows, [id]: row as T };
  const { [id]: _gone, ...rest } = rows;
  return rest;
}

/** An app's row in a delta has no manifest in it; what the snapshot said of it stays. */
function putApp(apps: Workspace["apps"], change: Change): Workspace["apps"] {
  if (change.row === null) return put(apps, change.id, null);
  return { ...apps, [change.id]: { ...apps[change.id], ...(change.row as Workspace["apps"][string]) } };
}

const PEACEFUL_CLOSES = new Set(["closed_by_person", "closed_by_app", "operation_ended", "app_removed", ""]);

function putInstance(state: Workspace, id: string, row: Instance | null): Workspace {
  const before = state.instances[id];
  const instances = put(state.instances, id, row);
  const broke =
    row?.state === "closed" && before?.state !== "closed" && !PEACEFUL_CLOSES.has(row.close_code ?? "");
  if (!broke) return { ...state, instances };
  const failure: Failure = {
    instance_id: id,
    app_scope: row.app_scope,
    conversation_id: row.conversation_id,
    code: row.close_code ?? "",
    reason: row.close_reason ?? "",
    started: before !== undefined && before.state !== "starting",
  };
  return { ...state, instances, failures: [...state.failures.filter((f) => f.instance_id !== id), failure] };
}

/** A new entry of a conversation whose history is on the page; it takes the place of the person's own echo. */
function appendEntry(state: Workspace, entry: Entry): Workspace {
  const echoes = withoutEchoesOf(state.echoes, [entry]);
  const timeline = state.timelines[entry.conversation_id];
  if (!timeline) return echoes === state.echoes ? state : { ...state, echoes };
  const next = { ...timeline, ...addAtEnd(timeline, entry) };
  return { ...state, echoes, timelines: { ...state.timelines, [entry.conversation_id]: next } };
}

function addAtEnd(timeline: Timeline, entry: Entry): Partial<Timeline> {
  const last = timeline.entries.at(-1);
  if (!last) return entry.n === 1 ? { entries: [entry], complete: true } : { stale: true };
  if (entry.n === last.n + 1) return { entries: [...timeline.entries, entry] };
  if (entry.n > last.n) return { stale: true };
  return {};
}

function withoutEchoesOf(echoes: readonly Echo[], entries: readonly Entry[]): readonly Echo[] {
  if (echoes.length === 0) return echoes;
  const seen = new Set(entries.map((entry) => entry.action_id).filter(Boolean));
  return echoes.some((echo) => seen.has(echo.action_id))
    ? echoes.filter((echo) => !seen.has(echo.action_id))
    : echoes;
}

// pages of history

function withTimeline(state: Workspace, id: string, change: (t: Timeline) => Timeline): Workspace {
  return { ...state, timelines: { ...state.timelines, [id]: change(state.timelines[id] ?? EMPTY_TIMELINE) } };
}

/** A page read backwards from ``before`` (null: from the end), joined to what is there if the two touch. */
function readPage(state: Workspace, id: string, before: number | null, page: TimelinePage): Workspace {
  const next = withTimeline(withReferred(state, page), id, (timeline) => {
    const entries = joined(timeline.entries, page.entries);
    const first = entries[0];
    const toTheFirst =
      page.entries.length > 0 ? first === page.entries[0] : before !== null || first === undefined;
    const complete = toTheFirst ? !page.more : timeline.complete || first?.n === 1;
    return {
      entries,
      complete,
      loading: false,
      failed: false,
      stale: before === null ? false : timeline.stale,
    };
  });
  return { ...next, echoes: withoutEchoesOf(next.echoes, page.entries) };
}

/** Two stretches as one. If there is a gap between them, the newer one alone stays. */
function joined(have: readonly Entry[], read: readonly Entry[]): readonly Entry[] {
  const [firstHave, lastHave, firstRead, lastRead] = [have[0], have.at(-1), read[0], read.at(-1)];
  if (!firstHave || !lastHave) return read;
  if (!firstRead || !lastRead) return have;
  if (firstRead.n > lastHave.n + 1) return read;
  if (lastRead.n < firstHave.n - 1) return have;
  const older = firstRead.n <= firstHave.n ? read : have;
  const newer = older === read ? have : read;
  const end = older.at(-1)?.n ?? 0;
  return [...older, ...newer.filter((entry) => entry.n > end)];
}

/** Rows that history refers to. What the stream of deltas has said meanwhile is as new or newer. */
function withReferred(state: Workspace, page: Referred): Workspace {
  return {
    ...state,
    interactions: keepNewer(state.interactions, page.interactions, questionId),
    sessions: {
      ...byId(page.sessions, (row) => row.session_id),
      ...state.sessions,
    },
    calls: keepNewer(state.calls, page.calls, callKey),
  };
}

function keepNewer<T extends { updated_at: string; cut?: boolean }>(
  have: Rows<T>,
  read: readonly T[],
  id: (row: T) => string,
): Rows<T> {
  if (read.length === 0) return have;
  const rows: Record<string, T> = { ...have };
  for (const row of read) {
    const known = rows[id(row)];
    if (known && !known.cut && row.cut && known.updated_at === row.updated_at) continue;
    if (!known || known.updated_at <= row.updated_at) rows[id(row)] = row;
  }
  return rows;
}

function readSession(state: Workspace, page: SessionPage): Workspace {
  const { session, entries, operations, snapshot, instance } = page;
  const next = withReferred(state, page);
  return {
    ...next,
    sessions: { ...next.sessions, [session.session_id]: session },
    instances: instance ? { ...next.instances, [instance.instance_id]: instance } : next.instances,
    operations: { ...next.operations, ...byId(operations, (row) => row.operation_id) },
    // A snapshot may have had no room for what a live instance has saved.
    snapshots:
      snapshot && instance && instance.state !== "closed" && !next.snapshots[instance.instance_id]
        ? { ...next.snapshots, [instance.instance_id]: snapshot }
        : next.snapshots,
    histories: { ...next.histories, [session.session_id]: { entries, operations, snapshot } },
  };
}

function byId<T>(rows: readonly T[], id: (row: T) => string): Rows<T> {
  return Object.fromEntries(rows.map((row) => [id(row), row]));
}
