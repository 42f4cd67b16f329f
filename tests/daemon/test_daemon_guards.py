"""What the daemon does when one of its own steps fails: an answer costs nothing but itself, effects are carried out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lineup_supervisor.config import Config
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.daemon import Daemon, Fatal, Options
from lineup_supervisor.edges.clock import SystemClock
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.upkeep import Recurring
from lineup_supervisor.engine import Outcome
from lineup_supervisor.home import open_home
from lineup_supervisor.own_requests import OwnRequests
from lineup_supervisor.runtime_log import RuntimeLog

FRAME = ev.WorkerFrame(event_id="e1", instance_id="i1", incarnation=1, frame={})
REPLY = fx.ReplyHost(reply_to="r1", accepted=True, detail={"open_calls": 0})
DELTA = fx.HostDelta(revision=1, changes=())


class Bench:
    """A daemon whose edges are played; only what carries out an outcome is its own."""

    def __init__(self, root: Path) -> None:
        home = open_home(root)
        self.store = Store.open(home.data, TABLES, schema_version=SCHEMA_VERSION)
        self.said: list[str] = []
        self.done: list[Any] = []
        daemon = self.daemon = Daemon(home, Config(), Options(), self.store, RuntimeLog(root / "log"))
        daemon.loop = asyncio.get_running_loop()
        daemon.loop.set_exception_handler(lambda _, context: self.said.append(context["message"]))
        daemon._halted = daemon.loop.create_future()
        daemon.clock = SystemClock()
        daemon._timer = Recurring("looking at the clock", lambda: None)
        daemon.worker_link = SimpleNamespace(committed=lambda *_: self.done.append("committed"), charge=lambda *_: None)  # type: ignore[assignment]
        daemon.host = SimpleNamespace(  # type: ignore[assignment]
            reply=self.done.append,
            delta=self.done.append,
            request_of=lambda reply_to: SimpleNamespace(kind="query", name="status"),
            socket=SimpleNamespace(read_on=lambda: None),
        )
        daemon.own = OwnRequests(daemon)
        daemon.own.status = lambda: {"pid": 1}  # type: ignore[method-assign]

    def execute(self, *effects: fx.AnyEffect) -> None:
        self.daemon._execute([FRAME], Outcome(effects=effects, next_due=(None, None)), {})

    @property
    def is_failed(self) -> bool:
        return self.daemon._halted.done()


def fail(*args: Any) -> Any:
    raise OSError(24, "Too many open files")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "home")
    yield made
    if made.is_failed:
        made.daemon._halted.exception()
    made.store.close()
    made.daemon.loop.set_exception_handler(None)


async def test_an_answer_that_cannot_be_completed_is_given_without(bench: Bench) -> None:
    bench.daemon.own.status = fail  # type: ignore[method-assign]
    bench.execute(REPLY, DELTA)
    assert bench.done == [REPLY, DELTA, "committed"]
    assert bench.said == ["saying what only the daemon knows failed"]
    assert not bench.is_failed


async def test_an_answer_that_cannot_be_given_ends_nothing(bench: Bench) -> None:
    bench.daemon.host.reply = fail  # type: ignore[method-assign]
    bench.execute(REPLY, DELTA)
    assert bench.done == [DELTA, "committed"]
    assert not bench.is_failed


async def test_effects_are_carried_out_whatever_becomes_of_counting(bench: Bench) -> None:
    bench.daemon.worker_link.committed = fail  # type: ignore[method-assign, union-attr]
    bench.execute(REPLY, DELTA)
    assert bench.done == [fx.ReplyHost(reply_to="r1", accepted=True, detail={"open_calls": 0, "pid": 1}), DELTA]
    assert bench.said == ["counting what a worker sent failed"]
    assert not bench.is_failed


async def test_what_is_durable_and_cannot_be_carried_out_ends_this_run(bench: Bench) -> None:
    bench.daemon.host.delta = fail  # type: ignore[method-assign]
    bench.execute(REPLY, DELTA)
    assert bench.is_failed


async def test_a_task_for_ever_that_ends_all_the_same_ends_the_run(bench: Bench) -> None:
    async def over() -> None:
        return

    task = asyncio.create_task(over(), name="a heartbeat")
    await task
    bench.daemon._on_task_ended(task)
    with pytest.raises(Fatal, match="a heartbeat"):
        bench.daemon._halted.result()


async def test_one_that_was_cancelled_ends_nothing(bench: Bench) -> None:
    bench.daemon._go_on_with("a heartbeat", 60, lambda: asyncio.sleep(0))
    (task,) = bench.daemon._tasks
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert not bench.is_failed
