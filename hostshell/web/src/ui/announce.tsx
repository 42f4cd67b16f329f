// What a screen reader says by itself. One polite region for the whole page; a new text replaces the old one.

import { useStore } from "zustand";
import { createStore } from "zustand/vanilla";

const store = createStore(() => ({ text: "", n: 0 }));

export function announce(text: string): void {
  store.setState((state) => ({ text, n: state.n + 1 }));
}

export function Announcer() {
  const { text, n } = useStore(store);
  return (
    <div className="visually-hidden" aria-live="polite" aria-atomic="true" data-testid="announcer">
      {/* The changing space makes the same text twice two changes. */}
      {text}
      {n % 2 ? "\u00a0" : ""}
    </div>
  );
}
