"""App sessions, the retained snapshot and Interact's questions around a focus session."""

from __future__ import annotations

from typing import Any

import pytest

from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import CONVERSATIONS, INSTANCES, INTERACTIONS, SESSIONS, SNAPSHOTS, TIMELINE
from operations.focus import OF_A_REFUSAL, Focus

CONFIRM = {"title": "Again?", "prompt": "Another round?"}
CHOICE = {
    "title": "What",
    "prompt": "What next?",
    "mode": "single-choice",
    "actions": [{"id": "walk", "label": "Walk"}, {"id": "tea", "label": "Tea"}],
}


def ready(core: Focus) -> Any:
    worker = core.start("pomodoro")
    worker.take("k1")
    return worker


def shown(core: Focus, state: str = "focusing", **more: Any) -> dict[str, Any]:
    operation = core.operation()
    return {
        "operation_id": operation.operation_id,
        "started_at": to_rfc3339(operation.started_ms),
        "ends_at": to_rfc3339(operation.ends_ms),
        "display_state": state,
    } | more


# the session


@pytest.mark.conformance("04-4.5.7")
@pytest.mark.conformance("04-6.9")
def test_a_session_is_made_with_its_instance_and_named_by_the_activity(core: Focus) -> None:
    core.begin(600, activity="essay")
    session = core.session()
    assert (session.state, session.title, session.app_scope) == ("open", "essay", "pomodoro")
    assert core.instance("pomodoro").session_id == session.session_id
    (entry,) = [row for _, row in core.scan(TIMELINE, "c1") if row.kind == "session"]
    assert entry.ref == session.session_id, "folded at its place in the conversation"


@pytest.mark.conformance("04-4.5.7")
def test_the_session_comes_back_with_its_instance_and_no_other(core: Focus) -> None:
    core.begin(600)
    worker = ready(core)
    worker.accept("surface.open", entry="surface/index.html")
    worker.exit("killed")
    before = core.session()
    core.advance(1)
    core.start("pomodoro")
    core.restart(seconds_down=60)
    assert core.session() == before
    assert len(list(core.scan(SESSIONS))) == 1


@pytest.mark.conformance("04-6.9")
def test_a_session_holds_what_people_and_agent_said_the_call_and_its_result_and_nothing_else(core: Focus) -> None:
    core.begin(60, activity="essay")
    worker = ready(core)
    core.send("message.text", {"text": "Good luck."}, conversation="c1")
    core.did("person.text", conversation_id="c1", text="Thanks.")
    surface = worker.accept("surface.open", entry="surface/index.html")
    worker.accept("state.save", state=shown(core))
    tick = {"surface_id": surface["surface_id"], "name": "tick", "payload": {"left": 59}}
    core.do(
        ev.HostAction(
            event_id=core.new_id(), reply_to="t", action_id="t", actor="person", name="surface.event", args=tick
        )
    )
    assert core.replies["t"].accepted
    worker.accept("tool.progress", call_id="k1", progress=0.5, message="half")
    core.did("surface.torn", surface_id=surface["surface_id"])
    session_id = core.session().session_id
    core.advance(60)
    said = [(e.kind, e.author, e.format if e.kind == "call" else "", e.text) for e in core.entries(session_id)]
    assert said == [
        ("call", "agent", "asked", "essay"),
        ("text", "agent", "", "Good luck."),
        ("text", "person", "", "Thanks."),
        ("call", "agent", "result", "completed"),
    ]


@pytest.mark.parametrize("end", ["time", "agent", "person"])
@pytest.mark.conformance("04-4.5.7")
@pytest.mark.conformance("04-6.9")
def test_an_ended_session_is_read_only(core: Focus, end: str) -> None:
    core.begin(60)
    session_id = core.session().session_id
    match end:
        case "time":
            core.advance(60)
        case "agent":
            core.interrupt()
        case _:
            core.did("conversation.home", conversation_id="c1")
    session, entries = core.row(SESSIONS, session_id), core.entries(session_id)
    assert (session.state, session.ended_ms) == ("read_only", core.wall_ms)
    entry = core.did("person.text", conversation_id="c1", text="one more", session_id=session_id)
    core.send("message.text", {"text": "late"}, conversation="c1")
    core.interrupt("k-late")
    core.restart()
    assert core.entries(session_id) == entries
    assert core.row(SESSIONS, session_id) == session
    assert core.row(TIMELINE, "c1", entry["n"]).session_id == "", "it stays in the main conversation"


