// The page's right to speak: the one-time launch key, the session token, and how further tabs get it.
// The token lives in sessionStorage of this origin. It never stands in an address; on the WebSocket it only signs.

const KEY = "lineup.session";
const CHANNEL = "lineup.session";
const ASK_TABS_MS_MAX = 400;

interface Session {
  token: string;
  expires_at?: string;
}

/** The launch key of this load, if there is one; it is gone from the address bar when this returns. */
export function takeLaunchKey(): string | null {
  const match = /^#launch=([A-Za-z0-9._~-]{1,256})$/.exec(location.hash);
  if (!match) return null;
  history.replaceState(null, "", location.pathname);
  return match[1] ?? null;
}

/** A token for this page, from the launch key, this tab's storage or another tab; null if nobody has one. */
export async function obtainToken(launchKey: string | null): Promise<string | null> {
  const fresh = launchKey ? await exchange(launchKey) : null;
  const session = fresh ?? stored() ?? (await askTabs());
  if (session) keep(session);
  return session?.token ?? null;
}

export function currentToken(): string | null {
  return stored()?.token ?? null;
}

/** This page's answer to a challenge of the server at this very address; null without a token. */
export async function signChallenge(nonce: string): Promise<{ id: string; proof: string } | null> {
  const token = currentToken();
  const dot = token?.lastIndexOf(".") ?? -1;
  if (token === null || dot < 1) return null;
  const [id, secret] = [token.slice(0, dot), token.slice(dot + 1)];
  const text = new TextEncoder();
  const key = await crypto.subtle.importKey(
    "raw",
    text.encode(secret),
    { name: "HMAC", hash: "SHA-256" },
    false,
    ["sign"],
  );
  const message = text.encode(`lineup-workspace ${location.host.toLowerCase()} ${nonce}`);
  const proof = new Uint8Array(await crypto.subtle.sign("HMAC", key, message));
  return {
    id,
    proof: btoa(String.fromCharCode(...proof))
      .replaceAll("+", "-")
      .replaceAll("/", "_")
      .replace(/=+$/, ""),
  };
}

/** The Runtime does not know this token any more. */
export function forgetToken(): void {
  sessionStorage.removeItem(KEY);
}

/** Answer other tabs of this origin that ask for the token. Returns a function that stops it. */
export function serveTabs(): () => void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = (event: MessageEvent<unknown>) => {
    const session = stored();
    if (isObject(event.data) && event.data.t === "ask" && session)
      channel.postMessage({ t: "have", session });
  };
  return () => channel.close();
}

async function exchange(launch: string): Promise<Session | null> {
  try {
    const answer = await fetch("/api/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ launch }),
      credentials: "omit",
      cache: "no-store",
    });
    if (!answer.ok) return null;
    return asSession(await answer.json());
  } catch {
    return null;
  }
}

function askTabs(): Promise<Session | null> {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(CHANNEL);
    const done = (session: Session | null) => {
      clearTimeout(timer);
      channel.close();
      resolve(session);
    };
    const timer = setTimeout(() => done(null), ASK_TABS_MS_MAX);
    channel.onmessage = (event: MessageEvent<unknown>) => {
      if (!isObject(event.data) || event.data.t !== "have") return;
      const session = asSession(event.data.session);
      if (session) done(session);
    };
    channel.postMessage({ t: "ask" });
  });
}

function keep(session: Session): void {
  sessionStorage.setItem(KEY, JSON.stringify(session));
}

function stored(): Session | null {
  try {
    const session = asSession(JSON.parse(sessionStorage.getItem(KEY) ?? "null"));
    const over = session?.expires_at !== undefined && Date.parse(session.expires_at) <= Date.now();
    return over ? null : session;
  } catch {
    return null;
  }
}

function asSession(value: unknown): Session | null {
  if (!isObject(value) || typeof value.token !== "string" || value.token === "") return null;
  return {
    token: value.token,
    ...(typeof value.expires_at === "string" ? { expires_at: value.expires_at } : {}),
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
