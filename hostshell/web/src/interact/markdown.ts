// Markdown to safe HTML. Raw HTML is never let through, links open outside, pictures stay links (nothing is loaded from
// elsewhere), and the result is sanitised again with a short list of what may be in it.

import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import type { Words } from "../i18n/en";

export interface MarkdownWords {
  copy: string;
  code: string;
  table: string;
}

export function markdownWords(words: Words): MarkdownWords {
  return { copy: words.copy, code: words.interact.codeBlock, table: words.interact.table };
}

const IDLE_MS_LEFT = 3;
const KEPT_MAX = 4_000;
const ALLOWED_TAGS =
  "a blockquote br button code del div em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong table tbody td th thead tr ul".split(
    " ",
  );
const ALLOWED_ATTR = [
  "href",
  "target",
  "rel",
  "class",
  "start",
  "data-copy",
  "type",
  "tabindex",
  "role",
  "aria-label",
  "style",
];

const parser = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false });

parser.validateLink = (url) => /^(https?:|mailto:)/i.test(url.trim());

parser.renderer.rules.link_open = (tokens, index, options, _env, self) => {
  tokens[index]?.attrSet("target", "_blank");
  tokens[index]?.attrSet("rel", "noopener noreferrer nofollow");
  return self.renderToken(tokens, index, options);
};

parser.renderer.rules.image = (tokens, index) => {
  const source = String(tokens[index]?.attrGet("src") ?? "");
  const label = parser.utils.escapeHtml(tokens[index]?.content || source);
  return `<a href="${parser.utils.escapeHtml(source)}" target="_blank" rel="noopener noreferrer nofollow">${label}</a>`;
};

parser.renderer.rules.fence = (tokens, index, _options, env) => {
  const token = tokens[index];
  return codeBlock(token?.content ?? "", token?.info.trim().split(/\s+/)[0] ?? "", wordsOf(env));
};
parser.renderer.rules.code_block = (tokens, index, _options, env) =>
  codeBlock(tokens[index]?.content ?? "", "", wordsOf(env));

parser.renderer.rules.table_open = (_tokens, _index, _options, env) =>
  `<div class="table" tabindex="0" role="region" aria-label="${parser.utils.escapeHtml(wordsOf(env).table)}"><table>`;
parser.renderer.rules.table_close = () => "</table></div>";

function wordsOf(env: unknown): MarkdownWords {
  return env as MarkdownWords;
}

function codeBlock(code: string, language: string, words: MarkdownWords): string {
  const safe = parser.utils.escapeHtml;
  return (
    `<div class="code"><div class="code-head"><span>${safe(language)}</span>` +
    `<button type="button" data-copy="1">${safe(words.copy)}</button></div>` +
    `<pre tabindex="0" role="region" aria-label="${safe(words.code)}"><code>${safe(code)}</code></pre></div>`
  );
}

const kept = new Map<string, string>();

/** Render texts ahead, newest first, while the browser has nothing else to do. Returns a function that stops it. */
export function renderAhead(texts: readonly string[], words: MarkdownWords): () => void {
  let next = texts.length - 1;
  const work = (deadline: IdleDeadline) => {
    while (next >= 0 && deadline.timeRemaining() > IDLE_MS_LEFT) renderMarkdown(texts[next--] ?? "", words);
    if (next >= 0) handle = requestIdleCallback(work);
  };
  let handle = requestIdleCallback(work);
  return () => cancelIdleCallback(handle);
}

/** Safe HTML of a text; the newest few thousand are remembered, so that scrolling does not render them again. */
export function renderMarkdown(text: string, words: MarkdownWords): string {
  const key = `${words.copy}\0${text}`;
  const known = kept.get(key);
  if (known !== undefined) return known;
  const html = DOMPurify.sanitize(parser.render(text, { ...words }), {
    ALLOWED_TAGS,
    ALLOWED_ATTR,
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
    // Attributes that hold no address; all others have to pass the test for addresses.
    ADD_URI_SAFE_ATTR: ["target", "rel", "tabindex", "data-copy", "type", "start"],
  });
  if (kept.size >= KEPT_MAX) kept.delete(kept.keys().next().value ?? "");
  kept.set(key, html);
  return html;
}
