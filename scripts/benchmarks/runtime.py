"""Starts a real Runtime in a temporary home for a benchmark and talks to it as an agent would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import websockets

HERE = Path(__file__).resolve().parent
READY_S_MAX = 60


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """An empty home on the disk where a user's would be."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix="lineup-bench-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def running(at: Path, *options: str) -> Iterator[dict[str, Any]]:
    """A daemon on ``at``; yields its runtime.json and ends it cleanly."""
    daemon = subprocess.Popen(
        [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(at), "--port", "0", *options],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield wait_ready(at, daemon)
    finally:
        daemon.terminate()
        daemon.wait(30)


def wait_ready(at: Path, daemon: subprocess.Popen[bytes]) -> dict[str, Any]:
    ready = at / "run" / "runtime.json"
    give_up = time.monotonic() + READY_S_MAX
    while time.monotonic() < give_up:
        if daemon.poll() is not None:
            raise RuntimeError(f"the daemon ended with {daemon.returncode}")
        with contextlib.suppress(FileNotFoundError, ValueError):
            facts: dict[str, Any] = json.loads(ready.read_text())
            if facts["pid"] == daemon.pid:
                return facts
        time.sleep(0.002)
    raise TimeoutError("the daemon was not ready in time")


def cli(at: Path, *arguments: str) -> str:
    environment = {**os.environ, "LINEUP_HOME": str(at)}
    command = [sys.executable, "-m", "lineup_hostshell.cli.main", *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


class Agent:
    """A bare agent: raw frames on one WebSocket, nothing of ours in between."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._results: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.revision = ""
        self.ready = asyncio.Event()
        self.on_result: Callable[[dict[str, Any]], None] = lambda payload: None
        self._seq = 0
        self._unacked = 0

    async def send(self, type_: str, payload: dict[str, Any], conversation: str | None = None) -> None:
        frame = {"type": f"lineup.v1.{type_}", "message_id": uuid.uuid4().hex, "sent_at": "2026-01-01T00:00:00Z"}
        await self._socket.send(
            json.dumps(frame | {"payload": payload} | ({"conversation_id": conversation} if conversation else {}))
        )

    async def read(self) -> None:
        async for text in self._socket:
            frame = json.loads(text)
            kind = frame["type"].removeprefix("lineup.v1.")
            if kind == "client.inventory":
                self.revision = frame["payload"]["revision"]
                self.ready.set()
            if "seq" in frame:
                self._seq = frame["seq"]
                self._unacked += 1
                if self._unacked >= 32:
                    self._unacked = 0
                    await self.send("ack", {"seq": self._seq})
            if kind == "tool.result":
                self.on_result(frame["payload"])
                waiting = self._results.pop(frame["payload"]["call_id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame["payload"])

    async def call(self, tool_id: str, input_: dict[str, Any], conversation: str, call_id: str = "") -> dict[str, Any]:
        call_id = call_id or uuid.uuid4().hex
        waiting = self._results[call_id] = asyncio.get_running_loop().create_future()
        payload = {"call_id": call_id, "tool_id": tool_id, "inventory_revision": self.revision, "input": input_}
        await self.send("tool.call", payload, conversation)
        return await asyncio.wait_for(waiting, 60)


@contextlib.asynccontextmanager
async def agent(facts: dict[str, Any], at: Path, agent_id: str = "bench") -> AsyncIterator[Agent]:
    token = (at / "run" / "agent.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with websockets.connect(facts["agent_url"], additional_headers=headers, proxy=None) as socket:
        me = Agent(socket)
        reader = asyncio.create_task(me.read())
        await me.send("hello", {"agent_id": agent_id, "protocol": 1})
        await asyncio.wait_for(me.ready.wait(), 10)
        try:
            yield me
        finally:
            reader.cancel()
