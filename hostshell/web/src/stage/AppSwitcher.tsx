// Every MiniApp that is open in this conversation, how it is and how far it has come; picking one brings it to the front.

import { Button, Menu, Progress, Text } from "@mantine/core";
import { IconApps } from "@tabler/icons-react";
import { errorText, sessionName, useWords } from "../i18n";
import type { Conversation, Instance } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import { frontInstance, liveInstances, progressOf, shownState } from "../state/select";
import { AppIcon } from "../ui/AppIcon";
import { Dot, Status, toneOf } from "../ui/Status";
import { toast } from "../ui/toasts";
import classes from "./AppSwitcher.module.css";

interface Props {
  conversation: Conversation;
  opened: boolean;
  onChange(opened: boolean): void;
}

export function AppSwitcher({ conversation, opened, onChange }: Props) {
  const client = useClient();
  const words = useWords();
  const instances = useWorkspace((state) => liveInstances(state, conversation.conversation_id));
  const inApp = useWorkspace((state) => frontInstance(state, conversation) !== null);
  const chat = conversation.chat_instance_id;

  const go = async (name: string, args: Record<string, string>) => {
    const result = await client.act(name, args);
    if (result.accepted) return;
    toast({
      id: "switch",
      tone: "bad",
      title: words.switcher.label,
      text: errorText(words, result.code, result.message),
    });
  };

  return (
    <Menu opened={opened} onChange={onChange} width={320} position="bottom-end" shadow="lg">
      <Menu.Target>
        <Button
          variant="default"
          leftSection={<IconApps size={16} aria-hidden="true" />}
          className={classes.button}
          data-testid="app-switcher"
        >
          <span className={classes.wide}>{words.switcher.button(instances.length)}</span>
          <span className={classes.count} aria-hidden="true">
            {instances.length}
          </span>
        </Button>
      </Menu.Target>
      <Menu.Dropdown aria-label={words.switcher.label}>
        {chat && (
          <Menu.Item
            leftSection={<AppIcon scope="chat" />}
            rightSection={<Dot tone={inApp ? "calm" : "accent"} />}
            onClick={() => void go("conversation.home", { conversation_id: conversation.conversation_id })}
          >
            {words.interact.name}
            <Text size="xs" c="dimmed">
              {words.states[inApp ? "background" : "foreground"]}
            </Text>
          </Menu.Item>
        )}
        {instances.map((instance) => (
          <Menu.Item
            key={instance.instance_id}
            leftSection={<AppIcon scope={instance.app_scope} />}
            onClick={() => void go("instance.front", { instance_id: instance.instance_id })}
          >
            <AppLine instance={instance} />
          </Menu.Item>
        ))}
        {instances.length === 0 && (
          <Text size="sm" c="dimmed" p="sm">
            {words.switcher.none}
          </Text>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}

function AppLine({ instance }: { instance: Instance }) {
  const words = useWords();
  const name = useWorkspace((state) =>
    sessionName(
      words,
      state.apps[instance.app_scope],
      instance.app_scope,
      state.sessions[instance.session_id]?.title ?? "",
    ),
  );
  const shown = useWorkspace((state) => shownState(state, instance));
  const progress = useWorkspace((state) => progressOf(state, instance.instance_id));
  const percent = progress ? Math.round(progress.value * 100) : null;
  return (
    <span className={classes.line}>
      <span className={classes.top}>
        <span className={classes.title}>{name}</span>
        <Status tone={toneOf(shown)}>{words.states[shown]}</Status>
      </span>
      {percent !== null && (
        <span className={classes.progress}>
          <Progress
            value={percent}
            size="sm"
            aria-label={words.switcher.progress(percent)}
            className={classes.bar}
          />
          <Text component="span" size="xs" c="dimmed">
            {percent}%
          </Text>
        </span>
      )}
    </span>
  );
}
