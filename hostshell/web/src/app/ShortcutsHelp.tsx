// The list of keys.

import { Group, Kbd, Modal } from "@mantine/core";
import { useWords } from "../i18n";
import classes from "./ShortcutsHelp.module.css";
import { KEYS } from "./shortcuts";

export function ShortcutsHelp({ opened, onClose }: { opened: boolean; onClose(): void }) {
  const words = useWords();
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={words.shortcuts.title}
      centered
      closeButtonProps={{ "aria-label": words.close }}
    >
      <dl className={classes.keys}>
        {KEYS.map((key) => (
          <div key={key.shortcut}>
            <dt>{words.shortcuts[key.shortcut]}</dt>
            <dd>
              <Group gap={4} wrap="nowrap">
                <Kbd>Alt</Kbd>
                <Kbd>{key.shown}</Kbd>
              </Group>
            </dd>
          </div>
        ))}
      </dl>
    </Modal>
  );
}
