// The inspector: how the Runtime is, what is open, and the whole story of any call, question, instance or operation.

import { Anchor, Button, Group, Table, Text, TextInput, Title } from "@mantine/core";
import { IconRefresh, IconSearch } from "@tabler/icons-react";
import { type FormEvent, useCallback, useEffect, useState } from "react";
import { PageHead } from "../app/PageHead";
import { goTo, hrefOf } from "../app/route";
import { useTimes, useWords } from "../i18n";
import type { Call } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import { isOpenCall, openCalls, shownCallStatus, shownState } from "../state/select";
import { Status, toneOf } from "../ui/Status";
import { AuditCheck } from "./AuditCheck";
import classes from "./pages.module.css";
import { Story } from "./Story";

export default function InspectorPage({
  id,
  openSidebar,
}: {
  id: string | null;
  openSidebar: (() => void) | null;
}) {
  const words = useWords();
  const [wanted, setWanted] = useState(id ?? "");
  useEffect(() => setWanted(id ?? ""), [id]);
  const search = (event: FormEvent) => {
    event.preventDefault();
    goTo({ page: "inspector", id: wanted.trim() || null });
  };
  return (
    <>
      <PageHead title={words.inspector.title} openSidebar={openSidebar} />
      <div className={classes.page} data-testid="inspector">
        <Text c="dimmed" mb="sm">
          {words.inspector.intro}
        </Text>
        <form onSubmit={search}>
          <Group align="flex-end" gap="xs" mb="lg">
            <TextInput
              label={words.inspector.id}
              value={wanted}
              onChange={(event) => setWanted(event.currentTarget.value)}
              flex={1}
              miw={200}
              spellCheck={false}
              autoComplete="off"
            />
            <Button type="submit" leftSection={<IconSearch size={16} aria-hidden="true" />}>
              {words.inspector.search}
            </Button>
          </Group>
        </form>
        {id ? <Story key={id} id={id} /> : <Overview />}
      </div>
    </>
  );
}

function Overview() {
  const words = useWords();
  const open = useWorkspace((state) => openCalls(state, () => true));
  return (
    <>
      <RuntimeFacts />
      <Title order={2} size="h4" mb="xs">
        {words.inspector.openCalls}
      </Title>
      <Calls label={words.inspector.openCalls} calls={open} none={words.inspector.noOpenCalls} />
      <RecentCalls />
      <Instances />
      <AuditCheck />
    </>
  );
}

interface RuntimeStatus {
  outbox: number;
  audit_rows: number;
  workers: { live: number; starting: number };
}

function RuntimeFacts() {
  const client = useClient();
  const words = useWords();
  const { isolation, version, bootId } = useWorkspace((state) => ({
    isolation: state.isolation,
    version: state.version,
    bootId: state.bootId,
  }));
  const revision = useWorkspace((state) => state.revision);
  const [status, setStatus] = useState<RuntimeStatus | null>(null);
  const coarse = Math.floor(revision / 20);
  // biome-ignore lint/correctness/useExhaustiveDependencies: read again after a while of changes
  useEffect(() => {
    client.query<RuntimeStatus>("status").then(setStatus, () => undefined);
  }, [client, coarse]);
  const level = isolation.split(" ")[0] ?? "";
  return (
    <dl className={classes.facts}>
      <div data-testid="isolation">
        <dt>{words.inspector.isolation}</dt>
        <dd>
          {isolation || "–"}
          <small>{words.inspector.isolationText[level]}</small>
        </dd>
      </div>
      <div>
        <dt>{words.inspector.version}</dt>
        <dd>
          {version || "–"}
          <small>
            {words.inspector.boot} {bootId}
          </small>
        </dd>
      </div>
      <div>
        <dt>{words.inspector.workers}</dt>
        <dd>{status ? status.workers.live : "–"}</dd>
      </div>
      <div>
        <dt>{words.inspector.outbox}</dt>
        <dd>{status ? status.outbox : "–"}</dd>
      </div>
      <div>
        <dt>{words.inspector.auditRows}</dt>
        <dd>{status ? status.audit_rows.toLocaleString(words.locale) : "–"}</dd>
      </div>
    </dl>
  );
}

