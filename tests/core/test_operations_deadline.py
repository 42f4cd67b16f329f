"""Deadline operations: start, interrupt, due, left, closed, cancelled; each decided once, in the Runtime's own time."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Core
from lineup_supervisor.core.schema import INSTANCES, OPERATIONS, SESSIONS
from simulation import bundles

START = {"duration_seconds": 60, "activity": "reading"}


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def begin(core: Core, call_id: str = "k1", **more: Any) -> Any:
    core.call_accepted("timer.start", START | more, call_id=call_id)
    return [row for _, row in core.scan(OPERATIONS)][-1]


def outcome(core: Core, call_id: str = "k1") -> tuple[str, str | None]:
    result = core.result(call_id)
    assert result is not None
    assert result["status"] == "completed"
    return result["result"]["state"], result["result"].get("interruption_reason")


def test_start_begins_at_once_and_takes_the_screen(core: Core) -> None:
    operation = begin(core)
    timer = core.instance("timer")
    assert operation.state == "focusing"
    assert operation.ends_ms == core.wall_ms + 60_000
    conversation = core.query("snapshot")["conversations"][0]
    assert conversation["focus"] == [core.instance("chat").instance_id, timer.instance_id]
    assert core.row(SESSIONS, timer.session_id).title == "reading"
    delivery = core.start("timer").deliveries("tool.call")[0]["body"]
    assert delivery["operation_id"] == operation.operation_id
    assert delivery["operation"]["state"] == "focusing"


def test_it_is_completed_at_its_time_with_no_worker(core: Core) -> None:
    begin(core)
    core.advance(59.9)
    assert core.result() is None
    core.advance(0.2)
    result = core.result()["result"]  # type: ignore[index]
    assert set(result) == {"state", "operation_id", "started_at", "ends_at", "ended_at"}
    assert result["ended_at"] >= result["ends_at"]
    assert outcome(core) == ("completed", None)
    timer = core.instance("timer")
    assert (timer.state, timer.close_code) == ("closed", "operation_ended")
    assert core.row(INSTANCES, core.instance("chat").instance_id).state == "foreground"
    assert core.row(SESSIONS, timer.session_id).state == "read_only"


def test_its_worker_is_told_and_cannot_decide(core: Core) -> None:
    begin(core, duration_seconds=30)
    worker = core.start("timer")
    worker.take("k1")
    assert worker.refused("tool.complete", call_id="k1", result={"state": "completed"}) in (
        "conflict",
        "tool_output_invalid",
    )
    assert worker.refused("tool.fail", call_id="k1", code="x", message="y") == "conflict"
    assert worker.refused("tool.cancel", call_id="k1") == "conflict"
    assert core.result() is None
    core.advance(31)
    changed = [m["body"]["operation"]["state"] for m in worker.messages if m["type"] == "operation.changed"]
    assert changed == ["completed"]
    assert worker.stopped == "closed"


def test_the_short_tool_interrupts_and_says_so_every_time(core: Core) -> None:
    core.call_accepted("timer.interrupt", {}, call_id="k0")
    assert core.result("k0")["result"] == {"status": "no_active_focusing_operation"}  # type: ignore[index]
    operation = begin(core)
    core.call_accepted("timer.interrupt", {}, call_id="k2")
    assert core.result("k2")["result"] == {"status": "interrupted", "operation_id": operation.operation_id}  # type: ignore[index]
    assert outcome(core) == ("interrupted", "interrupted_by_agent")
    core.call_accepted("timer.interrupt", {}, call_id="k3")
    late = core.result("k3")["result"]  # type: ignore[index]
    assert late == {"status": "operation_already_final", "operation_id": operation.operation_id}
    core.advance(120)
    assert len(core.results("k1")) == 1


def test_it_binds_by_the_conversation_alone(core: Core) -> None:
    begin(core)
    core.call_accepted("timer.interrupt", {}, call_id="k2", conversation="c2")
    assert core.result("k2")["result"] == {"status": "no_active_focusing_operation"}  # type: ignore[index]
    assert core.call("timer.interrupt", {"operation_id": "op"}, call_id="k3")["code"] == "tool_input_invalid"
    assert core.result("k1") is None


def test_a_second_start_is_refused_and_makes_nothing(core: Core) -> None:
    begin(core)
    before = core.dump("calls", "calls_by_id", "calls_by_time", "outbox", "agents", "receipts", "receipt_ring")
    receipt = core.call("timer.start", START, call_id="k2")
    assert receipt["code"] == "active_focusing_operation"
    assert core.dump("calls", "calls_by_id", "calls_by_time", "outbox", "agents", "receipts", "receipt_ring") == before
    assert core.call("timer.start", START, call_id="k1")["accepted"], "a resend of the first is no second start"
    core.call_accepted("timer.start", START, call_id="k4", conversation="c2")


@pytest.mark.parametrize("duration", [0, -1, 1.5, True, "60", 10**12, None])
def test_a_duration_that_cannot_be_kept_is_refused_with_its_path(core: Core, duration: Any) -> None:
    receipt = core.call("timer.start", {"duration_seconds": duration})
    assert (receipt["code"], receipt["detail"]["path"]) == ("tool_input_invalid", "/duration_seconds")


@pytest.mark.parametrize("duration", [0, -5, -2_000_000_000, -(2**53 - 1)])
def test_no_operation_ends_before_it_begins(duration: int) -> None:
    """A manifest that a version before has taken may name no minimum."""
    manifest = bundles.timer()
    del manifest["tools"][0]["input_schema"]["properties"]["duration_seconds"]["minimum"]
    core = Core(manifests=(manifest,))
    core.connect("a1")
    for number in range(12):
        receipt = core.call("timer.start", {"duration_seconds": duration}, call_id=f"k{number}")
        assert (receipt["code"], receipt["detail"]["path"]) == ("tool_input_invalid", "/duration_seconds")
    core.call_accepted("timer.start", {"duration_seconds": 1}, call_id="k")


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        (lambda core: core.did("conversation.home", conversation_id="c1"), "left_workspace"),
        (lambda core: core.did("instance.back", instance_id=core.instance("timer").instance_id), "left_workspace"),
        (lambda core: core.did("instance.close", instance_id=core.instance("timer").instance_id), "app_closed"),
        (lambda core: core.call_accepted("lab.launch", call_id="other"), "screen_taken"),
        (lambda core: core.send("tool.cancel", {"call_id": "k1"}), "cancelled_by_agent"),
        (lambda core: core.did("call.cancel", actor="operator", call_id="k1"), "cancelled_by_operator"),
        (lambda core: core.did("call.cancel", call_id="k1"), "cancelled_by_person"),
    ],
    ids=["home", "back", "close", "another app", "cancel", "operator's cancel", "person's cancel"],
)
def test_leaving_interrupts(core: Core, leave: Any, reason: str) -> None:
    begin(core)
    core.start("timer")
    leave(core)
    assert outcome(core) == ("interrupted", reason)
    assert core.instance("timer").state == "closed"
    core.advance(120)
    assert len(core.results("k1")) == 1


def test_neither_a_crash_nor_a_reload_ends_it(core: Core) -> None:
    begin(core)
    worker = core.start("timer")
    worker.take("k1")
    worker.exit("killed")
    core.advance(1)
    assert core.result() is None
    core.advance(60)
    assert outcome(core) == ("completed", None)


def test_a_broken_worker_interrupts_it_in_the_end(core: Core) -> None:
    begin(core, duration_seconds=600)
    for _ in range(6):
        core.unstarted.pop().run().exit("killed")
        core.advance(6)
    assert outcome(core) == ("interrupted", "app_crashed")


def test_a_restart_before_its_time_goes_on(core: Core) -> None:
    operation = begin(core)
    core.advance(30)
    core.boot()
    core.connect("a1", "l2")
    assert core.row(OPERATIONS, operation.operation_id).ends_ms == operation.ends_ms
    core.advance(29)
    assert core.result() is None
    core.advance(2)
    assert outcome(core) == ("completed", None)


def test_what_was_due_while_the_runtime_was_down_is_settled_at_boot_once(core: Core) -> None:
    operation = begin(core)
    core.wall_ms += 3_600_000
    core.boot(lose_effects=True)
    core.boot()
    core.connect("a1", "l2")
    assert outcome(core) == ("completed", None)
    assert core.row(OPERATIONS, operation.operation_id).late_ms == 3_540_000
    assert len(core.audited("operation.completed")) == 1


def test_a_clock_set_back_does_not_end_it_early(core: Core) -> None:
    operation = begin(core)
    core.advance(0, wall=-3600)
    core.advance(100)
    assert core.row(OPERATIONS, operation.operation_id).state == "focusing"
    core.advance(3600)
    assert outcome(core) == ("completed", None)


def test_a_timer_that_woke_too_early_is_armed_again(core: Core) -> None:
    """The wall clock reached the deadline, the timer was taken, and the clock was set back before the rule looked."""
    from lineup_supervisor.core import operations
    from lineup_supervisor.core.ctx import Ctx
    from lineup_supervisor.core.events import Wake

    operation = begin(core)
    with core.store.write() as txn:
        operations.due(Ctx(txn, Wake(event_id="early"), core.now), operation.operation_id)
    assert core.result() is None
    core.advance(61)
    assert outcome(core) == ("completed", None)


def test_a_suspended_machine_honours_the_wall(core: Core) -> None:
    begin(core, duration_seconds=600)
    core.advance(1, wall=480)
    assert core.result() is None
    core.advance(119)
    assert core.result() is None
    core.advance(2)
    assert outcome(core) == ("completed", None)


def test_its_app_cannot_leave_or_close(core: Core) -> None:
    begin(core)
    worker = core.start("timer")
    assert worker.refused("lifecycle.background") == "lifecycle_denied"
    assert worker.refused("lifecycle.close") == "lifecycle_denied"
    assert core.result() is None
