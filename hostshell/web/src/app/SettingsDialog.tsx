// Language, appearance and what may pop up.

import { Modal, SegmentedControl, Select, Stack, Switch, Text } from "@mantine/core";
import type { Language } from "../i18n";
import { useWords } from "../i18n";
import { type Scheme, setSettings, useSettings } from "../state/settings";

export function SettingsDialog({ opened, onClose }: { opened: boolean; onClose(): void }) {
  const words = useWords();
  const settings = useSettings();
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={words.settings.title}
      centered
      closeButtonProps={{ "aria-label": words.close }}
    >
      <Stack>
        <Select
          label={words.settings.language}
          value={settings.language ?? "auto"}
          allowDeselect={false}
          data={[
            { value: "auto", label: words.settings.languageAuto },
            { value: "en", label: "English" },
            { value: "zh", label: "简体中文" },
          ]}
          onChange={(value) =>
            setSettings({ language: value === "auto" || !value ? null : (value as Language) })
          }
          comboboxProps={{ withinPortal: true }}
        />
        <div>
          <Text size="sm" fw={500} mb={4} id="scheme-label">
            {words.settings.scheme}
          </Text>
          <SegmentedControl
            fullWidth
            aria-labelledby="scheme-label"
            value={settings.scheme}
            onChange={(value) => setSettings({ scheme: value as Scheme })}
            data={[
              { value: "light", label: words.settings.light },
              { value: "dark", label: words.settings.dark },
              { value: "auto", label: words.settings.auto },
            ]}
          />
        </div>
        <NoticeSettings />
      </Stack>
    </Modal>
  );
}

export function NoticeSettings() {
  const words = useWords();
  const { quiet, browserNotices } = useSettings();
  const blocked = typeof Notification !== "undefined" && Notification.permission === "denied";

  const allow = async (wanted: boolean) => {
    if (!wanted) {
      setSettings({ browserNotices: false });
      return;
    }
    if (typeof Notification === "undefined") return;
    const answer = await Notification.requestPermission();
    setSettings({ browserNotices: answer === "granted" });
  };
  return (
    <>
      <Switch
        label={words.notices.quiet}
        description={words.notices.quietHint}
        checked={quiet}
        onChange={(event) => setSettings({ quiet: event.currentTarget.checked })}
      />
      <Switch
        label={words.notices.browser}
        description={blocked ? words.notices.browserBlocked : words.notices.browserHint}
        checked={browserNotices && !blocked}
        disabled={blocked}
        onChange={(event) => void allow(event.currentTarget.checked)}
      />
    </>
  );
}
