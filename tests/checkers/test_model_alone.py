"""The reference model over audits made by hand: what cannot be, and what the Runtime says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from checkers.comparison import check_model
from checkers.history import AgentLog, Entry, History, Look
from checkers.model import digest

Row = dict[str, Any]
REQUEST = {"kind": "confirm", "title": "T"}


def row(kind: str, *subjects: str, **detail: Any) -> Row:
    return {"kind": kind, "subjects": list(subjects), "detail": detail, "at_ms": 60_000}


def day() -> History:
    """A call of an agent, a question and an operation, all over; a MiniApp in front of its Interact."""
    made = History(seed=0)
    made.audit = [
        row("conversation.opened", "c", "a"),
        row("instance.created", "i1", "c", app="chat", digest="d"),
        row("instance.state", "i1", "c", before="starting", state="foreground"),
        row("instance.created", "i2", "c", app="lab", digest="e"),
        row("instance.state", "i1", "c", before="foreground", state="background"),
        row("focus.changed", "i2", "c", depth=2),
        row("worker.starting", "i2", incarnation=1),
        row("instance.state", "i2", "c", before="starting", state="foreground"),
        row("call.received", "k", "a", "c", tool="lab.direct"),
        row("call.routed", "k", "i2"),
        row("call.running", "k", "i2", attempt=1),
        row("interaction.asked", "q", "i2", "k", primitive="confirm", request=digest(REQUEST)),
        row("interaction.submitted", "q", "i2", "k", result=digest({"approved": True})),
        row("interaction.completed", "q", "i2", "k"),
        row("call.completed", "k", "a", "i2", result=digest({"n": 1}), seq=1),
        row("operation.started", "op", "k2", "i2", ends_at="1970-01-01T00:01:00.000Z"),
        row("operation.completed", "op", "k2", "i2"),
        row("state.saved", "i2", revision=1, state=digest({"s": 1})),
        row("inventory.changed", "r1"),
    ]
    made.looks = [look(len(made.audit))]
    made.agents["a"] = AgentLog("a")
    payload = {"call_id": "k", "status": "completed", "result": {"n": 1}}
    made.agents["a"].entries.append(Entry(1, 0, "received", {"type": "lineup.v1.tool.result", "payload": payload}))
    made.host.entries += [
        Entry(2, 0, "action", {"action_id": "x", "name": "interaction.answer", "args": {"interaction_id": "q"}}),
        Entry(3, 0, "reply", {"action_id": "x", "accepted": True, "detail": {"result": {"approved": True}}}),
    ]
    return made


def look(rows: int) -> Look:
    shown = [{"instance_id": "i1", "state": "background"}, {"instance_id": "i2", "state": "foreground"}]
    call: Row = {
        "agent_id": "a",
        "call_id": "k",
        "status": "completed",
        "conversation_id": "c",
        "tool_id": "lab.direct",
    }
    call |= {"attempt": 1, "instance_id": "i2", "result": {"n": 1}}
    question: Row = {"interaction_id": "q", "status": "completed", "kind": "confirm", "owner": {"instance_id": "i2"}}
    question |= {"request": REQUEST, "result": {"approved": True}}
    operation: Row = {"state": "completed", "source_tool_call_id": "k2", "instance_id": "i2"}
    operation |= {"ends_at": "1970-01-01T00:01:00.000Z", "ended_at": "1970-01-01T00:01:00.000Z"}
    about: Row = {"conversation_id": "c", "state": "background", "app_scope": "chat", "digest": "d", "incarnation": 0}
    return Look(
        at=9,
        audit_rows=rows,
        status={
            "instances": shown,
            "agents": [{"agent_id": "a", "in_flight": 0}],
            "inventory_revision": "r1",
        },
        snapshot={
            "instances": shown,
            "conversations": [{"conversation_id": "c", "focus": ["i1", "i2"]}],
            "surfaces": [],
            "snapshots": [{"instance_id": "i2", "revision": 1, "state": {"s": 1}}],
        },
        calls=[call],
        interactions=[question],
        instances={
            "i1": about,
            "i2": about | {"state": "foreground", "app_scope": "lab", "digest": "e", "incarnation": 1},
        },
        operations={"op": operation},
    )


def words(made: History) -> list[str]:
    return [fault.words for fault in check_model(made)]


def test_a_day_that_is_told_as_it_was() -> None:
    assert words(day()) == []


def says(change: Callable[[Look], Any]) -> list[str]:
    made = day()
    made.looks = [deepcopy(made.looks[0])]
    change(made.looks[0])
    return words(made)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda look: look.calls[0].update(status="failed"), "status is 'failed', not 'completed'"),
        (lambda look: look.calls[0].update(result={"n": 2}), "is not the one in the audit"),
        (lambda look: look.calls[0].update(attempt=2), "attempt is 2"),
        (lambda look: look.calls.clear(), "are gone, 0 were swept"),
        (lambda look: look.interactions[0].update(status="failed"), "status is 'failed'"),
        (lambda look: look.interactions[0].pop("result"), "is kept"),
        (lambda look: look.interactions[0].update(draft={"v": 1}), "the draft is"),
        (lambda look: look.instances["i2"].update(incarnation=2), "incarnation is 2"),
        (lambda look: look.instances.update(i2=None), "instances are gone"),
        (lambda look: look.operations["op"].update(ended_at="1970-01-01T00:02:00.000Z"), "it ended at"),
        (lambda look: look.operations.update(op=None), "its instance is not"),
        (lambda look: look.snapshot["conversations"][0]["focus"].reverse(), "the focus of c"),
        (lambda look: look.status["agents"][0].update(in_flight=1), "1 calls in flight, not 0"),
        (lambda look: look.status.update(inventory_revision="r0"), "the inventory is at r0"),
        (lambda look: look.snapshot["snapshots"][0].update(state={"s": 2}), "the saved states"),
        (lambda look: look.snapshot["surfaces"].append({"surface_id": "f", "revision": 0}), "the open surfaces"),
    ],
)
def test_what_the_runtime_says_otherwise(change: Callable[[Look], Any], expected: str) -> None:
    assert any(expected in each for each in says(change)), says(change)


@pytest.mark.parametrize(
    "rows",
    [
        [row("call.received", "k", "a", "c", tool="lab.direct")],
        [row("call.failed", "k", "a", "i2", code="x")],
        [row("call.running", "nobody", "i2", attempt=1)],
        [row("interaction.cancelled", "q", "i2")],
        [row("operation.interrupted", "op", "k2", "i2")],
        [row("instance.state", "i2", "c", before="background", state="foreground")],
        [
            row("instance.closed", "i2", "c", code="x"),
            row("instance.state", "i2", "c", before="closed", state="background"),
        ],
        [row("instance.closed", "i2", "c", code="x"), row("worker.starting", "i2", incarnation=2)],
        [row("worker.starting", "i2", incarnation=3)],
        [row("focus.changed", "i1", "c", depth=3)],
        [row("state.saved", "i2", revision=3, state="x")],
    ],
    ids=lambda rows: rows[-1]["kind"],
)
def test_what_cannot_be_in_an_audit(rows: list[Row]) -> None:
    made = day()
    made.audit += rows
    made.looks.append(look(len(made.audit)))
    (fault,) = words(made)
    assert "cannot be" in fault


def test_what_was_swept_may_be_gone_and_nothing_else() -> None:
    made = day()
    made.audit.append(row("retention.swept", gone={"calls": 1}))
    swept = look(len(made.audit))
    swept.calls.clear()
    made.looks.append(swept)
    assert words(made) == []
    made.audit.append(row("call.received", "k2", "a", "c", tool="lab.direct"))
    later = look(len(made.audit))
    later.calls.clear()
    later.status["agents"][0]["in_flight"] = 1
    made.looks.append(later)
    assert any("is gone and was received" in each for each in words(made))
