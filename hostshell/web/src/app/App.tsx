// The workspace as a whole: providers around the frame, or the page that says how to sign in.

import { type MantineColorSchemeManager, MantineProvider } from "@mantine/core";
import { useEffect } from "react";
import { LanguageProvider } from "../i18n";
import type { Client } from "../state/client";
import { ClientProvider, useWorkspace } from "../state/react";
import { setSettings, settingsStore } from "../state/settings";
import { Announcer } from "../ui/announce";
import { theme, variables } from "../ui/theme";
import { Toasts } from "../ui/toasts";
import { Frame } from "./Frame";
import { Locked } from "./Locked";

/** The colour scheme is one of the person's settings; the kit follows it there and keeps none of its own. */
function schemesFromSettings(): MantineColorSchemeManager {
  let stop = () => {};
  return {
    get: () => settingsStore.getState().scheme,
    set: (scheme) => setSettings({ scheme }),
    subscribe: (changed) => {
      stop = settingsStore.subscribe((now, before) => {
        if (now.scheme !== before.scheme) changed(now.scheme);
      });
    },
    unsubscribe: () => stop(),
    clear: () => setSettings({ scheme: "auto" }),
  };
}

const schemes = schemesFromSettings();

export function App({ client, onSignIn }: { client: Client; onSignIn(): void }) {
  return (
    <ClientProvider client={client}>
      <LanguageProvider>
        <MantineProvider
          theme={theme}
          cssVariablesResolver={variables}
          defaultColorScheme="auto"
          colorSchemeManager={schemes}
        >
          <Announcer />
          <Gate onSignIn={onSignIn} />
          <Toasts />
        </MantineProvider>
      </LanguageProvider>
    </ClientProvider>
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
