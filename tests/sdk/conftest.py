"""A Runtime that follows a script, for the SDK's own tests: it keeps no rules but what a worker needs to go on.

The same script runs over a pair of channels in memory and over a real ROUTER socket. The rules themselves are tested
elsewhere, with the real core.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol import codec
from lineup_sdk import MiniApp
from lineup_sdk.channel import Channel, ChannelClosed, memory_pair
from lineup_sdk.runner import Exit, Runner
from lineup_sdk.worker import load_app

WAIT_S = 10.0
WORKERS = Path(__file__).parents[2] / "workers" / "lineup_workers"

Body = dict[str, Any]


def welcome_body(**changes: Any) -> Body:
    context = {
        "app_scope": "probe",
        "instance_id": "i-1",
        "conversation_id": "c-1",
        "app_version": "1.0.0",
        "state": "starting",
    }
    body: Body = {
        "protocol": 1,
        "context": context,
        "entry": "app:app",
        "limits": {},
        "state": None,
        "state_revision": 0,
        "operations": [],
        "interactions": [],
        "calls": [],
        "surfaces": [],
    }
    return body | changes


class ScriptedRuntime:
    """Answers hello with ``welcome`` and every command with a receipt; keeps what was said in ``heard``."""

    def __init__(self, channel: Channel, welcome: Body | None = None) -> None:
        self.channel = channel
        self.welcome = welcome or welcome_body()
        self.heard: list[tuple[str, Body]] = []
        self.refusals: dict[str, Body] = {}  # command type → receipt fields, once or for ever
        self.held: set[str] = set()  # command types that get no receipt for now
        self.unanswered: list[tuple[str, str, Body]] = []
        self.state: Any = self.welcome["state"]
        self.state_revision: int = self.welcome["state_revision"]
        self.asked: dict[str, str] = {}  # key → interaction_id
        self.records: dict[str, Body] = {}
        self._seq = 0
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while True:
                for message in await self.channel.receive():
                    self._hear(message)
                    self._news.set()
        except ChannelClosed:
            self._news.set()

    def _hear(self, message: dict[str, Any]) -> None:
        type_, id_, body = codec.check_frame(message, "worker", from_runtime=False)
        self.heard.append((type_, body))
        if type_ == "worker.hello":
            self.say("worker.welcome", **self.welcome)
        elif id_ is not None:
            if type_ in self.held:
                self.unanswered.append((type_, id_, body))
            else:
                self.answer(type_, id_, body)

    def answer(self, type_: str, id_: str, body: Body) -> None:
        receipt = self.refusals.get(type_) or {"accepted": True, **self._detail(type_, body)}
        self.say("receipt", re=id_, **receipt)

    def release(self) -> None:
        """Answer what was held."""
        self.held.clear()
        held, self.unanswered = self.unanswered, []
        for type_, id_, body in held:
            self.answer(type_, id_, body)

    def _detail(self, type_: str, body: Body) -> Body:
        if type_ == "state.save":
            if body.get("base_revision", self.state_revision) != self.state_revision:
                return {"accepted": False, "code": "state_conflict", "message": "another save came between"}
            self.state, self.state_revision = body["state"], self.state_revision + 1
            return {"detail": {"revision": self.state_revision}}
        if type_ == "ui.request":
            return {"detail": self._ask(body)}
        if type_ == "surface.open":
            return {"detail": {"surface_id": "s-1", "revision": 0}}
        if type_ == "capability.request":
            return {"detail": {"request_id": "r-1"}}
        return {}

    def _ask(self, body: Body) -> Body:
        id_ = self.asked.get(body.get("key", "")) or f"q-{len(self.records) + 1}"
        if "key" in body:
            self.asked[body["key"]] = id_
        if id_ not in self.records:
            owner = {"source": "miniapp_tool"}
            if "parent_call_id" in body:
                owner["parent_call_id"] = body["parent_call_id"]
            self.records[id_] = {
                "interaction_id": id_,
                "kind": body["request"]["kind"],
                "request": body["request"],
                "status": "pending",
                "owner": owner,
            }
        return {"interaction_id": id_, "interaction": self.records[id_]}

    def say(self, type_: str, **body: Any) -> None:
        self.channel.send({"type": type_, "body": body})

    def deliver(self, kind: str, body: Body) -> int:
        self._seq += 1
        self.say("inbox.deliver", seq=self._seq, kind=kind, message_id=f"m-{self._seq}", body=body)
        return self._seq

    def call(self, tool_id: str, input_: Body, call_id: str = "k-1", **changes: Any) -> int:
        body = {"call_id": call_id, "tool_id": tool_id, "input": input_, "attempt": 1, "retry_safe": True}
        extra = {"inventory_revision": "1", "conversation_id": "c-1", "created_at": "2026-11-30T08:00:00Z"}
        return self.deliver("tool.call", body | extra | changes)

    def settle(self, interaction_id: str, status: str = "submitted", result: Body | None = None) -> int:
        record = self.records[interaction_id] | {"status": status}
        if result is not None:
            record["result"] = result
        self.records[interaction_id] = record
        return self.deliver("interaction.result", {"interaction": record})

    def said(self, type_: str) -> list[Body]:
        """What the worker has said of one type so far."""
        return [body for heard, body in self.heard if heard == type_]

    async def expect(self, type_: str, count: int = 1) -> Body:
        """Wait until the worker has said ``count`` messages of this type; the last of them."""
        await self.until(lambda: len(self.said(type_)) >= count, f"{count} × {type_}")
        return self.said(type_)[count - 1]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition():
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):  # what the worker does in silence brings no news
                        await asyncio.wait_for(self._news.wait(), 0.01)
        except TimeoutError:
            raise AssertionError(f"did not come to pass: {what}; heard {self.heard}") from None

    def end(self) -> None:
        self.channel.close()
        self._task.cancel()


class Run:
    """One runner in memory with its scripted Runtime."""

    def __init__(self, load: Callable[[str], MiniApp], welcome: Body | None = None) -> None:
        worker_side, runtime_side = memory_pair()
        self.runtime = ScriptedRuntime(runtime_side, welcome)
        self.runner = Runner(worker_side, load)
        self.task: asyncio.Task[Exit] = asyncio.create_task(self.runner.run())

    async def ended(self) -> Exit:
        async with asyncio.timeout(WAIT_S):
            return await self.task

    async def close(self) -> None:
        self.runtime.end()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
def welcome() -> Callable[..., Body]:
    """Makes the body of a ``worker.welcome``."""
    return welcome_body


@pytest.fixture
def scripted_runtime() -> type[ScriptedRuntime]:
    return ScriptedRuntime


@pytest.fixture
async def start_run() -> Any:
    """``await start_run(app_or_load, welcome?)`` → a ``Run`` that is ready."""
    runs: list[Run] = []

    async def start(app: MiniApp | Callable[[str], MiniApp], welcome: Body | None = None, ready: bool = True) -> Run:
        run = Run((lambda entry: app) if isinstance(app, MiniApp) else app, welcome)
        runs.append(run)
        if ready:
            await run.runtime.expect("worker.ready")
        return run

    yield start
    for run in runs:
        await run.close()


@pytest.fixture
def bundle_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], MiniApp]]:
    """Load a bundle of ``lineup_workers`` by folder name, as a worker would: fresh, from its own folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(name: str) -> MiniApp:
        sys.modules.pop("app", None)
        return load_app("app:app", str(WORKERS / name))

    yield load
    sys.modules.pop("app", None)
