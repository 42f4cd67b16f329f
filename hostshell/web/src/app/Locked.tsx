// Nobody has given this page a token yet: how to get one.

import { Button, Code, Stack, Text, Title } from "@mantine/core";
import { IconLock } from "@tabler/icons-react";
import { useWords } from "../i18n";

export function Locked({ onRetry }: { onRetry(): void }) {
  const words = useWords();
  return (
    <Stack
      component="main"
      align="center"
      justify="center"
      mih="100vh"
      p="xl"
      ta="center"
      gap="sm"
      data-testid="locked"
    >
      <IconLock size={48} stroke={1.3} aria-hidden="true" />
      <Title order={1} size="h3">
        {words.locked.title}
      </Title>
      <Text c="dimmed" maw={460}>
        {words.locked.text}
      </Text>
      <Text>
        {words.locked.how} <Code>lineup open</Code> {words.locked.andOpen}
      </Text>
      <Button variant="default" onClick={onRetry}>
        {words.locked.again}
      </Button>
    </Stack>
  );
}
