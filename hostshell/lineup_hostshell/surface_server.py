"""The surface port: the pages of MiniApps, each load of one under an address of its own that nobody else knows.

Owns the live loads, and the reading of a bundle's files for them. A bundle's page is hostile: it runs in a frame of
opaque origin, gets its scripts and pictures from its own load alone, and is handed out once. Whatever comes after that
under the same address (a reload, a navigation of the frame by its own page) is refused and ends the load.

It must not know what a page says: its messages go over a port to the workspace, never through here.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from lineup_hostshell.headers import SURFACE_HEADERS, SecureAnswers
from lineup_hostshell.security import NOT_FOUND, FrontDoor, Refusal, refuse, values
from lineup_hostshell.static_files import BRIDGE_NAME
from lineup_protocol.limits import BUNDLE_BYTES_MAX, BUNDLE_PATH_BYTES_MAX

LOADS_PER_TAB_MAX = 16  # a tab shows a few; beyond it the oldest ends
LOAD_ID_BYTES = 24
NONCE_MARK = b"__LINEUP_NONCE__"

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".woff2": "font/woff2",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
    ".txt": "text/plain; charset=utf-8",
}

_METHOD = Refusal(405, "message_invalid", "surfaces are only read", ((b"allow", b"GET"),))
_DOCUMENTS = frozenset((b"document", b"iframe", b"frame", b"object", b"embed", b"fencedframe"))
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# No policy that browsers know keeps a page from sending data over WebRTC. Whatever script runs in any realm of a load
# comes from here, so each begins by taking the means away.
_DISARM = b'for(const n of["RTCPeerConnection","webkitRTCPeerConnection","WebTransport"])delete globalThis[n];'
_LINE_END = rb"[\n\r]|\xe2\x80[\xa8\xa9]"  # as JavaScript counts lines: behind a comment that ends there is code
_USE_STRICT = re.compile(
    rb"""\A(?>\s+|//(?:(?!%b).)*+(?:%b)|/\*.*?\*/)*+(?:"use strict"|'use strict')\s*;""" % (_LINE_END, _LINE_END),
    re.DOTALL,
)
_COMMENTS = rb"\s*(?:<!--.*?-->\s*)*"
_HEAD = re.compile(
    rb"\A(?:\xef\xbb\xbf)?%b(?:<!doctype[^>]*>)?%b(?:<html(?:\s[^>]*)?>)?%b(?:<head(?:\s[^>]*)?>)?"
    % ((_COMMENTS,) * 3),
    re.IGNORECASE | re.DOTALL,
)


@dataclass(eq=False)
class Load:
    """One showing of one surface in one tab."""

    load_id: str
    nonce: str
    surface_id: str
    folder: Path
    entry: str
    owner: object
    on_torn: Callable[[Load], None]
    document_sent: bool = field(default=False)

    @property
    def path(self) -> str:
        return f"/s/{self.load_id}/{self.entry}"


