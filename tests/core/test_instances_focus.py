"""Instances and the screen: the focus stack, what apps may ask of it, closing, suspending, continuing."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Core, Worker
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import INSTANCES, INTERACTIONS, NOTIFICATIONS, SESSIONS, SNAPSHOTS
from simulation import bundles

RESULT = {"n": 1}


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def focus(core: Core, conversation: str = "c1") -> list[str]:
    """The scopes in the stack, bottom to top."""
    row = next(c for c in core.query("snapshot")["conversations"] if c["conversation_id"] == conversation)
    return [core.row(INSTANCES, instance_id).app_scope for instance_id in row["focus"]]


def state(core: Core, scope: str) -> str:
    return str(core.instance(scope).state)


def opened(core: Core, scope: str, call_id: str = "") -> Worker:
    call_id = call_id or f"k-{scope}"
    core.call_accepted(f"{scope}.launch", call_id=call_id)
    worker = core.start(scope)
    worker.take(call_id)
    return worker


def test_a_conversation_begins_with_interact_alone(core: Core) -> None:
    core.send("message.text", {"text": "hi"}, conversation="c1")
    assert (focus(core), state(core, "chat")) == (["chat"], "foreground")


def test_launch_brings_to_the_front_and_its_end_gives_the_screen_back(core: Core) -> None:
    core.call_accepted("lab.launch")
    assert (focus(core), state(core, "lab"), state(core, "chat")) == (["chat", "lab"], "starting", "background")
    worker = core.start("lab")
    assert state(core, "lab") == "foreground"
    worker.take("k1")
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert (focus(core), state(core, "lab"), state(core, "chat")) == (["chat"], "background", "foreground")
    assert [m["body"]["state"] for m in worker.messages if m["type"] == "context.changed"] == [
        "foreground",
        "background",
    ]


def test_the_screen_is_given_back_after_the_last_call_that_borrowed_it(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    core.call_accepted("lab.launch", call_id="k2")
    worker.take("k2")
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert focus(core) == ["chat", "lab"]
    worker.accept("tool.complete", call_id="k2", result=RESULT)
    assert focus(core) == ["chat"]


def test_a_call_that_wants_no_screen_does_not_keep_it(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    core.call_accepted("lab.direct", call_id="k2")
    worker.take("k2")
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert focus(core) == ["chat"], "nothing that is open has borrowed it"
    worker.accept("tool.complete", call_id="k2", result=RESULT)
    assert focus(core) == ["chat"]


def test_direct_and_operation_leave_the_screen_alone(core: Core) -> None:
    core.call_accepted("lab.direct", call_id="k1")
    worker = core.start("lab")
    assert (focus(core), state(core, "lab")) == (["chat"], "background")
    core.call_accepted("lab.poke", call_id="k2")
    assert focus(core) == ["chat"]
    worker.take("k2")
    worker.accept("tool.complete", call_id="k2", result=RESULT)


def test_foreground_reuses_the_instance_and_keeps_the_screen(core: Core) -> None:
    core.call_accepted("lab.direct", call_id="k1")
    worker = core.start("lab")
    instance_id = core.instance("lab").instance_id
    core.call_accepted("lab.front", call_id="k2")
    assert core.instance("lab").instance_id == instance_id
    worker.take("k2")
    worker.accept("tool.complete", call_id="k2", result=RESULT)
    assert focus(core) == ["chat", "lab"], "it did not ask to restore the focus"


def test_a_stack_of_three_unwinds_in_order(core: Core) -> None:
    opened(core, "lab")
    opened(core, "lab2")
    assert focus(core) == ["chat", "lab", "lab2"]
    core.did("instance.close", instance_id=core.instance("lab2").instance_id, force=True)
    assert (focus(core), state(core, "lab")) == (["chat", "lab"], "foreground")
    core.did("instance.close", instance_id=core.instance("lab").instance_id, force=True)
    assert (focus(core), state(core, "chat")) == (["chat"], "foreground")


@pytest.mark.conformance("03-9.13")
def test_the_stack_survives_a_restart(core: Core) -> None:
    opened(core, "lab")
    opened(core, "lab2")
    before = focus(core)
    core.boot()
    assert focus(core) == before
    assert (state(core, "lab2"), state(core, "lab"), state(core, "chat")) == ("foreground", "suspended", "background")


def test_the_audit_tells_every_change_of_the_stack(core: Core) -> None:
    """Whoever leaves from below the front is named, and the depth counts what closed on the way."""
    opened(core, "lab")
    opened(core, "lab2")
    core.did("instance.back", instance_id=core.instance("lab").instance_id)
    assert focus(core) == ["chat", "lab2"]
    (left,) = core.audited("focus.left")
    assert (left.subjects[0], left.detail) == (core.instance("lab").instance_id, {"depth": 2})
    core.call_accepted("timer.start", {"duration_seconds": 60}, call_id="t1")
    core.did("instance.front", instance_id=core.instance("lab2").instance_id)
    assert focus(core) == ["chat", "lab2"], "the operation was interrupted, and its instance closed"
    assert core.audited("focus.changed")[-1].detail == {"depth": 2}


def test_home_keeps_what_was_above_in_the_stack(core: Core) -> None:
    opened(core, "lab")
    core.did("conversation.home", conversation_id="c1")
    assert (focus(core), state(core, "chat"), state(core, "lab")) == (["lab", "chat"], "foreground", "background")
    core.did("instance.front", instance_id=core.instance("lab").instance_id)
    assert focus(core) == ["chat", "lab"]


def test_a_front_that_is_on_top_already_changes_nothing(core: Core) -> None:
    opened(core, "lab")
    before = core.dump("action_results", "timers", "timer_due")
    core.did("instance.front", instance_id=core.instance("lab").instance_id)
    assert core.dump("action_results", "timers", "timer_due") == before


# what apps may ask


def test_an_app_takes_the_screen_only_while_a_call_of_it_is_open(core: Core) -> None:
    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("lifecycle.foreground")
    assert focus(core) == ["chat", "lab"]
    worker.accept("lifecycle.background")
    assert focus(core) == ["chat"]
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    before = core.dump()
    assert worker.refused("lifecycle.foreground") == "lifecycle_denied"
    assert core.dump() == before


@pytest.mark.parametrize("choice", ["front", "home", "back"])
def test_what_a_person_has_chosen_stays_until_something_new_comes(core: Core, choice: str) -> None:
    """An old call of another MiniApp is no reason to take the screen back from them, however often it asks."""
    core.call_accepted("lab.direct", call_id="old")
    eager = core.start("lab")
    eager.take("old")
    other = opened(core, "lab2")
    eager.accept("lifecycle.foreground")
    if choice == "front":
        core.did("instance.front", instance_id=other.instance_id)
    elif choice == "home":
        core.did("conversation.home", conversation_id="c1")
    else:
        core.did("instance.back", instance_id=eager.instance_id)
    before = focus(core)
    assert before[-1] != "lab"
    for _ in range(3):
        assert eager.refused("lifecycle.foreground") == "lifecycle_denied"
    assert focus(core) == before
    core.advance(1)
    core.call_accepted("lab.direct", call_id="new")
    eager.accept("lifecycle.foreground")
    assert focus(core)[-1] == "lab"


def test_no_app_takes_the_screen_from_a_focusing_operation(core: Core) -> None:
    core.call_accepted("lab.direct", call_id="k1")
    worker = core.start("lab")
    worker.take("k1")
    core.call_accepted("timer.start", {"duration_seconds": 60}, call_id="k2")
    assert worker.refused("lifecycle.foreground") == "lifecycle_denied"
    assert core.result("k2") is None


def test_an_app_closes_when_nothing_of_it_is_open(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    assert worker.refused("lifecycle.close") == "lifecycle_denied"
    asked = worker.accept("ui.request", request={"kind": "notice", "title": "T", "message": "M"})
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    assert worker.refused("lifecycle.close") == "lifecycle_denied"
    worker.accept("ui.cancel", interaction_id=asked["interaction_id"])
    worker.accept("lifecycle.close", reason="done")
    assert (state(core, "lab"), focus(core)) == ("closed", ["chat"])
    assert worker.stopped == "closed"
    assert worker.refused("tool.progress", call_id="k1", progress=0.5) == "app_closed"


def test_an_app_closes_while_a_person_is_asked_for_consent(core: Core) -> None:
    """It cannot cancel that question, which is the Runtime's and might stay for a day: it ends with the instance."""
    worker = opened(core, "lab", "k1")
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    worker.accept("capability.request", capability="notification.show", reason="to tell", arguments={"title": "T"})
    (asked,) = core.questions()
    worker.accept("lifecycle.close", reason="done")
    assert state(core, "lab") == "closed"
    assert core.row(INTERACTIONS, asked["interaction_id"]).status == "cancelled"
    assert list(core.scan(NOTIFICATIONS)) == []


