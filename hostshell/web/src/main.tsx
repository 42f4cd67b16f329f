// Where the page starts: the token, the client, the first render. The launch key leaves the address before anything else.

import "./ui/kit";
import "./ui/global.css";

import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { forgetToken, obtainToken, serveTabs, takeLaunchKey } from "./runtime/session";
import { Client } from "./state/client";
import { followOtherTabs } from "./state/settings";

const launchKey = takeLaunchKey();
const client = new Client(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/workspace`);

serveTabs();
followOtherTabs();
addEventListener("online", () => client.link.hurry());
document.addEventListener("visibilitychange", () => client.link.hurry());

/** Sign in with what there is; the page shows the way if that is nothing. */
async function signIn(key: string | null): Promise<void> {
  await obtainToken(key);
  client.start();
}

client.store.subscribe((state, before) => {
  // A token that was refused is of no use to anybody, other tabs included.
  if (state.link === "locked" && before.link === "connecting") forgetToken();
});

const root = document.getElementById("root");
if (root) createRoot(root).render(<App client={client} onSignIn={() => void signIn(null)} />);
void signIn(launchKey);
