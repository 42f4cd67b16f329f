// What all question cards share: telling the Runtime that a question is on screen, keeping a draft, answering.

import { useCallback, useEffect, useRef, useState } from "react";
import { errorText, useWords } from "../../i18n";
import type { Interaction, JsonObject } from "../../runtime/rows";
import * as journal from "../../state/journal";
import { useClient, useWorkspace } from "../../state/react";
import { isOpen } from "../../state/select";
import { loadDraft, saveDraft } from "../../state/settings";

const DRAFT_MS = 400;
const presented = new Set<string>();

export function usePresented(interaction: Interaction): void {
  const client = useClient();
  const { interaction_id: id, status } = interaction;
  useEffect(() => {
    if (status !== "pending" || presented.has(id)) return;
    presented.add(id);
    void client.act("interaction.present", { interaction_id: id });
  }, [client, id, status]);
}

/** A list may have had room for the beginning of a question only; whoever shows it reads all of it. */
export function useWhole({ interaction_id: id, cut, updated_at }: Interaction): void {
  const client = useClient();
  const online = useWorkspace((state) => state.link === "online");
  // biome-ignore lint/correctness/useExhaustiveDependencies: one that has changed meanwhile is read again
  useEffect(() => {
    if (cut && online) void client.readInteraction(id);
  }, [client, id, cut, online, updated_at]);
}

export interface Answering {
  busy: boolean;
  error: string | null;
  answer(result: JsonObject): void;
  cancel(): void;
}

export function useAnswering(interaction: Interaction): Answering {
  const client = useClient();
  const words = useWords();
  const id = interaction.interaction_id;
  const [busy, setBusy] = useState(() => journal.kept().some((kept) => kept.args.interaction_id === id));
  const [error, setError] = useState<string | null>(null);

  const send = useCallback(
    async (name: string, args: JsonObject) => {
      setBusy(true);
      setError(null);
      const result = await client.act(name, { interaction_id: id, ...args });
      if (result.accepted) return; // the row itself says what came of it
      setBusy(false);
      setError(errorText(words, result.code, result.message));
    },
    [client, id, words],
  );
  return {
    busy: busy && isOpen(interaction),
    error,
    answer: (result) => void send("interaction.answer", { result }),
    cancel: () => void send("interaction.cancel", { reason: "cancelled by the person" }),
  };
}

/** A draft that outlives a reload (here) and the browser (with the Runtime, a moment later). */
export function useDraft<T>(
  interaction: Interaction,
  parse: (draft: JsonObject | undefined) => T,
  pack: (value: T) => JsonObject,
): [T, (value: T) => void] {
  const client = useClient();
  const id = interaction.interaction_id;
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const touched = useRef(false);
  const [value, setValue] = useState<T>(() => parse(local(id) ?? interaction.draft));
  const open = isOpen(interaction);

  const update = (next: T) => {
    touched.current = true;
    setValue(next);
    saveDraft(`q.${id}`, JSON.stringify(pack(next)));
    if (timer.current) clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = null;
      void client.act("interaction.draft", { interaction_id: id, draft: pack(next) });
    }, DRAFT_MS);
  };

  // Another tab types into the same question: follow it while nothing was typed here.
  const elsewhere = interaction.draft;
  const parseRef = useRef(parse);
  parseRef.current = parse;
  useEffect(() => {
    if (!touched.current && elsewhere && !local(id)) setValue(parseRef.current(elsewhere));
  }, [elsewhere, id]);

  useEffect(() => {
    if (open) return;
    if (timer.current) clearTimeout(timer.current);
    saveDraft(`q.${id}`, "");
  }, [open, id]);
  return [value, update];
}

function local(id: string): JsonObject | undefined {
  try {
    const text = loadDraft(`q.${id}`);
    return text ? (JSON.parse(text) as JsonObject) : undefined;
  } catch {
    return undefined;
  }
}
