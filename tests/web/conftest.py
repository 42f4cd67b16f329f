"""A real hostshell server on a loopback port, with a scripted Runtime (a ROUTER socket) behind it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from lineup_hostshell.agent_link import AgentLinks, LinkLimits
from lineup_hostshell.runtime_link import RuntimeLink
from lineup_hostshell.server import LoopbackServer, bind_loopback, build_app
from lineup_protocol.codec import decode_message, encode_message

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
        await self.socket.send_multipart([self.peer, encode_message(type_, body, link="host")])

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
    path = tmp_path_factory.mktemp("r")
    path.chmod(0o700)
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
