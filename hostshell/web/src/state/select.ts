// Questions about the state that several parts of the page ask. Pure.

import type {
  Agent,
  App,
  Call,
  Conversation,
  Instance,
  Interaction,
  Operation,
  Session,
  Surface,
} from "../runtime/rows";
import type { Workspace } from "./model";

const OPEN_QUESTION = new Set(["pending", "presented"]);

export function conversationsByUse(state: Workspace): Conversation[] {
  return Object.values(state.conversations).sort((a, b) => b.updated_at.localeCompare(a.updated_at));
}

const OPERATOR = "cli"; // the command line calls tools too, but nobody can talk to it

/** Whether nobody reads what is written in a conversation, because the command line has opened it. */
export function hasNoReader(conversation: Conversation | undefined): boolean {
  return conversation?.agent_id === OPERATOR;
}

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

export function isOpenCall(call: Call): boolean {
  return OPEN_CALL.has(call.status);
}

/** The newest first. */
export function openCalls(state: Workspace, keep: (row: Call) => boolean): Call[] {
  return Object.values(state.calls)
    .filter((row) => isOpenCall(row) && keep(row))
    .sort((a, b) => b.created_at.localeCompare(a.created_at));
}

/** How a call is, for a person: what waits for an answer waits for a person, whatever carries the question. */
export function shownCallStatus(call: Call): string {
  return call.interaction_id && isOpenCall(call) ? "waiting_for_person" : call.status;
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

const TASK_DASHBOARD = "task-dashboard";

/** Its page is a component of this workspace; every other MiniApp has a restricted surface. */
export function isTrustedPage(instance: Instance): boolean {
  return instance.app_scope === TASK_DASHBOARD && instance.kind !== "installed";
}

/** Whether there is something to see once the instance is in front, or soon will be. */
export function hasPage(state: Workspace, instance: Instance): boolean {
  if (isTrustedPage(instance) || surfaceOf(state, instance.instance_id)) return true;
  const shown = shownState(state, instance);
  return shown === "starting" || shown === "restarting";
}

export type NotContinued = "app_not_found" | "app_quarantined" | "app_disabled" | "app_open";

/** Why an ended session cannot be continued just now, or null if it can: the Runtime's own rules. */
export function whyNotContinued(state: Workspace, session: Session): NotContinued | null {
  const app = state.apps[session.app_scope];
  if (!app) return "app_not_found";
  if (app.quarantined) return "app_quarantined";
  if (!app.enabled) return "app_disabled";
  const live = liveInstances(state, session.conversation_id);
  return live.some((row) => row.app_scope === session.app_scope) ? "app_open" : null;
}

export function runtimeNow(state: Workspace): number {
  return Date.now() + state.skewMs;
}
