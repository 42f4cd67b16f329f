// What the page holds: a projection of the Runtime's rows, the pages of history it has read, and what it is about to
// send. Owns the shapes and the empty state; how they change is the reducer's business alone.

import type { LinkStatus } from "../runtime/link";
import type {
  Agent,
  App,
  Artifact,
  Call,
  Conversation,
  Entry,
  Grant,
  Instance,
  InstanceSnapshot,
  Interaction,
  Notice,
  Operation,
  Session,
  Surface,
  Worker,
} from "../runtime/rows";

export type Rows<T> = Readonly<Record<string, T>>;

/** A gapless stretch of one conversation's entries, up to the newest that is known. */
export interface Timeline {
  readonly entries: readonly Entry[];
  readonly complete: boolean; // the first entry of the conversation is here
  readonly loading: boolean;
  readonly failed: boolean;
  readonly stale: boolean; // something newer exists that is not here
}

/** The read-only history of one app session, as it was read. */
export interface SessionHistory {
  readonly entries: readonly Entry[];
  readonly operations: readonly Operation[];
  readonly snapshot: InstanceSnapshot | null;
}

export type EchoState = "sending" | "sent" | "failed" | "expired";

/** A text that the person has sent and that is not in the timeline yet. */
export interface Echo {
  readonly action_id: string;
  readonly conversation_id: string;
  readonly text: string;
  readonly at: string;
  readonly state: EchoState;
  readonly code?: string;
  readonly message?: string;
}

/** A MiniApp that ended by a fault, told once until the person puts it away. */
export interface Failure {
  readonly instance_id: string;
  readonly app_scope: string;
  readonly conversation_id: string;
  readonly code: string;
  readonly reason: string;
  readonly started: boolean; // it had been on screen before
}

export interface Workspace {
  readonly link: LinkStatus;
  readonly everOnline: boolean;
  readonly version: string;
  readonly bootId: string;
  readonly isolation: string;
  readonly revision: number;
  readonly truncated: readonly string[]; // lists of the last snapshot that are not whole
  readonly skewMs: number; // the Runtime's wall clock minus this page's
  readonly conversations: Rows<Conversation>;
  readonly instances: Rows<Instance>;
  readonly workers: Rows<Worker>;
  readonly apps: Rows<App>;
  readonly agents: Rows<Agent>;
  readonly calls: Rows<Call>; // by agent_id/call_id
  readonly interactions: Rows<Interaction>;
  readonly operations: Rows<Operation>;
  readonly sessions: Rows<Session>;
  readonly surfaces: Rows<Surface>;
  readonly snapshots: Rows<InstanceSnapshot>;
  readonly grants: Rows<Grant>; // by app_scope/capability
  readonly notices: Rows<Notice>;
  readonly artifacts: Rows<Artifact>;
  readonly timelines: Rows<Timeline>;
  readonly histories: Rows<SessionHistory>;
  readonly echoes: readonly Echo[];
  readonly failures: readonly Failure[];
}

export const EMPTY_TIMELINE: Timeline = {
  entries: [],
  complete: false,
  loading: false,
  failed: false,
  stale: true,
};

export const EMPTY: Workspace = {
  link: "connecting",
  everOnline: false,
  version: "",
  bootId: "",
  isolation: "",
  revision: 0,
  truncated: [],
  skewMs: 0,
  conversations: {},
  instances: {},
  workers: {},
  apps: {},
  agents: {},
  calls: {},
  interactions: {},
  operations: {},
  sessions: {},
  surfaces: {},
  snapshots: {},
  grants: {},
  notices: {},
  artifacts: {},
  timelines: {},
  histories: {},
  echoes: [],
  failures: [],
};