def test_interact_neither_closes_nor_leaves_nor_comes(core: Core) -> None:
    core.send("message.text", {"text": "hi"}, conversation="c1")
    chat = core.start("chat")
    for command in ("lifecycle.close", "lifecycle.background", "lifecycle.foreground"):
        assert chat.refused(command) == "lifecycle_denied"
    instance_id = core.instance("chat").instance_id
    assert core.action("instance.close", instance_id=instance_id, force=True).code == "lifecycle_denied"
    assert core.action("instance.back", instance_id=instance_id).code == "lifecycle_denied"


# closing


def test_a_close_settles_everything(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    core.call_accepted("lab.poke", call_id="k2")
    worker.accept("ui.request", request={"kind": "notice", "title": "T", "message": "M"}, parent_call_id="k1")
    worker.accept("state.save", state={"board": 1})
    worker.accept("surface.open", entry="surface/index.html", state={})
    instance = core.instance("lab")
    core.did("instance.close", instance_id=instance.instance_id, force=True)
    for call_id in ("k1", "k2"):
        result = core.result(call_id)
        assert (result["status"], result["error"]["code"]) == ("cancelled", "app_closed")  # type: ignore[index]
    assert core.questions() == []
    assert core.row(SESSIONS, instance.session_id).state == "read_only"
    assert core.row(SNAPSHOTS, instance.instance_id).read_only
    assert core.dump()["inbox"] == []
    deliveries = len(worker.deliveries())
    core.call_accepted("lab.direct", call_id="k3")
    assert len(worker.deliveries()) == deliveries, "nothing more is delivered to it"
    assert core.instance("lab").instance_id != instance.instance_id


def test_a_closed_instance_stays_closed(core: Core) -> None:
    opened(core, "lab")
    instance_id = core.instance("lab").instance_id
    core.did("instance.close", instance_id=instance_id, force=True)
    before = core.dump("action_results", "timers", "timer_due")
    for name in ("instance.front", "instance.back", "instance.close"):
        assert core.action(name, instance_id=instance_id).code == "app_closed"
    assert core.dump("action_results", "timers", "timer_due") == before
    assert core.action("instance.front", instance_id="i-none").code == "app_instance_not_found"


def test_an_app_that_wants_to_be_asked_is_asked_once(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    instance_id = core.instance("lab").instance_id
    assert core.did("instance.close", instance_id=instance_id) == {"asked": True}
    assert len(worker.deliveries("close.request")) == 1
    assert state(core, "lab") == "foreground"
    assert core.did("instance.close", instance_id=instance_id) == {"asked": False}, "the second time it is closed"
    assert state(core, "lab") == "closed"


# processes


def test_an_open_surface_on_screen_keeps_its_process(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    core.call_accepted("lab.front", call_id="k2")
    worker.take("k2")
    worker.accept("surface.open", entry="surface/index.html", state={"a": 1})
    worker.accept("tool.complete", call_id="k2", result=RESULT)
    core.advance(300)
    assert worker.stopped is None
    core.did("conversation.home", conversation_id="c1")
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    core.advance(61)
    assert worker.stopped == "idle"
    worker.exit("stopped")
    assert state(core, "lab") == "suspended"
    core.did("instance.front", instance_id=core.instance("lab").instance_id)
    again = core.start("lab")
    (welcome,) = [m["body"] for m in again.messages if m["type"] == "worker.welcome"]
    assert welcome["surfaces"][0]["state"] == {"a": 1}, "it comes back where it was"


def test_chat_needs_no_process_to_be_on_screen(core: Core) -> None:
    core.call_accepted("notice", {"title": "T", "message": "M"})
    core.advance(1)
    assert core.unstarted == [], "its worker is needed only once there is an answer"
    core.did("interaction.answer", interaction_id=core.questions()[0]["interaction_id"], result={"acknowledged": True})
    assert [w.app_scope for w in core.unstarted] == ["chat"]


def test_an_interact_that_keeps_crashing_is_replaced() -> None:
    core = Core(policy=Policy(restarts_max=0))
    core.connect("a1")
    core.send("message.text", {"text": "hi"}, conversation="c1")
    core.call_accepted("confirm", {"title": "T", "prompt": "P"}, call_id="q")
    first = core.instance("chat").instance_id
    core.start("chat").exit("killed")
    assert core.result("q")["error"]["code"] == "app_crashed"  # type: ignore[index]
    row = core.query("snapshot")["conversations"][0]
    assert row["chat_instance_id"] != first
    assert row["focus"] == [row["chat_instance_id"]]
    assert core.row(INSTANCES, row["chat_instance_id"]).state == "foreground"
    core.call_accepted("confirm", {"title": "T", "prompt": "P"}, call_id="q2")


def test_a_session_is_continued_by_a_new_instance(core: Core) -> None:
    worker = opened(core, "lab", "k1")
    session_id = core.instance("lab").session_id
    assert core.action("session.continue", session_id=session_id).code == "conflict"
    worker.accept("tool.complete", call_id="k1", result=RESULT)
    worker.accept("lifecycle.close")
    worker.exit("stopped")
    made: Any = core.did("session.continue", session_id=session_id)
    assert core.row(SESSIONS, made["session_id"]).continues == session_id
    assert focus(core) == ["chat", "lab"]
    assert state(core, "lab") == "starting"
    core.start("lab")
    assert state(core, "lab") == "foreground", "its code has run, so it is really there"
    assert core.row(SESSIONS, session_id).state == "read_only"


@pytest.mark.parametrize("how", ["in the queue", "failed to start"])
def test_who_was_left_before_the_start_is_started_when_looked_at_again(how: str) -> None:
    core = Core(policy=Policy(workers_starting_max=1))
    core.connect("a1")
    session_id = core.row(INSTANCES, opened(core, "lab", "k1").instance_id).session_id
    core.did("instance.close", instance_id=core.instance("lab").instance_id, force=True)
    core.workers[core.instance("lab").instance_id, 1].exit("stopped")
    if how == "in the queue":
        core.call_accepted("lab2.launch", call_id="k2", conversation="c2")
    instance_id = core.did("session.continue", session_id=session_id)["instance_id"]
    core.did("conversation.home", conversation_id="c1")
    if how == "in the queue":
        core.start("lab2")
    else:
        core.unstarted[0].exit("start_failed")
    core.advance(120)
    assert core.unstarted == [], "nobody looks at it"
    core.did("instance.front", instance_id=instance_id)
    core.start("lab")
    assert state(core, "lab") == "foreground"
    core.did("conversation.home", conversation_id="c1")
    core.advance(120)
    core.workers[instance_id, core.row(INSTANCES, instance_id).incarnation].exit("stopped")
    core.did("instance.front", instance_id=instance_id)
    assert core.unstarted == [], "it has run once, and nothing of it is on the screen"


# what a call gives back is what calls have taken


def made(core: Core, worker: Worker, tool_id: str, call_id: str) -> None:
    """A call of this tool, from its beginning to its end."""
    core.call_accepted(tool_id, call_id=call_id)
    worker.take(call_id)
    worker.accept("tool.complete", call_id=call_id, result=RESULT)


def peek() -> dict[str, Any]:
    """``peek.direct`` asks to restore the focus, though it never takes it."""
    manifest = bundles.lab("peek")
    next(t for t in manifest["tools"] if t["id"] == "peek.direct")["target"]["restore_previous_focus"] = True
    return manifest


def test_a_call_that_took_no_screen_gives_none_back() -> None:
    core = Core(manifests=(peek(),))
    core.connect("a1")
    core.call_accepted("peek.front", call_id="f")
    worker = core.start("peek")
    worker.take("f")
    worker.accept("tool.complete", call_id="f", result=RESULT)
    made(core, worker, "peek.direct", "d")
    assert (focus(core), state(core, "peek")) == (["chat", "peek"], "foreground"), "the person looks at it"
    made(core, worker, "peek.launch", "l")
    assert focus(core) == ["chat", "peek"], "it was there before this call too"


def test_a_call_that_took_no_screen_interrupts_no_operation() -> None:
    timer = bundles.timer()
    timer["tools"][0]["target"]["requires_foreground"] = False
    timer["tools"] += [
        bundles._tool("timer", "peek", "direct", restore=True),
        bundles._tool("timer", "show", "launch", front=True, restore=True),
    ]
    core = Core(manifests=(timer,))
    core.connect("a1")
    core.call_accepted("timer.show", call_id="s")
    worker = core.start("timer")
    worker.take("s")
    core.call_accepted("timer.start", {"duration_seconds": 600}, call_id="op")
    made(core, worker, "timer.peek", "d")
    worker.accept("tool.complete", call_id="s", result=RESULT)
    assert core.result("op") is None
    assert focus(core) == ["chat", "timer"], "an operation is under way"


def test_a_place_below_the_top_is_given_back_too(core: Core) -> None:
    """Else the finished MiniApp would come to the front when what is above it has finished."""
    lab, lab2 = opened(core, "lab"), opened(core, "lab2")
    lab.accept("tool.complete", call_id="k-lab", result=RESULT)
    assert focus(core) == ["chat", "lab2"]
    lab2.accept("tool.complete", call_id="k-lab2", result=RESULT)
    assert (focus(core), state(core, "chat")) == (["chat"], "foreground")


def test_what_a_person_has_chosen_stays(core: Core) -> None:
    worker = opened(core, "lab")
    core.did("conversation.home", conversation_id="c1")
    core.did("instance.front", instance_id=worker.instance_id)
    worker.accept("tool.complete", call_id="k-lab", result=RESULT)
    assert focus(core) == ["chat", "lab"]


def test_a_call_that_keeps_the_screen_keeps_it_for_good(core: Core) -> None:
    worker = opened(core, "lab")
    made(core, worker, "lab.front", "f")
    worker.accept("tool.complete", call_id="k-lab", result=RESULT)
    assert focus(core) == ["chat", "lab"]


def test_what_an_app_takes_for_such_a_call_is_given_back(core: Core) -> None:
    worker = opened(core, "lab")
    worker.accept("lifecycle.background")
    worker.accept("lifecycle.foreground")
    worker.accept("tool.complete", call_id="k-lab", result=RESULT)
    assert focus(core) == ["chat"]


def test_an_interact_that_crashes_in_front_is_replaced_in_front() -> None:
    core = Core(policy=Policy(restarts_max=0))
    core.connect("a1")
    opened(core, "lab")
    core.did("conversation.home", conversation_id="c1")
    core.send("message.text", {"text": "hi"}, conversation="c1")
    first = core.instance("chat").instance_id
    core.start("chat").exit("killed")
    assert core.instance("chat").instance_id != first
    assert (focus(core), state(core, "chat"), state(core, "lab")) == (["lab", "chat"], "foreground", "background")
    core.did("instance.front", instance_id=core.instance("lab").instance_id)
    core.send("message.text", {"text": "hi"}, conversation="c1")
    core.start("chat").exit("killed")
    assert (focus(core), state(core, "chat"), state(core, "lab")) == (["chat", "lab"], "background", "foreground")
