// The MiniApp in front: its title bar, its page, its own questions, and Interact's questions beside it.

import { Alert, Loader, Stack, Text } from "@mantine/core";
import { IconShieldX } from "@tabler/icons-react";
import { lazy, Suspense } from "react";
import { appName, useWords } from "../i18n";
import { Interact } from "../interact/Interact";
import type { Conversation, Instance } from "../runtime/rows";
import { useWorkspace } from "../state/react";
import { focusingOperation, isTrustedPage, shownState, surfaceOf } from "../state/select";
import { useSettings } from "../state/settings";
import { AppIcon } from "../ui/AppIcon";
import { Empty } from "../ui/Empty";
import { AppQuestions, InteractQuestions, useWaiting, WaitingPill } from "./Questions";
import classes from "./Stage.module.css";
import { SurfaceFrame } from "./SurfaceFrame";
import { TitleBar } from "./TitleBar";

const TaskDashboard = lazy(() => import("./TaskDashboard"));

export function Stage({ conversation, instance }: { conversation: Conversation; instance: Instance }) {
  const words = useWords();
  const { talkOpen } = useSettings();
  const title = useWorkspace((state) => appName(words, state.apps, instance.app_scope));
  const quiet = useWorkspace((state) => focusingOperation(state, instance.instance_id) !== null);
  const waiting = useWaiting(conversation);
  return (
    <section
      className={classes.stage}
      aria-label={words.stage.label(title)}
      data-testid="stage"
      data-app={instance.app_scope}
    >
      <TitleBar conversation={conversation} instance={instance} quiet={quiet}>
        {!talkOpen && <WaitingPill waiting={waiting} />}
      </TitleBar>
      <div className={classes.split}>
        <div className={classes.main}>
          <Fault instance={instance} />
          <Content instance={instance} title={title} />
          <AppQuestions instance={instance} />
        </div>
        {talkOpen ? (
          <aside className={classes.talk} aria-label={words.stage.talk} data-testid="talk">
            <Interact conversationId={conversation.conversation_id} unfolded={instance.session_id || null} />
          </aside>
        ) : (
          <InteractQuestions waiting={waiting} />
        )}
      </div>
    </section>
  );
}

function Content({ instance, title }: { instance: Instance; title: string }) {
  const words = useWords();
  const surface = useWorkspace((state) => surfaceOf(state, instance.instance_id));
  const shown = useWorkspace((state) => shownState(state, instance));
  if (isTrustedPage(instance)) {
    return (
      <Suspense fallback={<Waiting text={words.loading} />}>
        <TaskDashboard instance={instance} />
      </Suspense>
    );
  }
  if (surface)
    return <SurfaceFrame key={surface.surface_id} surface={surface} title={surface.title || title} />;
  if (shown === "starting" || shown === "restarting") return <Waiting text={words.states[shown]} />;
  return (
    <Empty
      icon={<AppIcon scope={instance.app_scope} size={44} />}
      title={title}
      hint={words.stage.noSurface}
    />
  );
}

function Waiting({ text }: { text: string }) {
  return (
    <Stack align="center" justify="center" h="100%" role="status">
      <Loader aria-hidden="true" />
      <Text c="dimmed">{text}</Text>
    </Stack>
  );
}

function Fault({ instance }: { instance: Instance }) {
  const words = useWords();
  const shown = useWorkspace((state) => shownState(state, instance));
  if (shown !== "restarting" && shown !== "quarantined") return null;
  return (
    <Alert
      className={classes.fault}
      color={shown === "quarantined" ? "red" : "yellow"}
      icon={<IconShieldX aria-hidden="true" />}
      role="status"
    >
      {shown === "quarantined" ? words.stage.quarantined : words.stage.restarting}
    </Alert>
  );
}
