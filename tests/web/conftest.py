"""A real hostshell server on a loopback port, with a scripted Runtime (a ROUTER socket) behind it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
import zmq
import zmq.asyncio

from lineup_hostshell.agent_link import AgentLinks, LinkLimits
from lineup_hostshell.runtime_link import RuntimeLink
from lineup_hostshell.server import LoopbackServer, bind_loopback, build_app
from lineup_hostshell.workspace import Workspace
from lineup_hostshell.workspace_link import TabLimits
from lineup_protocol.codec import decode_message, encode_message
from lineup_protocol.errors import LineUpError

TOKEN = "t0ken-for-tests-4f0c"
WAIT_S = 5.0


class ScriptedRuntime:
    """The Runtime's end of the host link. Answers hello by itself and nothing else."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.context = zmq.asyncio.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(f"ipc://{run_dir / 'host.sock'}")
        self.inbox: asyncio.Queue[tuple[bytes, str, str | None, dict[str, Any]]] = asyncio.Queue()
        self.settings: dict[str, Any] = {"agent_token": TOKEN}
        self.refuse_hello = False
        self.peer = b""
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            peer, data = await self.socket.recv_multipart()
            type_, id_, body = decode_message(data, "host", from_runtime=False)
            if type_ == "host.hello":
                self.peer = peer
                if self.refuse_hello:
                    await self.say("host.refuse", {"code": "protocol_unsupported", "message": "too old"})
                else:
                    welcome = {"protocol": 1, "boot_id": "b-1", "version": "0.1.0", "settings": self.settings}
                    await self.say("host.welcome", welcome)
            self.inbox.put_nowait((peer, type_, id_, body))

    async def say(self, type_: str, body: dict[str, Any]) -> None:
        await self.socket.send_multipart([self.peer, encode_message(type_, body, link="host", from_runtime=True)])

    async def answer(self, id_: str, detail: Any = None, *, code: str | None = None) -> None:
        body: dict[str, Any] = {"re": id_, "accepted": code is None}
        body |= {"detail": detail} if code is None else {"code": code, "message": "refused in a test"}
        await self.say("host.result", body)

    async def expect(self, type_: str) -> tuple[str | None, dict[str, Any]]:
        """The next message, which must be of this type."""
        async with asyncio.timeout(WAIT_S):
            _, got, id_, body = await self.inbox.get()
        assert got == type_, (got, body)
        return id_, body

    def close(self) -> None:
        self.task.cancel()
        self.socket.close()
        self.context.term()


class Shell:
    """A hostshell assembled inside the test: link, agent endpoint, server."""

    def __init__(self, runtime: ScriptedRuntime, limits: LinkLimits) -> None:
        self.runtime = runtime
        self.limits = limits

    async def start(self) -> None:
        handlers = {
            "agent.send": lambda body: self.agents.deliver(body),
            "agent.close": lambda body: self.agents.close(body),
        }
        self.link = RuntimeLink(self.runtime.run_dir, "hostshell", handlers)
        await self.link.connect()
        await self.runtime.expect("host.hello")
        self.agents = AgentLinks(self.link.send, TOKEN, self.limits)
        listener = bind_loopback(0)
        self.port = listener.getsockname()[1]
        self.server = LoopbackServer(build_app(self.port, self.agents), listener)
        await self.server.start()
        self.url = f"ws://127.0.0.1:{self.port}/agent"

    async def stop(self) -> None:
        self.agents.close_all(1001, "the test is over")
        await self.server.stop()
        self.link.close()


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("h") / "run"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
async def runtime(run_dir: Path) -> AsyncIterator[ScriptedRuntime]:
    scripted = ScriptedRuntime(run_dir)
    yield scripted
    scripted.close()


@pytest.fixture
def link_limits() -> LinkLimits:
    return LinkLimits()


@pytest.fixture
async def shell(runtime: ScriptedRuntime, link_limits: LinkLimits) -> AsyncIterator[Shell]:
    assembled = Shell(runtime, link_limits)
    await assembled.start()
    yield assembled
    await assembled.stop()


