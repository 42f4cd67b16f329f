"""One Runtime at one isolation level, an agent on it, and what an attack has done to the supervisor and to others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil

from processes.support.agent import Agent
from processes.support.runtime import Runtime, runtime

BUNDLES = Path(__file__).resolve().parent.parent / "bundles"
RSS_GROWTH_BYTES_MAX = 64 * 1024 * 1024
P99_S_MAX = 0.1
ROUNDS = 3  # a shared machine has bad moments; a fault of ours comes back every time
CALLS_MIN = 100
# An attack is one crash among many here; what happens after too many of them has tests of its own.
CONFIG = """
[workers]
heartbeat_ms = 2000
missed_heartbeats_max = 3
[restarts]
max = 1000
quarantine_after = 1000
"""
APPARMOR = "bwrap: setting up uid map: Permission denied"


def broken_bwrap(folder: Path, says: str = APPARMOR) -> str:
    """A folder for PATH with a bubblewrap that fails as on a machine that forbids it."""
    folder.mkdir(exist_ok=True)
    stub = folder / "bwrap"
    stub.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    stub.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def variant(bundle: str, folder: Path, **changes: Any) -> Path:
    """A copy of a bundle whose manifest says other things."""
    made = folder / f"{bundle}-{len(list(folder.iterdir())) if folder.exists() else 0}"
    shutil.copytree(BUNDLES / bundle, made, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = json.loads((made / "miniapp.json").read_text())
    (made / "miniapp.json").write_text(json.dumps(manifest | changes))
    for path in made.rglob("*"):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IWUSR)
    return made


@contextlib.contextmanager
def started(level: str, *bundles: str, config: str = CONFIG) -> Iterator[Runtime]:
    """A Runtime that holds this level, with these bundles; it ends cleanly, and leaves nothing."""
    environment = {}
    with runtime(config + ("" if level == "S3" else f'[isolation]\nminimum = "{level}"\n')) as made:
        if level != "S3":
            environment["PATH"] = broken_bwrap(made.home.parent / "bin")
        facts = made.start(**environment)
        assert facts["isolation"] == level, made.log()
        for name in bundles:
            made.add(BUNDLES / name if level == "S3" else variant(name, made.home.parent / "v", min_isolation=level))
        yield made
        assert made.stop() == 0, made.errors()
        made.assert_clean()
        assert "internal_error" not in made.errors()
        assert not [row for row in made.log() if row.get("story")], "the Runtime failed inside"


class Stage:
    """An agent on a running Runtime; each attack gets a conversation of its own."""

    _numbers = itertools.count(1)

    def __init__(self, made: Runtime, agent: Agent) -> None:
        self.runtime = made
        self.agent = agent

    async def call(
        self, tool_id: str, input_: dict[str, Any] | None = None, conversation: str = "", within_s: float = 30.0
    ) -> dict[str, Any]:
        """The result's payload."""
        call_id = await self.begin(tool_id, input_, conversation)
        return await self.agent.result(call_id, within_s)

    async def begin(self, tool_id: str, input_: dict[str, Any] | None = None, conversation: str = "") -> str:
        """The call's id."""
        number = next(self._numbers)
        call_id = f"k-{number}"
        conversation = conversation or f"c-{self.agent.agent_id}-{number}"
        await self.agent.call(tool_id, input_ or {}, call_id=call_id, conversation=conversation)
        return call_id

    async def completed(self, tool_id: str, input_: dict[str, Any] | None = None, conversation: str = "") -> Any:
        payload = await self.call(tool_id, input_, conversation)
        assert payload["status"] == "completed", payload
        return payload["result"]

    async def tried(self, tool_id: str, input_: dict[str, Any] | None = None) -> tuple[str, Any]:
        """A call's id and its result."""
        call_id = await self.begin(tool_id, input_)
        payload = await self.agent.result(call_id)
        assert payload["status"] == "completed", payload
        return call_id, payload["result"]

    async def denied(self, call_id: str) -> set[str]:
        """What the audit says that the worker of a call was kept from."""
        rows = await self.audited("worker.denied", call_id)
        told = [row["detail"]["operation"] for row in rows]
        assert len(told) == len(set(told)), "each is told once"
        return set(told)

    async def audited(self, kind: str, call_id: str = "") -> list[dict[str, Any]]:
        """Rows of this kind; with a call, those of the instance that it went to."""
        rows, _ = await asyncio.to_thread(self.runtime.audit)
        if call_id:
            routed = [row for row in rows if row["kind"] == "call.routed" and call_id in row["subjects"]]
            instance_id = routed[0]["subjects"][1]
            rows = [row for row in rows if instance_id in row["subjects"]]
        return [row for row in rows if row["kind"] == kind]


@contextlib.asynccontextmanager
async def agent_on(made: Runtime, name: str) -> AsyncIterator[Stage]:
    agent = Agent(made, name)
    await agent.connect()
    try:
        yield Stage(made, agent)
    finally:
        await agent.leave()


class Meter:
    """Samples the supervisor's resident memory while somebody works beside the attack."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.before = self._process.memory_info().rss
        self.peak = self.before
        self.latencies: list[float] = []
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._over.wait(0.01):
            with contextlib.suppress(psutil.Error):
                self.peak = max(self.peak, self._process.memory_info().rss)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.peak - self.before

    @property
    def p99(self) -> float:
        return sorted(self.latencies)[int(0.99 * (len(self.latencies) - 1))]


async def work_beside(stage: Stage, meter: Meter, enough: asyncio.Event) -> None:
    """One call of the bystander after the other, until it is enough and there are enough of them."""
    while not enough.is_set() or len(meter.latencies) < CALLS_MIN:
        began = time.perf_counter()
        result = await stage.completed("bystander.echo", {"text": "still here"}, f"calm-{stage.agent.agent_id}")
        meter.latencies.append(time.perf_counter() - began)
        assert result["text"] == "still here"


async def measured(stage: Stage, attack: Any) -> tuple[Any, Meter]:
    """Run ``attack()`` (makes an awaitable) beside a working bystander; what it gave, and what it cost them."""
    await stage.completed("bystander.echo", {"text": "warm"}, f"calm-{stage.agent.agent_id}")
    enough = asyncio.Event()
    with Meter(stage.runtime.pid) as meter:
        working = asyncio.create_task(work_beside(stage, meter, enough))
        try:
            outcome = await attack()
        finally:
            enough.set()
            await working
    return outcome, meter


costs: list[tuple[str, float, float | None, int]] = []  # of each attack: its test, p99 beside it and without, growth


async def assert_harmless(stage: Stage, attack: Any, rounds: int = ROUNDS) -> Any:
    """The attack costs the supervisor no memory and the others no time, at least once in a few rounds; its outcome.

    A machine that is busy with something else is slow without any attack, too: then that is the measure.
    """
    for _ in range(rounds):
        outcome, meter = await measured(stage, attack)
        assert meter.growth < RSS_GROWTH_BYTES_MAX, f"the supervisor grew by {meter.growth} bytes"
        calm = None
        if meter.p99 >= P99_S_MAX:
            calm = (await measured(stage, lambda: asyncio.sleep(0)))[1].p99
        costs.append((stage.agent.agent_id, meter.p99, calm, meter.growth))
        if calm is None or meter.p99 < 3 * calm:
            return outcome
    raise AssertionError(f"p99 of others is {meter.p99:.3f} s beside the attack, {calm:.3f} s without")
