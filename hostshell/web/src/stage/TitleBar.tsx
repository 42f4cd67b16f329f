// The title bar of the MiniApp in front: what it is, how it is, and the ways out of it.

import { ActionIcon, Button, Group, Modal, Text, Tooltip } from "@mantine/core";
import { IconArrowBackUp, IconMessageCircle, IconMessageCircleOff, IconX } from "@tabler/icons-react";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { clock, errorText, sessionName, useWords } from "../i18n";
import type { Conversation, Instance } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import { focusingOperation, openInteractions, progressOf, shownState } from "../state/select";
import { setSettings, useSettings } from "../state/settings";
import { AppIcon } from "../ui/AppIcon";
import { useRuntimeNow } from "../ui/hooks";
import { Status, toneOf } from "../ui/Status";
import { toast } from "../ui/toasts";
import classes from "./Stage.module.css";

interface Props {
  conversation: Conversation;
  instance: Instance;
  quiet: boolean;
  children?: ReactNode; // what else stands in it, before the ways out
}

export function TitleBar({ conversation, instance, quiet, children }: Props) {
  const words = useWords();
  const { talkOpen } = useSettings();
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
  const { close, asked, waiting } = useClosing(instance);
  const { asking, leave, confirm, stay } = useLeaving(conversation, instance, close);
  return (
    <header className={classes.bar} data-quiet={quiet || undefined}>
      <div className={classes.name}>
        <AppIcon scope={instance.app_scope} size={26} />
        <h2>{name}</h2>
        <span className={shown === "foreground" ? classes.obvious : undefined} data-testid="app-state">
          <Status tone={toneOf(shown)}>{words.states[shown]}</Status>
        </span>
        {progress && (
          <Text size="sm" c="dimmed" className={classes.obvious}>
            {Math.round(progress.value * 100)}%
          </Text>
        )}
        <TimeLeft instance={instance} />
        {asked && !waiting && (
          <Text size="sm" c="dimmed" role="status">
            {words.stage.closing}
          </Text>
        )}
      </div>
      {children}
      <Group gap="xs" wrap="nowrap">
        <Tooltip label={talkOpen ? words.stage.hideTalk : words.stage.talk}>
          <ActionIcon
            variant="default"
            size="lg"
            aria-label={words.stage.talk}
            aria-pressed={talkOpen}
            onClick={() => setSettings({ talkOpen: !talkOpen })}
          >
            {talkOpen ? <IconMessageCircleOff size={18} /> : <IconMessageCircle size={18} />}
          </ActionIcon>
        </Tooltip>
        <Button
          variant="default"
          leftSection={<IconArrowBackUp size={16} aria-hidden="true" />}
          onClick={() => leave("home")}
          data-testid="return-to-interact"
          className={classes.return}
        >
          <span className={classes.wide}>{words.stage.return}</span>
        </Button>
        <Tooltip label={asked ? words.stage.closeAnyway : words.stage.close}>
          <ActionIcon
            variant="default"
            size="lg"
            aria-label={asked ? words.stage.closeAnyway : words.stage.close}
            onClick={() => leave("close")}
            data-testid="close-app"
          >
            <IconX size={18} />
          </ActionIcon>
        </Tooltip>
      </Group>
      <Modal
        opened={asking}
        onClose={stay}
        title={words.stage.leaveTitle}
        centered
        closeButtonProps={{ "aria-label": words.close }}
      >
        <Text mb="md">{words.stage.leaveText}</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={stay} data-autofocus>
            {words.stage.stay}
          </Button>
          <Button color="red.9" onClick={confirm}>
            {words.stage.leave}
          </Button>
        </Group>
      </Modal>
    </header>
  );
}

type Way = "home" | "close";

/** Leaving ends a focus, so it is asked first; everything else is left at once. */
function useLeaving(conversation: Conversation, instance: Instance, close: () => void) {
  const client = useClient();
  const focusing = useWorkspace((state) => focusingOperation(state, instance.instance_id) !== null);
  const [wish, setWish] = useState<Way | null>(null);
  const go = (way: Way) => {
    setWish(null);
    if (way === "close") close();
    else void client.act("conversation.home", { conversation_id: conversation.conversation_id });
  };
  return {
    asking: focusing && wish !== null,
    leave: (way: Way) => (focusing ? setWish(way) : go(way)),
    confirm: () => wish && go(wish),
    stay: () => setWish(null),
  };
}

/** Close the MiniApp; one that wants to be asked gets the chance, and a second press closes it anyway. */
function useClosing(instance: Instance): { close(): void; asked: boolean; waiting: boolean } {
  const client = useClient();
  const words = useWords();
  const [asked, setAsked] = useState(false);
  const waiting = useWorkspace(
    (state) => openInteractions(state, (row) => row.owner.instance_id === instance.instance_id).length > 0,
  );
  const wasWaiting = useRef(false);
  useEffect(() => {
    // The question has been answered and the MiniApp is still here: the person chose to keep it.
    if (wasWaiting.current && !waiting) setAsked(false);
    wasWaiting.current = waiting;
  }, [waiting]);

  const close = async () => {
    const result = await client.act("instance.close", { instance_id: instance.instance_id, force: asked });
    if (!result.accepted) {
      const text = errorText(words, result.code, result.message);
      toast({ id: `close:${instance.instance_id}`, tone: "bad", title: words.stage.close, text });
      return;
    }
    const detail = result.detail as { asked?: boolean } | null | undefined;
    if (detail?.asked) setAsked(true);
  };
  return { close: () => void close(), asked, waiting };
}

function TimeLeft({ instance }: { instance: Instance }) {
  const words = useWords();
  const operation = useWorkspace((state) => focusingOperation(state, instance.instance_id));
  const now = useRuntimeNow(500, operation !== null);
  if (!operation) return null;
  return (
    <span className={classes.left} role="timer" aria-label={words.stage.timeLeft}>
      {clock(Date.parse(operation.ends_at) - now)}
    </span>
  );
}
