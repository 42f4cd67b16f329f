// The line under a form: what stands in the way of the answer.

import { Text } from "@mantine/core";

export function FormError({ error }: { error: string | null }) {
  return (
    <div role="alert">
      {error && (
        <Text size="sm" c="var(--lu-bad)" mt="xs">
          {error}
        </Text>
      )}
    </div>
  );
}
