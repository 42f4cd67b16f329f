"""What interrupts a focus session, what does not, and what its end does: all of it in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import CALLS, INSTANCES, OPERATIONS
from operations.focus import OF_A_REFUSAL, Focus

Deed = Callable[[Focus], Any]


def home(core: Focus) -> Any:
    return core.did("conversation.home", conversation_id="c1")


def front_of_another(core: Focus) -> Any:
    return core.did("instance.front", instance_id=core.instance("lab").instance_id)


def launch_of_another(core: Focus) -> Any:
    return core.call_accepted("lab2.launch", call_id="k-other")


def back(core: Focus) -> Any:
    return core.did("instance.back", instance_id=core.instance("pomodoro").instance_id)


def close(core: Focus) -> Any:
    return core.did("instance.close", instance_id=core.instance("pomodoro").instance_id)


def interrupt(core: Focus) -> Any:
    return core.interrupt()


def two_in_one_conversation(core: Focus) -> None:
    """The lab behind, the session in front."""
    core.call_accepted("lab.direct", call_id="k-lab")
    core.start("lab").take("k-lab")
    core.begin(1500, activity="reading")


LEAVINGS: list[tuple[Deed, str, str]] = [
    (interrupt, "interrupted_by_agent", "chat"),
    (home, "left_workspace", "chat"),
    (back, "left_workspace", "chat"),
    (front_of_another, "left_workspace", "lab"),
    (launch_of_another, "screen_taken", "lab2"),
    (close, "app_closed", "chat"),
]


@pytest.mark.parametrize(("leave", "reason", "front"), LEAVINGS, ids=lambda each: getattr(each, "__name__", ""))
@pytest.mark.conformance("04-4.5.1")
@pytest.mark.conformance("04-4.5.3")
@pytest.mark.conformance("04-6.4")
def test_leaving_interrupts_and_closes(core: Focus, leave: Deed, reason: str, front: str) -> None:
    two_in_one_conversation(core)
    leave(core)
    assert core.outcome() == ("interrupted", reason)
    assert core.operation().interruption_reason == reason
    core.assert_over()
    assert core.front() == front
    core.advance(3600)
    assert len(core.results("k1")) == 1
    assert len(core.audited("operation.interrupted")) == 1
    assert core.audited("operation.completed") == []


@pytest.mark.parametrize(("leave", "reason", "front"), LEAVINGS, ids=lambda each: getattr(each, "__name__", ""))
@pytest.mark.conformance("04-6.4")
def test_the_end_is_one_transaction(leave: Deed, reason: str, front: str) -> None:
    """Dead before the commit, everything is as it was; dead after it, everything is done, the result included."""

    def ready() -> Focus:
        core = Focus()
        two_in_one_conversation(core)
        core.start("pomodoro").take("k1")
        return core

    rehearsal, core = ready(), ready()
    made = len(rehearsal.events)
    leave(rehearsal)
    (event,) = rehearsal.events[made:]
    before = core.store.dump()
    core.do_without_commit(event)
    assert core.store.dump() == before
    core.do(event, lose_effects=True)
    assert core.operation().state == "interrupted"
    core.assert_over()
    assert core.front() == front
    core.restart()
    assert core.outcome() == ("interrupted", reason)


@pytest.mark.parametrize("lost", [False, True], ids=["lives", "dies after the commit"])
@pytest.mark.conformance("04-4.5.1")
@pytest.mark.conformance("04-4.5.5")
@pytest.mark.conformance("04-6.5")
def test_completion_writes_the_result_closes_ends_the_session_and_restores_interact_in_one_step(
    core: Focus, lost: bool
) -> None:
    core.begin(60)
    worker = core.start("pomodoro")
    worker.take("k1")
    core.wall_ms += 60_000
    core.do(ev.Wake(event_id=core.new_id()), lose_effects=lost)
    assert core.operation().state == "completed"
    core.assert_over()
    assert core.front() == "chat"
    assert core.row(INSTANCES, core.instance("chat").instance_id).state == "foreground"
    if lost:
        core.restart()
    else:
        assert [m["body"]["operation"]["state"] for m in worker.messages if m["type"] == "operation.changed"] == [
            "completed"
        ]
        assert worker.stopped == "closed", "no completion page: it goes at once"
    assert core.outcome() == ("completed", None)
    kinds = [row.kind for row in core.audited("operation.completed") + core.audited("instance.closed")]
    assert kinds == ["operation.completed", "instance.closed"]
    order = ["operation.completed", "call.completed", "session.ended", "instance.closed", "focus.restored"]
    rows = [core.audited(kind)[-1].seq for kind in order if kind != "focus.restored"]
    assert rows == sorted(rows), "the result first, then the close"


NOT_LEAVING: list[tuple[str, Deed]] = [
    ("the screen is locked or dimmed: nothing reaches the Runtime", lambda core: core.advance(300)),
    ("the surface is torn down and loaded again", lambda core: torn_and_reloaded(core)),
    ("the workspace reloads", lambda core: core.query("snapshot")),
    ("hostshell restarts: links are cut", lambda core: (core.hang_up(), core.connect("a1", "l2"))),
    ("the worker crashes", lambda core: (core.workers[worker_key(core)].exit("killed"), core.advance(5))),
    ("the worker hangs", lambda core: (core.workers[worker_key(core)].exit("hung"), core.advance(5))),
    ("the worker is reclaimed", lambda core: core.do(ev.ReclaimWorkers(event_id=core.new_id(), count=8))),
    ("the Runtime restarts", lambda core: core.restart()),
    ("the agent says something", lambda core: core.send("message.text", {"text": "hush"}, conversation="c1")),
    ("the person says something", lambda core: core.did("person.text", conversation_id="c1", text="quiet")),
    ("a call that needs no screen", lambda core: core.call_accepted("lab.direct", call_id="k-lab")),
    ("another conversation", lambda core: core.begin(60, call_id="k-c2", conversation="c2")),
]


def worker_key(core: Focus) -> tuple[str, int]:
    pomodoro = core.instance("pomodoro")
    return pomodoro.instance_id, pomodoro.incarnation


def torn_and_reloaded(core: Focus) -> None:
    worker = core.workers[worker_key(core)]
    for _ in range(2):
        surface = worker.accept("surface.open", entry="surface/index.html")
        core.did("surface.torn", surface_id=surface["surface_id"])


@pytest.mark.parametrize(("what", "deed"), NOT_LEAVING, ids=[what for what, _ in NOT_LEAVING])
@pytest.mark.conformance("04-4.5.3")
@pytest.mark.conformance("04-6.3")
def test_what_is_no_leaving_does_not_interrupt(core: Focus, what: str, deed: Deed) -> None:
    operation = core.begin(600)
    core.start("pomodoro").take("k1")
    deed(core)
    assert core.operation() == operation, "nothing about it has changed"
    assert core.front() == "pomodoro"
    core.advance((operation.ends_ms - core.wall_ms) / 1000)
    assert core.outcome() == ("completed", None)
    assert core.operation().ended_ms == operation.ends_ms


@pytest.mark.conformance("04-4.5.5")
@pytest.mark.conformance("04-6.6")
def test_what_comes_after_the_end_rewrites_nothing(core: Focus) -> None:
    core.begin(60)
    pomodoro = core.instance("pomodoro")
    core.advance(60)
    result, operation = core.result(), core.operation()
    of_the_asking = (*OF_A_REFUSAL, "action_results", "timers", "timer_due", "descriptors")
    before = core.dump(*of_the_asking)
    record = core.row(CALLS, "a1", "k1")
    assert core.action("instance.close", instance_id=pomodoro.instance_id).code == "app_closed"
    assert core.action("instance.front", instance_id=pomodoro.instance_id).code == "app_closed"
    core.send("tool.cancel", {"call_id": "k1"})
    core.action("call.cancel", actor="operator", call_id="k1")
    assert core.interrupt()["status"] == "operation_already_final"
    core.wake()
    assert core.dump(*of_the_asking) == before
    assert (core.row(CALLS, "a1", "k1"), core.operation(), core.result()) == (record, operation, result)


@pytest.mark.parametrize("leave", [close, home], ids=["close", "leave"])
@pytest.mark.conformance("04-6.6")
def test_an_ended_call_is_never_rewritten_to_app_closed_while_other_open_calls_are(core: Focus, leave: Deed) -> None:
    """The session's own call says ``interrupted``; an ordinary open call of a closed MiniApp ends as ``app_closed``."""
    two_in_one_conversation(core)
    leave(core)
    assert core.row(CALLS, "a1", "k1").status == "completed"
    core.did("instance.close", instance_id=core.instance("lab").instance_id, force=True)
    ordinary = core.result("k-lab")
    assert (ordinary["status"], ordinary["error"]["code"]) == ("cancelled", "app_closed")  # type: ignore[index]
    assert core.outcome()[0] == "interrupted"