@pytest.mark.conformance("04-4.5.7")
@pytest.mark.conformance("04-6.9")
def test_continue_makes_a_new_instance_and_session_and_a_new_start_a_new_operation(core: Focus) -> None:
    core.begin(60, activity="essay")
    old, old_operation = core.session(), core.operation()
    busy = core.action("session.continue", session_id=old.session_id)
    assert busy.code == "conflict"
    core.advance(60)
    entries = core.entries(old.session_id)
    made = core.did("session.continue", session_id=old.session_id)
    new = core.row(SESSIONS, made["session_id"])
    assert (new.state, new.continues, new.title) == ("open", old.session_id, "essay")
    assert made["instance_id"] not in (old.instance_id,)
    assert core.front() == "pomodoro"
    assert core.operations() == [core.row_of(old_operation)], "no operation without a start"
    core.advance(3600)
    assert core.instance("pomodoro").state != "closed"
    operation = core.begin(60, call_id="k2")
    assert (operation.instance_id, operation.operation_id != old_operation.operation_id) == (made["instance_id"], True)
    assert core.entries(old.session_id) == entries
    assert core.row(SESSIONS, old.session_id).state == "read_only"
    assert core.row(INSTANCES, old.instance_id).state == "closed"
    assert core.row_of(old_operation).state == "completed"
    core.advance(60)
    assert core.outcome("k2") == ("completed", None)


# Interact's questions while Pomodoro is in front


@pytest.mark.parametrize(
    ("tool_id", "input_", "answer", "result"),
    [
        ("notice", {"title": "T", "message": "M"}, {"acknowledged": True}, {"acknowledged": True}),
        ("confirm", CONFIRM, {"approved": True}, {"approved": True}),
        ("choice", CHOICE, {"action_ids": ["tea"]}, {"action_ids": ["tea"]}),
        (
            "input",
            {"title": "T", "prompt": "P", "fields": [{"id": "n", "label": "N", "type": "text"}]},
            {"values": {"n": "x"}},
            {"values": {"n": "x"}},
        ),
    ],
    ids=["notice", "confirm", "choice", "input"],
)
@pytest.mark.conformance("04-4.5.8")
@pytest.mark.conformance("04-6.10")
def test_a_question_while_pomodoro_is_in_front_belongs_to_interact(
    core: Focus, tool_id: str, input_: dict[str, Any], answer: dict[str, Any], result: dict[str, Any]
) -> None:
    core.begin(600)
    ready(core)
    focus, entries = core.row(CONVERSATIONS, "c1").focus, core.entries(core.session().session_id)
    core.call_accepted(tool_id, input_, call_id="k-ask")
    (question,) = core.questions()
    chat = core.instance("chat")
    assert question["owner"]["app_scope"] == "chat"
    assert question["owner"]["instance_id"] == chat.instance_id
    assert question["owner"]["source"] == "agent_tool"
    core.did("interaction.present", interaction_id=question["interaction_id"])
    core.did("interaction.answer", interaction_id=question["interaction_id"], result=answer)
    worker = core.start("chat")
    worker.take_all()
    worker.accept("tool.complete", call_id="k-ask", result=result)
    assert core.result("k-ask")["result"] == result  # type: ignore[index]
    assert core.row(CONVERSATIONS, "c1").focus == focus
    assert core.operation().state == "focusing"
    assert core.entries(core.session().session_id) == entries, "where it is shown does not change whose it is"


@pytest.mark.parametrize("end", ["time", "close"])
@pytest.mark.conformance("04-4.5.8")
@pytest.mark.conformance("04-6.9")
def test_a_pending_question_outlives_the_close_and_does_not_touch_the_closed_session(core: Focus, end: str) -> None:
    core.begin(60)
    session_id = core.session().session_id
    core.call_accepted("confirm", CONFIRM, call_id="k-ask")
    core.call_accepted("confirm", CONFIRM, call_id="k-dismiss")
    core.call_accepted("confirm", CONFIRM | {"expires_at": to_rfc3339(core.wall_ms + 600_000)}, call_id="k-expire")
    if end == "time":
        core.advance(60)
    else:
        core.did("instance.close", instance_id=core.instance("pomodoro").instance_id)
    core.assert_over()
    session, entries = core.row(SESSIONS, session_id), core.entries(session_id)
    questions = {q["owner"]["parent_call_id"]: q["interaction_id"] for q in core.questions()}
    assert set(questions) == {"k-ask", "k-dismiss", "k-expire"}, "none was cancelled by the close"
    core.restart()
    core.did("interaction.answer", interaction_id=questions["k-ask"], result={"approved": False})
    core.did("interaction.cancel", interaction_id=questions["k-dismiss"])
    core.advance(601)
    states = {call_id: str(core.row(INTERACTIONS, id_).status) for call_id, id_ in questions.items()}
    assert states == {"k-ask": "submitted", "k-dismiss": "cancelled", "k-expire": "expired"}
    worker = core.start("chat")
    worker.take_all()
    worker.accept("tool.complete", call_id="k-ask", result={"approved": False})
    assert core.result("k-ask")["result"] == {"approved": False}  # type: ignore[index]
    assert (core.row(SESSIONS, session_id), core.entries(session_id)) == (session, entries)


