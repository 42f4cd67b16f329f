// A conversation's history, windowed: only what is near the screen is in the page. New things at the end are followed
// while the person is there; earlier pages are read as they come into reach.

import { Button, Loader, Text } from "@mantine/core";
import { IconArrowDown } from "@tabler/icons-react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import { useTimes, useWords } from "../i18n";
import type { Entry } from "../runtime/rows";
import { PAGE_ENTRIES } from "../state/client";
import { EMPTY_TIMELINE } from "../state/model";
import { useClient, useWorkspace } from "../state/react";
import { isOpen } from "../state/select";
import { markRead, readStore } from "../state/settings";
import { useVisible } from "../ui/hooks";
import { buildItems, type Item } from "./items";
import { markdownWords, renderAhead } from "./markdown";
import { InteractionRow, SessionRow } from "./rows";
import { EchoRow, TextRow } from "./TextRow";
import classes from "./Timeline.module.css";

const NEAR_END_PX = 80;
const READ_AHEAD_PX = 1_200;

interface Props {
  conversationId: string;
  unfolded: string | null;
  empty: React.ReactNode;
}

export function Timeline({ conversationId, unfolded, empty }: Props) {
  const client = useClient();
  const words = useWords();
  const timeline = useWorkspace((state) => state.timelines[conversationId]) ?? EMPTY_TIMELINE;
  const echoes = useWorkspace((state) =>
    state.echoes.filter((echo) => echo.conversation_id === conversationId),
  );
  const online = useWorkspace((state) => state.link === "online");
  const [newAfter] = useState(() => readStore.getState()[conversationId] ?? null);
  const scroller = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const [atEnd, setAtEnd] = useState(true);

  useEffect(() => {
    if (online && timeline.stale && !timeline.loading && !timeline.failed)
      void client.readTimeline(conversationId);
  }, [client, conversationId, online, timeline.stale, timeline.loading, timeline.failed]);

  const items = useMemo(
    () => buildItems(timeline.entries, echoes, { complete: timeline.complete, newAfter, unfolded }),
    [timeline.entries, timeline.complete, echoes, newAfter, unfolded],
  );
  useRenderedAhead(timeline.entries);
  const { shift, keepMounted } = useListHints(items, timeline.entries[0]?.n ?? 0);
  useFollowEnd(list, items, echoes.length, atEnd);
  const last = timeline.entries.at(-1)?.n ?? 0;
  const unseen = useReadMarks(conversationId, last, atEnd);

  const scrolled = useCallback(() => {
    const handle = list.current;
    if (!handle) return;
    setAtEnd(handle.scrollSize - handle.scrollOffset - handle.viewportSize < NEAR_END_PX);
    if (handle.scrollOffset < READ_AHEAD_PX) void client.readTimeline(conversationId, true);
  }, [client, conversationId]);

  // A page that does not fill the screen leaves nothing to scroll: read on.
  useEffect(() => {
    const handle = list.current;
    if (handle && !timeline.loading && !timeline.complete && handle.scrollSize <= handle.viewportSize) {
      if (timeline.entries.length > 0) void client.readTimeline(conversationId, true);
    }
  }, [client, conversationId, timeline]);

  if (items.length === 0 && timeline.complete) return <div className={classes.empty}>{empty}</div>;
  return (
    <div className={classes.frame}>
      <div
        ref={scroller}
        className={classes.scroller}
        role="log"
        aria-label={words.interact.timeline}
        aria-live="off"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
        tabIndex={0}
        data-testid="timeline"
        id="timeline"
      >
        <div className={classes.column}>
          <Virtualizer
            ref={list}
            scrollRef={scroller}
            shift={shift}
            keepMounted={keepMounted}
            onScroll={scrolled}
            onResize={() =>
              atEnd &&
              !isTyping(scroller.current) &&
              list.current?.scrollToIndex(items.length - 1, { align: "end" })
            }
            bufferSize={400}
            data={items}
          >
            {(item) => (
              <div key={item.key} className={classes.row}>
                <Row item={item} conversationId={conversationId} />
              </div>
            )}
          </Virtualizer>
        </div>
      </div>
      {timeline.loading && timeline.entries.length > 0 && !timeline.stale && (
        <output className={classes.loading} aria-label={words.interact.older}>
          <Loader size="sm" />
        </output>
      )}
      {timeline.loading && timeline.entries.length === 0 && (
        <output className={classes.center} aria-label={words.loading}>
          <Loader />
        </output>
      )}
      {timeline.failed && <Failed conversationId={conversationId} older={!timeline.stale} />}
      {!atEnd && (
        <Button
          className={classes.toEnd}
          size="compact-md"
          radius="xl"
          variant="default"
          leftSection={<IconArrowDown size={16} aria-hidden="true" />}
          onClick={() => list.current?.scrollToIndex(items.length - 1, { align: "end" })}
        >
          {unseen > 0 ? words.interact.toNewestUnread(unseen) : words.interact.toNewest}
        </Button>
      )}
    </div>
  );
}

