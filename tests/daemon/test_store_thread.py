"""The store thread and the log: batches, back-off, the loud end; and lines that nobody can forge."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from lineup_supervisor.core import events as ev
from lineup_supervisor.engine import Outcome
from lineup_supervisor.runtime_log import RuntimeLog
from lineup_supervisor.store_thread import BATCH_EVENTS_MAX, QUEUED_BYTES_MAX, QUEUED_EVENTS_MAX, StoreThread


class FakeEngine:
    """Blocks in its first run until let go; then answers as told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.retries = 0
        self.error: BaseException | None = None

    def run(self, batch: list[ev.AnyEvent], now: ev.Now) -> Outcome:
        self.entered.set()
        assert self.let_go.wait(5)
        self.batches.append(len(batch))
        if self.error is not None:
            raise self.error
        self.retries -= 1
        return Outcome(effects=(), next_due=(None, None), retry_in_ms=1 if self.retries >= 0 else None)


class Bench:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.outcomes = threading.Semaphore(0)
        self.fatal: list[BaseException] = []
        self.ended = threading.Event()
        self.thread = StoreThread(
            self.engine,  # type: ignore[arg-type]
            lambda: ev.Now(wall_ms=0, steady_ms=0),
            deliver=lambda batch, outcome: self.outcomes.release(),
            on_fatal=self._on_fatal,
        )
        self.thread.start()

    def _on_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)
        self.ended.set()


@pytest.fixture
def bench() -> Any:
    made = Bench()
    yield made
    made.engine.let_go.set()
    assert made.thread.stop(5)


def test_what_came_meanwhile_is_one_batch_within_the_bound(bench: Bench) -> None:
    bench.thread.submit(ev.Wake(event_id="first"))
    assert bench.engine.entered.wait(5)
    for n in range(BATCH_EVENTS_MAX + 3):
        bench.thread.submit(ev.Wake(event_id=f"e{n}"))
    bench.engine.let_go.set()
    for _ in range(3):
        assert bench.outcomes.acquire(timeout=5)
    assert bench.engine.batches == [1, BATCH_EVENTS_MAX, 3]


def test_a_crowd_is_noticed(bench: Bench) -> None:
    bench.thread.submit(ev.Wake(event_id="first"))
    assert bench.engine.entered.wait(5)
    assert not bench.thread.is_crowded
    for n in range(QUEUED_EVENTS_MAX):
        bench.thread.submit(ev.Wake(event_id=f"e{n}"))
    assert bench.thread.is_crowded


def test_what_came_over_the_host_link_is_bounded_in_bytes_until_it_is_decided(bench: Bench) -> None:
    bench.thread.submit(ev.Wake(event_id="first"))
    assert bench.engine.entered.wait(5)
    bench.thread.submit(ev.Wake(event_id="small"), QUEUED_BYTES_MAX - 1)
    assert not bench.thread.is_full
    bench.thread.submit(ev.Wake(event_id="large"), 1)
    assert bench.thread.is_full
    bench.engine.let_go.set()
    for _ in range(2):
        assert bench.outcomes.acquire(timeout=5)
    assert not bench.thread.is_full
    assert bench.engine.batches == [1, 2]


def test_what_is_just_being_decided_counts_too(bench: Bench) -> None:
    bench.thread.submit(ev.Wake(event_id="first"), QUEUED_BYTES_MAX)
    assert bench.engine.entered.wait(5)
    assert bench.thread.is_full


def test_what_waits_is_tried_again_without_new_events(bench: Bench) -> None:
    bench.engine.retries = 2
    bench.engine.let_go.set()
    bench.thread.submit(ev.Wake(event_id="first"))
    for _ in range(3):
        assert bench.outcomes.acquire(timeout=5)
    assert bench.engine.batches == [1, 0, 0]


def test_an_engine_that_fails_ends_the_thread_loudly(bench: Bench) -> None:
    bench.engine.error = RuntimeError("broken")
    bench.engine.let_go.set()
    bench.thread.submit(ev.Wake(event_id="first"))
    assert bench.ended.wait(5)
    assert [str(error) for error in bench.fatal] == ["broken"]


def test_no_field_can_forge_a_line_or_reach_a_terminal(tmp_path: Path) -> None:
    log = RuntimeLog(tmp_path / "runtime.log", "info")
    log.debug("not kept")
    log.warning("odd", text='a\n{"event":"forged"}\x1b[31m\u202e', level="fake", at="never", data={"k": b"\xff"}, n=1)
    log.close()
    (line,) = (tmp_path / "runtime.log").read_text().splitlines()
    assert "\x1b" not in line
    assert "\u202e" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["event"], entry["n"]) == ("warning", "odd", 1)
    assert entry["at"].endswith("Z")


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    log = RuntimeLog(tmp_path)
    log.error("lost")
    log.close()