@pytest.mark.conformance("04-6.10")
def test_pomodoro_cannot_speak_as_somebody_else(core: Focus) -> None:
    """It has the standard form of a question like every MiniApp, under its own name; no field names another owner."""
    core.begin(600)
    worker = ready(core)
    request = {"kind": "confirm"} | CONFIRM
    asked = worker.accept("ui.request", request=request)
    assert asked["interaction"]["owner"]["app_scope"] == "pomodoro"
    assert worker.refused("ui.request", request=request, parent_call_id="k-none") == "call_not_found"
    assert worker.refused("conversation.send_text", text="I am the agent") == "capability_denied"
    core.interrupt()
    assert core.questions() == [], "its own questions end with it"


# the snapshot


@pytest.mark.conformance("04-4.5.6")
@pytest.mark.conformance("04-6.11")
def test_the_manifest_declares_the_frozen_state(core: Focus) -> None:
    from operations.focus import manifest

    data = manifest()
    assert data["features"] == ["app.instance-state.v1"]
    assert data["instance_state"] == {
        "state_schema_version": 1,
        "state_schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["operation_id", "started_at", "ends_at", "display_state"],
            "properties": {
                "operation_id": {"type": "string"},
                "activity": {"type": "string"},
                "started_at": {"type": "string"},
                "ends_at": {"type": "string"},
                "ended_at": {"type": "string"},
                "display_state": {"enum": ["focusing", "completed", "interrupted"]},
                "interruption_reason": {"type": "string"},
            },
        },
        "max_bytes": 4096,
        "retention": "retain_readonly",
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"display_state": "paused"}, "state_invalid"),
        ({"remaining_seconds": 5}, "state_invalid"),
        ({"operation_id": None}, "state_invalid"),
        ({"activity": "x" * 4096}, "state_too_large"),
    ],
    ids=["enum", "extra field", "type", "4 KiB"],
)
@pytest.mark.conformance("04-4.5.6")
@pytest.mark.conformance("04-6.11")
def test_a_snapshot_outside_schema_or_quota_is_refused(core: Focus, changes: dict[str, Any], code: str) -> None:
    core.begin(600)
    worker = ready(core)
    worker.accept("state.save", state=shown(core))
    saved = core.row(SNAPSHOTS, worker.instance_id)
    assert worker.refused("state.save", state=shown(core) | changes) == code
    assert core.row(SNAPSHOTS, worker.instance_id) == saved


@pytest.mark.conformance("04-6.11")
def test_exactly_4_kib_fit(core: Focus) -> None:
    from lineup_protocol.codec import canonical_json

    core.begin(600)
    worker = ready(core)
    room = 4096 - len(canonical_json(shown(core, activity="")))
    assert worker.refused("state.save", state=shown(core, activity="x" * (room + 1))) == "state_too_large"
    worker.accept("state.save", state=shown(core, activity="x" * room))


@pytest.mark.parametrize("end", ["time", "interrupt"])
@pytest.mark.conformance("04-4.5.6")
@pytest.mark.conformance("04-6.11")
def test_a_retained_snapshot_can_neither_be_written_nor_revived(core: Focus, end: str) -> None:
    core.begin(60)
    worker = ready(core)
    worker.accept("state.save", state=shown(core))
    old = core.session()
    if end == "time":
        core.advance(60)
    else:
        core.interrupt()
    kept = core.row(SNAPSHOTS, worker.instance_id)
    assert kept.read_only
    assert worker.refused("state.save", state=shown(core)) == "app_closed"
    core.restart()
    core.did("session.continue", session_id=old.session_id)
    again = core.start("pomodoro")
    (welcome,) = [m["body"] for m in again.messages if m["type"] == "worker.welcome"]
    assert (welcome["state"], welcome["operations"]) == (None, []), "a new instance begins with nothing"
    again.accept("state.save", state=shown(core))
    assert core.row(SNAPSHOTS, worker.instance_id) == kept
    history = core.query("session", session_id=old.session_id)
    assert history["snapshot"]["read_only"] is True
    assert history["operations"][0]["state"] == ("completed" if end == "time" else "interrupted")


@pytest.mark.conformance("04-6.8")
def test_a_new_worker_rebuilds_from_operation_and_snapshot(core: Focus) -> None:
    operation = core.begin(600, activity="essay")
    worker = ready(core)
    worker.accept("state.save", state=shown(core, activity="essay"))
    worker.exit("killed")
    core.advance(300)
    core.restart()
    core.did("instance.front", instance_id=core.instance("pomodoro").instance_id)
    assert core.operation().ends_ms == operation.ends_ms
    core.did("person.text", conversation_id="c1", text="still here")
    assert core.row(SNAPSHOTS, worker.instance_id).state["display_state"] == "focusing"
    assert core.query("snapshot")["operations"][0]["ends_at"] == to_rfc3339(operation.ends_ms)


def test_of_a_refusal_names_tables_that_exist(core: Focus) -> None:
    """A table that was renamed must not slip out of the comparisons."""
    assert set(OF_A_REFUSAL) <= set(core.store.dump())
