"""The surface port: the pages of MiniApps, each load of one under an address of its own that nobody else knows.

Owns the live loads, and the reading of a bundle's files for them. A bundle's page is hostile: it runs in a frame of
opaque origin, gets its scripts and pictures from its own load alone, and is handed out once. Whatever comes after that
under the same address (a reload, a navigation of the frame by its own page) is refused and ends the load.

What a page asks for costs its server little, however large it is: only a file's beginning is looked at, the rest goes
through in pieces, and each load has so many bytes a second.

It must not know what a page says: its messages go over a port to the workspace, never through here.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from lineup_hostshell.headers import SURFACE_HEADERS, SecureAnswers
from lineup_hostshell.security import NOT_FOUND, FrontDoor, Refusal, refuse, values
from lineup_hostshell.static_files import BRIDGE_NAME
from lineup_protocol.limits import BUNDLE_BYTES_MAX, BUNDLE_PATH_BYTES_MAX

LOADS_PER_TAB_MAX = 16  # a tab shows a few; beyond it the oldest ends
LOAD_ID_BYTES = 24
NONCE_MARK = b"__LINEUP_NONCE__"
PIECE_BYTES = 256 * 1024  # read and sent at a time; most files are less than one
BURST_BYTES = 2 * BUNDLE_BYTES_MAX  # of one load: a whole bundle, and again
BYTES_PER_S = 8 * 1024 * 1024  # of one load after that
REQUEST_BYTES = 4 * 1024  # what one request counts for at least

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

_RATE = Refusal(429, "rate_limited", "this load asks for too much at once", ((b"retry-after", b"1"),))
_METHOD = Refusal(405, "message_invalid", "surfaces are only read", ((b"allow", b"GET"),))
_DOCUMENTS = frozenset((b"document", b"iframe", b"frame", b"object", b"embed", b"fencedframe"))
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# No policy that browsers know keeps a page from sending data over WebRTC. Whatever script runs in any realm of a load
# comes from here, so each begins by taking the means away.
_DISARM = b'for(const n of["RTCPeerConnection","webkitRTCPeerConnection","WebTransport"])delete globalThis[n];'
# The statement stands before all of a script, on its first line. A strict script would so become a sloppy one: its
# directive is said again in front. Only so much of a file is looked at for it, or for where a document's head begins.
_STRICT = b'"use strict";'
_DIRECTIVE_WITHIN_BYTES = 4 * 1024
_HEAD_WITHIN_BYTES = 64 * 1024
_LINE_END = rb"[\n\r]|\xe2\x80[\xa8\xa9]"  # as JavaScript counts lines: behind a comment that ends there is code
_USE_STRICT = re.compile(
    rb"""\A(?:\xef\xbb\xbf)?(?>\s+|//(?:(?!%b).)*+(?:%b)|/\*.*?\*/)*+(?:"use strict"|'use strict')\s*;"""
    % (_LINE_END, _LINE_END),
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
    _credit_bytes: float = field(default=BURST_BYTES)
    _credited_at: float = field(default_factory=time.monotonic)

    @property
    def path(self) -> str:
        return f"/s/{self.load_id}/{self.entry}"

    def takes(self, size: int, now: float) -> bool:
        """False if this is more than it may have by ``now`` (monotonic seconds); then it has not taken it."""
        self._credit_bytes = min(BURST_BYTES, self._credit_bytes + (now - self._credited_at) * BYTES_PER_S)
        self._credited_at = now
        size = max(size, REQUEST_BYTES)
        if size > self._credit_bytes:
            return False
        self._credit_bytes -= size
        return True


@dataclass
class Answer:
    """A file on its way: what stands before it, then what is left of it."""

    media_type: str
    load: Load
    begin: bytes
    rest: BinaryIO | None
    size: int

    def read(self) -> bytes:
        return self.rest.read(PIECE_BYTES) if self.rest is not None else b""

    def close(self) -> None:
        if self.rest is not None:
            self.rest.close()


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
            try:
                if answer.load.takes(answer.size, time.monotonic()):
                    await self._send(answer, send)
                else:
                    await refuse(_RATE, scope, send)
            finally:
                answer.close()

    async def _send(self, answer: Answer, send: Send) -> None:
        headers = [
            (b"content-type", answer.media_type.encode()),
            (b"content-length", b"%d" % answer.size),
            (b"content-security-policy", self._csp(answer.load).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        piece, left = answer.begin, answer.size - len(answer.begin)
        while left and piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = (await asyncio.to_thread(answer.read))[:left]
            left -= len(piece)
        await send({"type": "http.response.body", "body": piece})

    async def _answer(self, scope: Scope) -> Answer | None:
        """None if there is nothing at this address (any more)."""
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
        return await asyncio.to_thread(self._open, load, path[2:], media_type)

    @staticmethod
    def _open(load: Load, path: list[str], media_type: str) -> Answer | None:
        file = open_beneath(load.folder, path)
        if file is None:
            return None
        try:
            size, first = os.fstat(file.fileno()).st_size, file.read(PIECE_BYTES)
        except OSError:
            file.close()
            return None
        begin = first
        if "/".join(path) == load.entry:
            begin = with_bridge(first, f"/s/{load.load_id}/{BRIDGE_NAME}")
        elif media_type == MEDIA_TYPES[".js"]:
            begin = disarmed(first)
        if size > len(first):
            return Answer(media_type, load, begin, file, size + len(begin) - len(first))
        file.close()
        return Answer(media_type, load, begin, None, len(begin))

    def _bridge_of(self, load: Load) -> Answer | None:
        if self._bridge is None:
            return None
        script = disarmed(self._bridge.replace(NONCE_MARK, load.nonce.encode()))
        return Answer(MEDIA_TYPES[".js"], load, script, None, len(script))

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


def open_beneath(folder: Path, path: list[str]) -> BinaryIO | None:
    """A regular file below ``folder``, not larger than a bundle, reached without following any link; or None."""
    opened: list[int] = []
    try:
        opened.append(os.open(folder, _FOLDER))
        for name in path[:-1]:
            opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
        file = open(os.open(path[-1], _FILE, dir_fd=opened[-1]), "rb", buffering=0)  # noqa: SIM115
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_size <= BUNDLE_BYTES_MAX:
            return file
        file.close()
        return None
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def disarmed(script: bytes) -> bytes:
    """The script, its lines where they were, behind a statement that removes what gets around the policy.

    ``script`` may be the beginning of one.
    """
    is_strict = _USE_STRICT.match(script[:_DIRECTIVE_WITHIN_BYTES]) is not None
    return (_STRICT if is_strict else b"") + _DISARM + script


def with_bridge(document: bytes, bridge_path: str) -> bytes:
    """The document, or the beginning of one, with the bridge as its first script."""
    found = _HEAD.match(document[:_HEAD_WITHIN_BYTES])
    at = found.end() if found is not None else 0
    return document[:at] + f'<script src="{bridge_path}"></script>'.encode() + document[at:]
