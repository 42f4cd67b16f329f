// The rows that the Runtime projects, as they come over the wire. Owns their shapes; knows no rules about them.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Conversation {
  conversation_id: string;
  agent_id: string;
  title: string;
  opened_by: string;
  created_at: string;
  updated_at: string;
  focus: string[];
  chat_instance_id: string | null;
  entries: number;
}

export type EntryKind = "text" | "interaction" | "session" | "call" | "continue" | (string & {});

export interface Entry {
  conversation_id: string;
  n: number;
  kind: EntryKind;
  author: "person" | "agent" | "runtime" | "app" | (string & {});
  at: string;
  text?: string;
  format?: string;
  ref?: string;
  session_id?: string;
  action_id?: string;
}

export type InstanceState = "starting" | "foreground" | "background" | "suspended" | "closed";

export interface Instance {
  instance_id: string;
  app_scope: string;
  conversation_id: string;
  kind: string;
  state: InstanceState;
  incarnation: number;
  session_id: string;
  digest: string;
  created_at: string;
  crashes: number;
  closed_at?: string;
  close_code?: string;
  close_reason?: string;
}

export interface Worker {
  instance_id: string;
  incarnation: number;
  state: "absent" | "starting" | "ready" | "stopping";
  pid: number | null;
}

export interface App {
  app_scope: string;
  digest: string;
  kind: string;
  enabled: boolean;
  quarantined: boolean;
  quarantine_reason?: string | null;
  installed_at: string;
  version?: string;
  title?: string;
  tools?: string[];
  surfaces?: Json[];
}

export interface Agent {
  agent_id: string;
  connected: boolean;
  last_hello_at: string;
  outbox: number;
  in_flight: number;
}

export interface Call {
  call_id: string;
  tool_id: string;
  inventory_revision: string;
  app_scope: string;
  conversation_id: string;
  status: string;
  input?: JsonObject;
  attempt: number;
  created_at: string;
  updated_at: string;
  agent_id: string;
  instance_id?: string;
  result?: JsonObject;
  error?: { code: string; message: string; detail?: Json };
  error_code?: string;
  progress?: number;
  progress_message?: string;
  operation_id?: string;
  interaction_id?: string;
  cancel_requested?: boolean;
}

export interface ChoiceAction {
  id: string;
  label: string;
  description?: string;
}

export interface InputField {
  id: string;
  label: string;
  type: "text" | "textarea" | "number";
  required?: boolean;
  placeholder?: string;
  min_length?: number;
  max_length?: number;
  minimum?: number;
  maximum?: number;
}

export type InteractionRequest =
  | { kind: "notice"; title: string; message: string; acknowledge_label?: string }
  | {
      kind: "choice";
      title: string;
      prompt: string;
      mode: "single-choice" | "multi-choice" | "button";
      actions: ChoiceAction[];
    }
  | { kind: "confirm"; title: string; prompt: string; approve_label?: string; cancel_label?: string }
  | {
      kind: "input";
      title: string;
      prompt: string;
      fields: InputField[];
      submit_label?: string;
      cancel_label?: string;
    };

export type InteractionStatus =
  | "pending"
  | "presented"
  | "submitted"
  | "completed"
  | "cancelled"
  | "expired"
  | "failed";

export interface Interaction {
  interaction_id: string;
  owner: {
    app_scope: string;
    instance_id: string;
    conversation_id: string;
    source: "agent_tool" | "miniapp_tool" | "runtime_policy";
    parent_call_id?: string;
    surface_id?: string;
  };
  kind: InteractionRequest["kind"];
  request: InteractionRequest;
  status: InteractionStatus;
  presentation: "default" | "inline" | "modal";
  created_at: string;
  updated_at: string;
  result?: JsonObject;
  expires_at?: string;
  reason?: string;
  draft?: JsonObject;
  purpose?: { capability?: string; reason?: string };
  cut?: boolean; // its request is shown in part; the query `interaction` has all of it
}

export interface Operation {
  operation_id: string;
  source_tool_call_id: string;
  duration_seconds: number;
  started_at: string;
  ends_at: string;
  state: "focusing" | "completed" | "interrupted";
  instance_id: string;
  conversation_id: string;
  activity?: string;
  ended_at?: string;
  interruption_reason?: string;
  late_ms?: number;
}

export interface Session {
  session_id: string;
  instance_id: string;
  app_scope: string;
  conversation_id: string;
  state: "open" | "read_only";
  title: string;
  created_at: string;
  ended_at?: string;
  outcome?: string;
  continues?: string;
}

export interface Surface {
  surface_id: string;
  instance_id: string;
  conversation_id: string;
  app_scope: string;
  digest: string;
  entry: string;
  title: string;
  status: "open" | "closed";
  revision: number;
  bytes: number;
  created_at: string;
  closed_at?: string;
}

export interface InstanceSnapshot {
  instance_id: string;
  state: JsonObject;
  revision: number;
  saved_at: string;
  read_only: boolean;
}

export interface Artifact {
  artifact_id: string;
  sha256: string;
  media_type: string;
  bytes: number;
  title: string;
  owner: { app_scope: string; instance_id: string; conversation_id: string };
  created_at: string;
  exported_at?: string;
  file_name?: string;
}

export interface Grant {
  app_scope: string;
  capability: string;
  scope: "once" | "session" | "always" | "denied";
  granted_at: string;
  expires_at?: string;
}

export interface Notice {
  notification_id: string;
  app_scope: string;
  instance_id: string;
  conversation_id: string;
  title: string;
  body: string;
  at: string;
  count: number;
}

export interface Snapshot {
  revision: number;
  boot_id: string;
  isolation: string;
  now: string;
  conversations: Conversation[];
  instances: Instance[];
  workers: Worker[];
  apps: App[];
  agents: Agent[];
  calls: Call[];
  interactions: Interaction[];
  operations: Operation[];
  sessions: Session[];
  surfaces: Surface[];
  snapshots: InstanceSnapshot[];
  grants: Grant[];
  notifications?: Notice[];
  artifacts?: Artifact[];
  truncated?: string[]; // the lists that are longer than there was room for
  interactions_next?: string; // where the query `interactions` goes on
}

export interface Change {
  kind: string;
  id: string;
  row: unknown;
}

export interface SurfacePatch {
  surface_id: string;
  revision: number;
  patch: JsonObject;
}

export interface Referred {
  interactions: Interaction[];
  sessions: Session[];
  calls: Call[];
}

export interface TimelinePage extends Referred {
  entries: Entry[];
  more: boolean; // there are older ones
}

export interface SessionPage extends Referred {
  session: Session;
  entries: Entry[];
  instance: Instance | null;
  snapshot: InstanceSnapshot | null;
  operations: Operation[];
  next?: string; // there are more entries; its pages have neither operations nor the saved state
}

export interface StoryEntry {
  seq: number;
  at: string;
  actor: string;
  kind: string;
  subjects: string[];
  cause: string;
  detail: JsonObject;
}

/** The answer to an action or a query. */
export interface Result {
  accepted: boolean;
  code?: string;
  message?: string;
  detail?: Json;
}
