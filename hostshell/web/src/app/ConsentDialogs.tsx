// The Runtime's own questions about what a MiniApp may do. They look like nothing that a MiniApp can draw, lie over
// everything, and only a person's answer closes them. A title is what a MiniApp calls itself and may be another one's; its
// scope is nobody else's and stands beside it.

import { Button, Modal, Stack, Text } from "@mantine/core";
import { IconShieldLock } from "@tabler/icons-react";
import { appName, useWords } from "../i18n";
import { FormError } from "../interact/cards/FormError";
import { useAnswering, usePresented } from "../interact/cards/hooks";
import type { Interaction } from "../runtime/rows";
import { useWorkspace } from "../state/react";
import { isConsent, openInteractions } from "../state/select";
import { AppIcon } from "../ui/AppIcon";
import classes from "./ConsentDialogs.module.css";

export function ConsentDialogs() {
  const consents = useWorkspace((state) => openInteractions(state, isConsent));
  const first = consents[0];
  return first ? <Consent key={first.interaction_id} consent={first} waiting={consents.length} /> : null;
}

function Consent({ consent, waiting }: { consent: Interaction; waiting: number }) {
  const words = useWords();
  const { busy, error, answer, cancel } = useAnswering(consent);
  usePresented(consent);
  const scope = consent.owner.app_scope;
  const app = useWorkspace((state) => appName(words, state.apps, scope));
  const request = consent.request;
  if (request.kind !== "choice") return null;
  const what = words.consent.what[consent.purpose?.capability ?? ""];
  return (
    <Modal
      opened
      onClose={cancel}
      closeOnClickOutside={false}
      withCloseButton={false}
      centered
      size="md"
      zIndex={500}
      title={
        <>
          <span className={classes.from}>
            <IconShieldLock size={18} aria-hidden="true" />
            {words.consent.from}
            {waiting > 1 && <span className={classes.queue}>{words.consent.queue(1, waiting)}</span>}
          </span>
          <span className={classes.head}>
            <AppIcon scope={scope} size={40} />
            <span>
              {what ? words.consent.title(app, what) : request.title}
              <span className={classes.scope} data-testid="consent-scope">
                {scope}
              </span>
            </span>
          </span>
        </>
      }
      classNames={{ content: classes.content ?? "", title: classes.title ?? "" }}
      data-testid="consent"
    >
      <blockquote className={classes.reason}>
        {consent.purpose?.reason ? (
          <>
            <Text size="xs" c="dimmed">
              {words.consent.says(app)}
            </Text>
            {consent.purpose.reason}
          </>
        ) : (
          request.prompt
        )}
      </blockquote>
      <Stack gap="xs">
        {request.actions.map((action) => (
          <Button
            key={action.id}
            variant="default"
            loading={busy}
            onClick={() => answer({ action_ids: [action.id] })}
          >
            {ANSWERS.has(action.id) ? words.consent[action.id as Answer] : action.label}
          </Button>
        ))}
      </Stack>
      <FormError error={error} />
      <Text size="xs" c="dimmed" mt="md">
        {words.consent.note}
      </Text>
    </Modal>
  );
}

type Answer = "once" | "session" | "always" | "deny";
const ANSWERS: ReadonlySet<string> = new Set<Answer>(["once", "session", "always", "deny"]);
