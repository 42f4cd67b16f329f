// One conversation: its head, and below it Interact or the MiniApp in front.

import { useEffect, useRef } from "react";
import { appName, useWords } from "../i18n";
import { Interact } from "../interact/Interact";
import { Stage } from "../stage/Stage";
import { useClient, useWorkspace } from "../state/react";
import { frontInstance } from "../state/select";
import { announce } from "../ui/announce";
import { ConversationHead } from "./ConversationHead";
import { Failures } from "./Failures";

interface Props {
  conversationId: string;
  openSidebar: (() => void) | null;
}

export function ConversationPage({ conversationId, openSidebar }: Props) {
  const conversation = useWorkspace((state) => state.conversations[conversationId]);
  const front = useWorkspace((state) => frontInstance(state, state.conversations[conversationId]));
  useFocusKept(front?.instance_id ?? null, front?.app_scope ?? null);
  if (!conversation) return null;
  return (
    <>
      <ConversationHead conversation={conversation} openSidebar={openSidebar} />
      <Failures conversationId={conversationId} />
      {front ? (
        <Stage key={front.instance_id} conversation={conversation} instance={front} />
      ) : (
        <Interact conversationId={conversationId} />
      )}
    </>
  );
}

/**
 * What was on screen takes its focused element with it. The focus then goes to the new part, or back to the message box,
 * never into the void; nothing that a person has focused meanwhile loses it.
 */
function useFocusKept(instanceId: string | null, scope: string | null): void {
  const { store } = useClient();
  const words = useWords();
  const before = useRef(instanceId);
  useEffect(() => {
    if (before.current === instanceId) return;
    before.current = instanceId;
    if (scope) announce(words.sidebar.appOpen(appName(words, store.getState().apps, scope)));
    if (document.activeElement !== null && document.activeElement !== document.body) return;
    const typing = matchMedia("(pointer: fine)").matches; // a touch screen would open its keyboard
    document.getElementById(instanceId === null && typing ? "composer" : "main")?.focus();
  }, [store, words, instanceId, scope]);
}
