"""Deadline operations: what a hundred thousand pending ones cost, and how late a thousand are decided under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil
import runtime
from fill import Filler

from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.ctx import META_KEY
from lineup_supervisor.core.schema import (
    AGENTS,
    AUDIT,
    AUDIT_BY_SUBJECT,
    META,
    OPERATIONS,
    RECEIPT_RING,
    RECEIPTS,
    SCHEMA_VERSION,
    TABLES,
    TIMER_DUE,
    TIMERS,
    WORKERS,
    TimerRow,
)
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_rows import decode_row, encode_row

PENDING = 100_000
PER_AGENT = 1_000  # below the number of calls that one agent may have open
SPREAD, SPREAD_S = 1_000, 10
CALLS_PER_S = 100
YEAR_S = 365 * 86_400
IDLE_S = 10.0
STARTS = 5
BEFORE_FIRST_MS = 8_000  # the daemon has to be ready, and its worker warm, before the first one ends
# The first session's ids carry these; each copy gets its own in the same length.
CONVERSATION, AGENT = "n000000", "agent-000"
COPIED_AT_ONCE = 2_000
# Chained, numbered or gone at the next start: nothing that a pending operation consists of.
_NOT_COPIED = (AUDIT, AUDIT_BY_SUBJECT, META, AGENTS, RECEIPTS, RECEIPT_RING, WORKERS)


@dataclass(frozen=True)
class Cost:
    start_ratio: float
    idle_percent: float


@dataclass(frozen=True)
class Accuracy:
    decided_ms: float
    heard_ms: float
    early: int


class Sessions(Filler):
    """Starts focus sessions; their worker takes the delivery over and goes."""

    def now(self) -> ev.Now:
        self._ms += 1
        return ev.Now(wall_ms=time.time_ns() // 1_000_000, steady_ms=self._ms)

    def _react(self, effect: fx.Effect) -> list[ev.Event]:
        if isinstance(effect, fx.StartWorker):
            self._worker = {"instance_id": effect.instance_id, "incarnation": effect.incarnation}
        return super()._react(effect)

    def begin(self, agent_id: str) -> None:
        self.run(ev.Boot(event_id=self.event_id(), boot_id="fill", isolation="S3"))
        self.run(self.frame("hello", {"agent_id": agent_id, "protocol": 1}))

    def session(self, name: str, seconds: int) -> None:
        """One accepted start; ``name`` is in every id that it makes."""
        payload = {"call_id": f"k-{name}", "tool_id": "pomodoro.start", "inventory_revision": self._revision}
        frame = self.frame("tool.call", payload | {"input": {"duration_seconds": seconds}}, f"c-{name}")
        self.run(msgspec.structs.replace(frame, event_id=f"e-{name}"))
        self.run(ev.WorkerExited(event_id=self.event_id(), reason="runtime_restart", **self._worker))


def _open(home: Path) -> Store:
    return Store.open(home / "data", TABLES, schema_version=SCHEMA_VERSION)


def fill(home: Path, count: int) -> None:
    """Leave ``count`` focusing operations, each in a conversation of its own, that end in a year."""
    store = _open(home)
    try:
        sessions = Sessions(home, store)
        sessions.begin(AGENT)
        sessions.session(CONVERSATION, YEAR_S)
        _copy(store, count)
    finally:
        store.close()


def _copy(store: Store, count: int) -> None:
    """The first session's rows under other ids: by the core it would take minutes."""
    with store.read() as txn:
        rows = [
            (table, key, encode_row(row))
            for table in TABLES
            if table not in _NOT_COPIED
            for key, row in txn.scan(table)
            if any(CONVERSATION in str(part) for part in key)
        ]
        agent, meta = txn.get(AGENTS, (AGENT,)), txn.get(META, META_KEY)
    assert agent is not None
    assert meta is not None
    assert len(rows) > 10, "a session consists of more"

    def write(numbers: range) -> Callable[[Any], None]:
        def work(txn: Any) -> None:
            for n in numbers:
                names = ((CONVERSATION, f"n{n:06d}"), (AGENT, f"agent-{n // PER_AGENT:03d}"))
                for table, key, raw in rows:
                    txn.put(table, tuple(_renamed(part, names) for part in key), _renamed_row(table, raw, names))

        return work

    for first in range(1, count, COPIED_AT_ONCE):
        store.transact(write(range(first, min(count, first + COPIED_AT_ONCE))))

    def add_up(txn: Any) -> None:
        for n in range(count // PER_AGENT):
            agent_id = f"agent-{n:03d}"
            row = msgspec.structs.replace(agent, agent_id=agent_id, link_id=None, in_flight=PER_AGENT)
            txn.put(AGENTS, (agent_id,), row)
        txn.put(META, META_KEY, msgspec.structs.replace(meta, operations_pending=count, conversations=count))

    store.transact(add_up)


def _renamed(part: str | int, names: tuple[tuple[str, str], ...]) -> str | int:
    if isinstance(part, str):
        for old, new in names:
            part = part.replace(old, new)
    return part


def _renamed_row(table: Any, raw: bytes, names: tuple[tuple[str, str], ...]) -> Any:
    for old, new in names:
        raw = raw.replace(old.encode(), new.encode())
    return decode_row(table, raw)


def _start_s(home: Path) -> float:
    begin = time.perf_counter()
    with runtime.running(home, "--no-web"):
        return time.perf_counter() - begin


def cost() -> Cost:
    """Start of the daemon and its processor time at rest, with ``PENDING`` operations against none."""
    with runtime.home() as empty, runtime.home() as full:
        for home in (empty, full):
            _start_s(home)  # the first one makes the store and installs the MiniApps
        fill(full, PENDING)
        pairs = [(_start_s(empty), _start_s(full)) for _ in range(STARTS)]  # in turns, so that a busy moment hits both
        with runtime.running(full, "--no-web") as facts:
            daemon = psutil.Process(facts["pid"])
            before, begin = daemon.cpu_times(), time.perf_counter()
            time.sleep(IDLE_S)
            after, took = daemon.cpu_times(), time.perf_counter() - begin
    used = after.user + after.system - before.user - before.system
    fastest_empty, fastest_full = (min(times) for times in zip(*pairs, strict=True))
    return Cost(fastest_full / fastest_empty, 100 * used / took)


def accuracy() -> Accuracy:
    """``SPREAD`` operations, one every few milliseconds, while calls go on: how late each is decided and heard of."""
    with runtime.home() as home:
        with runtime.running(home):
            runtime.cli(home, "apps", "add", str(runtime.HERE / "echo"))
        fill(home, SPREAD)
        first_ms = _spread(home)
        with runtime.running(home) as facts:
            return asyncio.run(_listen(facts, home, first_ms))


def _spread(home: Path) -> int:
    """Give each operation another end, ``SPREAD_S`` from the first to the last; when the first is."""
    first_ms = time.time_ns() // 1_000_000 + BEFORE_FIRST_MS
    store = _open(home)

    def move(txn: Any) -> None:
        for n, (key, row) in enumerate(list(txn.scan(OPERATIONS))):
            ends_ms = first_ms + n * SPREAD_S * 1000 // SPREAD
            timer = TimerRow(clock="wall", due_ms=ends_ms)
            txn.delete(TIMERS, ("wall", row.ends_ms, "operation", *key))
            txn.put(TIMERS, ("wall", ends_ms, "operation", *key), timer)
            txn.put(TIMER_DUE, ("operation", *key), timer)
            txn.put(OPERATIONS, key, msgspec.structs.replace(row, ends_ms=ends_ms))

    try:
        store.transact(move)
    finally:
        store.close()
    return first_ms


async def _listen(facts: dict[str, Any], home: Path, first_ms: int) -> Accuracy:
    heard: dict[str, tuple[float, float]] = {}
    done = asyncio.Event()

    def on_result(payload: dict[str, Any]) -> None:
        now_ms = time.time_ns() / 1_000_000
        result = payload["result"]
        assert result["state"] == "completed", payload
        ends_ms, ended_ms = (
            datetime.fromisoformat(result[name]).timestamp() * 1000 for name in ("ends_at", "ended_at")
        )
        assert payload["call_id"] not in heard, f"{payload['call_id']} ended twice"
        heard[payload["call_id"]] = (ended_ms - ends_ms, now_ms - ends_ms)
        if len(heard) == SPREAD:
            done.set()

    async with runtime.agent(facts, home, AGENT) as sessions, runtime.agent(facts, home, "load") as load:
        sessions.on_result = on_result
        await load.call("bench-echo.echo", {"text": "warm"}, "load")
        assert time.time_ns() // 1_000_000 < first_ms, "the daemon was not ready in time"
        calls = asyncio.create_task(_load(load, done))
        await asyncio.wait_for(done.wait(), 60)
        assert await calls >= CALLS_PER_S * SPREAD_S * 0.9, "the load was lighter than promised"
    decided, late = (sorted(values) for values in zip(*heard.values(), strict=True))
    return Accuracy(_p99(decided), _p99(late), sum(value < 0 for value in (*decided, *late)))


async def _load(agent: runtime.Agent, done: asyncio.Event) -> int:
    """``CALLS_PER_S`` calls, evenly spread; how many were completed."""
    calls, begin = set(), time.perf_counter()
    while not done.is_set():
        calls.add(asyncio.create_task(agent.call("bench-echo.echo", {"text": "x"}, "load")))
        await asyncio.sleep(max(0, begin + len(calls) / CALLS_PER_S - time.perf_counter()))
    results = await asyncio.gather(*calls)
    failed = [result for result in results if result["status"] != "completed"]
    assert not failed, failed[0]
    return len(results)


def _p99(values: list[float]) -> float:
    return values[int(len(values) * 0.99)]
