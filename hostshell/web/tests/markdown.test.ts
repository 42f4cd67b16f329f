// @vitest-environment jsdom
// The sanitiser is proven against a parser that follows the standard.

import { describe, expect, it } from "vitest";
import { renderMarkdown } from "../src/interact/markdown";

const words = { copy: "Copy", code: "Code", table: "Table" };
const dom = (text: string) => {
  const host = document.createElement("div");
  host.innerHTML = renderMarkdown(text, words);
  return host;
};

describe("markdown", () => {
  it("opens links outside", () => {
    const link = dom("see [this](https://example.com)").querySelector("a");
    expect(link?.getAttribute("target")).toBe("_blank");
    expect(link?.getAttribute("rel")).toContain("noopener");
  });

  it.each([
    "[x](javascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<iframe src=https://example.com></iframe>",
    "![x](javascript:alert(1))",
    "<a href='javascript:alert(1)'>x</a>",
    "<svg onload=alert(1)>",
    '"><style>*{display:none}</style>',
  ])("has nothing live in %s", (text) => {
    const host = dom(text);
    expect(host.querySelector("script, img, iframe, svg, style, object, form, input")).toBeNull();
    for (const element of host.querySelectorAll("*")) {
      for (const attribute of element.attributes) {
        expect(attribute.name.startsWith("on")).toBe(false);
        expect(attribute.value).not.toMatch(/^\s*(javascript|data|vbscript):/i);
      }
    }
  });

  it("shows pictures as links, so that nothing is loaded from elsewhere", () => {
    const host = dom("![a cat](https://example.com/cat.png)");
    expect(host.querySelector("img")).toBeNull();
    expect(host.querySelector("a")?.textContent).toBe("a cat");
  });

  it("gives code a button and keeps its text", () => {
    const host = dom("```py\nprint('<b>')\n```");
    expect(host.querySelector("button[data-copy]")?.textContent).toBe("Copy");
    expect(host.querySelector("code")?.textContent).toBe("print('<b>')\n");
  });

  it("lets tables scroll by keyboard", () => {
    const region = dom("| a | b |\n|---|---|\n| 1 | 2 |").querySelector(".table");
    expect(region?.getAttribute("tabindex")).toBe("0");
    expect(region?.getAttribute("aria-label")).toBe("Table");
  });
});
