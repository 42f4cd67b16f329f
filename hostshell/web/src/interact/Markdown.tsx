// A Markdown text on the page, with code that can be copied.

import { type MouseEvent, memo, useMemo } from "react";
import { useWords } from "../i18n";
import { announce } from "../ui/announce";
import classes from "./Markdown.module.css";
import { markdownWords, renderMarkdown } from "./markdown";

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const words = useWords();
  const html = useMemo(() => renderMarkdown(text, markdownWords(words)), [text, words]);

  const copy = (event: MouseEvent) => {
    const button = (event.target as Element).closest("button[data-copy]");
    const code = button?.closest(".code")?.querySelector("code")?.textContent;
    if (!button || code === undefined || code === null) return;
    void navigator.clipboard.writeText(code).then(() => {
      button.textContent = words.copied;
      announce(words.copied);
      setTimeout(() => {
        button.textContent = words.copy;
      }, 2_000);
    });
  };

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the buttons inside carry the interaction; this only hears them
    // biome-ignore lint/a11y/useKeyWithClickEvents: a button's click event comes from the keyboard too
    <div
      className={classes.markdown}
      onClick={copy}
      // biome-ignore lint/security/noDangerouslySetInnerHtml: sanitised by renderMarkdown
      dangerouslySetInnerHTML={{ __html: html }}
    />
  );
});
