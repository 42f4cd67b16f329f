// Questions about the state that several parts of the page ask. Pure.

import type {
  Agent,
  App,
  Call,
  Conversation,
  Instance,
  Interaction,
  Operation,
  Surface,
} from "../runtime/rows";
import type { Workspace } from "./model";

const OPEN_QUESTION = new Set(["pending", "presented"]);

export function conversationsByUse(state: Workspace): Conversation[] {
  return Object.values(state.conversations).sort((a, b) => b.updated_at.localeCompare(a.updated_at));
}

const OPERATOR = "cli"; // the command line calls tools too, but nobody can talk to it

/** Agents that a person can talk to: the connected ones first, then those seen last. */
export function agentsToTalkTo(state: Workspace): Agent[] {
  return Object.values(state.agents)
    .filter((row) => row.agent_id !== OPERATOR)
    .sort(
      (a, b) => Number(b.connected) - Number(a.connected) || b.last_hello_at.localeCompare(a.last_hello_at),
    );
}

export function liveInstances(state: Workspace, conversationId: string): Instance[] {
  return Object.values(state.instances)
    .filter(
      (row) => row.conversation_id === conversationId && row.state !== "closed" && row.kind !== "system",
    )
    .sort((a, b) => a.created_at.localeCompare(b.created_at));
}

/** The MiniApp on top of the conversation's focus stack, or null while that is Interact. */
export function frontInstance(state: Workspace, conversation: Conversation | undefined): Instance | null {
  const id = conversation?.focus.at(-1);
  if (!conversation || !id || id === conversation.chat_instance_id) return null;
  const instance = state.instances[id];
  return instance && instance.state !== "closed" && instance.kind !== "system" ? instance : null;
}

export function isOpen(interaction: Interaction): boolean {
  return OPEN_QUESTION.has(interaction.status);
}

export function openInteractions(state: Workspace, keep: (row: Interaction) => boolean): Interaction[] {
  return Object.values(state.interactions)
    .filter((row) => isOpen(row) && keep(row))
    .sort((a, b) => a.created_at.localeCompare(b.created_at));
}

export function isConsent(row: Interaction): boolean {
  return row.owner.source === "runtime_policy";
}

export function surfaceOf(state: Workspace, instanceId: string): Surface | null {
  const open = Object.values(state.surfaces).filter(
    (row) => row.instance_id === instanceId && row.status === "open",
  );
  return open.sort((a, b) => a.created_at.localeCompare(b.created_at)).at(-1) ?? null;
}

export function focusingOperation(state: Workspace, instanceId: string): Operation | null {
  return (
    Object.values(state.operations).find(
      (row) => row.instance_id === instanceId && row.state === "focusing",
    ) ?? null
  );
}

const OPEN_CALL = new Set(["received", "routing", "waiting_for_app", "running", "submitted"]);

export function openCalls(state: Workspace, keep: (row: Call) => boolean): Call[] {
  return Object.values(state.calls).filter((row) => OPEN_CALL.has(row.status) && keep(row));
}

/** The progress (0 to 1) of an instance's newest open call that reports one. */
export function progressOf(state: Workspace, instanceId: string): { value: number; message: string } | null {
  const call = openCalls(state, (row) => row.instance_id === instanceId && row.progress !== undefined)
    .sort((a, b) => a.updated_at.localeCompare(b.updated_at))
    .at(-1);
  return call?.progress === undefined ? null : { value: call.progress, message: call.progress_message ?? "" };
}

export type ShownState =
  | "foreground"
  | "background"
  | "suspended"
  | "starting"
  | "restarting"
  | "quarantined";

/** How an instance is, for a person: its own state, its process and its app together. */
export function shownState(state: Workspace, instance: Instance): ShownState {
  const app: App | undefined = state.apps[instance.app_scope];
  const worker = state.workers[instance.instance_id];
  if (app?.quarantined) return "quarantined";
  if (instance.crashes > 0 && (worker ? worker.state !== "ready" : instance.state === "foreground"))
    return "restarting";
  if (instance.state === "starting") return "starting";
  return instance.state === "closed" ? "suspended" : instance.state;
}

export function runtimeNow(state: Workspace): number {
  return Date.now() + state.skewMs;
}
