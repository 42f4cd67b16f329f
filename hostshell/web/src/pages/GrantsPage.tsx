// What a person has allowed or refused, and the way to take it back.

import { Button, Group, Modal, Table, Text } from "@mantine/core";
import { IconShieldCheck } from "@tabler/icons-react";
import { useState } from "react";
import { PageHead } from "../app/PageHead";
import { appName, errorText, useTimes, useWords } from "../i18n";
import type { Grant } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import { AppIcon } from "../ui/AppIcon";
import { Empty } from "../ui/Empty";
import { Status } from "../ui/Status";
import { toast } from "../ui/toasts";
import classes from "./pages.module.css";

export default function GrantsPage({ openSidebar }: { openSidebar: (() => void) | null }) {
  const words = useWords();
  const times = useTimes();
  const client = useClient();
  const [revoking, setRevoking] = useState<Grant | null>(null);
  const grants = useWorkspace((state) =>
    Object.values(state.grants).sort((a, b) => b.granted_at.localeCompare(a.granted_at)),
  );
  const apps = useWorkspace((state) => state.apps);

  const revoke = async (grant: Grant) => {
    setRevoking(null);
    const result = await client.act("grant.revoke", {
      app_scope: grant.app_scope,
      capability: grant.capability,
    });
    if (result.accepted) return;
    toast({
      id: "revoke",
      tone: "bad",
      title: words.grants.revoke,
      text: errorText(words, result.code, result.message),
    });
  };
  return (
    <>
      <PageHead title={words.grants.title} openSidebar={openSidebar} />
      <div className={classes.page} data-testid="grants">
        <Text c="dimmed" mb="md">
          {words.grants.intro}
        </Text>
        {grants.length === 0 ? (
          <Empty
            icon={<IconShieldCheck size={44} stroke={1.3} />}
            title={words.grants.empty}
            hint={words.grants.emptyHint}
          />
        ) : (
          <Table.ScrollContainer minWidth={560} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
            <Table verticalSpacing="sm">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{words.grants.app}</Table.Th>
                  <Table.Th>{words.grants.capability}</Table.Th>
                  <Table.Th>{words.grants.scope}</Table.Th>
                  <Table.Th>{words.grants.until}</Table.Th>
                  <Table.Th>
                    <span className="visually-hidden">{words.grants.revoke}</span>
                  </Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {grants.map((grant) => (
                  <Table.Tr key={`${grant.app_scope}/${grant.capability}`}>
                    <Table.Td>
                      <Group gap="xs" wrap="nowrap">
                        <AppIcon scope={grant.app_scope} />
                        {appName(words, apps, grant.app_scope)}
                      </Group>
                    </Table.Td>
                    <Table.Td>{words.consent.what[grant.capability] ?? grant.capability}</Table.Td>
                    <Table.Td>
                      <Status tone={grant.scope === "denied" ? "bad" : "good"}>
                        {words.grants.scopes[grant.scope] ?? grant.scope}
                      </Status>
                    </Table.Td>
                    <Table.Td>{grant.expires_at ? times.full(grant.expires_at) : "–"}</Table.Td>
                    <Table.Td>
                      <Button size="compact-sm" variant="default" onClick={() => setRevoking(grant)}>
                        {words.grants.revoke}
                      </Button>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
      </div>
      <Modal
        opened={revoking !== null}
        onClose={() => setRevoking(null)}
        title={words.grants.revokeTitle}
        centered
        closeButtonProps={{ "aria-label": words.close }}
      >
        <Text mb="md">
          {revoking &&
            `${appName(words, apps, revoking.app_scope)}: ${words.consent.what[revoking.capability] ?? revoking.capability}`}
        </Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={() => setRevoking(null)}>
            {words.cancel}
          </Button>
          <Button color="red.9" onClick={() => revoking && void revoke(revoking)}>
            {words.grants.revoke}
          </Button>
        </Group>
      </Modal>
    </>
  );
}
