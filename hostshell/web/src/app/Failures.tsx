// A MiniApp that ended by a fault: what happened, and where to read more.

import { Alert, Anchor, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { appName, useWords } from "../i18n";
import { useClient, useWorkspace } from "../state/react";
import { hrefOf } from "./route";

export function Failures({ conversationId }: { conversationId: string }) {
  const client = useClient();
  const words = useWords();
  const failures = useWorkspace((state) =>
    state.failures.filter((row) => row.conversation_id === conversationId),
  );
  const apps = useWorkspace((state) => state.apps);
  return failures.map((failure) => {
    const app = appName(words, apps, failure.app_scope);
    return (
      <Alert
        key={failure.instance_id}
        role="alert"
        color="red"
        m="xs"
        icon={<IconAlertTriangle aria-hidden="true" />}
        title={failure.started ? words.stage.failedTitle(app) : words.stage.failedStartTitle(app)}
        withCloseButton
        closeButtonLabel={words.close}
        onClose={() => client.dispatch({ type: "failure.dismissed", instance_id: failure.instance_id })}
        data-testid="failure"
      >
        <Text size="sm">
          {words.errors[failure.code] ?? failure.code} {words.stage.backToInteract}
        </Text>
        <Text size="sm" c="dimmed">
          {failure.reason}
        </Text>
        <Anchor size="sm" href={hrefOf({ page: "inspector", id: failure.instance_id })}>
          {words.stage.inspect}
        </Anchor>
      </Alert>
    );
  });
}
