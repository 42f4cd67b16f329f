"""The tables of every life cycle: total, final states final, and every move made by the suite or justified here."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from core.harness import Core
from lineup_protocol.errors import CODES, LineUpError
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import machine
from lineup_supervisor.core.machine import IGNORE, Ignore, Machine, Refuse
from lineup_supervisor.core.tables import CALL, MACHINES
from simulation.run import run

Pair = tuple[Machine[Any, Any], StrEnum, StrEnum]
PAIRS: list[Pair] = [(m, s, e) for m in MACHINES for s in m.states for e in m.events]

# Moves that no event of the outside can bring about, each with the rule that keeps it away. They stand in the tables
# because a table has to be total, and as the answer if a later rule brings them about.
UNREACHABLE = {
    (
        "call",
        "waiting_for_app",
        "redeliver",
    ): "worker_lost looks at running calls; what waits is delivered again as it is",
    ("interaction", "pending", "fail"): "owner_closed fails only what was answered; the rest it cancels",
    ("interaction", "presented", "fail"): "as above",
    ("instance", "starting", "suspend"): "suspend looks at instances in the background",
    ("instance", "foreground", "front"): "front returns at once for what is on top",
    ("instance", "background", "back"): "back shifts what is on screen or starting",
    ("instance", "suspended", "suspend"): "suspend looks at instances in the background",
    ("worker", "absent", "exit"): "an exit without a row is dropped before the table is asked",
    ("worker", "absent", "stop"): "stop gets the row",
    ("worker", "starting", "start"): "_reconcile_one enqueues only what has no worker",
    ("worker", "ready", "start"): "as above",
    ("operation", "completed", "due"): "due returns for what is decided",
    ("operation", "interrupted", "due"): "as above",
    ("outbox item", "acknowledged", "send"): "flush begins after acked_seq, where nothing is left",
    ("outbox item", "acknowledged", "coalesce"): "the row is gone",
    ("app session", "read_only", "end"): "end_session returns for what has ended",
}


@pytest.mark.parametrize("each", MACHINES, ids=lambda m: m.name)
def test_each_pair_has_exactly_one_entry(each: Machine[Any, Any]) -> None:
    assert set(each.table) == {(state, event) for state in each.states for event in each.events}
    assert all(isinstance(entry, each.states | Ignore | Refuse) for entry in each.table.values())


@pytest.mark.parametrize(("each", "state", "event"), PAIRS, ids=lambda x: str(getattr(x, "name", x)))
def test_next_does_what_the_table_says(each: Machine[Any, Any], state: StrEnum, event: StrEnum) -> None:
    entry = each.table[state, event]
    if isinstance(entry, Refuse):
        assert entry.code in CODES
        assert not each.allows(state, event)
        with pytest.raises(LineUpError) as refused:
            each.next(state, event)
        assert refused.value.code == entry.code
        assert str(state) in refused.value.message
    else:
        assert each.allows(state, event)
        assert each.next(state, event) == (state if entry is IGNORE else entry)
    if each.is_final(state):
        assert not isinstance(entry, each.states), "nothing leads out of a final state"


@pytest.mark.parametrize("each", MACHINES, ids=lambda m: m.name)
def test_every_state_can_be_reached_and_every_open_one_left(each: Machine[Any, Any]) -> None:
    reached = {each.initial}
    while True:
        more = {e for (s, _), e in each.table.items() if s in reached and isinstance(e, each.states)} - reached
        if not more:
            break
        reached |= more
    assert reached == set(each.states)
    for state in each.states:
        leaves = any(s == state and isinstance(e, each.states) for (s, _), e in each.table.items())
        assert leaves != each.is_final(state)


def test_a_table_may_not_lead_out_of_a_final_state() -> None:
    class S(StrEnum):
        A = "a"

    class E(StrEnum):
        GO = "go"

    with pytest.raises(AssertionError, match="is final"):
        Machine("bad", S, E, initial=S.A, final=(S.A,), rules={S.A: {E.GO: S.A}}, otherwise={S.A: IGNORE})


def _remaining_moves(core: Core) -> None:
    """What the simulation finds only in many seeds."""
    from core.test_calls_running import running
    from lineup_protocol.times import to_rfc3339

    worker = running(core)
    core.hang_up()
    for value in (0.1, 0.2):
        worker.accept("tool.progress", call_id="k1", progress=value)
    core.connect("a1", "l2")
    worker.ask("inbox.ack", seq=1)
    request = {"kind": "confirm", "title": "T", "prompt": "P"}
    for present in (True, False):
        asked = worker.accept("ui.request", request=request, expires_at=to_rfc3339(core.wall_ms + 5_000))
        if present:
            core.did("interaction.present", interaction_id=asked["interaction_id"])
            core.did("interaction.present", interaction_id=asked["interaction_id"])
        core.advance(6)
    presented, answered = (worker.accept("ui.request", request=request)["interaction_id"] for _ in range(2))
    core.did("interaction.present", interaction_id=presented)
    core.did("interaction.cancel", interaction_id=presented)
    core.did("interaction.answer", interaction_id=answered, result={"approved": True})
    session_id = core.instance("lab").session_id
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    core.did("person.text", conversation_id="c1", text="late", session_id=session_id)
    core.call_accepted("timer.start", {"duration_seconds": 1}, call_id="k9", link="l2")
    core.advance(2)
    core.call_accepted("lab2.direct", call_id="k10", link="l2")
    other = core.start("lab2")
    surface = other.accept("surface.open", entry="surface/index.html", state={})
    core.did("surface.submit", surface_id=surface["surface_id"], payload=1)
    other.accept("surface.close", surface_id=surface["surface_id"])
    other.take_all()
    other.accept("tool.complete", call_id="k10", result={"n": 1})
    core.do(ev.ReclaimWorkers(event_id=core.new_id(), count=9))
    assert other.stopped == "reclaimed"
    other.exit("stopped")
    core.did("instance.close", instance_id=other.instance_id, force=True)


def test_every_move_is_made_or_justified() -> None:
    seen: set[tuple[str, str, str]] = set()
    before, machine.recorder = machine.recorder, lambda *move: seen.add((move[0], str(move[1]), str(move[2])))
    try:
        core = Core()
        core.connect("a1")
        _remaining_moves(core)
        for seed in range(60):
            assert run(seed, 300).passed
    finally:
        machine.recorder = before
    moves = {
        (m.name, str(s), str(e)) for m in MACHINES for (s, e), entry in m.table.items() if not isinstance(entry, Refuse)
    }
    assert moves - seen - set(UNREACHABLE) == set(), "never made"
    assert seen & set(UNREACHABLE) == set(), "made after all: take it off the list"
    assert set(UNREACHABLE) <= moves, "no such move"


def test_the_recorder_hears_every_move() -> None:
    heard: list[tuple[str, str, str]] = []
    before, machine.recorder = machine.recorder, lambda *move: heard.append(move)
    try:
        CALL.next(CALL.states.RUNNING, CALL.events.CLAIM)
    finally:
        machine.recorder = before
    assert heard == [("call", "running", "claim")]
