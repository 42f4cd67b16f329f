// Everything that the audit knows of one object, as a timeline that a person can follow.

import { Alert, Anchor, Button, Group, Loader, Text, Title } from "@mantine/core";
import { IconArrowLeft, IconRefresh } from "@tabler/icons-react";
import { useCallback, useEffect, useState } from "react";
import { goTo, hrefOf } from "../app/route";
import { useTimes, useWords } from "../i18n";
import { storyWords as en } from "../i18n/story.en";
import { storyWords as zh } from "../i18n/story.zh";
import type { StoryEntry } from "../runtime/rows";
import type { Client } from "../state/client";
import { useClient, useWorkspace } from "../state/react";
import type { Tone } from "../ui/Status";
import classes from "./pages.module.css";

interface StoryPage {
  entries: StoryEntry[];
  truncated: boolean;
  next?: number;
}

const ENTRIES_MAX = 2_000; // nobody reads more on a page

/** Its entries, page after page. */
async function readStory(client: Client, id: string): Promise<StoryPage> {
  const story = await client.query<StoryPage>("story", { id });
  while (story.next !== undefined && story.entries.length < ENTRIES_MAX) {
    const page = await client.query<StoryPage>("story", { id, after: story.next });
    story.entries.push(...page.entries);
    story.truncated = page.truncated;
    if (page.next === undefined) delete story.next;
    else story.next = page.next;
  }
  return story;
}

export function Story({ id }: { id: string }) {
  const client = useClient();
  const words = useWords();
  const online = useWorkspace((state) => state.link === "online");
  const [story, setStory] = useState<StoryPage | "none" | null>(null);
  const read = useCallback(() => {
    readStory(client, id).then(setStory, () => setStory((known) => known ?? "none"));
  }, [client, id]);
  useEffect(() => {
    if (online) read();
  }, [online, read]);
  return (
    <section aria-labelledby="story-title" data-testid="story">
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4" id="story-title" style={{ overflowWrap: "anywhere" }}>
          {words.inspector.story(id)}
        </Title>
        <Group gap="xs">
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<IconRefresh size={14} aria-hidden="true" />}
            onClick={read}
          >
            {words.inspector.refresh}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<IconArrowLeft size={14} aria-hidden="true" />}
            onClick={() => goTo({ page: "inspector", id: null })}
          >
            {words.back}
          </Button>
        </Group>
      </Group>
      {story === null && <Loader aria-label={words.loading} />}
      {story === "none" && <Text c="dimmed">{words.inspector.noStory}</Text>}
      {story !== null && story !== "none" && (
        <>
          {story.truncated && <Alert mb="sm">{words.inspector.truncated}</Alert>}
          <ol className={classes.story}>
            {story.entries.map((entry) => (
              <StoryLine key={entry.seq} entry={entry} id={id} />
            ))}
          </ol>
        </>
      )}
    </section>
  );
}

function StoryLine({ entry, id }: { entry: StoryEntry; id: string }) {
  const words = useWords();
  const times = useTimes();
  const kinds = words.locale.startsWith("zh") ? zh : en;
  const detail = Object.entries(entry.detail ?? {});
  return (
    <li data-tone={toneOfKind(entry.kind)}>
      <div className={classes.storyTop}>
        <Text fw={600} component="span">
          {kinds[entry.kind] ?? entry.kind}
        </Text>
        <Text size="xs" c="dimmed" component="span">
          {entry.actor}
        </Text>
        <time className={classes.storyAt} dateTime={entry.at}>
          {times.full(entry.at)} · #{entry.seq}
        </time>
      </div>
      <div className={classes.storyIds}>
        {entry.subjects
          .filter((subject) => subject !== id)
          .map((subject) => (
            <Anchor key={subject} inherit href={hrefOf({ page: "inspector", id: subject })}>
              {subject}
            </Anchor>
          ))}
      </div>
      {detail.length > 0 && (
        <div className={classes.detail}>
          {detail
            .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
            .join("\n")}
        </div>
      )}
    </li>
  );
}

function toneOfKind(kind: string): Tone {
  if (/(refused|rejected|failed|violation|quarantined|denied|exited|crash|timeout)/.test(kind)) return "bad";
  if (/(completed|granted|ready)$/.test(kind)) return "good";
  return /(received|asked|opened|created|started|from_person|from_agent)/.test(kind) ? "accent" : "calm";
}
