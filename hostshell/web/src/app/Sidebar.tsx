// The side bar: conversations by use, what waits in them, and the ways to the other pages.

import { ActionIcon, Button, Menu, ScrollArea, Text } from "@mantine/core";
import { IconKeyboard, IconListSearch, IconPlus, IconSettings, IconShieldCheck } from "@tabler/icons-react";
import { useState } from "react";
import { appName, errorText, presence, useTimes, useWords } from "../i18n";
import type { Conversation } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import {
  agentsToTalkTo,
  conversationsByUse,
  frontInstance,
  isConsent,
  openInteractions,
} from "../state/select";
import { useRead } from "../state/settings";
import { Dot } from "../ui/Status";
import { toast } from "../ui/toasts";
import { goTo, hrefOf, useRoute } from "./route";
import { SettingsDialog } from "./SettingsDialog";
import classes from "./Sidebar.module.css";

interface Props {
  onHelp(): void;
  /** The person has picked what to see next. */
  onPicked(): void;
  bare?: boolean;
}

export function Sidebar({ onHelp, onPicked, bare = false }: Props) {
  const words = useWords();
  const route = useRoute();
  const [settings, setSettings] = useState(false);
  const conversations = useWorkspace(conversationsByUse);
  const more = useWorkspace((state) => state.truncated.includes("conversations"));
  return (
    <nav
      className={classes.sidebar}
      data-bare={bare || undefined}
      aria-label={words.sidebar.label}
      data-testid="sidebar"
    >
      {!bare && (
        <div className={classes.brand}>
          <img src="/favicon.svg" alt="" width={26} height={26} />
          <span>{words.appName}</span>
        </div>
      )}
      <NewConversation onOpened={onPicked} />
      <ScrollArea className={classes.list} type="auto" scrollbarSize={8}>
        {conversations.length === 0 ? (
          <Text size="sm" c="dimmed" p="md">
            {words.sidebar.empty}. {words.sidebar.emptyHint}
          </Text>
        ) : (
          <ul className={classes.items}>
            {conversations.map((conversation) => (
              <li key={conversation.conversation_id}>
                <ConversationLink
                  conversation={conversation}
                  active={route.page === "conversation" && route.id === conversation.conversation_id}
                  onPicked={onPicked}
                />
              </li>
            ))}
          </ul>
        )}
        {more && (
          <Text size="sm" c="dimmed" p="md">
            {words.sidebar.more}
          </Text>
        )}
      </ScrollArea>
      <div className={classes.foot}>
        <a
          className={classes.page}
          href={hrefOf({ page: "grants" })}
          aria-current={route.page === "grants" ? "page" : undefined}
          onClick={onPicked}
        >
          <IconShieldCheck size={18} aria-hidden="true" />
          {words.sidebar.grants}
        </a>
        <a
          className={classes.page}
          href={hrefOf({ page: "inspector", id: null })}
          aria-current={route.page === "inspector" ? "page" : undefined}
          onClick={onPicked}
        >
          <IconListSearch size={18} aria-hidden="true" />
          {words.sidebar.inspector}
        </a>
        <div className={classes.tools}>
          <ActionIcon
            variant="subtle"
            color="gray"
            c="dimmed"
            size="lg"
            aria-label={words.sidebar.settings}
            onClick={() => setSettings(true)}
          >
            <IconSettings size={18} />
          </ActionIcon>
          <ActionIcon
            variant="subtle"
            color="gray"
            c="dimmed"
            size="lg"
            aria-label={words.sidebar.shortcuts}
            onClick={onHelp}
          >
            <IconKeyboard size={18} />
          </ActionIcon>
        </div>
      </div>
      <SettingsDialog opened={settings} onClose={() => setSettings(false)} />
    </nav>
  );
}

interface LinkProps {
  conversation: Conversation;
  active: boolean;
  onPicked(): void;
}

function ConversationLink({ conversation, active, onPicked }: LinkProps) {
  const words = useWords();
  const times = useTimes();
  const id = conversation.conversation_id;
  const read = useRead(id);
  const app = useWorkspace((state) => {
    const front = frontInstance(state, conversation);
    return front ? appName(words, state.apps, front.app_scope) : null;
  });
  const waiting = useWorkspace(
    (state) => openInteractions(state, (row) => row.owner.conversation_id === id && !isConsent(row)).length,
  );
  const unread = active ? 0 : Math.max(0, conversation.entries - read);
  return (
    <a
      className={classes.item}
      href={hrefOf({ page: "conversation", id })}
      aria-current={active ? "page" : undefined}
      data-unread={unread > 0 || undefined}
      data-conversation={id}
      onClick={onPicked}
    >
      <span className={classes.itemTop}>
        <span className={classes.itemTitle}>{conversation.title || words.sidebar.untitled}</span>
        {unread > 0 && (
          <span className={classes.badge}>
            <span aria-hidden="true">{unread > 99 ? "99+" : unread}</span>
            <span className="visually-hidden">{words.sidebar.unread(unread)}</span>
          </span>
        )}
      </span>
      <span className={classes.itemMore}>
        {waiting > 0 ? (
          <span className={classes.waiting}>
            <Dot tone="warn" /> {words.sidebar.waiting(waiting)}
          </span>
        ) : app ? (
          <span className={classes.waiting}>
            <Dot tone="accent" /> {words.sidebar.appOpen(app)}
          </span>
        ) : (
          conversation.agent_id
        )}
        <time dateTime={conversation.updated_at}>{short(conversation.updated_at, times)}</time>
      </span>
    </a>
  );
}

function short(at: string, times: ReturnType<typeof useTimes>): string {
  return new Date(at).toDateString() === new Date().toDateString() ? times.time(at) : times.date(at);
}

export function NewConversation({ big = false, onOpened }: { big?: boolean; onOpened?(): void }) {
  const client = useClient();
  const words = useWords();
  const [busy, setBusy] = useState(false);
  const agents = useWorkspace(agentsToTalkTo);
  const online = useWorkspace((state) => state.link === "online");
  const several = agents.length > 1;

  const open = async (agentId?: string) => {
    setBusy(true);
    const result = await client.act("conversation.open", agentId ? { agent_id: agentId } : {});
    const detail = result.detail as { conversation_id?: string } | undefined;
    if (result.accepted && detail?.conversation_id) {
      await client.conversationShown(detail.conversation_id);
      goTo({ page: "conversation", id: detail.conversation_id });
      onOpened?.();
    } else {
      const text = errorText(words, result.code === "not_found" ? undefined : result.code, result.message);
      toast({ id: "open", tone: "bad", title: words.sidebar.newConversation, text });
    }
    setBusy(false);
  };
  // One tree however many agents there are: a button that came anew with the second one would lose the focus on it.
  return (
    <Menu position="bottom-start" width={240} disabled={!several}>
      <Menu.Target>
        <Button
          className={big ? undefined : classes.new}
          loading={busy}
          disabled={agents.length === 0}
          leftSection={<IconPlus size={16} aria-hidden="true" />}
          onClick={several ? undefined : () => void open()}
          data-testid="new-conversation"
        >
          {words.sidebar.newConversation}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{words.sidebar.chooseAgent}</Menu.Label>
        {agents.map((agent) => (
          <Menu.Item
            key={agent.agent_id}
            leftSection={<Dot tone={online && agent.connected ? "good" : "calm"} />}
            onClick={() => void open(agent.agent_id)}
          >
            {presence(words, agent.agent_id, online, agent.connected)}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
