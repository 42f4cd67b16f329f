// The bell: what MiniApps have said, the newest first; each one can be dismissed, each MiniApp silenced.

import { ActionIcon, Button, Divider, Drawer, Group, Indicator, Stack, Text } from "@mantine/core";
import { IconBell, IconBellOff } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { appName, useTimes, useWords } from "../i18n";
import type { Notice } from "../runtime/rows";
import { useClient, useWorkspace } from "../state/react";
import { setSettings, useSettings } from "../state/settings";
import { AppIcon } from "../ui/AppIcon";
import { Empty } from "../ui/Empty";
import classes from "./NoticeCentre.module.css";
import { showsNotices } from "./notices";
import { NoticeSettings } from "./SettingsDialog";
import { onShortcut } from "./shortcuts";

export function NoticeCentre() {
  const client = useClient();
  const words = useWords();
  const { quiet } = useSettings();
  const [opened, setOpened] = useState(false);
  const notices = useWorkspace((state) =>
    Object.values(state.notices).sort((a, b) => b.at.localeCompare(a.at)),
  );
  useEffect(() => onShortcut("notices", () => setOpened(true)), []);
  useEffect(() => {
    showsNotices(opened, Object.keys(client.store.getState().notices));
    return () => showsNotices(false, []);
  }, [client, opened]);
  const dismiss = (rows: readonly Notice[]) => {
    for (const row of rows) void client.act("notification.dismiss", { notification_id: row.notification_id });
  };
  return (
    <>
      <Indicator
        disabled={notices.length === 0}
        label={notices.length > 9 ? "9+" : notices.length}
        size={17}
        color="red.8"
        offset={3}
      >
        <ActionIcon
          variant="default"
          size={36}
          aria-label={words.notices.open(notices.length)}
          onClick={() => setOpened(true)}
          data-testid="notices-button"
        >
          {quiet ? <IconBellOff size={18} /> : <IconBell size={18} />}
        </ActionIcon>
      </Indicator>
      <Drawer
        opened={opened}
        onClose={() => setOpened(false)}
        position="right"
        title={words.notices.title}
        closeButtonProps={{ "aria-label": words.close }}
      >
        <Stack>
          <NoticeSettings />
          <Divider />
          {notices.length === 0 ? (
            <Empty
              icon={<IconBell size={40} stroke={1.3} />}
              title={words.notices.empty}
              hint={words.notices.emptyHint}
            />
          ) : (
            <>
              <Group justify="flex-end">
                <Button size="compact-sm" variant="default" onClick={() => dismiss(notices)}>
                  {words.notices.dismissAll}
                </Button>
              </Group>
              <ul className={classes.list}>
                {notices.map((row) => (
                  <NoticeLine key={row.notification_id} row={row} onDismiss={() => dismiss([row])} />
                ))}
              </ul>
            </>
          )}
        </Stack>
      </Drawer>
    </>
  );
}

function NoticeLine({ row, onDismiss }: { row: Notice; onDismiss(): void }) {
  const words = useWords();
  const times = useTimes();
  const { silenced } = useSettings();
  const app = useWorkspace((state) => appName(words, state.apps, row.app_scope));
  const silent = silenced.includes(row.app_scope);
  const toggle = () =>
    setSettings({
      silenced: silent ? silenced.filter((scope) => scope !== row.app_scope) : [...silenced, row.app_scope],
    });
  return (
    <li className={classes.notice} data-testid="notice">
      <AppIcon scope={row.app_scope} />
      <div className={classes.body}>
        <Text size="xs" c="dimmed">
          {app} · {times.time(row.at)}
          {row.count > 1 && ` · ${words.notices.times(row.count)}`}
          {silent && ` · ${words.notices.silenced}`}
        </Text>
        <Text fw={600}>{row.title}</Text>
        {row.body && <Text size="sm">{row.body}</Text>}
        <Group gap="xs" mt={6}>
          <Button size="compact-xs" variant="default" onClick={onDismiss}>
            {words.notices.dismiss}
          </Button>
          <Button size="compact-xs" variant="default" onClick={toggle}>
            {silent ? words.notices.unsilence : words.notices.silence}
          </Button>
        </Group>
      </div>
    </li>
  );
}