def test_a_close_takes_no_new_calls_and_the_result_waits_in_the_outbox(core: Focus) -> None:
    core.begin(600)
    core.hang_up()
    pomodoro = core.instance("pomodoro")
    close(core)
    assert core.result("k1") is None, "the agent is away"
    core.connect("a1", "l2")
    assert core.outcome() == ("interrupted", "app_closed")
    core.call_accepted("pomodoro.start", {"duration_seconds": 60}, call_id="k2", link="l2")
    assert core.instance("pomodoro").instance_id != pomodoro.instance_id
    assert [key for key, _ in core.dump()["inbox"] if pomodoro.instance_id.encode() in key] == []


def test_what_was_in_front_before_comes_back(core: Focus) -> None:
    core.call_accepted("lab.launch", call_id="k-lab")
    core.start("lab").take("k-lab")
    core.begin(60)
    assert core.stack() == ["chat", "lab", "pomodoro"]
    core.advance(60)
    assert core.stack() == ["chat", "lab"]
    assert core.row(INSTANCES, core.instance("lab").instance_id).state == "foreground"


@pytest.mark.parametrize("reason", ["app_start_failed", "isolation_insufficient"])
def test_a_bundle_that_cannot_start_gives_the_screen_back(core: Focus, reason: str) -> None:
    core.begin(600)
    (worker,) = core.unstarted
    worker.exit(reason)
    assert core.outcome() == ("interrupted", reason)
    core.assert_over()
    assert core.front() == "chat"