function RecentCalls() {
  const client = useClient();
  const words = useWords();
  const [calls, setCalls] = useState<Call[] | null>(null);
  const online = useWorkspace((state) => state.link === "online");
  const read = useCallback(() => {
    client.query<{ calls: Call[] }>("calls", { limit: 50, brief: true }).then(
      (page) => setCalls(page.calls),
      () => undefined,
    );
  }, [client]);
  useEffect(() => {
    if (online) read();
  }, [online, read]);
  return (
    <>
      <Group justify="space-between" mt="xl" mb="xs">
        <Title order={2} size="h4">
          {words.inspector.recentCalls}
        </Title>
        <Button
          size="compact-sm"
          variant="default"
          leftSection={<IconRefresh size={14} aria-hidden="true" />}
          onClick={read}
        >
          {words.inspector.refresh}
        </Button>
      </Group>
      <Calls
        label={words.inspector.recentCalls}
        calls={calls ?? []}
        none={calls ? words.inspector.noCalls : words.loading}
      />
    </>
  );
}

function Calls({ label, calls, none }: { label: string; calls: readonly Call[]; none: string }) {
  const words = useWords();
  const times = useTimes();
  if (calls.length === 0) return <Text c="dimmed">{none}</Text>;
  return (
    <Table.ScrollContainer minWidth={640} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
      <Table highlightOnHover aria-label={label}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{words.inspector.call}</Table.Th>
            <Table.Th>{words.inspector.tool}</Table.Th>
            <Table.Th>{words.inspector.status}</Table.Th>
            <Table.Th>{words.inspector.when}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {calls.map((call) => (
            <Table.Tr key={`${call.agent_id}/${call.call_id}`}>
              <Table.Td>
                <Anchor className={classes.mono} href={hrefOf({ page: "inspector", id: call.call_id })}>
                  {call.call_id}
                </Anchor>
              </Table.Td>
              <Table.Td>{call.tool_id}</Table.Td>
              <Table.Td>
                <CallStatus call={call} />
                {call.progress !== undefined && isOpenCall(call) && ` ${Math.round(call.progress * 100)}%`}
                {call.error_code && (
                  <Text component="span" size="xs" c="dimmed" ml={6}>
                    {call.error_code}
                  </Text>
                )}
              </Table.Td>
              <Table.Td>{times.full(call.created_at)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function CallStatus({ call }: { call: Call }) {
  const words = useWords();
  const status = shownCallStatus(call);
  return <Status tone={toneOf(call.status)}>{words.inspector.callStatus[status] ?? status}</Status>;
}

function Instances() {
  const words = useWords();
  const instances = useWorkspace((state) =>
    Object.values(state.instances).filter((row) => row.state !== "closed"),
  );
  const shown = useWorkspace((state) =>
    Object.fromEntries(
      Object.values(state.instances).map((row) => [row.instance_id, shownState(state, row)]),
    ),
  );
  const workers = useWorkspace((state) => state.workers);
  if (instances.length === 0) return null;
  return (
    <>
      <Title order={2} size="h4" mt="xl" mb="xs">
        {words.inspector.instances}
      </Title>
      <Table.ScrollContainer minWidth={640} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
        <Table highlightOnHover aria-label={words.inspector.instances}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{words.inspector.id}</Table.Th>
              <Table.Th>{words.grants.app}</Table.Th>
              <Table.Th>{words.inspector.state}</Table.Th>
              <Table.Th>{words.inspector.worker}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {instances.map((row) => {
              const worker = workers[row.instance_id];
              const state = shown[row.instance_id] ?? "background";
              return (
                <Table.Tr key={row.instance_id}>
                  <Table.Td>
                    <Anchor
                      className={classes.mono}
                      href={hrefOf({ page: "inspector", id: row.instance_id })}
                    >
                      {row.instance_id}
                    </Anchor>
                  </Table.Td>
                  <Table.Td>{row.app_scope}</Table.Td>
                  <Table.Td>
                    <Status tone={toneOf(state)}>{words.states[state]}</Status>
                  </Table.Td>
                  <Table.Td>
                    {worker?.pid
                      ? `${words.inspector.pid(worker.pid)} · #${worker.incarnation}`
                      : words.inspector.none}
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </>
  );
}
