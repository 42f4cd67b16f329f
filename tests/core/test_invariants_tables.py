"""``core.invariants`` sees what it says it sees: rows put out of step by hand, one rule each."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import CONFIRM, Core, rebuild
from lineup_supervisor.core import invariants
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import (
    AGENTS,
    CALLS,
    CONVERSATIONS,
    INBOX,
    INSTANCES,
    INTERACTIONS,
    LIVE_INSTANCES,
    META,
    OPEN_CALLS,
    OPERATIONS,
    OUTBOX_ITEMS,
    SPARE,
    START_QUEUE,
    STARTS,
    SURFACE_PARTS,
    TIMER_DUE,
    TIMERS,
    USAGE,
    WANTED,
    WORKERS,
    Mark,
    Spare,
    SurfacePart,
    TimerRow,
    Usage,
)
from lineup_supervisor.core.tables import CallState, InstanceState, OperationState
from lineup_supervisor.core.txn import Txn
from simulation import bundles


def first(txn: Txn, table: Any) -> tuple[Any, Any]:
    return next(iter(txn.scan(table)))


def change(table: Any, **changes: Any) -> Any:
    def put_out_of_step(txn: Txn) -> None:
        key, row = first(txn, table)
        txn.put(table, key, rebuild(row, **changes))

    return put_out_of_step


def drop(table: Any) -> Any:
    return lambda txn: txn.delete(table, first(txn, table)[0])


BREAKS = {
    "count of open calls": (change(AGENTS, in_flight=99), "open calls and counts 99"),
    "index of open calls": (drop(OPEN_CALLS), "listed as open"),
    "rests in routing": (change(CALLS, status=CallState.ROUTING), "rests in routing"),
    "result missing": (change(CALLS, status=CallState.COMPLETED), "with result None"),
    "delivery missing": (drop(INBOX), "which is not there"),
    "outbox gap": (drop(OUTBOX_ITEMS), "the outbox holds"),
    "cursor": (change(AGENTS, acked_seq=99), "cursors"),
    "dead in focus": (change(CONVERSATIONS, focus=("i-none",)), "does not live"),
    "no ground": (change(CONVERSATIONS, focus=()), "stands on no Interact"),
    "closed and listed": (change(INSTANCES, state=InstanceState.CLOSED), "listed as live"),
    "live and not listed": (drop(LIVE_INSTANCES), "listed as live"),
    "workers": (change(META, workers_live=9), "counted 9"),
    "nobody starts it": (lambda txn: [txn.delete(WANTED, k) for k, _ in list(txn.scan(WANTED))], "is not wanted"),
    "queue": (lambda txn: txn.put(START_QUEUE, ("lab", 1, "i-x"), Mark()), "in the start queue and not wanted"),
    "starts": (change(STARTS, waiting=9), "starts under way and waiting, places, and"),
    "places": (change(META, policy=Policy(workers_max=2)), "lab2 has 2 places, 1 it may have"),
    "spare": (lambda txn: txn.put(SPARE, ("lab", "i-x"), Spare()), "i-x is known to be spare and has no ready worker"),
    "spare with work": (
        lambda txn: [
            txn.put(SPARE, ("lab", str(k[0])), Spare()) for k, w in list(txn.scan(WORKERS)) if w.state == "ready"
        ],
        "is known to be spare, with calls",
    ),
    "bytes of inboxes": (
        lambda txn: txn.put(USAGE, ("lab", "inbox"), Usage(bytes=7)),
        "bytes wait in inboxes, counted",
    ),
    "room": (change(META, policy=Policy(workers_starting_max=5)), "lab4 waits to be started though there is room"),
    "share": (change(META, policy=Policy(workers_starting_max=2)), "2 starts of lab2 are under way, 1 may be"),
    "questions": (change(INTERACTIONS, status="cancelled"), "listed as open"),
    "bytes of deliveries": (change(WORKERS, sent_bytes=7), "deliveries and counts 7 bytes"),
    "bytes of questions": (change(INTERACTIONS, charged=7), "which is not the sum of those that wait"),
    "room of questions": (lambda txn: txn.put(USAGE, ("lab", "questions"), Usage(bytes=7)), "count 7 bytes"),
    "operation": (change(OPERATIONS, state=OperationState.COMPLETED), "operation"),
    "states": (lambda txn: txn.put(SURFACE_PARTS, ("f-x",), SurfacePart(split=True)), "states are kept for ['f-x']"),
    "timers": (lambda txn: txn.put(TIMER_DUE, ("x", "y"), TimerRow(clock="wall", due_ms=1)), "timers differ"),
    "clock of a call": (
        lambda txn: (
            [txn.delete(TIMERS, k) for k, _ in list(txn.scan(TIMERS)) if k[2] == "call"]
            and [txn.delete(TIMER_DUE, k) for k, _ in list(txn.scan(TIMER_DUE)) if k[0] == "call"]
        ),
        "its clock stands",
    ),
}


@pytest.fixture
def busy() -> Core:
    """One of everything: open calls, a question, an operation, a full outbox, starts under way."""
    core = Core(manifests=(bundles.lab("lab3"), bundles.lab("lab4")))
    core.connect("a1")
    core.call_accepted("lab.direct", call_id="k1")
    core.call_accepted("confirm", CONFIRM, call_id="k2")
    core.call_accepted("timer.start", {"duration_seconds": 60}, call_id="k3")
    core.call("nobody.knows", call_id="k4")
    core.start("lab")
    for n in range(2):
        core.call_accepted("lab2.direct", call_id=f"s{n}", conversation=f"s{n}")
    for app in ("lab3", "lab4"):
        core.call_accepted(f"{app}.direct", call_id=app)
    core.check()
    return core


@pytest.mark.parametrize("name", BREAKS)
def test_each_rule_sees_its_fault(busy: Core, name: str) -> None:
    put_out_of_step, words = BREAKS[name]
    with busy.store.write() as txn:
        put_out_of_step(txn)
        faults = invariants.find_faults(txn)
    assert any(words in fault for fault in faults), faults


def test_an_empty_store_is_in_step() -> None:
    core = Core()
    with core.store.read() as txn:
        assert invariants.find_faults(txn) == []
