"""The built workspace: its pages and assets, read once at the start and served from memory.

Owns which of the built files may be asked for and how long a browser may keep them. An address is looked up, never
turned into a path: nothing outside of what was read exists here. It must not know what the pages do.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lineup_hostshell.security import NOT_FOUND

STATIC = Path(__file__).parent / "static"
BRIDGE_NAME = "lineup-bridge.js"
FILE_BYTES_MAX = 16 << 20
FOLDER_DEPTH_MAX = 4

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}

_IMMUTABLE, _CHECKED, _NEVER = "public, max-age=31536000, immutable", "no-cache", "no-store"

_NOT_BUILT = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>LineUp: the workspace is not built</title>
<style>
  :root { color-scheme: light dark; font: 1rem/1.6 system-ui, sans-serif }
  main { max-width: 38rem; margin: 15vh auto; padding: 0 1.5rem }
  code { padding: .1em .35em; border-radius: .3em; background: color-mix(in srgb, currentColor 12%, transparent) }
</style>
<main>
  <h1>The Runtime is up; its workspace is not built</h1>
  <p>This installation has no workspace pages. Agents and the <code>lineup</code> command work all the same.</p>
  <p>In a clone of the repository: run <code>npm ci</code> and <code>npm run build</code> in <code>hostshell/web</code>,
  then start the Runtime again. An installed package always has the pages; install it again if they are missing.</p>
</main>
</html>
"""
_NOT_BUILT_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class StaticFile:
    content: bytes
    media_type: str
    etag: str
    cache_control: str


def page_csp(port: int, surface_origin: str) -> str:
    """What the workspace's page may do. Its frames can go nowhere but to the surface port, whoever navigates them."""
    sockets = " ".join(f"ws://{name}:{port}" for name in ("127.0.0.1", "localhost"))
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # the component kit writes style elements
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "media-src 'self' blob:",
            f"connect-src 'self' {sockets}",
            f"frame-src {surface_origin}",
            "worker-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


class StaticFiles:
    """See the module. ``csp`` is the page's own policy."""

    def __init__(self, csp: str, folder: Path = STATIC) -> None:
        self._csp = csp
        self._files = dict(_read(folder, "", 1))
        bridge = self._files.pop(BRIDGE_NAME, None)  # it is for surfaces, and different for each load
        self.bridge = bridge.content if bridge is not None else None

    @property
    def is_built(self) -> bool:
        return "index.html" in self._files

    def routes(self) -> list[BaseRoute]:
        """Last among the routes: they match every GET."""
        return [Route("/{path:path}", self._answer, methods=["GET"])]

    def _answer(self, request: Request) -> Response:
        path = request.path_params["path"]
        if path == "":
            return self._page()
        file = self._files.get(path)
        if file is None or path == "index.html":
            return Response(NOT_FOUND.body(), NOT_FOUND.status, media_type="application/json")
        headers = {"etag": file.etag, "cache-control": file.cache_control}
        if file.etag in [each.strip() for each in request.headers.get("if-none-match", "").split(",")]:
            return Response(None, 304, headers)
        return Response(file.content, headers=headers | {"content-type": file.media_type})

    def _page(self) -> Response:
        file = self._files.get("index.html")
        if file is None:
            headers = {"content-type": MEDIA_TYPES[".html"], "content-security-policy": _NOT_BUILT_CSP}
            return Response(_NOT_BUILT, headers=headers)
        headers = {"content-type": file.media_type, "content-security-policy": self._csp, "cache-control": _NEVER}
        return Response(file.content, headers=headers)


def _read(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, StaticFile]]:
    """Regular files of known types; links and names with a leading dot are passed over."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        status = entry.stat(follow_symlinks=False)
        media_type = MEDIA_TYPES.get(Path(entry.name).suffix)
        if entry.name.startswith("."):
            continue
        if stat.S_ISDIR(status.st_mode) and depth < FOLDER_DEPTH_MAX:
            yield from _read(Path(entry.path), f"{prefix}{entry.name}/", depth + 1)
        elif stat.S_ISREG(status.st_mode) and media_type is not None and status.st_size <= FILE_BYTES_MAX:
            content = Path(entry.path).read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            cache_control = _IMMUTABLE if prefix.startswith("assets/") else _CHECKED
            yield f"{prefix}{entry.name}", StaticFile(content, media_type, etag, cache_control)
