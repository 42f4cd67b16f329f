"""Many pending operations: what is read at a start, at a look at the clock and at a call does not grow with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lineup_protocol import limits
from lineup_supervisor.core.schema import META
from lineup_supervisor.edges.store_memory import MemoryTxn
from operations.focus import Focus

FEW, MANY = 5, 80
A_MINUTE = {"duration_seconds": 60}


def sessions(count: int) -> Focus:
    """As many conversations, each with its session on screen and its page open as far as there are processes."""
    core = Focus()
    core.check = lambda: None  # type: ignore[method-assign] # the look at all tables is not what is measured
    for n in range(count):
        core.begin(600, call_id=f"k{n}", conversation=f"c{n}")
        if core.unstarted:
            worker = core.start("pomodoro")
            worker.take_all()
            worker.accept("surface.open", entry="surface/index.html")
    core.restart()  # from here on as many workers live as may start at once
    return core


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """How many rows a deed reads."""

    def counted(deed: Callable[[], Any]) -> int:
        count = 0
        get, scan = MemoryTxn.get, MemoryTxn.scan

        def counting_get(self: Any, *args: Any) -> Any:
            nonlocal count
            count += 1
            return get(self, *args)

        def counting_scan(self: Any, *args: Any, **more: Any) -> Any:
            nonlocal count
            for row in scan(self, *args, **more):
                count += 1
                yield row

        with monkeypatch.context() as patch:
            patch.setattr(MemoryTxn, "get", counting_get)
            patch.setattr(MemoryTxn, "scan", counting_scan)
            deed()
        return count

    return counted


DEEDS: dict[str, Callable[[Focus], Any]] = {
    "start of the Runtime": lambda core: core.boot(),
    "look at the clock": lambda core: core.wake(),
    "next due": lambda core: core.due(),
    "start of a session": lambda core: core.call_accepted(
        "pomodoro.start", A_MINUTE, call_id="k-new", link="l2", conversation="c-new"
    ),
    "interrupt": lambda core: core.interrupt("k-stop", link="l2", conversation="c1"),
}


@pytest.mark.parametrize("what", DEEDS)
def test_what_a_deed_reads_does_not_grow_with_what_is_pending(what: str, reads: Callable[..., int]) -> None:
    few, many = (reads(lambda core=core: DEEDS[what](core)) for core in (sessions(FEW), sessions(MANY)))
    assert many <= few * 1.2 + 20, f"{few} rows with {FEW} pending, {many} with {MANY}"


def test_their_number_is_bounded_with_a_typed_answer(core: Focus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPERATIONS_PENDING_MAX", 2)
    core.begin(60, call_id="k1", conversation="c1")
    core.begin(60, call_id="k2", conversation="c2")
    receipt = core.call("pomodoro.start", A_MINUTE, call_id="k3", conversation="c3")
    assert receipt["code"] == "rate_limited"
    core.interrupt(conversation="c1")
    core.begin(60, call_id="k4", conversation="c4")
    assert core.row(META, "runtime").operations_pending == 2
    core.advance(60)
    assert core.row(META, "runtime").operations_pending == 0
