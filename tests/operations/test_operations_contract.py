"""``pomodoro.start`` and ``pomodoro.interrupt`` to the letter: schemas, idempotency, refusals, stable receipts."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Body
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import CALLS, INSTANCES, OPERATIONS, OUTBOX_ITEMS, SESSIONS
from operations.focus import OF_A_RECEIPT, OF_A_REFUSAL, Focus

START_INPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["duration_seconds"],
    "properties": {
        "duration_seconds": {"type": "integer", "minimum": 1},
        "activity": {"type": "string", "maxLength": 256},
    },
}
START_RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["state", "operation_id", "started_at", "ends_at", "ended_at"],
    "properties": {
        "state": {"enum": ["completed", "interrupted"]},
        "operation_id": {"type": "string"},
        "started_at": {"type": "string"},
        "ends_at": {"type": "string"},
        "ended_at": {"type": "string"},
        "interruption_reason": {"type": "string"},
    },
}
INTERRUPT_INPUT = {"type": "object", "additionalProperties": False}
INTERRUPT_RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["status"],
    "properties": {
        "status": {"enum": ["interrupted", "no_active_focusing_operation", "operation_already_final"]},
        "operation_id": {"type": "string"},
    },
}


def tools(core: Focus) -> dict[str, Body]:
    (inventory,) = [f for f in core.frames["a1"] if f["type"] == "lineup.v1.client.inventory"]
    return {tool["id"]: tool for tool in inventory["payload"]["tools"]}


@pytest.mark.conformance("04-4.5.2")
def test_the_published_schemas_are_the_frozen_ones(core: Focus) -> None:
    start, interrupt = (tools(core)[f"pomodoro.{name}"] for name in ("start", "interrupt"))
    assert (start["input_schema"], start["output_schema"]) == (START_INPUT, START_RESULT)
    assert (interrupt["input_schema"], interrupt["output_schema"]) == (INTERRUPT_INPUT, INTERRUPT_RESULT)
    assert (start["version"], start["handling"], interrupt["version"]) == (1, "operation", 1)
    assert "timeout_ms" not in start, "no Host or UI timeout: ends_at alone says when it is over"


@pytest.mark.conformance("04-6.2")
def test_start_makes_everything_in_one_transaction(core: Focus) -> None:
    """The supervisor dies right after the commit of the one event: nothing is half there."""
    frame = {
        "type": "lineup.v1.tool.call",
        "message_id": "m-start",
        "conversation_id": "c1",
        "sent_at": "2026-11-30T08:00:00Z",
        "payload": {
            "call_id": "k1",
            "tool_id": "pomodoro.start",
            "inventory_revision": core.revision,
            "input": {"duration_seconds": 1500, "activity": "homework"},
        },
    }
    core.do(ev.AgentFrame(event_id=core.new_id(), link_id="a1", frame=frame), lose_effects=True)
    operation, pomodoro = core.operation(), core.instance("pomodoro")
    assert (operation.state, operation.activity, operation.duration_seconds) == ("focusing", "homework", 1500)
    assert operation.ends_ms == operation.started_ms + 1_500_000 == core.wall_ms + 1_500_000
    assert (operation.source_call_id, operation.instance_id) == ("k1", pomodoro.instance_id)
    assert core.stack() == ["chat", "pomodoro"]
    assert core.row(INSTANCES, core.instance("chat").instance_id).state == "background"
    assert (core.session().state, core.session().instance_id) == ("open", pomodoro.instance_id)
    ids = {operation.operation_id, pomodoro.instance_id, pomodoro.session_id}
    assert len(ids) == 3, "three different objects, none a synonym of another"
    assert core.row(CALLS, "a1", "k1").status == "running"


@pytest.mark.parametrize(
    ("input_", "path"),
    [
        ({}, "/duration_seconds"),
        ({"duration_seconds": 60, "more": 1}, "/more"),
        ({"duration_seconds": 60, "instance_id": "i-1"}, "/instance_id"),
        ({"duration_seconds": 60, "activity": 7}, "/activity"),
        ({"duration_seconds": 60, "activity": "x" * 257}, "/activity"),
        ([], "/"),
        (None, "/"),
    ],
    ids=str,
)
@pytest.mark.conformance("04-4.5.2")
def test_a_start_with_another_input_is_refused_and_starts_nothing(core: Focus, input_: Any, path: str) -> None:
    core.call_accepted("notice", {"title": "T", "message": "M"}, call_id="k0")
    before = core.dump(*OF_A_REFUSAL)
    frames = core.send(
        "tool.call",
        {"call_id": "k1", "tool_id": "pomodoro.start", "inventory_revision": core.revision, "input": input_},
        conversation="c1",
    )
    receipt = next(f["payload"] for f in frames if f["type"] == "lineup.v1.receipt")
    assert (receipt["code"], receipt["detail"]["path"]) == ("tool_input_invalid", path)
    assert core.dump(*OF_A_REFUSAL) == before
    assert core.result("k1")["status"] == "rejected"  # type: ignore[index]


@pytest.mark.parametrize("activity", ["", "a", "x" * 256, "冥想 🧘"])
def test_an_activity_of_up_to_256_characters_is_taken(core: Focus, activity: str) -> None:
    assert core.begin(60, activity=activity).activity == activity


@pytest.mark.parametrize("tool_id", ["pomodoro.start", "pomodoro.interrupt"])
@pytest.mark.conformance("04-4.5.2")
def test_a_call_on_an_old_inventory_is_refused_and_wakes_nothing(core: Focus, tool_id: str) -> None:
    core.begin(60, call_id="k0")
    before = core.dump(*OF_A_REFUSAL)
    input_ = {"duration_seconds": 60} if tool_id.endswith("start") else {}
    receipt = core.call(tool_id, input_, inventory_revision="r-old")
    assert (receipt["code"], receipt["detail"]["current"]) == ("inventory_revision_mismatch", core.revision)
    assert core.dump(*OF_A_REFUSAL) == before


def test_a_start_of_a_disabled_bundle_is_refused_and_what_runs_goes_on(core: Focus) -> None:
    core.begin(60)
    core.did("apps.disable", actor="operator", app_scope="pomodoro")
    before = core.dump(*OF_A_REFUSAL)
    assert (
        core.call("pomodoro.start", {"duration_seconds": 60}, call_id="k2", conversation="c2")["code"] == "app_disabled"
    )
    assert core.dump(*OF_A_REFUSAL) == before
    core.advance(61)
    assert core.outcome() == ("completed", None)


# idempotency


def resend(core: Focus, call_id: str = "k1", seconds: int = 60, **more: Any) -> Body:
    return core.call("pomodoro.start", {"duration_seconds": seconds}, call_id=call_id, **more)


@pytest.mark.conformance("04-4.5.2")
@pytest.mark.conformance("04-6.6")
def test_the_same_call_again_finds_its_operation_then_its_result(core: Focus) -> None:
    operation = core.begin(60)
    before = core.dump(*OF_A_RECEIPT)
    running = resend(core)
    assert running["accepted"]
    assert running["detail"]["operation_id"] == operation.operation_id
    assert running["detail"]["status"] == "running"
    assert core.dump(*OF_A_RECEIPT) == before
    core.advance(61)
    result = core.result()
    before = core.dump(*OF_A_RECEIPT)
    ended = resend(core)
    assert (ended["detail"]["status"], ended["detail"]["result"]) == ("completed", result["result"])  # type: ignore[index]
    assert core.dump(*OF_A_RECEIPT) == before
    core.restart(seconds_down=5)
    assert resend(core, link="l2")["detail"]["result"] == result["result"]  # type: ignore[index]
    assert len(core.operations()) == 1
    assert len(core.results("k1")) == 1


def test_the_same_call_again_counts_even_under_an_old_revision(core: Focus) -> None:
    """An agent that resends after an upgrade has the call already; its revision does not matter any more."""
    core.begin(60)
    assert resend(core, inventory_revision="r-old")["detail"]["status"] == "running"


def test_other_content_under_the_same_call_is_a_conflict_and_touches_nothing(core: Focus) -> None:
    core.begin(60)
    before = core.dump(*OF_A_RECEIPT)
    assert resend(core, seconds=61)["code"] == "call_id_conflict"
    assert core.dump(*OF_A_RECEIPT) == before


@pytest.mark.conformance("04-6.7")
@pytest.mark.conformance("04-4.5.2")
def test_another_start_is_refused_with_no_side_effect_at_all(core: Focus) -> None:
    operation = core.begin(60)
    core.start("pomodoro")
    before, delta = core.dump(*OF_A_REFUSAL), len(core.deltas)
    receipt = resend(core, "k2")
    assert receipt["code"] == "active_focusing_operation"
    assert receipt["detail"]["operation_id"] == operation.operation_id
    assert core.dump(*OF_A_REFUSAL) == before
    assert {change["kind"] for change in core.deltas[delta:]} <= {"call", "agent"}
    assert [item.payload["call_id"] for _, item in core.scan(OUTBOX_ITEMS)] == ["k2"], "its own rejection, and no other"
    assert core.result("k2")["error"]["code"] == "active_focusing_operation"  # type: ignore[index]
    assert resend(core, "k2")["detail"]["error_code"] == "active_focusing_operation"
    assert core.result("k1") is None
    core.advance(61)
    assert core.outcome() == ("completed", None)


def test_in_a_conversation_of_its_own_every_start_has_its_session(core: Focus) -> None:
    for n in range(20):
        core.begin(60, call_id=f"k{n}", conversation=f"c{n}")
    assert {row.conversation_id for _, row in core.scan(OPERATIONS)} == {f"c{n}" for n in range(20)}
    core.interrupt(conversation="c7")
    assert [row.state for _, row in core.scan(OPERATIONS)].count("focusing") == 19


@pytest.mark.parametrize("end", ["interrupt", "time"])
def test_after_its_end_a_new_start_begins_anew(core: Focus, end: str) -> None:
    first = core.begin(60)
    if end == "interrupt":
        core.interrupt()
    else:
        core.advance(61)
    second = core.begin(60, call_id="k2")
    assert second.instance_id != first.instance_id
    assert core.row(OPERATIONS, first.operation_id).state != "focusing"
    assert len([s for _, s in core.scan(SESSIONS)]) == 2
    core.advance(61)
    assert core.outcome("k2") == ("completed", None)


# the short tool


@pytest.mark.parametrize("field", ["instance_id", "operation_id", "app_scope", "conversation_id", "call_id", "reason"])
@pytest.mark.conformance("04-6.6")
def test_interrupt_takes_no_target(core: Focus, field: str) -> None:
    operation = core.begin(60)
    before = core.dump(*OF_A_REFUSAL)
    target = {"operation_id": operation.operation_id, "instance_id": operation.instance_id}.get(field, "x")
    receipt = core.call("pomodoro.interrupt", {field: target}, call_id="k2")
    assert (receipt["code"], receipt["detail"]["path"]) == ("tool_input_invalid", f"/{field}")
    assert core.dump(*OF_A_REFUSAL) == before


@pytest.mark.conformance("04-6.6")
def test_the_receipts_of_interrupt_are_stable(core: Focus) -> None:
    none = core.interrupt("k-early")
    assert none == {"status": "no_active_focusing_operation"}
    operation = core.begin(60)
    done = core.interrupt("k-stop")
    assert done == {"status": "interrupted", "operation_id": operation.operation_id}
    assert core.outcome() == ("interrupted", "interrupted_by_agent")
    final = {"status": "operation_already_final", "operation_id": operation.operation_id}
    assert core.interrupt("k-late") == core.interrupt("k-later") == final
    for call_id, answer in (("k-early", none), ("k-stop", done), ("k-late", final)):
        again = core.call("pomodoro.interrupt", {}, call_id=call_id)
        assert again["detail"]["result"] == answer
        assert len(core.results(call_id)) == 1
    assert len(core.results("k1")) == 1


@pytest.mark.conformance("04-6.6")
def test_interrupt_binds_by_its_conversation_alone(core: Focus) -> None:
    core.begin(60, conversation="c1")
    core.begin(60, call_id="k2", conversation="c2")
    assert core.interrupt(conversation="c3") == {"status": "no_active_focusing_operation"}
    assert core.interrupt("k-c2", conversation="c2")["status"] == "interrupted"
    assert (core.operation("c1").state, core.operation("c2").state) == ("focusing", "interrupted")
    core.connect("a2", "l2")
    stranger = core.call("pomodoro.interrupt", {}, call_id="k9", link="l2", conversation="c1")
    assert stranger["code"] == "unauthorized"
    assert core.operation("c1").state == "focusing"


@pytest.mark.parametrize("worker", ["none", "starting", "ready", "crashed", "restarted", "idle"])
@pytest.mark.conformance("04-4.5.2")
def test_interrupt_needs_neither_surface_nor_worker(core: Focus, worker: str) -> None:
    core.begin(600)
    if worker in ("ready", "crashed", "idle"):
        process = core.start("pomodoro")
        process.take("k1")
        if worker == "crashed":
            process.exit("killed")
        if worker == "idle":
            core.advance(61)
            process.exit("stopped")
    if worker == "restarted":
        core.restart()
    started = len(core.workers)
    assert core.interrupt(link="l2" if worker == "restarted" else "a1")["status"] == "interrupted"
    assert core.outcome() == ("interrupted", "interrupted_by_agent")
    core.assert_over()
    assert core.front() == "chat"
    core.advance(30)
    assert [w for w in list(core.workers.values())[started:] if w.app_scope == "pomodoro"] == [], (
        "nothing was started or woken"
    )


@pytest.mark.conformance("04-6.6")
def test_its_app_can_neither_end_it_nor_leave_the_screen(core: Focus) -> None:
    operation = core.begin(600)
    worker = core.start("pomodoro")
    worker.take("k1")
    result = {"state": "completed", "operation_id": operation.operation_id} | dict.fromkeys(
        ("started_at", "ends_at", "ended_at"), "2026-11-30T08:00:00Z"
    )
    before = core.dump()
    assert worker.refused("tool.complete", call_id="k1", result=result) == "conflict"
    assert worker.refused("tool.fail", call_id="k1", code="x", message="y") == "conflict"
    assert worker.refused("tool.cancel", call_id="k1") == "conflict"
    assert worker.refused("lifecycle.background") == "lifecycle_denied"
    assert worker.refused("lifecycle.close") == "lifecycle_denied"
    assert core.dump() == before


def test_the_operator_interrupts_by_the_same_rule(core: Focus) -> None:
    operation = core.begin(600)
    detail = core.did(
        "call.start", actor="operator", call_id="k-cli", tool_id="pomodoro.interrupt", input={}, conversation_id="c1"
    )
    assert detail["record"]["result"] == {"status": "interrupted", "operation_id": operation.operation_id}
    assert core.outcome() == ("interrupted", "interrupted_by_agent")


def test_a_cancel_of_the_long_call_interrupts_it(core: Focus) -> None:
    core.begin(600)
    core.send("tool.cancel", {"call_id": "k1", "reason": "changed my mind"})
    assert core.outcome() == ("interrupted", "cancelled_by_agent")
    core.assert_over()
