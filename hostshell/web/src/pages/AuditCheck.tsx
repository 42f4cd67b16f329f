// The button that checks the audit's chain, and what it found.

import { Button, Group, Text, Title } from "@mantine/core";
import { IconLink } from "@tabler/icons-react";
import { useState } from "react";
import { useWords } from "../i18n";
import { useClient } from "../state/react";
import { type AuditPage, type Verdict, verifyChain } from "./auditChain";

export function AuditCheck() {
  const client = useClient();
  const words = useWords();
  const [seen, setSeen] = useState<number | null>(null);
  const [verdict, setVerdict] = useState<Verdict | "failed" | null>(null);
  const verify = async () => {
    setVerdict(null);
    setSeen(0);
    try {
      setVerdict(await verifyChain((after) => client.query<AuditPage>("audit.page", { after }), setSeen));
    } catch {
      setVerdict("failed");
    }
    setSeen(null);
  };
  return (
    <section aria-labelledby="audit-title" data-testid="audit">
      <Title order={2} size="h4" mt="xl" mb={4} id="audit-title">
        {words.inspector.audit}
      </Title>
      <Text c="dimmed" size="sm" mb="sm">
        {words.inspector.auditIntro}
      </Text>
      <Group>
        <Button
          variant="default"
          loading={seen !== null}
          leftSection={<IconLink size={16} aria-hidden="true" />}
          onClick={() => void verify()}
        >
          {words.inspector.verify}
        </Button>
        <Text role="status" c={verdictColour(verdict)} fw={600}>
          {seen !== null && words.inspector.verifying(seen)}
          {verdict === "failed" && words.inspector.verifyFailed}
          {verdict !== null &&
            verdict !== "failed" &&
            (verdict.ok
              ? words.inspector.verified(verdict.rows, verdict.archived)
              : words.inspector.broken(verdict.seq))}
        </Text>
      </Group>
    </section>
  );
}

function verdictColour(verdict: Verdict | "failed" | null): string {
  if (verdict === null) return "dimmed";
  return verdict !== "failed" && verdict.ok ? "var(--lu-good)" : "var(--lu-bad)";
}
