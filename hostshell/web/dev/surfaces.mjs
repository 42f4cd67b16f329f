// A bench for a bundle's page, without a Runtime: `npm run surfaces`, then http://127.0.0.1:8788/?app=whiteboard
// It serves the page as hostshell does (sandboxed iframe, strict policy, the real bridge) and plays the other side in the
// browser: one state for all frames, patches with revisions. `theme`, `locale`, `frames`, `delay` (ms) are parameters.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const BUNDLES = join(HERE, "../../../workers/lineup_workers");
const BRIDGE = join(HERE, "../../lineup_hostshell/static/lineup-bridge.js");
const PORT = Number(process.env.PORT ?? 8788);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; " +
  "font-src 'self'; form-action 'none'; base-uri 'none'; sandbox allow-scripts";

async function answer(path) {
  if (path === "/") return [await readFile(join(HERE, "surfaces.html")), "text/html", ""];
  const [, nonce, app, rest] = /^\/s\/([a-z0-9]+)\/([a-z_]+)\/(.+)$/.exec(path) ?? [];
  if (!rest) return null;
  if (rest === "lineup-bridge.js") {
    const bridge = await readFile(BRIDGE, "utf8");
    return [bridge.replace("__LINEUP_NONCE__", nonce), "text/javascript", POLICY];
  }
  const file = normalize(join(BUNDLES, app, rest));
  if (!file.startsWith(BUNDLES)) return null;
  const type = TYPES[extname(file)] ?? "application/octet-stream";
  if (type !== "text/html") return [await readFile(file), type, POLICY];
  const page = await readFile(file, "utf8");
  return [
    page.replace("<head>", `<head><script src="/s/${nonce}/${app}/lineup-bridge.js"></script>`),
    type,
    POLICY,
  ];
}

createServer((request, response) => {
  answer(new URL(request.url ?? "/", "http://bench").pathname)
    .catch(() => null)
    .then((found) => {
      if (!found) return response.writeHead(404).end();
      const [body, type, policy] = found;
      const headers = { "content-type": `${type}; charset=utf-8`, "x-content-type-options": "nosniff" };
      response.writeHead(200, policy ? { ...headers, "content-security-policy": policy } : headers).end(body);
    });
}).listen(PORT, "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/?app=whiteboard`));
