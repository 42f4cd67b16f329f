// The head of a conversation: its name, its agent, the open MiniApps and the notifications.

import { ActionIcon, Button, Group, Menu, Modal, TextInput } from "@mantine/core";
import { IconDots, IconListSearch, IconPencil } from "@tabler/icons-react";
import { type FormEvent, useEffect, useState } from "react";
import { presence, useWords } from "../i18n";
import type { Conversation } from "../runtime/rows";
import { AppSwitcher } from "../stage/AppSwitcher";
import { useClient, useWorkspace } from "../state/react";
import { Dot } from "../ui/Status";
import { NoticeCentre } from "./NoticeCentre";
import { PageHead } from "./PageHead";
import classes from "./PageHead.module.css";
import { goTo } from "./route";
import { onShortcut } from "./shortcuts";

interface Props {
  conversation: Conversation;
  openSidebar: (() => void) | null;
}

export function ConversationHead({ conversation, openSidebar }: Props) {
  const words = useWords();
  const [apps, setApps] = useState(false);
  const [renaming, setRenaming] = useState(false);
  const online = useWorkspace((state) => state.link === "online");
  const connected = useWorkspace((state) => state.agents[conversation.agent_id]?.connected ?? false);
  useEffect(() => onShortcut("apps", () => setApps(true)), []);
  return (
    <PageHead
      title={conversation.title || words.sidebar.untitled}
      openSidebar={openSidebar}
      under={
        <div className={classes.under} data-testid="agent-presence">
          <Dot tone={online && connected ? "good" : "calm"} />
          {presence(words, conversation.agent_id, online, connected)}
        </div>
      }
    >
      <Group gap="xs" wrap="nowrap">
        <AppSwitcher conversation={conversation} opened={apps} onChange={setApps} />
        <NoticeCentre />
        <Menu position="bottom-end" width={220}>
          <Menu.Target>
            <ActionIcon variant="default" size={36} aria-label={words.more}>
              <IconDots size={18} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item
              leftSection={<IconPencil size={16} aria-hidden="true" />}
              onClick={() => setRenaming(true)}
            >
              {words.sidebar.rename}
            </Menu.Item>
            <Menu.Item
              leftSection={<IconListSearch size={16} aria-hidden="true" />}
              onClick={() => goTo({ page: "inspector", id: conversation.conversation_id })}
            >
              {words.stage.inspect}
            </Menu.Item>
          </Menu.Dropdown>
        </Menu>
      </Group>
      {renaming && <Rename conversation={conversation} onClose={() => setRenaming(false)} />}
    </PageHead>
  );
}

function Rename({ conversation, onClose }: { conversation: Conversation; onClose(): void }) {
  const client = useClient();
  const words = useWords();
  const [title, setTitle] = useState(conversation.title);
  const save = (event: FormEvent) => {
    event.preventDefault();
    void client.act("conversation.rename", {
      conversation_id: conversation.conversation_id,
      title: title.trim(),
    });
    onClose();
  };
  return (
    <Modal
      opened
      onClose={onClose}
      title={words.sidebar.renameTitle}
      centered
      closeButtonProps={{ "aria-label": words.close }}
    >
      <form onSubmit={save}>
        <TextInput
          label={words.sidebar.name}
          value={title}
          maxLength={128}
          data-autofocus
          onChange={(event) => setTitle(event.currentTarget.value)}
        />
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={onClose}>
            {words.cancel}
          </Button>
          <Button type="submit">{words.sidebar.save}</Button>
        </Group>
      </form>
    </Modal>
  );
}