class RawPeer:
    """A TCP connection that says exactly what a test wants to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers (lower case) of the next answer."""
        async with asyncio.timeout(WAIT_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, found, value = line.partition(":")
            if found:
                assert name.lower() not in headers, f"{name} comes twice"
                headers[name.lower()] = value.strip()
        return int(lines[0].split()[1]), headers

    async def body(self, headers: dict[str, str]) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readexactly(int(headers["content-length"]))

    async def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next (unmasked, unfragmented) WebSocket frame."""
        async with asyncio.timeout(WAIT_S):
            first, second = await self.reader.readexactly(2)
            length = second & 0x7F
            if length >= 126:
                length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8), "big")
            return first & 0x0F, await self.reader.readexactly(length)

    async def close_code(self) -> int:
        """Skip to the close frame and return its code."""
        while True:
            opcode, payload = await self.frame()
            if opcode == 8:
                return int.from_bytes(payload[:2], "big")

    async def at_end(self) -> bool:
        """True once the server has closed the connection."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionResetError):
                while await self.reader.read(65536):
                    pass
        return True


def ws_frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """A masked client frame; the mask is zero, so the payload stays readable."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return bytes([(0x80 if fin else 0) | opcode]) + length + b"\0\0\0\0" + payload


def upgrade(port: int, *extra: str, path: str = "/agent", host: str | None = "own", token: str | None = TOKEN) -> bytes:
    """The bytes of a WebSocket handshake."""
    lines = [f"GET {path} HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines.append(f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}")
    if host is not None:
        lines.append(f"Host: 127.0.0.1:{port}" if host == "own" else f"Host: {host}")
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, *extra, "", ""]).encode()


Dial = Callable[[], Any]


@pytest.fixture
async def dial(shell: Shell) -> AsyncIterator[Dial]:
    """Opens raw connections to the shell and closes them all at the end."""
    peers: list[RawPeer] = []

    async def connect() -> RawPeer:
        peers.append(RawPeer(*await asyncio.open_connection("127.0.0.1", shell.port)))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.writer.close()


@pytest.fixture
def wire() -> Any:
    """The helpers above, for tests in this folder (test folders are no packages)."""

    class Wire:
        frame = staticmethod(ws_frame)
        upgrade = staticmethod(upgrade)
        token = TOKEN
        wait_s = WAIT_S

    return Wire


# the workspace


class Answers:
    """The Runtime's side of what a workspace asks: from tables, at once, unless a name is in ``held``."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        self.runtime = runtime
        self.queries: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.actions: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.snapshot: dict[str, Any] = {"revision": 7, "conversations": []}
        self.held: set[str] = set()
        self.waiting: dict[str, list[str]] = {}
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.shown: list[list[str]] = []
        self.task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            _, type_, id_, body = await self.runtime.inbox.get()
            name = body.get("name", type_)
            if name == "pages.shown":  # hostshell's own word, which no page has asked for
                self.shown.append(body["args"]["surface_ids"])
            else:
                self.seen.append((name, body))
            if name in self.held:
                self.waiting.setdefault(name, []).append(id_ or "")
            elif id_ is not None:
                await self._answer(id_, type_, name, body)

    async def _answer(self, id_: str, type_: str, name: str, body: dict[str, Any]) -> None:
        if type_ == "host.subscribe":
            await self.runtime.answer(id_, self.snapshot)
            return
        table = self.queries if type_ == "host.query" else self.actions
        try:
            await self.runtime.answer(id_, table[name](body["args"]) if name in table else {"echo": body})
        except LineUpError as error:
            await self.runtime.answer(id_, code=error.code)

    async def delta(self, revision: int, *changes: dict[str, Any]) -> None:
        await self.runtime.say("host.delta", {"revision": revision, "changes": list(changes)})

    async def delta_too_large(self, revision: int) -> None:
        await self.runtime.say("host.delta", {"revision": revision})

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110  (the condition is anything that a test can ask)
                await asyncio.sleep(0.005)


class Page:
    """One tab of a workspace: frames in order, nothing interpreted."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.nonce = ""
        self.hello: dict[str, Any] = {}

    async def say(self, frame: Any) -> None:
        await self.socket.send(json.dumps(frame) if not isinstance(frame, str | bytes) else frame)

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next frame, which must be of this kind."""
        async with asyncio.timeout(WAIT_S):
            frame: dict[str, Any] = json.loads(await self.socket.recv())
        assert frame["t"] == kind, frame
        return frame

    async def enter(self, token: str) -> dict[str, Any]:
        """Authenticate; the snapshot."""
        await self.say({"t": "auth", "token": token})
        self.hello = await self.hear("hello")
        snapshot: dict[str, Any] = (await self.hear("snapshot"))["snapshot"]
        return snapshot

    async def ask(self, name: str, **args: Any) -> dict[str, Any]:
        await self.say({"t": "query", "id": "q-1", "name": name, "args": args})
        return await self.hear("result")

    async def act(self, name: str, action_id: str = "a-1", **args: Any) -> dict[str, Any]:
        await self.say({"t": "action", "id": "x-1", "action_id": action_id, "name": name, "args": args})
        return await self.hear("result")

    async def close_code(self) -> int:
        async with asyncio.timeout(WAIT_S):
            await self.socket.wait_closed()
        return int(self.socket.close_code)


class WorkspaceShell(Shell):
    """A hostshell with a workspace: made-up pages in ``static``, bundles in the home's ``apps``."""

    def __init__(self, runtime: ScriptedRuntime, static: Path, limits: TabLimits) -> None:
        super().__init__(runtime, LinkLimits())
        self.static = static
        self.tab_limits = limits
        self.pages: list[Page] = []

    async def start(self) -> None:
        self.link = RuntimeLink(self.runtime.run_dir, "hostshell", {"host.delta": self._delta})
        welcome = await self.link.connect()
        await self.runtime.expect("host.hello")
        self.answers = Answers(self.runtime)
        self.agents = AgentLinks(self.link.send, TOKEN, self.limits)
        listener = bind_loopback(0)
        self.port = listener.getsockname()[1]
        self.workspace = Workspace(
            self.runtime.run_dir, self.link, welcome, TOKEN, self.port, static=self.static, limits=self.tab_limits
        )
        self.surface_port = int(self.workspace.surface_origin.rpartition(":")[2])
        self.server = LoopbackServer(build_app(self.port, self.agents, self.workspace.routes), listener)
        await self.server.start()
        await self.workspace.start()

    def _delta(self, body: dict[str, Any]) -> None:
        self.workspace.links.delta(body)

    @property
    def token(self) -> str:
        return self.workspace.sessions.issue()[0]

    async def open_page(self, **headers: str) -> Page:
        """A tab that has heard the challenge."""
        socket = await websockets.connect(
            f"ws://127.0.0.1:{self.port}/workspace", additional_headers=headers, max_size=None, proxy=None
        )
        page = Page(socket)
        self.pages.append(page)
        page.nonce = (await page.hear("challenge"))["nonce"]
        return page

    async def enter(self) -> Page:
        page = await self.open_page()
        await page.enter(self.token)
        return page

    async def stop(self) -> None:
        for page in self.pages:
            page.socket.transport.abort()
        await asyncio.gather(self.workspace.stop(), self.server.stop())
        self.answers.task.cancel()
        self.link.close()


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A built workspace, and beside its files some that must never be served."""
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>LineUp</title>")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "index-4f0c.js").write_text("export {}")
    (folder / "lineup-bridge.js").write_text('(() => { const nonce = "__LINEUP_NONCE__"; })()')
    (folder / ".stamp").write_text("1")
    (folder / "notes.md").write_text("not a page")
    (tmp_path / "outside.js").write_text("outside")
    (folder / "link.js").symlink_to(tmp_path / "outside.js")
    return folder


@pytest.fixture
def tab_limits() -> TabLimits:
    return TabLimits()


@pytest.fixture
async def workspace(runtime: ScriptedRuntime, static: Path, tab_limits: TabLimits) -> AsyncIterator[WorkspaceShell]:
    assembled = WorkspaceShell(runtime, static, tab_limits)
    await assembled.start()
    yield assembled
    await assembled.stop()


Fetch = Callable[..., Awaitable[tuple[int, dict[str, str], bytes]]]


@pytest.fixture
async def fetch(workspace: WorkspaceShell) -> AsyncIterator[Fetch]:
    """One raw HTTP/1.1 request to a port of the workspace (its main port by default): status, headers, body."""
    peers: list[RawPeer] = []

    async def request(
        target: str, *headers: str, method: str = "GET", body: bytes | None = None, port: int = 0, host: str = "own"
    ) -> tuple[int, dict[str, str], bytes]:
        port = port or workspace.port
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"Host: 127.0.0.1:{port}" if host == "own" else f"Host: {host}"] if host else []
        lines += [f"Content-Length: {len(body)}"] if body is not None else []
        peer = RawPeer(*await asyncio.open_connection("127.0.0.1", port))
        peers.append(peer)
        peer.writer.write("\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + (body or b""))
        status, answered = await peer.head()
        has_body = method != "HEAD" and status not in (101, 304)
        return status, answered, await peer.body(answered) if has_body else b""

    yield request
    for peer in peers:
        peer.writer.close()


DIGEST = "d" * 64


@pytest.fixture
def bundle(workspace: WorkspaceShell) -> Path:
    """A bundle in the home, open as surface ``f-1``; beside its page, what must never be served."""
    folder = workspace.runtime.run_dir.parent / "apps" / DIGEST
    (folder / "surface" / "parts").mkdir(parents=True)
    page = "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'><script src='main.js'></script>"
    files = {
        "app.py": "secret code",
        "miniapp.json": "{}",
        "other.html": "other",
        "surface/index.html": page,
        "surface/second.html": "second",
        "surface/main.js": "main",
        "surface/style.css": "style",
        "surface/notes.md": "notes",
        "surface/parts/a b é.png": "png",
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "surface" / "link.js").symlink_to(folder / "app.py")
    (folder / "surface" / "out").symlink_to("/etc")
    (folder / "surface" / "folder.js").mkdir()
    os.mkfifo(folder / "surface" / "pipe.js")
    surface = {"surface_id": "f-1", "digest": DIGEST, "entry": "surface/index.html", "title": "Board"}
    surface |= {"revision": 3, "state": {"a": 1}, "status": "open"}
    workspace.answers.queries["surface"] = lambda args: surface
    return folder