class SurfaceLoads:
    """The live loads. ``on_torn`` of a load is called when its page left or was reloaded, not when it was closed;
    ``on_change`` whenever others may be shown than before."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._loads: dict[str, Load] = {}  # the oldest first
        self._on_change = on_change

    def __len__(self) -> int:
        return len(self._loads)

    def open(self, owner: object, surface_id: str, folder: Path, entry: str, on_torn: Callable[[Load], None]) -> Load:
        mine = [load for load in self._loads.values() if load.owner is owner]
        for oldest in mine[: max(0, len(mine) - LOADS_PER_TAB_MAX + 1)]:
            self.close(oldest)
        load = Load(
            load_id=secrets.token_urlsafe(LOAD_ID_BYTES),
            nonce=secrets.token_urlsafe(LOAD_ID_BYTES),
            surface_id=surface_id,
            folder=folder,
            entry=entry,
            owner=owner,
            on_torn=on_torn,
        )
        self._loads[load.load_id] = load
        self._on_change()
        return load

    def shown(self) -> list[str]:
        """The ids of the surfaces that are loaded somewhere."""
        return sorted({load.surface_id for load in self._loads.values()})

    def find(self, load_id: str) -> Load | None:
        return self._loads.get(load_id)

    def close(self, load: Load) -> None:
        self._loads.pop(load.load_id, None)
        self._on_change()

    def close_all_of(self, owner: object) -> None:
        for load in [load for load in self._loads.values() if load.owner is owner]:
            self.close(load)

    def close_surface(self, surface_id: str) -> None:
        for load in [load for load in self._loads.values() if load.surface_id == surface_id]:
            self.close(load)

    def tear(self, load: Load) -> None:
        self.close(load)
        load.on_torn(load)


class SurfaceFiles:
    """The ASGI endpoint of the surface port."""

    def __init__(self, loads: SurfaceLoads, bridge: bytes | None, port: int, page_origins: Iterable[str]) -> None:
        self._loads = loads
        self._bridge = bridge
        self.origin = f"http://127.0.0.1:{port}"
        self._ancestors = " ".join(page_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await refuse(NOT_FOUND, scope, send)
        elif scope["method"] != "GET":
            await refuse(_METHOD, scope, send)
        elif (answer := await self._answer(scope)) is None:
            await refuse(NOT_FOUND, scope, send)
        else:
            media_type, content, load = answer
            headers = [
                (b"content-type", media_type.encode()),
                (b"content-length", b"%d" % len(content)),
                (b"content-security-policy", self._csp(load).encode()),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Scope) -> tuple[str, bytes, Load] | None:
        """Media type and content, or None if there is nothing at this address (any more)."""
        path = plain_path(scope["raw_path"])
        if path is None or len(path) < 3 or path[0] != "s" or (load := self._loads.find(path[1])) is None:
            return None
        name = "/".join(path[2:])
        purpose = values(scope, b"sec-fetch-dest")
        if name == load.entry:
            if load.document_sent or purpose not in ([], [b"iframe"]):
                self._loads.tear(load)
                return None
            load.document_sent = True
        elif _DOCUMENTS.intersection(purpose):
            self._loads.tear(load)
            return None
        elif name == BRIDGE_NAME:
            return self._bridge_of(load)
        media_type = MEDIA_TYPES.get(os.path.splitext(name)[1])
        if media_type is None or not self._may_show(load, path[2:]):
            return None
        content = await asyncio.to_thread(read_beneath, load.folder, path[2:])
        if content is None:
            return None
        if name == load.entry:
            content = with_bridge(content, f"/s/{load.load_id}/{BRIDGE_NAME}")
        elif media_type == MEDIA_TYPES[".js"]:
            content = disarmed(content)
        return media_type, content, load

    def _bridge_of(self, load: Load) -> tuple[str, bytes, Load] | None:
        if self._bridge is None:
            return None
        return MEDIA_TYPES[".js"], disarmed(self._bridge.replace(NONCE_MARK, load.nonce.encode())), load

    @staticmethod
    def _may_show(load: Load, path: list[str]) -> bool:
        """The folder of the page (for ``surface/board/index.html`` all of ``surface``), and no second document."""
        name = "/".join(path)
        if name == load.entry:
            return True
        return path[0] == load.entry.split("/")[0] and not name.endswith(".html")

    def _csp(self, load: Load) -> str:
        own = f"{self.origin}/s/{load.load_id}/"
        return "; ".join(
            (
                "default-src 'none'",
                f"script-src {own}",
                f"style-src {own} 'unsafe-inline'",
                f"img-src {own} data: blob:",
                f"media-src {own} data: blob:",
                "font-src data:",  # a document of opaque origin may not load a font from anywhere else
                "connect-src 'none'",
                "frame-src 'none'",
                "worker-src 'none'",
                "base-uri 'none'",
                "form-action 'none'",
                f"frame-ancestors {self._ancestors}",
                "sandbox allow-scripts",
            )
        )


def surface_app(files: SurfaceFiles, port: int) -> ASGIApp:
    """The ASGI application of the surface port: it answers to one name only, and to every origin alike."""
    return SecureAnswers(FrontDoor(files, [f"127.0.0.1:{port}".encode()], None), SURFACE_HEADERS)


def plain_path(raw_path: bytes) -> list[str] | None:
    """The segments of a path, percent-decoded once; None for everything that is not plainly below the root."""
    if not raw_path.startswith(b"/") or len(raw_path) > 3 * BUNDLE_PATH_BYTES_MAX + 100:
        return None
    segments = []
    for raw in raw_path[1:].split(b"/"):
        try:
            segment = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            return None
        if segment in ("", ".", "..") or "/" in segment or "\\" in segment or not segment.isprintable():
            return None
        segments.append(segment)
    return segments


def read_beneath(folder: Path, path: list[str]) -> bytes | None:
    """A regular file below ``folder``, reached without following any link; None if there is none."""
    opened: list[int] = []
    try:
        opened.append(os.open(folder, _FOLDER))
        for name in path[:-1]:
            opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
        with open(os.open(path[-1], _FILE, dir_fd=opened[-1]), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(BUNDLE_BYTES_MAX + 1)
            return content if len(content) <= BUNDLE_BYTES_MAX else None
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def disarmed(script: bytes) -> bytes:
    """The script, its lines where they were, behind a statement that removes what gets around the policy."""
    found = _USE_STRICT.match(script)
    at = found.end() if found is not None else 0
    return script[:at] + _DISARM + script[at:]


def with_bridge(document: bytes, bridge_path: str) -> bytes:
    """The document with the bridge as its first script."""
    found = _HEAD.match(document)
    at = found.end() if found is not None else 0
    return document[:at] + f'<script src="{bridge_path}"></script>'.encode() + document[at:]