/** A form that grows while a person fills it in must not run away under their hands. */
function isTyping(inside: HTMLElement | null): boolean {
  const active = document.activeElement;
  return active?.matches("input, textarea") === true && inside?.contains(active) === true;
}

function Row({ item, conversationId }: { item: Item; conversationId: string }) {
  switch (item.kind) {
    case "start":
      return <Separator kind="start" />;
    case "day":
      return <Separator kind="day" at={item.at} />;
    case "new":
      return <Separator kind="new" />;
    case "text":
      return <TextRow entry={item.entry} first={item.first} />;
    case "echo":
      return <EchoRow echo={item.echo} first={item.first} />;
    case "interaction":
      return <InteractionRow entry={item.entry} conversationId={conversationId} />;
    case "session":
      return <SessionRow entry={item.entry} conversationId={conversationId} />;
  }
}

function Separator({ kind, at }: { kind: "start" | "day" | "new"; at?: string }) {
  const words = useWords();
  const times = useTimes();
  if (kind === "start")
    return (
      <p className={classes.start} data-start>
        {words.interact.start}
      </p>
    );
  return (
    <div className={classes.separator} data-kind={kind}>
      <span>{kind === "new" ? words.interact.newMessages : times.day(at ?? "")}</span>
    </div>
  );
}

function Failed({ conversationId, older }: { conversationId: string; older: boolean }) {
  const client = useClient();
  const words = useWords();
  return (
    <div className={classes.failed} role="alert">
      <Text size="sm">{words.interact.olderFailed}</Text>
      <Button
        size="compact-sm"
        variant="default"
        onClick={() => void client.readTimeline(conversationId, older)}
      >
        {words.retry}
      </Button>
    </div>
  );
}

/** Whether rows came at the start (their place on screen is kept then), and which rows must stay in the page. */
function useListHints(items: readonly Item[], firstN: number): { shift: boolean; keepMounted: number[] } {
  const before = useRef(firstN);
  const shift = firstN > 0 && before.current > 0 && firstN < before.current;
  useLayoutEffect(() => {
    before.current = firstN;
  }, [firstN]);
  const open = useWorkspace((state) =>
    Object.values(state.interactions)
      .filter(isOpen)
      .map((row) => row.interaction_id),
  );
  const keepMounted = useMemo(() => {
    if (open.length === 0) return [];
    const ids = new Set(open);
    return items.flatMap((item, index) =>
      item.kind === "interaction" && item.entry.ref && ids.has(item.entry.ref) ? [index] : [],
    );
  }, [items, open]);
  return { shift, keepMounted };
}

/** What may soon be scrolled to is rendered while nothing else is to be done. */
function useRenderedAhead(entries: readonly Entry[]): void {
  const words = useWords();
  const firstN = entries[0]?.n ?? 0;
  const newest = useRef(entries);
  newest.current = entries;
  // biome-ignore lint/correctness/useExhaustiveDependencies: only a page of history is worth it; what is new is shown at once
  useEffect(() => {
    const page = newest.current.slice(0, PAGE_ENTRIES);
    const texts = page.filter((entry) => entry.author !== "person" && entry.format === "markdown");
    return renderAhead(
      texts.map((entry) => entry.text ?? ""),
      markdownWords(words),
    );
  }, [firstN, words]);
}

/** Stay at the end while the person is there, and go there when they say something themselves. */
function useFollowEnd(
  list: React.RefObject<VirtualizerHandle | null>,
  items: readonly Item[],
  echoes: number,
  atEnd: boolean,
): void {
  const count = items.length;
  const before = useRef({ count: 0, echoes: 0 });
  useLayoutEffect(() => {
    const first = before.current.count === 0;
    const spoke = echoes > before.current.echoes;
    const changed = before.current.count !== count;
    before.current = { count, echoes };
    if (count === 0 || !(first || spoke || (changed && atEnd))) return;
    const mark = first ? items.findIndex((item) => item.kind === "new") : -1;
    if (mark > 0) list.current?.scrollToIndex(mark, { align: "start", offset: -80 });
    else list.current?.scrollToIndex(count - 1, { align: "end" });
  }, [list, items, count, echoes, atEnd]);
}

/** Mark as read what is on screen; returns how many entries came while the person was elsewhere in the history. */
function useReadMarks(conversationId: string, last: number, atEnd: boolean): number {
  const visible = useVisible();
  const [seen, setSeen] = useState(last);
  useEffect(() => {
    if (!visible || !atEnd || last === 0) return;
    markRead(conversationId, last);
    setSeen(last);
  }, [conversationId, last, atEnd, visible]);
  return Math.max(0, last - seen);
}
