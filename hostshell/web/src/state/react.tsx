// The client in React: one context, one hook that reads the state.

import { createContext, type ReactNode, useContext, useEffect } from "react";
import { useStore } from "zustand";
import { useShallow } from "zustand/react/shallow";
import type { JsonObject } from "../runtime/rows";
import type { Client } from "./client";
import type { Workspace } from "./model";

const ClientContext = createContext<Client | null>(null);

export function ClientProvider({ client, children }: { client: Client; children: ReactNode }) {
  return <ClientContext value={client}>{children}</ClientContext>;
}

export function useClient(): Client {
  const client = useContext(ClientContext);
  if (!client) throw new Error("useClient needs a ClientProvider");
  return client;
}

/** A part of the state; rendering follows when that part (compared one level deep) changes. */
export function useWorkspace<T>(select: (state: Workspace) => T): T {
  return useStore(useClient().store, useShallow(select));
}

/** What an instance has saved, null if nothing; read apart where the snapshot had no room for it. */
export function useSaved(instanceId: string): JsonObject | null {
  const client = useClient();
  const saved = useWorkspace((state) => state.snapshots[instanceId]?.state ?? null);
  const lacking = useWorkspace((state) =>
    saved === null && state.link === "online" && state.truncated.includes("snapshots")
      ? (state.instances[instanceId]?.session_id ?? null)
      : null,
  );
  useEffect(() => {
    if (lacking) void client.readSession(lacking);
  }, [client, lacking]);
  return saved;
}
