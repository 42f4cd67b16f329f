// The workspace as a whole: providers around the frame, or the page that says how to sign in.

import { type MantineColorSchemeManager, MantineProvider } from "@mantine/core";
import { useEffect } from "react";
import { LanguageProvider } from "../i18n";
import type { Client } from "../state/client";
import { ClientProvider, useWorkspace } from "../state/react";
import { settingsStore, useSettings } from "../state/settings";
import { Announcer } from "../ui/announce";
import { theme, variables } from "../ui/theme";
import { Toasts } from "../ui/toasts";
import { Frame } from "./Frame";
import { Locked } from "./Locked";

// The colour scheme is one of the person's settings; the kit reads it from there and keeps none of its own.
const schemes: MantineColorSchemeManager = {
  get: () => settingsStore.getState().scheme,
  set: () => undefined,
  subscribe: () => undefined,
  unsubscribe: () => undefined,
  clear: () => undefined,
};

export function App({ client, onSignIn }: { client: Client; onSignIn(): void }) {
  return (
    <ClientProvider client={client}>
      <LanguageProvider>
        <Themed>
          <Announcer />
          <Gate onSignIn={onSignIn} />
          <Toasts />
        </Themed>
      </LanguageProvider>
    </ClientProvider>
  );
}

function Themed({ children }: { children: React.ReactNode }) {
  const { scheme } = useSettings();
  return (
    <MantineProvider
      key={scheme}
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme={scheme}
      colorSchemeManager={schemes}
    >
      {children}
    </MantineProvider>
  );
}

function Gate({ onSignIn }: { onSignIn(): void }) {
  const locked = useWorkspace((state) => state.link === "locked");
  useEffect(() => {
    if (!locked) return;
    const again = () => onSignIn();
    addEventListener("focus", again);
    return () => removeEventListener("focus", again);
  }, [locked, onSignIn]);
  return locked ? <Locked onRetry={onSignIn} /> : <Frame />;
}
