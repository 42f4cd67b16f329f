"""A scripted Runtime at the other end of an ``AgentLink``: the real WebSocket library, every answer by the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from lineup_protocol.envelope import check_envelope

TOKEN = "agent-token-for-tests"
WAIT_S = 5.0
AT = "2026-11-30T08:00:00Z"


class Wire:
    """One connection, seen from the Runtime. Acknowledgements are put aside."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.acks: list[int] = []
        self.closed = asyncio.Event()
        self._sent = 0

    async def expect(self, type_: str) -> dict[str, Any]:
        """The next frame that is no acknowledgement, which must be of this type."""
        async with asyncio.timeout(WAIT_S):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                check_envelope(frame)
                if frame["type"] == "lineup.v1.ack" and type_ != "ack":
                    self.acks.append(frame["payload"]["seq"])
                    continue
                assert frame["type"] == f"lineup.v1.{type_}", frame
                return frame

    async def acknowledged(self, seq: int) -> None:
        """Wait until everything up to ``seq`` is acknowledged."""
        while not self.acks or self.acks[-1] < seq:
            frame = await self.expect("ack")
            self.acks.append(frame["payload"]["seq"])
        assert self.acks[-1] == seq

    async def silent(self, wait_s: float = 0.1) -> None:
        """Nothing but acknowledgements comes for a while."""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(self.expect("nothing"), wait_s)

    async def say(self, type_: str, payload: dict[str, Any], *, seq: int | None = None, **more: Any) -> None:
        self._sent += 1
        frame = {"type": f"lineup.v1.{type_}", "message_id": f"r-{self._sent}", "sent_at": AT, "payload": payload}
        if seq is not None:
            frame |= {"seq": seq, "message_id": f"o-{seq}"}
        await self.socket.send(json.dumps(frame | more))

    async def welcome(
        self, *, acked_seq: int | None = None, revision: str = "i-1", boot_id: str = "b-1"
    ) -> dict[str, Any]:
        """See the hello, answer it and send the inventory. Returns the hello's payload."""
        hello: dict[str, Any] = (await self.expect("hello"))["payload"]
        acked = hello.get("acked_seq", 0) if acked_seq is None else acked_seq
        await self.say("welcome", {"boot_id": boot_id, "protocol": 1, "acked_seq": acked})
        await self.inventory(revision)
        return hello

    async def inventory(self, revision: str, *tool_ids: str) -> None:
        tools = [{"id": tool_id, "version": 1} for tool_id in tool_ids or ("x.do", "confirm")]
        await self.say("client.inventory", {"revision": revision, "tools": tools})

    async def accept(self, frame: dict[str, Any], **more: Any) -> None:
        await self.say("receipt", {"reply_to": frame["message_id"], "accepted": True, **more})

    async def refuse(self, frame: dict[str, Any], code: str, **more: Any) -> None:
        body = {"reply_to": frame["message_id"], "accepted": False, "code": code, "message": "said the test"}
        await self.say("receipt", body | more)

    async def result(self, seq: int, call_id: str, status: str = "completed", **more: Any) -> None:
        await self.say("tool.result", {"call_id": call_id, "status": status, "at": AT, **more}, seq=seq)

    async def text(self, seq: int, text: str) -> None:
        await self.say("message.text", {"text": text, "at": AT}, seq=seq, conversation_id="c-1")

    async def cut(self) -> None:
        """Lose the connection without a word."""
        self.socket.transport.abort()
        self.closed.set()

    async def close(self, code: int, reason: str = "") -> None:
        await self.socket.close(code, reason)
        self.closed.set()


class ScriptedRuntime:
    """Hands each connection to the test through ``connection()``."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue[Wire] = asyncio.Queue()
        self.wires: list[Wire] = []
        self.token = TOKEN
        self.server: Server
        self.refuse_with: int | None = None
        self.requests = 0

    async def start(self) -> None:
        self.server = await serve(self._serve, "127.0.0.1", 0, process_request=self._check, max_size=None)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/agent"

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests += 1
        if self.refuse_with is not None:
            return connection.respond(self.refuse_with, "refused\n")
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return connection.respond(401, "wrong token\n")
        return None

    async def _serve(self, socket: ServerConnection) -> None:
        wire = Wire(socket)
        self.wires.append(wire)
        self.connections.put_nowait(wire)
        waits = (asyncio.ensure_future(socket.wait_closed()), asyncio.ensure_future(wire.closed.wait()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def connection(self) -> Wire:
        async with asyncio.timeout(WAIT_S):
            return await self.connections.get()

    async def stop(self) -> None:
        self.server.close()
        await self.server.wait_closed()


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedRuntime]:
    runtime = ScriptedRuntime()
    await runtime.start()
    yield runtime
    await runtime.stop()


@pytest.fixture
def token() -> str:
    return TOKEN


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lineup_agent.link.RETRY_S_FIRST", 0.005)
    monkeypatch.setattr("lineup_agent.link.RETRY_S_MAX", 0.05)
