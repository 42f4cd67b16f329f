"""Standard interactions: four kinds, two sources, one record; the first answer wins and goes to its owner alone."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import CONFIRM, Core, Worker
from lineup_protocol import limits
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core.schema import INTERACTIONS
from simulation import bundles

ACTIONS = [{"id": "red", "label": "Red"}, {"id": "blue", "label": "Blue", "description": "like the sky"}]
FIELDS = [
    {"id": "name", "label": "Name", "type": "text", "required": True, "max_length": 5},
    {"id": "bio", "label": "Bio", "type": "textarea"},
    {"id": "age", "label": "Age", "type": "number", "minimum": 0, "maximum": 150},
]
NOTICE = {"title": "T", "message": "M"}
CHOICE = {"title": "T", "prompt": "P", "mode": "single-choice", "actions": ACTIONS}
INPUT = {"title": "T", "prompt": "P", "fields": FIELDS}
KINDS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("notice", NOTICE, {"acknowledged": True}, {"acknowledged": True}),
    ("confirm", CONFIRM, {"approved": False}, {"approved": False}),
    ("choice", CHOICE, {"action_ids": ["blue", "blue"]}, {"action_ids": ["blue"]}),
    (
        "choice",
        CHOICE | {"mode": "multi-choice"},
        {"action_ids": ["blue", "red", "blue"]},
        {"action_ids": ["blue", "red"]},
    ),
    ("choice", CHOICE | {"mode": "multi-choice"}, {"action_ids": []}, {"action_ids": []}),
    (
        "input",
        INPUT,
        {"values": {"name": "Ada", "age": 36, "bio": "a\nb"}},
        {"values": {"name": "Ada", "age": 36, "bio": "a\nb"}},
    ),
    ("input", INPUT, {"values": {"name": "Ada"}}, {"values": {"name": "Ada"}}),
]
WRONG: list[tuple[str, dict[str, Any], Any]] = [
    ("notice", NOTICE, {"acknowledged": False}),
    ("notice", NOTICE, {}),
    ("confirm", CONFIRM, {"approved": "yes"}),
    ("confirm", CONFIRM, {"approved": True, "more": 1}),
    ("choice", CHOICE, {"action_ids": []}),
    ("choice", CHOICE, {"action_ids": ["red", "blue"]}),
    ("choice", CHOICE, {"action_ids": ["green"]}),
    ("choice", CHOICE, {"action_ids": [1]}),
    ("input", INPUT, {"values": {}}),
    ("input", INPUT, {"values": {"name": "far too long"}}),
    ("input", INPUT, {"values": {"name": "a\nb"}}),
    ("input", INPUT, {"values": {"name": "Ada", "age": 151}}),
    ("input", INPUT, {"values": {"name": "Ada", "age": "36"}}),
    ("input", INPUT, {"values": {"name": "Ada", "age": True}}),
    ("input", INPUT, {"values": {"name": "Ada", "age": None}}),
    ("input", INPUT, {"values": {"name": None}}),
    ("input", INPUT, {"values": {"name": "Ada", "other": 1}}),
    ("input", INPUT, None),
]


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def lab(core: Core, call_id: str = "k1") -> Worker:
    core.call_accepted("lab.launch", call_id=call_id)
    worker = core.start("lab")
    worker.take(call_id)
    return worker


def ask(worker: Worker, kind: str, request: dict[str, Any], **more: Any) -> str:
    detail = worker.accept("ui.request", request={"kind": kind, **request}, **more)
    return str(detail["interaction_id"])


@pytest.mark.conformance("03-9.6")
@pytest.mark.parametrize(("kind", "request_", "answer", "normal"), KINDS)
def test_an_agents_question_is_answered_through_interact(
    core: Core, kind: str, request_: Any, answer: Any, normal: Any
) -> None:
    core.call_accepted(kind, request_)
    (question,) = core.questions()
    assert question["owner"] == {
        "app_scope": "chat",
        "instance_id": core.instance("chat").instance_id,
        "conversation_id": "c1",
        "source": "agent_tool",
        "parent_call_id": "k1",
    }
    assert core.did("interaction.answer", interaction_id=question["interaction_id"], result=answer) == {
        "result": normal
    }
    chat = core.start("chat")
    (delivery,) = chat.deliveries("interaction.result")
    assert delivery["body"]["interaction"]["result"] == normal
    assert chat.refused("tool.complete", call_id="k1", result={"acknowledged": False}) == "tool_output_invalid"
    chat.accept("tool.complete", call_id="k1", result=normal)
    chat.accept("inbox.ack", seq=delivery["seq"])
    assert core.result()["result"] == normal  # type: ignore[index]
    assert core.row(INTERACTIONS, question["interaction_id"]).status == "completed"


@pytest.mark.parametrize(("kind", "request_", "answer", "normal"), KINDS)
def test_an_apps_question_goes_back_to_that_app(core: Core, kind: str, request_: Any, answer: Any, normal: Any) -> None:
    worker = lab(core)
    id_ = ask(worker, kind, request_, parent_call_id="k1")
    (question,) = core.questions()
    assert question["owner"]["source"] == "miniapp_tool"
    assert question["owner"]["instance_id"] == worker.instance_id
    core.did("interaction.answer", interaction_id=id_, result=answer)
    (delivery,) = worker.deliveries("interaction.result")
    assert delivery["body"]["interaction"]["result"] == normal
    worker.accept("inbox.ack", seq=delivery["seq"])
    assert core.row(INTERACTIONS, id_).status == "completed"
    assert [w.app_scope for w in core.unstarted] == [], "Interact has no part in it"


@pytest.mark.parametrize(("kind", "request_", "answer"), WRONG)
def test_an_answer_that_breaks_a_rule_is_refused_with_its_path(
    core: Core, kind: str, request_: Any, answer: Any
) -> None:
    core.call_accepted(kind, request_)
    id_ = core.questions()[0]["interaction_id"]
    before = core.dump("action_results", "timers", "timer_due")
    reply = core.action("interaction.answer", interaction_id=id_, result=answer)
    assert reply.code == "interaction_invalid"
    assert reply.detail["path"].startswith("/")
    assert core.dump("action_results", "timers", "timer_due") == before


def test_the_first_answer_wins(core: Core) -> None:
    worker = lab(core)
    id_ = ask(worker, "confirm", CONFIRM)
    core.did("interaction.answer", interaction_id=id_, result={"approved": True})
    before = core.dump("action_results", "timers", "timer_due")
    for late in ({"approved": False}, {"approved": True}):
        assert core.action("interaction.answer", interaction_id=id_, result=late).code == "interaction_already_final"
    assert core.action("interaction.cancel", interaction_id=id_).code == "interaction_already_final"
    assert worker.refused("ui.cancel", interaction_id=id_) == "interaction_already_final"
    assert core.dump("action_results", "timers", "timer_due") == before
    assert core.row(INTERACTIONS, id_).result == {"approved": True}


def test_nobody_answers_or_cancels_for_another(core: Core) -> None:
    worker = lab(core)
    id_ = ask(worker, "confirm", CONFIRM)
    core.call_accepted("lab2.direct", call_id="k2")
    other = core.start("lab2")
    before = core.dump()
    assert other.refused("ui.cancel", interaction_id=id_) == "app_scope_mismatch"
    assert (
        other.refused("ui.request", request={"kind": "confirm", **CONFIRM}, parent_call_id="k1") == "app_scope_mismatch"
    )
    assert core.dump() == before
    assert core.action("interaction.answer", interaction_id="q-none", result={}).code == "interaction_not_found"


@pytest.mark.conformance("03-9.7")
@pytest.mark.parametrize("name", ["owner", "app_scope", "instance_id", "surface_id", "interaction_id"])
def test_an_owner_cannot_be_passed_in(core: Core, name: str) -> None:
    worker = lab(core)
    before = core.dump()
    assert worker.refused("ui.request", request={"kind": "confirm", **CONFIRM, name: "chat"}) == "interaction_invalid"
    assert core.dump() == before
    worker.raw({"type": "ui.request", "id": "z", "body": {"request": {"kind": "confirm", **CONFIRM}, name: "chat"}})
    assert core.audited("worker.violation")[-1].detail["code"] == "message_invalid", (
        "the table of messages has no such field"
    )
    assert core.questions() == []


def test_a_parent_must_be_open(core: Core) -> None:
    worker = lab(core)
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    code = worker.refused("ui.request", request={"kind": "confirm", **CONFIRM}, parent_call_id="k1")
    assert code == "call_already_final"


def test_a_repeat_under_the_same_key_is_the_same_question(core: Core) -> None:
    worker = lab(core)
    first = ask(worker, "confirm", CONFIRM, key="really")
    assert ask(worker, "confirm", CONFIRM, key="really") == first
    core.did("interaction.answer", interaction_id=first, result={"approved": True})
    again = worker.accept("ui.request", request={"kind": "confirm", **CONFIRM}, key="really")
    assert again["interaction"]["result"] == {"approved": True}, "after a crash the person is not asked twice"
    assert ask(worker, "confirm", CONFIRM | {"prompt": "Another?"}, key="really") != first
    assert ask(worker, "confirm", CONFIRM) != ask(worker, "confirm", CONFIRM)


def test_expiry(core: Core) -> None:
    worker = lab(core)
    id_ = ask(worker, "confirm", CONFIRM, expires_at=to_rfc3339(core.wall_ms + 5_000))
    core.advance(6)
    assert core.row(INTERACTIONS, id_).status == "expired"
    assert worker.deliveries("interaction.result")[0]["body"]["interaction"]["status"] == "expired"
    assert (
        core.action("interaction.answer", interaction_id=id_, result={"approved": True}).code == "interaction_expired"
    )
    past = to_rfc3339(core.wall_ms)
    assert (
        worker.refused("ui.request", request={"kind": "confirm", **CONFIRM}, expires_at=past) == "interaction_invalid"
    )


def test_an_answer_after_its_time_loses_even_if_the_clock_has_not_struck(core: Core) -> None:
    worker = lab(core)
    id_ = ask(worker, "confirm", CONFIRM, expires_at=to_rfc3339(core.wall_ms + 5_000))
    core.wall_ms += 5_000
    assert (
        core.action("interaction.answer", interaction_id=id_, result={"approved": True}).code == "interaction_expired"
    )


@pytest.mark.conformance("03-9.6")
def test_presented_drafts_and_restart(core: Core) -> None:
    core.call_accepted("input", INPUT)
    id_ = core.questions()[0]["interaction_id"]
    core.did("interaction.present", interaction_id=id_)
    core.did("interaction.draft", interaction_id=id_, draft={"values": {"name": "A"}})
    core.boot()
    (question,) = core.questions()
    assert (question["status"], question["draft"]) == ("presented", {"values": {"name": "A"}})
    core.did("interaction.answer", interaction_id=id_, result={"values": {"name": "Ada"}})
    assert core.row(INTERACTIONS, id_).draft is None
    assert core.action("interaction.draft", interaction_id=id_, draft={}).code == "interaction_already_final"
    too_much = {"values": {"name": "x" * limits.INTERACTION_BYTES_MAX}}
    assert core.action("interaction.draft", interaction_id=id_, draft=too_much).code == "message_too_large"


@pytest.mark.parametrize("how", ["person", "agent", "expiry"])
def test_an_agents_question_that_is_not_answered(core: Core, how: str) -> None:
    core.call_accepted("confirm", CONFIRM | {"expires_at": to_rfc3339(core.wall_ms + 60_000)})
    id_ = core.questions()[0]["interaction_id"]
    if how == "agent":
        core.send("tool.cancel", {"call_id": "k1"})
        assert core.result()["status"] == "cancelled"  # type: ignore[index]
        assert core.row(INTERACTIONS, id_).status == "cancelled"
        assert core.unstarted == []
        return
    if how == "person":
        core.did("interaction.cancel", interaction_id=id_, reason="not now")
    else:
        core.advance(61)
    chat = core.start("chat")
    status = chat.deliveries("interaction.result")[0]["body"]["interaction"]["status"]
    assert status == ("cancelled" if how == "person" else "expired")
    assert core.result() is None, "Interact ends the call with what came of its question"
    chat.accept("tool.cancel", call_id="k1", reason="not now")
    assert core.result()["status"] == "cancelled"  # type: ignore[index]


def test_an_outcome_is_delivered_again_if_interact_dies_before_it_ends_the_call(core: Core) -> None:
    core.call_accepted("confirm", CONFIRM)
    id_ = core.questions()[0]["interaction_id"]
    core.did("interaction.answer", interaction_id=id_, result={"approved": True})
    chat = core.start("chat")
    chat.accept("inbox.ack", seq=chat.deliveries()[0]["seq"])
    chat.exit("killed")
    core.advance(1)
    again = core.start("chat")
    assert again.deliveries("interaction.result")[0]["body"]["interaction"]["result"] == {"approved": True}
    again.accept("tool.complete", call_id="k1", result={"approved": True})
    assert core.result()["result"] == {"approved": True}  # type: ignore[index]


def test_the_end_of_a_call_ends_its_questions(core: Core) -> None:
    worker = lab(core)
    id_ = ask(worker, "confirm", CONFIRM, parent_call_id="k1")
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    assert core.row(INTERACTIONS, id_).status == "cancelled"
    assert worker.deliveries("interaction.result")[-1]["body"]["interaction"]["status"] == "cancelled"


def test_pending_questions_keep_their_worker_and_come_with_the_welcome(core: Core) -> None:
    worker = lab(core)
    id_ = ask(worker, "confirm", CONFIRM)
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    core.advance(300)
    assert worker.stopped is None
    worker.exit("killed")
    core.advance(1)
    again = core.start("lab")
    (welcome,) = [m["body"] for m in again.messages if m["type"] == "worker.welcome"]
    assert [q["interaction_id"] for q in welcome["interactions"]] == [id_]


def test_pending_questions_of_one_instance_are_bounded(core: Core) -> None:
    worker = lab(core)
    refusals = []
    for n in range(limits.INTERACTIONS_PENDING_PER_INSTANCE_MAX + 1):
        receipt = worker.ask("ui.request", request={"kind": "confirm", **CONFIRM, "title": f"T{n}"})
        refusals += [] if receipt["accepted"] else [receipt["code"]]
    assert refusals == ["rate_limited"]


def test_modal_is_lowered_for_what_is_not_on_screen(core: Core) -> None:
    worker = lab(core)
    ask(worker, "confirm", CONFIRM, presentation="modal")
    core.did("conversation.home", conversation_id="c1")
    ask(worker, "confirm", CONFIRM, presentation="modal")
    assert [q["presentation"] for q in core.questions()] == ["modal", "inline"]


@pytest.mark.parametrize(
    "request_",
    [
        {"kind": "other", "title": "T"},
        {"kind": "confirm", "title": "", "prompt": "P"},
        {"kind": "confirm", "title": "T"},
        {"kind": "choice", "title": "T", "prompt": "P", "mode": "button", "actions": []},
        {"kind": "choice", "title": "T", "prompt": "P", "mode": "many", "actions": ACTIONS},
        {"kind": "choice", "title": "T", "prompt": "P", "mode": "button", "actions": [*ACTIONS, *ACTIONS]},
        {"kind": "input", "title": "T", "prompt": "P", "fields": [{"id": "f", "label": "F", "type": "date"}]},
        {
            "kind": "input",
            "title": "T",
            "prompt": "P",
            "fields": [{"id": "f", "label": "F", "type": "text", "minimum": 1}],
        },
        {
            "kind": "input",
            "title": "T",
            "prompt": "P",
            "fields": [{"id": "f", "label": "F", "type": "number", "minimum": 2, "maximum": 1}],
        },
        {},
    ],
)
def test_a_request_that_breaks_a_rule_is_refused(core: Core, request_: Any) -> None:
    worker = lab(core)
    before = core.dump()
    assert worker.refused("ui.request", request=request_) == "interaction_invalid"
    assert core.dump() == before


def test_an_answer_stays_in_the_record_of_a_question_whose_owner_was_closed(core: Core) -> None:
    """It was accepted and said to be: nobody takes it over any more, but it was given."""
    core.call_accepted("lab.direct", call_id="k1")
    worker = core.start("lab")
    asked = worker.accept("ui.request", request={"kind": "confirm", **CONFIRM})["interaction_id"]
    core.did("interaction.answer", interaction_id=asked, result={"approved": True})
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    row = core.row(INTERACTIONS, asked)
    assert (row.status, row.result) == ("failed", {"approved": True})


@pytest.mark.parametrize("claims", [True, False])
def test_what_a_lost_attempt_asked_does_not_stop_the_clock_of_the_next_one(claims: bool) -> None:
    lab = bundles.lab()
    next(tool for tool in lab["tools"] if tool["id"] == "lab.safe")["timeout_ms"] = 2_000
    core = Core(manifests=(lab,))
    core.call_accepted("lab.safe")
    worker = core.start("lab")
    if claims:
        worker.take("k1")
    request = {"kind": "confirm", "title": "T", "prompt": "P"}
    lost = worker.accept("ui.request", request=request, parent_call_id="k1")
    kept = worker.accept("ui.request", request=request, parent_call_id="k1", key="mine")
    worker.exit("killed")
    assert core.row(INTERACTIONS, lost["interaction_id"]).status == "cancelled"
    core.advance(1)
    again = core.start("lab")
    again.take("k1")
    found = again.accept("ui.request", request=request, parent_call_id="k1", key="mine")
    assert found["interaction_id"] == kept["interaction_id"], "the next attempt finds it by its key"
    core.advance(10)
    assert core.result() is None, "it waits for the person"
    core.did("interaction.answer", interaction_id=kept["interaction_id"], result={"approved": True})
    core.advance(2.1)
    assert core.result()["status"] == "expired"  # type: ignore[index]
