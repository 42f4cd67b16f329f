// A place with nothing in it yet: says so, and what to do next.

import { Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import classes from "./Empty.module.css";

interface Props {
  icon: ReactNode;
  title: string;
  hint?: string;
  children?: ReactNode;
}

export function Empty({ icon, title, hint, children }: Props) {
  return (
    <Stack align="center" gap="xs" p="xl" ta="center" maw={520} mx="auto" data-testid="empty">
      <Text c="dimmed" component="div" aria-hidden="true">
        {icon}
      </Text>
      <Text fw={600} size="lg" className={classes.words}>
        {title}
      </Text>
      {hint && (
        <Text c="dimmed" className={classes.words}>
          {hint}
        </Text>
      )}
      {children}
    </Stack>
  );
}
