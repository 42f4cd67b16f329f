// The client in React: one context, one hook that reads the state.

import { createContext, type ReactNode, useContext } from "react";
import { useStore } from "zustand";
import { useShallow } from "zustand/react/shallow";
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
