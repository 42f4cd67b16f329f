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

from lineup_supervisor.core import events as ev
from lineup_supervisor.core.ctx import META_KEY
from lineup_supervisor.core.schema import (
    AGENTS,
    AUDIT,
    AUDIT_BY_SUBJECT,
    META,
    RECEIPT_RING,
    RECEIPTS,
    SCHEMA_VERSION,
    TABLES,
    WORKERS,
)
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_rows import decode_row, encode_row

PENDING = 100_000
PER_AGENT = 1_000  # below the number of calls that one agent may have open
SPREAD, SPREAD_S = 1_000, 10
CALLS_PER_S = 100
YEAR_S = 365 * 86_400
IDLE_S = 10.0
STARTS = 3
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
    """Starts focus sessions at moments of its own choosing."""

    at_ms = 0

    def now(self) -> ev.Now:
        self._ms += 1
        return ev.Now(wall_ms=self.at_ms, steady_ms=self._ms)

    def begin(self, agent_id: str) -> None:
        self.run(ev.Boot(event_id=self.event_id(), boot_id="fill", isolation="S3"))
        self.run(self.frame("hello", {"agent_id": agent_id, "protocol": 1}))

    def session(self, name: str, seconds: int) -> None:
        """One accepted start whose worker has taken its delivery over; ``name`` is in every id that it makes."""
        payload = {"call_id": f"k-{name}", "tool_id": "pomodoro.start", "inventory_revision": self._revision}
        frame = self.frame("tool.call", payload | {"input": {"duration_seconds": seconds}}, f"c-{name}")
        self.run(msgspec.structs.replace(frame, event_id=f"e-{name}"))
        exited = {"reason": "runtime_restart", "incarnation": 1}
        self.run(ev.WorkerExited(event_id=self.event_id(), instance_id=f"i-e-{name}.{POMODORO_NTH_ID}", **exited))


def _open(home: Path) -> Store:
    return Store.open(home / "data", TABLES, schema_version=SCHEMA_VERSION)


def fill_pending(home: Path) -> None:
    """Leave ``PENDING`` focusing operations, each in a conversation of its own, that end in a year."""
    store = _open(home)
    try:
        sessions = Sessions(home, store)
        sessions.at_ms = time.time_ns() // 1_000_000
        sessions.begin(AGENT)
        sessions.session(CONVERSATION, YEAR_S)
        _copy(store)
    finally:
        store.close()


def _copy(store: Store) -> None:
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
                    txn.put(table, tuple(map(lambda part: _renamed(part, names), key)), _renamed_row(table, raw, names))

        return work

    for first in range(1, PENDING, COPIED_AT_ONCE):
        store.transact(write(range(first, min(PENDING, first + COPIED_AT_ONCE))))

    def count(txn: Any) -> None:
        for n in range(PENDING // PER_AGENT):
            agent_id = f"agent-{n:03d}"
            row = msgspec.structs.replace(agent, agent_id=agent_id, link_id=None, in_flight=PER_AGENT)
            txn.put(AGENTS, (agent_id,), row)
        txn.put(META, META_KEY, msgspec.structs.replace(meta, operations_pending=PENDING, conversations=PENDING))

    store.transact(count)


def _renamed(part: str | int, names: tuple[tuple[str, str], ...]) -> str | int:
    if isinstance(part, str):
        for old, new in names:
            part = part.replace(old, new)
    return part


def _renamed_row(table: Any, raw: bytes, names: tuple[tuple[str, str], ...]) -> Any:
    for old, new in names:
        raw = raw.replace(old.encode(), new.encode())
    return decode_row(table, raw)


def _starts(home: Path) -> float:
    times = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        with runtime.running(home, "--no-web"):
            times.append(time.perf_counter() - begin)
    return min(times)


def cost() -> Cost:
    """Start of the daemon and its processor time at rest, with ``PENDING`` operations against none."""
    with runtime.home() as home:
        with runtime.running(home, "--no-web"):
            pass
        empty = _starts(home)
        fill_pending(home)
        full = _starts(home)
        with runtime.running(home, "--no-web") as facts:
            daemon = psutil.Process(facts["pid"])
            before, begin = daemon.cpu_times(), time.perf_counter()
            time.sleep(IDLE_S)
            after, took = daemon.cpu_times(), time.perf_counter() - begin
    used = after.user + after.system - before.user - before.system
    return Cost(full / empty, 100 * used / took)


def accuracy() -> Accuracy:
    """``SPREAD`` operations, one every few milliseconds, while calls go on: how late each is decided and heard of."""
    with runtime.home() as home:
        with runtime.running(home) as _:
            runtime.cli(home, "apps", "add", str(runtime.HERE / "echo"))
        first_ms = time.time_ns() // 1_000_000 + 15_000  # the daemon has to be ready before
        _fill_spread(home, first_ms)
        with runtime.running(home) as facts:
            return asyncio.run(_listen(facts, home, first_ms))


def _fill_spread(home: Path, first_ms: int) -> None:
    store = _open(home)
    try:
        sessions = Sessions(home, store)
        sessions.at_ms = first_ms - YEAR_S * 1000
        sessions.begin("sessions")
        for n in range(SPREAD):
            sessions.at_ms = first_ms - YEAR_S * 1000 + n * SPREAD_S * 1000 // SPREAD
            sessions.session(f"n{n:06d}", YEAR_S)
    finally:
        store.close()


async def _listen(facts: dict[str, Any], home: Path, first_ms: int) -> Accuracy:
    heard: dict[str, tuple[float, float]] = {}
    done = asyncio.Event()

    def on_result(payload: dict[str, Any]) -> None:
        now_ms = time.time_ns() / 1_000_000
        result = payload["result"]
        assert result["state"] == "completed", payload
        ends_ms, ended_ms = (datetime.fromisoformat(result[name]).timestamp() * 1000 for name in ("ends_at", "ended_at"))
        assert payload["call_id"] not in heard, f"{payload['call_id']} ended twice"
        heard[payload["call_id"]] = (ended_ms - ends_ms, now_ms - ends_ms)
        if len(heard) == SPREAD:
            done.set()

    async with runtime.agent(facts, home, "sessions") as sessions, runtime.agent(facts, home, "load") as load:
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
    assert all(result["status"] == "completed" for result in results)
    return len(results)


def _p99(values: list[float]) -> float:
    return values[int(len(values) * 0.99)]
