// Which part of the workspace is shown, from the address's fragment; nothing secret is ever in it.

import { useSyncExternalStore } from "react";

export type Route =
  | { page: "home" }
  | { page: "conversation"; id: string }
  | { page: "grants" }
  | { page: "inspector"; id: string | null };

export function parseRoute(hash: string): Route {
  const [page, id] = hash.replace(/^#\/?/, "").split("/", 2);
  if (page === "c" && id) return { page: "conversation", id: decode(id) };
  if (page === "grants") return { page: "grants" };
  if (page === "inspector") return { page: "inspector", id: id ? decode(id) : null };
  return { page: "home" };
}

export function hrefOf(route: Route): string {
  switch (route.page) {
    case "home":
      return "#/";
    case "conversation":
      return `#/c/${encodeURIComponent(route.id)}`;
    case "grants":
      return "#/grants";
    case "inspector":
      return route.id ? `#/inspector/${encodeURIComponent(route.id)}` : "#/inspector";
  }
}

export function goTo(route: Route): void {
  location.hash = hrefOf(route);
}

/** The same without a step in the history: where a page only passes the person on, Back must not lead to it. */
export function passOnTo(route: Route): void {
  location.replace(hrefOf(route));
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (changed) => {
      addEventListener("hashchange", changed);
      return () => removeEventListener("hashchange", changed);
    },
    () => location.hash,
  );
  return parseRoute(hash);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
