// One conversation: its head, and below it Interact or the MiniApp in front.

import { Interact } from "../interact/Interact";
import { Stage } from "../stage/Stage";
import { useWorkspace } from "../state/react";
import { frontInstance } from "../state/select";
import { ConversationHead } from "./ConversationHead";
import { Failures } from "./Failures";

interface Props {
  conversationId: string;
  openSidebar: (() => void) | null;
}

export function ConversationPage({ conversationId, openSidebar }: Props) {
  const conversation = useWorkspace((state) => state.conversations[conversationId]);
  const front = useWorkspace((state) => frontInstance(state, state.conversations[conversationId]));
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
