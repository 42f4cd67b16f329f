"""A call runs: claims, progress, results, cancels, timeouts, crashes, restarts of the Runtime."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Core, Worker, status_of
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import CALLS, INBOX, INSTANCES, START_QUEUE, WORKERS

RESULT = {"n": 7, "by": "me"}


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def running(core: Core, tool_id: str = "lab.direct", call_id: str = "k1") -> Worker:
    """A call whose delivery its worker has taken over."""
    core.call_accepted(tool_id, call_id=call_id)
    worker = core.start("lab")
    worker.take(call_id)
    return worker


def unchanged(core: Core, worker: Worker, refusal: str, type_: str, /, **body: Any) -> None:
    before = core.dump()
    assert worker.refused(type_, **body) == refusal
    assert core.dump() == before, "a refused command changes nothing"
    assert core.audited("command.refused")[-1].detail["code"] == refusal


# claims and results


def test_a_delivery_is_claimed_then_completed(core: Core) -> None:
    worker = running(core)
    assert status_of(core) == "running"
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    result = core.result()
    assert (result["status"], result["result"]) == ("completed", RESULT)  # type: ignore[index]
    assert status_of(core) == "completed"
    assert core.dump()["open_calls"] == []


def test_an_app_may_complete_without_a_claim(core: Core) -> None:
    """``retry_safe`` or not: what was delivered may be ended; the waiting delivery is withdrawn."""
    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert core.dump()["inbox"] == []
    assert worker.refused("inbox.ack", seq=1) == "call_already_final"


def test_a_second_result_is_refused(core: Core) -> None:
    worker = running(core)
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    unchanged(core, worker, "call_already_final", "tool.complete", call_id="k1", result={"n": 8})
    unchanged(core, worker, "call_already_final", "tool.fail", call_id="k1", code="x", message="y")
    unchanged(core, worker, "call_already_final", "tool.cancel", call_id="k1")
    unchanged(core, worker, "call_already_final", "tool.progress", call_id="k1", progress=0.5)
    assert core.result()["result"] == RESULT  # type: ignore[index]


@pytest.mark.conformance("03-9.10")
@pytest.mark.parametrize("result", [{}, {"n": "seven"}, {"n": 7, "more": 1}, {"n": 7.5}])
def test_a_result_against_the_schema_is_refused_and_the_call_goes_on(core: Core, result: Any) -> None:
    worker = running(core)
    unchanged(core, worker, "tool_output_invalid", "tool.complete", call_id="k1", result=result)
    worker.accept("tool.complete", call_id="k1", result=RESULT)


def test_an_app_fails_its_call_with_its_own_code(core: Core) -> None:
    worker = running(core)
    worker.accept("tool.fail", call_id="k1", code="no_paper", message="The printer is empty.", detail={"tray": 2})
    error = core.result()["error"]  # type: ignore[index]
    assert error == {"code": "no_paper", "message": "The printer is empty.", "detail": {"tray": 2}}


def test_nobody_ends_the_call_of_another(core: Core) -> None:
    running(core)
    core.call_accepted("lab2.direct", call_id="k2")
    other = core.start("lab2")
    unchanged(core, other, "app_scope_mismatch", "tool.complete", call_id="k1", result=RESULT)
    unchanged(core, other, "app_scope_mismatch", "tool.progress", call_id="k1", progress=0.5)
    unchanged(core, other, "call_not_found", "tool.complete", call_id="k-none", result=RESULT)


def test_a_call_that_was_not_delivered_yet_cannot_be_ended(core: Core) -> None:
    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.exit("killed")
    core.advance(1)
    worker = core.unstarted.pop()
    worker.started()
    worker.say("worker.hello", protocols=[1], sdk_version="1.0")
    assert worker.refused("tool.complete", call_id="k1", result=RESULT) in ("conflict", "message_invalid")
    assert core.result() is None


# progress


@pytest.mark.conformance("03-9.10")
def test_progress_reaches_the_agent(core: Core) -> None:
    worker = running(core)
    worker.accept("tool.progress", call_id="k1", progress=0.25, message="quarter")
    worker.accept("tool.progress", call_id="k1", progress=0.5)
    frames = [f for f in core.frames["a1"] if f["type"] == "lineup.v1.tool.progress"]
    assert [f["payload"]["progress"] for f in frames] == [0.25, 0.5]
    assert [f["seq"] for f in frames] == [1, 2]


@pytest.mark.parametrize("value", [-0.1, 1.1, 2])
def test_progress_is_from_0_to_1(core: Core, value: float) -> None:
    worker = running(core)
    unchanged(core, worker, "message_invalid", "tool.progress", call_id="k1", progress=value)


def test_progress_that_was_never_sent_is_replaced_in_place(core: Core) -> None:
    worker = running(core)
    core.hang_up()
    for value in (0.1, 0.2, 0.3):
        worker.accept("tool.progress", call_id="k1", progress=value)
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    frames = [f for f in core.connect("a1", "l2") if "seq" in f]
    assert [(f["seq"], f["payload"].get("progress")) for f in frames] == [(1, 0.3), (2, None)]


# cancel


def test_a_call_that_never_left_is_cancelled_at_once(core: Core) -> None:
    core.call_accepted("lab.direct")
    core.send("tool.cancel", {"call_id": "k1", "reason": "changed my mind"})
    result = core.result()
    assert (result["status"], result["error"]["message"]) == ("cancelled", "changed my mind")  # type: ignore[index]
    worker = core.unstarted.pop().run()
    assert worker.deliveries() == []


def test_a_running_call_is_cancelled_by_its_app(core: Core) -> None:
    worker = running(core)
    core.send("tool.cancel", {"call_id": "k1", "reason": "enough"})
    assert core.result() is None
    (delivery,) = worker.deliveries("tool.cancel")
    assert delivery["body"] == {"call_id": "k1", "reason": "enough"}
    worker.accept("tool.cancel", call_id="k1")
    worker.accept("inbox.ack", seq=delivery["seq"])
    assert core.result()["status"] == "cancelled"  # type: ignore[index]


def test_a_result_may_win_against_a_cancel(core: Core) -> None:
    worker = running(core)
    core.send("tool.cancel", {"call_id": "k1"})
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert core.result()["status"] == "completed"  # type: ignore[index]
    core.advance(10)
    assert len(core.results("k1")) == 1


def test_a_cancel_that_nobody_answers_has_its_grace(core: Core) -> None:
    running(core)
    core.send("tool.cancel", {"call_id": "k1"})
    core.advance(4.9)
    assert core.result() is None
    core.advance(0.2)
    assert core.result()["status"] == "cancelled"  # type: ignore[index]
    assert core.audited("call.cancel_unanswered")


def test_a_cancelled_call_whose_worker_dies_is_cancelled(core: Core) -> None:
    worker = running(core, "lab.safe")
    core.send("tool.cancel", {"call_id": "k1"})
    worker.exit("killed")
    assert core.result()["status"] == "cancelled"  # type: ignore[index]


def test_cancel_of_a_final_call_says_so(core: Core) -> None:
    worker = running(core)
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    (receipt,) = core.send("tool.cancel", {"call_id": "k1"})
    assert receipt["payload"]["code"] == "call_already_final"
    assert receipt["payload"]["detail"]["record"]["result"] == RESULT


def test_cancel_and_result_in_either_order_give_one_result(core: Core) -> None:
    """Both in one batch, both orders."""
    worker = running(core)
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    core.send("tool.cancel", {"call_id": "k1"})
    core.call_accepted("lab.direct", call_id="k2")
    worker.take("k2")
    core.send("tool.cancel", {"call_id": "k2"})
    worker.accept("tool.complete", call_id="k2", result=RESULT)
    assert [core.result(k)["status"] for k in ("k1", "k2")] == ["completed", "completed"]  # type: ignore[index]


# timeouts


def test_a_call_runs_out_of_time(core: Core) -> None:
    worker = running(core, "lab.brief")
    core.advance(1.9)
    assert core.result() is None
    core.advance(0.2)
    result = core.result()
    assert (result["status"], result["error"]["code"]) == ("expired", "tool_timeout")  # type: ignore[index]
    assert worker.deliveries("tool.cancel")[0]["body"]["call_id"] == "k1", "its app is told to stop"
    unchanged(core, worker, "call_already_final", "tool.complete", call_id="k1", result=RESULT)


def test_an_undelivered_call_that_runs_out_of_time_is_never_delivered(core: Core) -> None:
    core.call_accepted("lab.brief")
    core.advance(3)
    assert core.result()["status"] == "expired"  # type: ignore[index]
    assert core.dump()["inbox"] == []


def test_a_wall_jump_neither_hastens_nor_delays_a_timeout(core: Core) -> None:
    running(core, "lab.brief")
    core.advance(1, wall=3600)
    assert core.result() is None
    core.advance(0.5, wall=-7200)
    assert core.result() is None
    core.advance(1, wall=0)
    assert core.result()["status"] == "expired"  # type: ignore[index]


def test_a_persons_time_does_not_count(core: Core) -> None:
    worker = running(core, "lab.brief")
    core.advance(1.5)
    request = {"kind": "confirm", "title": "T", "prompt": "P"}
    asked = worker.accept("ui.request", request=request, parent_call_id="k1")
    core.advance(3600)
    assert core.result() is None
    core.did("interaction.answer", interaction_id=asked["interaction_id"], result={"approved": True})
    core.advance(0.4)
    assert core.result() is None, "half a second was left"
    core.advance(0.2)
    assert core.result()["status"] == "expired"  # type: ignore[index]


def test_two_questions_at_once_pause_once(core: Core) -> None:
    worker = running(core, "lab.brief")
    request = {"kind": "confirm", "title": "T", "prompt": "P"}
    ids = [worker.accept("ui.request", request=request, parent_call_id="k1")["interaction_id"] for _ in range(2)]
    core.advance(10)
    core.did("interaction.answer", interaction_id=ids[0], result={"approved": True})
    core.advance(10)
    assert core.result() is None, "the second question still waits"
    core.did("interaction.cancel", interaction_id=ids[1])
    core.advance(2.1)
    assert core.result()["status"] == "expired"  # type: ignore[index]


# crashes


def test_a_call_that_may_run_twice_is_delivered_again(core: Core) -> None:
    worker = running(core, "lab.safe")
    worker.exit("killed")
    assert core.result() is None
    core.advance(1)
    again = core.start("lab")
    body = again.take("k1")
    assert (body["attempt"], body["call_id"]) == (2, "k1")
    again.accept("tool.complete", call_id="k1", result=RESULT)
    assert core.result()["result"] == RESULT  # type: ignore[index]


def test_a_call_that_must_not_run_twice_has_an_unknown_outcome(core: Core) -> None:
    worker = running(core)
    worker.exit("killed")
    result = core.result()
    assert (result["status"], result["error"]["code"]) == ("failed", "outcome_unknown")  # type: ignore[index]
    core.advance(120)
    assert core.unstarted == [], "nothing is left for another worker to do"


def test_an_unclaimed_delivery_comes_again_as_it_was(core: Core) -> None:
    core.call_accepted("lab.direct")
    first = core.start("lab")
    sent = first.deliveries()
    first.exit("killed")
    core.advance(1)
    second = core.start("lab")
    assert second.deliveries() == sent, "same seq, same message_id, same attempt"


def test_a_late_message_of_a_dead_worker_has_no_effect(core: Core) -> None:
    worker = running(core)
    worker.exit("killed")
    before = core.dump()
    worker.raw({"type": "tool.complete", "id": "z", "body": {"call_id": "k1", "result": RESULT}})
    assert core.dump() == before
    assert core.audited("worker.late_message")


@pytest.mark.conformance("03-9.13")
def test_deliveries_keep_their_order_over_crashes(core: Core) -> None:
    for n in range(4):
        core.call_accepted("lab.safe", call_id=f"k{n}")
    worker = core.start("lab")
    worker.take("k0")
    worker.exit("killed")
    core.advance(1)
    again = core.start("lab")
    assert [d["body"]["call_id"] for d in again.deliveries()] == ["k1", "k2", "k3", "k0"]
    assert [d["seq"] for d in again.deliveries()] == [2, 3, 4, 5]


def test_the_inbox_window_moves_with_the_acknowledgements(core: Core) -> None:
    for n in range(80):
        core.call_accepted("lab.safe", call_id=f"k{n}")
    worker = core.start("lab")
    assert len(worker.deliveries()) == 64
    worker.accept("inbox.ack", seq=1)
    worker.accept("inbox.ack", seq=2)
    assert [d["seq"] for d in worker.deliveries()] == list(range(1, 67))
    unchanged(core, worker, "message_invalid", "inbox.ack", seq=67)
    unchanged(core, worker, "call_already_final", "inbox.ack", seq=1)


# the Runtime itself


def test_a_restart_of_the_runtime_is_a_crash_of_its_workers(core: Core) -> None:
    running(core, "lab.direct", "k1")
    core.call_accepted("lab.safe", call_id="k2")
    core.workers[core.instance("lab").instance_id, 1].take("k2")
    core.call_accepted("lab.safe", call_id="k3")
    core.boot()
    core.connect("a1", "l2")
    assert core.result("k1")["error"]["code"] == "outcome_unknown"  # type: ignore[index]
    worker = core.start("lab")
    assert [(d["body"]["call_id"], d["body"]["attempt"]) for d in worker.deliveries()] == [("k3", 1), ("k2", 2)]


def test_recovery_is_idempotent(core: Core) -> None:
    """Three boots in a row, the effects of the first two lost: the same as one."""
    running(core, "lab.safe", "k1")
    core.call_accepted("lab2.direct", call_id="k2")
    core.boot(lose_effects=True)
    core.boot(lose_effects=True)
    once = core.dump("workers", "instances", "inventory", "timers", "timer_due", "agents")
    core.boot()
    assert core.dump("workers", "instances", "inventory", "timers", "timer_due", "agents") == once
    core.connect("a1", "l2")
    lab, lab2 = core.start("lab"), core.start("lab2")
    assert [d["body"]["call_id"] for d in lab.deliveries()] == ["k1"]
    assert [d["body"]["call_id"] for d in lab2.deliveries()] == ["k2"]
    assert len(core.unstarted) == 0


@pytest.mark.conformance("03-9.11")
def test_lost_effects_are_made_good_by_the_next_boot(core: Core) -> None:
    """Killed after the commit and before any effect: nobody heard anything, and everything is said after all."""
    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.take("k1")
    frame = {"type": "tool.complete", "id": "z", "body": {"call_id": "k1", "result": RESULT}}
    core.do(
        ev.WorkerFrame(event_id=core.new_id(), instance_id=worker.instance_id, incarnation=1, frame=frame),
        lose_effects=True,
    )
    assert core.result() is None
    core.boot()
    core.connect("a1", "l2")
    assert core.result()["result"] == RESULT  # type: ignore[index]


def test_a_clean_stop_lets_every_worker_go_and_halts(core: Core) -> None:
    worker = running(core, "lab.safe")
    core.stop()
    assert worker.stopped == "runtime_stopping"
    assert not core.halted
    worker.exit("stopped")
    assert core.halted
    assert core.unstarted == [], "nothing is started while stopping"
    core.halted = False
    core.boot()
    core.connect("a1", "l2")
    again = core.start("lab")
    assert again.take("k1")["attempt"] == 2


def test_a_stop_with_no_worker_halts_at_once(core: Core) -> None:
    core.stop()
    assert core.halted


# starting and stopping processes


def test_starts_at_once_are_bounded() -> None:
    core = Core(policy=Policy(workers_starting_max=1))
    core.call_accepted("lab.direct", call_id="k1")
    core.call_accepted("lab2.direct", call_id="k2")
    assert [w.app_scope for w in core.unstarted] == ["lab"]
    assert len(list(core.scan(START_QUEUE))) == 1
    core.start("lab")
    assert [w.app_scope for w in core.unstarted] == ["lab2"]


def test_room_is_made_by_letting_an_idle_worker_go() -> None:
    core = Core(policy=Policy(workers_max=1))
    worker = running(core)
    core.call_accepted("lab2.direct", call_id="k2")
    assert worker.stopped is None, "it runs a call that must not run twice"
    assert core.unstarted == []
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert worker.stopped == "reclaimed"
    assert core.unstarted == [], "room comes when it has exited"
    worker.exit("stopped")
    core.start("lab2").take("k2")


def test_an_idle_worker_is_let_go_after_a_while(core: Core) -> None:
    worker = running(core)
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    core.advance(59)
    assert worker.stopped is None
    core.advance(2)
    assert worker.stopped == "idle"
    worker.exit("stopped")
    assert core.dump()["workers"] == []
    assert core.unstarted == []
    core.call_accepted("lab.poke", call_id="k2")
    core.start("lab").take("k2")
    assert core.row(INSTANCES, worker.instance_id).incarnation == 2, "the same instance comes back"


def test_a_worker_that_does_not_get_ready_in_time_is_killed(core: Core) -> None:
    core.call_accepted("lab.safe")
    worker = core.unstarted.pop()
    worker.started()
    core.advance(21)
    assert worker.stopped == "start_timeout"
    worker.exit("stopped")
    core.advance(1)
    core.start("lab").take("k1")
    assert len(core.row(INSTANCES, worker.instance_id).crashes) == 1, "it counts as a crash"


def test_a_worker_that_breaks_the_protocol_is_killed_and_that_counts(core: Core) -> None:
    worker = running(core, "lab.safe")
    worker.raw(["not", "a", "map"])
    assert worker.stopped == "violation"
    worker.exit("stopped")
    assert len(core.row(INSTANCES, worker.instance_id).crashes) == 1


def test_restart_intensity_closes_the_instance(core: Core) -> None:
    core.call_accepted("lab.launch")
    for n in range(6):
        core.unstarted.pop().run().exit("killed")
        core.advance(5)
        assert (core.result() is None) == (n < 5)
    result = core.result()
    assert (result["status"], result["error"]["code"]) == ("failed", "app_crashed")  # type: ignore[index]
    assert core.instance("lab").state == "closed"
    assert core.query("snapshot")["conversations"][0]["focus"] == [core.instance("chat").instance_id]
    assert core.unstarted == []


def test_crashes_far_apart_do_not_add_up(core: Core) -> None:
    core.call_accepted("lab.launch")
    for _ in range(12):
        worker = core.unstarted.pop().run()
        core.advance(13)
        worker.exit("killed")
        core.advance(6)
    assert core.instance("lab").state != "closed"


def test_an_app_that_keeps_crashing_is_quarantined() -> None:
    core = Core(policy=Policy(restarts_max=0))
    core.connect("a1")
    for n in range(3):
        core.call_accepted("lab.direct", call_id=f"k{n}")
        core.start("lab").exit("killed")
    assert core.call("lab.direct", call_id="k9")["code"] in ("inventory_revision_mismatch", "app_quarantined")
    assert core.call("lab.direct", call_id="k10")["code"] == "app_quarantined"
    core.did("apps.enable", actor="operator", app_scope="lab")
    core.call_accepted("lab.direct", call_id="k11")


@pytest.mark.parametrize("reason", ["isolation_insufficient", "load"])
def test_a_start_that_cannot_work_ends_the_call_and_restores_interact(core: Core, reason: str) -> None:
    core.call_accepted("lab.launch")
    worker = core.unstarted.pop()
    if reason == "load":
        worker.started()
        worker.say("worker.hello", protocols=[1], sdk_version="1.0")
        worker.say("worker.failed", code="app_start_failed", message="ImportError: no module named paint")
        code = "app_start_failed"
    else:
        worker.exit(reason)
        code = reason
    error = core.result()["error"]  # type: ignore[index]
    assert error["code"] == code
    chat = core.instance("chat")
    assert core.query("snapshot")["conversations"][0]["focus"] == [chat.instance_id]
    assert core.row(INSTANCES, chat.instance_id).state == "foreground"


def test_an_unknown_protocol_version_is_refused_by_name(core: Core) -> None:
    core.call_accepted("lab.direct")
    worker = core.unstarted.pop()
    worker.started()
    worker.say("worker.hello", protocols=[99], sdk_version="9.0")
    assert worker.messages[-1]["type"] == "worker.refuse"
    assert worker.messages[-1]["body"]["code"] == "protocol_unsupported"
    assert core.result()["error"]["code"] == "app_start_failed"  # type: ignore[index]


def test_hello_twice_is_a_violation(core: Core) -> None:
    worker = running(core)
    worker.say("worker.hello", protocols=[1], sdk_version="1.0")
    assert worker.stopped == "violation"


def test_rows_of_a_settled_call_leave_nothing_open(core: Core) -> None:
    worker = running(core)
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    rows = core.dump()
    assert all(rows[name] == [] for name in ("open_calls", "inbox", "start_queue", "interactions_by_call"))
    assert {CALLS.name, INBOX.name, WORKERS.name} <= set(rows)
