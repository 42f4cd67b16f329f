// Rows of the timeline that stand for something else: a question, an app session. What the page does not have yet is
// read when the row comes near the screen.

import { Skeleton } from "@mantine/core";
import { useEffect } from "react";
import type { Entry } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import { InteractionCard } from "./cards/InteractionCard";
import classes from "./rows.module.css";
import { SessionCard } from "./SessionCard";

interface Props {
  entry: Entry;
  conversationId: string;
}

export function InteractionRow({ entry, conversationId }: Props) {
  const interaction = useWorkspace((state) => state.interactions[entry.ref ?? ""]);
  useMissing(interaction === undefined, conversationId, entry.n);
  return (
    <div className={classes.card}>
      {interaction ? <InteractionCard interaction={interaction} /> : <Waiting />}
    </div>
  );
}

export function SessionRow({ entry, conversationId }: Props) {
  const session = useWorkspace((state) => state.sessions[entry.ref ?? ""]);
  useMissing(session === undefined, conversationId, entry.n);
  return <div className={classes.card}>{session ? <SessionCard session={session} /> : <Waiting />}</div>;
}

function useMissing(missing: boolean, conversationId: string, n: number): void {
  const client = useClient();
  const online = useWorkspace((state) => state.link === "online");
  useEffect(() => {
    if (missing && online) void client.readEntry(conversationId, n);
  }, [client, missing, online, conversationId, n]);
}

function Waiting() {
  return <Skeleton height={72} radius="lg" aria-hidden="true" />;
}
