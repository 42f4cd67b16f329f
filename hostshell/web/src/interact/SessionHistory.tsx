// The inside of an unfolded app session: what was said, asked and got, how its operations ended, what it left behind.

import { Button, Text } from "@mantine/core";
import { IconDownload, IconFile } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { useTimes, useWords } from "../i18n";
import type { Artifact, Entry, Session } from "../runtime/rows";
import { currentToken } from "../runtime/session";
import type { SessionHistory as History } from "../state/model";
import { useWorkspace } from "../state/react";
import { Status, toneOf } from "../ui/Status";
import { InteractionCard } from "./cards/InteractionCard";
import { isLine } from "./items";
import { Markdown } from "./Markdown";
import classes from "./SessionCard.module.css";

export function SessionHistory({ session, history }: { session: Session; history: History }) {
  const words = useWords();
  const times = useTimes();
  const said = useWorkspace((state) => history.entries.filter((entry) => isLine(entry, state.interactions)));
  const nothing = said.length === 0 && history.operations.length === 0;
  return (
    <div className={classes.history} data-testid="session-history">
      {nothing && (
        <Text size="sm" c="dimmed">
          {words.session.empty}
        </Text>
      )}
      {said.map((entry) => (
        <Line key={entry.n} entry={entry} />
      ))}
      {history.operations.map((operation) => (
        <div key={operation.operation_id} className={classes.line}>
          <Status tone={toneOf(operation.state)}>
            {words.session.outcomes[operation.state] ?? words.session.running}
          </Status>
          {operation.activity && <span>{operation.activity}</span>}
          <span className={classes.at}>
            {times.duration(operation.duration_seconds * 1000)} · {times.time(operation.started_at)} –{" "}
            {times.time(operation.ended_at ?? operation.ends_at)}
            {operation.interruption_reason &&
              ` · ${words.session.outcomes[operation.interruption_reason] ?? operation.interruption_reason}`}
          </span>
        </div>
      ))}
      <Artifacts session={session} />
    </div>
  );
}

function Line({ entry }: { entry: Entry }) {
  const words = useWords();
  const times = useTimes();
  const interaction = useWorkspace((state) =>
    entry.kind === "interaction" ? state.interactions[entry.ref ?? ""] : undefined,
  );
  if (interaction) return <InteractionCard interaction={interaction} />;
  const who = entry.author === "person" ? words.interact.you : words.interact.agent;
  return (
    <div className={classes.line}>
      <span className={classes.who}>{who}</span>
      {entry.kind === "call" && (
        <Status tone={entry.format === "result" ? toneOf(entry.text ?? "") : "calm"}>
          {entry.format === "result" ? words.session.result : words.session.asked}
        </Status>
      )}
      <time className={classes.at} dateTime={entry.at}>
        {times.time(entry.at)}
      </time>
      <div className={classes.said}>
        {entry.format === "markdown" ? (
          <Markdown text={entry.text ?? ""} />
        ) : (
          (words.session.outcomes[entry.text ?? ""] ?? entry.text)
        )}
      </div>
    </div>
  );
}

function Artifacts({ session }: { session: Session }) {
  const words = useWords();
  const artifacts = useWorkspace((state) =>
    Object.values(state.artifacts).filter((row) => row.owner.instance_id === session.instance_id),
  );
  if (artifacts.length === 0) return null;
  return (
    <>
      <Text size="sm" fw={600} mt="xs">
        {words.session.artifacts}
      </Text>
      <div className={classes.artifacts}>
        {artifacts.map((artifact) => (
          <ArtifactTile key={artifact.artifact_id} artifact={artifact} />
        ))}
      </div>
    </>
  );
}

/** The bytes come with the token in a header, so they are read here and shown from memory. */
function ArtifactTile({ artifact }: { artifact: Artifact }) {
  const words = useWords();
  const [url, setUrl] = useState<string | null>(null);
  const { artifact_id: id, media_type: type } = artifact;
  useEffect(() => {
    const stop = new AbortController();
    let made: string | null = null;
    void readArtifact(id, type, stop.signal).then((blob) => {
      if (!blob || stop.signal.aborted) return;
      made = URL.createObjectURL(blob);
      setUrl(made);
    });
    return () => {
      stop.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [id, type]);
  return (
    <figure className={classes.artifact} style={{ margin: 0 }}>
      {url && type.startsWith("image/") ? (
        <img src={url} alt={artifact.title} />
      ) : (
        <IconFile aria-hidden="true" />
      )}
      <figcaption>{artifact.title}</figcaption>
      {url && (
        <Button
          component="a"
          href={url}
          download={fileName(artifact)}
          size="compact-xs"
          variant="default"
          mt={6}
          leftSection={<IconDownload size={12} aria-hidden="true" />}
          aria-label={`${words.session.download}: ${artifact.title}`}
        >
          {words.session.download}
        </Button>
      )}
    </figure>
  );
}

async function readArtifact(id: string, type: string, signal: AbortSignal): Promise<Blob | null> {
  try {
    const answer = await fetch(`/artifacts/${encodeURIComponent(id)}`, {
      headers: { authorization: `Bearer ${currentToken() ?? ""}` },
      signal,
    });
    return answer.ok ? new Blob([await answer.arrayBuffer()], { type }) : null;
  } catch {
    return null;
  }
}

const EXTENSIONS: Record<string, string> = {
  "image/png": "png",
  "image/jpeg": "jpg",
  "image/gif": "gif",
  "image/webp": "webp",
  "image/svg+xml": "svg",
  "application/pdf": "pdf",
  "application/json": "json",
  "text/plain": "txt",
  "text/markdown": "md",
  "text/csv": "csv",
};

function fileName(artifact: Artifact): string {
  const base = artifact.title.replace(/[^\p{L}\p{N} ._-]/gu, "_").slice(0, 80);
  const extension = EXTENSIONS[artifact.media_type] ?? "bin";
  return base.toLowerCase().endsWith(`.${extension}`) ? base : `${base}.${extension}`;
}
