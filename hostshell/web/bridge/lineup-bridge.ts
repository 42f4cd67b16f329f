// What a surface document gets as `window.lineup`. It runs first in a sandboxed page of an opaque origin, waits for the
// one message of the workspace that carries this load's nonce, and speaks through the port that comes with it.
// Nothing else crosses: no token, no address, no other instance.

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type JsonObject = { [key: string]: Json };

interface Answer {
  accepted: boolean;
  revision?: number;
  code?: string;
  message?: string;
}

interface HostInfo {
  theme: "light" | "dark";
  locale: string;
  timeZone: string;
  visibility: "visible" | "hidden";
  reducedMotion: boolean;
  clockSkewMs: number;
}

type Listener<T extends unknown[]> = (...args: T) => void;

// hostshell puts this load's nonce in the place of the name between the quotes.
const NONCE = "__LINEUP_NONCE__";

(() => {
  let port: MessagePort | null = null;
  let state: JsonObject = {};
  let revision = 0;
  let operations: Json[] = [];
  let snapshot: Json = null;
  let nextId = 1;
  let known = false; // a state has come
  const unsent: JsonObject[] = [];
  const waiting = new Map<number, (answer: Answer) => void>();
  const caughtUp: { revision: number; resolve: () => void }[] = [];
  const onState = new Set<Listener<[JsonObject, number]>>();
  const onHost = new Set<Listener<[HostInfo]>>();
  const onProjection = new Set<Listener<[{ operations: Json[]; snapshot: Json }]>>();
  let host: HostInfo = {
    theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    visibility: document.visibilityState === "hidden" ? "hidden" : "visible",
    reducedMotion: matchMedia("(prefers-reduced-motion: reduce)").matches,
    clockSkewMs: 0,
  };

  function send(message: JsonObject): void {
    if (port) port.postMessage(message);
    else unsent.push(message);
  }

  /** Every request has exactly one answer; one that is no JSON is refused here. */
  function ask(message: JsonObject): Promise<Answer> {
    let copy: JsonObject;
    try {
      copy = JSON.parse(JSON.stringify(message)) as JsonObject;
    } catch {
      return Promise.resolve({ accepted: false, code: "message_invalid", message: "it is no JSON value" });
    }
    const id = nextId++;
    return new Promise((resolve) => {
      waiting.set(id, resolve);
      send({ ...copy, id });
    });
  }

  function tell<T extends unknown[]>(listeners: Set<Listener<T>>, ...args: T): void {
    for (const listener of listeners) {
      try {
        listener(...args);
      } catch (error) {
        console.error(error);
      }
    }
  }

  function take(nextState: JsonObject, nextRevision: number): void {
    state = nextState;
    revision = nextRevision;
    known = true;
    tell(onState, state, revision);
    while (caughtUp[0] && caughtUp[0].revision <= revision) caughtUp.shift()?.resolve();
  }

  function receive(message: JsonObject): void {
    switch (message.t) {
      case "state":
        take(message.state as JsonObject, message.revision as number);
        return;
      case "patch":
        if ((message.revision as number) > revision)
          take(merge(state, message.patch as JsonObject) as JsonObject, message.revision as number);
        return;
      case "host":
        host = { ...host, ...(message.host as unknown as HostInfo) };
        document.documentElement.dataset.theme = host.theme;
        document.documentElement.lang = host.locale;
        document.documentElement.style.colorScheme = host.theme;
        tell(onHost, host);
        return;
      case "projection":
        operations = (message.operations as Json[]) ?? [];
        snapshot = message.snapshot ?? null;
        tell(onProjection, { operations, snapshot });
        return;
      case "ack":
        acknowledge(message);
        return;
    }
  }

  /** An accepted patch is answered once the state here has it, so that what comes next builds on it. */
  function acknowledge(message: JsonObject): void {
    const resolve = waiting.get(message.id as number);
    if (!resolve) return;
    waiting.delete(message.id as number);
    const { t: _t, id: _id, ...answer } = message;
    const wanted = answer.accepted === true ? answer.revision : undefined;
    if (typeof wanted !== "number" || wanted <= revision) {
      resolve(answer as unknown as Answer);
    } else {
      caughtUp.push({ revision: wanted, resolve: () => resolve(answer as unknown as Answer) });
      caughtUp.sort((a, b) => a.revision - b.revision);
    }
  }

  /** JSON Merge Patch (RFC 7396). */
  function merge(target: Json, patch: Json): Json {
    if (!isObject(patch)) return patch;
    const result: JsonObject = isObject(target) ? { ...target } : {};
    for (const [key, value] of Object.entries(patch)) {
      if (value === null) delete result[key];
      else put(result, key, merge(Object.hasOwn(result, key) ? (result[key] ?? null) : null, value));
    }
    return result;
  }

  /** Names such as "__proto__" are names like any other. */
  function put(into: JsonObject, key: string, value: Json): void {
    Object.defineProperty(into, key, { value, writable: true, enumerable: true, configurable: true });
  }

  function isObject(value: Json | undefined): value is JsonObject {
    return typeof value === "object" && value !== null && !Array.isArray(value);
  }

  addEventListener("message", (event: MessageEvent) => {
    const given = event.ports[0];
    const isOurs =
      event.source === parent && isObject(event.data as Json) && (event.data as JsonObject).nonce === NONCE;
    if (port || !given || !isOurs) return;
    event.stopImmediatePropagation(); // the handover is nobody else's news
    port = given;
    port.onmessage = (incoming: MessageEvent) => {
      if (isObject(incoming.data as Json)) receive(incoming.data as JsonObject);
    };
    for (const message of unsent.splice(0)) port.postMessage(message);
  });

  function subscribe<T>(listeners: Set<T>, listener: T): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  const lineup = {
    /** Say that the page can be seen and wants its state. */
    ready: () => send({ t: "ready" }),
    get state() {
      return state;
    },
    get revision() {
      return revision;
    },
    get host() {
      return host;
    },
    get operations() {
      return operations;
    },
    get snapshot() {
      return snapshot;
    },
    /** The Runtime's wall clock, in ms. */
    now: () => Date.now() + host.clockSkewMs,
    /** Called with every new state, and at once if there is one already. */
    onstate(listener: Listener<[JsonObject, number]>) {
      if (known) listener(state, revision);
      return subscribe(onState, listener);
    },
    onhost(listener: Listener<[HostInfo]>) {
      listener(host);
      return subscribe(onHost, listener);
    },
    onprojection(listener: Listener<[{ operations: Json[]; snapshot: Json }]>) {
      if (known) listener({ operations, snapshot });
      return subscribe(onProjection, listener);
    },
    /** A JSON Merge Patch; with `base_revision` it is refused (`patch_conflict`) if the state has moved on. */
    update: (patch: JsonObject, options: { base_revision?: number } = {}) =>
      ask({
        t: "update",
        patch,
        ...(options.base_revision === undefined ? {} : { base_revision: options.base_revision }),
      }),
    submit: (payload: Json) => ask({ t: "submit", payload: payload ?? null }),
    event: (name: string, payload?: Json) =>
      ask({ t: "event", name: String(name), payload: payload ?? null }),
  };
  // Configurable, or a page's own `const lineup = window.lineup` would be a redeclaration.
  Object.defineProperty(window, "lineup", {
    value: Object.freeze(lineup),
    writable: false,
    configurable: true,
  });
})();

export {};
