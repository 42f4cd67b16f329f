// The frame around everything: side bar, the part that the address names, and the things that lie over the page.

import { Drawer } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { lazy, Suspense, useState } from "react";
import { useWords } from "../i18n";
import { useWorkspace } from "../state/react";
import { ConnectionBanner } from "./ConnectionBanner";
import { ConsentDialogs } from "./ConsentDialogs";
import { ConversationPage } from "./ConversationPage";
import classes from "./Frame.module.css";
import { Home } from "./Home";
import { useNotices } from "./notices";
import { useRoute } from "./route";
import { ShortcutsHelp } from "./ShortcutsHelp";
import { Sidebar } from "./Sidebar";
import { useShortcuts } from "./shortcuts";
import { useTabTitle } from "./tabTitle";

const GrantsPage = lazy(() => import("../pages/GrantsPage"));
const InspectorPage = lazy(() => import("../pages/InspectorPage"));

const NARROW = "(max-width: 900px)";

export function Frame() {
  const words = useWords();
  const narrow = useMediaQuery(NARROW, undefined, { getInitialValueInEffect: false });
  const [sidebar, setSidebar] = useState(false);
  const [help, setHelp] = useState(false);
  useNotices();
  useTabTitle();
  useShortcuts({ help: () => setHelp(true) });

  const openSidebar = narrow ? () => setSidebar(true) : null;
  return (
    <div className={classes.frame}>
      <button type="button" className="skip" onClick={() => focusOn("main")}>
        {words.skipToMain}
      </button>
      <button type="button" className="skip" onClick={() => focusOn("composer")}>
        {words.skipToComposer}
      </button>
      {narrow ? (
        <Drawer
          opened={sidebar}
          onClose={() => setSidebar(false)}
          title={words.appName}
          size={300}
          padding={0}
          closeButtonProps={{ "aria-label": words.close }}
          classNames={{ body: classes.drawerBody ?? "", content: classes.drawerContent ?? "" }}
        >
          {/* Whoever picks something on a small screen wants to see it. A page that only passes on picks nothing. */}
          <Sidebar onHelp={() => setHelp(true)} onPicked={() => setSidebar(false)} bare />
        </Drawer>
      ) : (
        <Sidebar onHelp={() => setHelp(true)} onPicked={() => setSidebar(false)} />
      )}
      <main id="main" tabIndex={-1} className={classes.main}>
        <ConnectionBanner />
        <Suspense>
          <Page openSidebar={openSidebar} />
        </Suspense>
      </main>
      <ConsentDialogs />
      <ShortcutsHelp opened={help} onClose={() => setHelp(false)} />
    </div>
  );
}

function Page({ openSidebar }: { openSidebar: (() => void) | null }) {
  const route = useRoute();
  const known = useWorkspace(
    (state) => route.page === "conversation" && state.conversations[route.id] !== undefined,
  );
  if (route.page === "grants") return <GrantsPage openSidebar={openSidebar} />;
  if (route.page === "inspector") return <InspectorPage id={route.id} openSidebar={openSidebar} />;
  if (route.page === "conversation" && known) {
    return <ConversationPage key={route.id} conversationId={route.id} openSidebar={openSidebar} />;
  }
  return <Home openSidebar={openSidebar} />;
}

/** Skip links are buttons: the address names the part that is shown, and a fragment would change it. */
function focusOn(id: string): void {
  document.getElementById(id)?.focus();
}