def test_a_worker_that_ends_again_and_again_interrupts_it_in_the_end(core: Focus) -> None:
    core.begin(600)
    for _ in range(core.policy.restarts_max):
        core.unstarted.pop().run().exit("killed")
        assert core.operation().state == "focusing"
        core.advance(6)
    core.unstarted.pop().run().exit("killed")
    assert core.outcome() == ("interrupted", "app_crashed")
    assert core.front() == "chat"


def test_another_app_cannot_take_the_screen_from_a_session(core: Focus) -> None:
    two_in_one_conversation(core)
    lab = core.instance("lab")
    worker = core.workers[lab.instance_id, lab.incarnation]
    assert worker.refused("lifecycle.foreground") == "lifecycle_denied"
    assert core.operation().state == "focusing"


def test_a_removed_or_upgraded_bundle_leaves_a_session_alone(core: Focus) -> None:
    """Pomodoro belongs to the distribution: it cannot be removed, and a new version changes nothing that runs."""
    operation = core.begin(600)
    assert core.action("apps.remove", actor="operator", app_scope="pomodoro").code == "conflict"
    core.restart()
    assert core.row(OPERATIONS, operation.operation_id) == operation


@pytest.mark.conformance("04-4.5.11")
def test_the_audit_tells_the_whole_story_refusals_and_recovery_included(core: Focus) -> None:
    operation = core.begin(60, activity="essay")
    core.call("pomodoro.start", {"duration_seconds": 60}, call_id="k2")
    core.call("pomodoro.start", {"duration_seconds": 0}, call_id="k3")
    core.call("pomodoro.interrupt", {"operation_id": "op"}, call_id="k4")
    core.call_accepted("confirm", {"title": "T", "prompt": "P"}, call_id="k5")
    core.start("pomodoro").exit("killed")
    core.restart(seconds_down=60)
    kinds = [row["kind"] for row in core.query("story", id=operation.operation_id)["entries"]]
    assert kinds[:1] == ["call.received"]
    in_order = ["operation.started", "call.held", "operation.completed", "call.completed", "instance.closed"]
    assert [kind for kind in kinds if kind in in_order] == in_order
    refused = {row.subjects[0]: row.detail["code"] for row in core.audited("call.rejected")}
    assert refused == {"k2": "active_focusing_operation", "k3": "tool_input_invalid", "k4": "tool_input_invalid"}
    (completed,) = core.audited("operation.completed")
    assert "late_ms" not in completed.detail, "it was due at this very moment"
    assert {row.kind for row in core.audited("worker.exited")} == {"worker.exited"}
    assert len(core.audited("runtime.started")) == 2
    assert [row.subjects[0] for row in core.audited("session.ended")] == [core.session().session_id]
    assert core.audited("interaction.asked")
