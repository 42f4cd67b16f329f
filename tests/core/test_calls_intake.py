"""A call comes in: each check in its order with its code, receipts, resends, conflicts, bounds, the older form."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import CONFIRM, Core, rebuild, status_of
from lineup_protocol import limits
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import AGENTS, CALLS, RECEIPTS

# What a refused call may write: its own record and result. Everything else stays as it was.
OF_A_REJECTION = ("calls", "calls_by_id", "calls_by_time", "outbox", "agents", "receipts", "receipt_ring")


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def rejected(core: Core, code: str, tool_id: str, input_: Any = None, **more: Any) -> None:
    """The call is refused with this code, durably; nothing but its own record has changed, and no worker is wanted."""
    before, starts = core.dump(*OF_A_REJECTION), len(core.unstarted)
    receipt = core.call(tool_id, input_, **more)
    assert (receipt["accepted"], receipt["code"]) == (False, code), receipt
    result = core.result(more.get("call_id", "k1"))
    assert result is not None
    assert (result["status"], result["error"]["code"]) == ("rejected", code)
    assert core.dump(*OF_A_REJECTION) == before
    assert len(core.unstarted) == starts
    assert [row.detail["code"] for row in core.audited("call.rejected")][-1] == code


@pytest.mark.conformance("03-9.4")
def test_checks_come_in_their_order(core: Core) -> None:
    """Everything is wrong with the call; one thing after the other is put right, and the next refusal shows."""
    core.connect("a2")
    core.call_accepted("lab.launch", link="a2", call_id="theirs", conversation="c2")
    wrong = {"inventory_revision": "r-0000000000000000", "link": "a1"}
    rejected(core, "unauthorized", "nobody.knows", {"n": "x"}, call_id="k1", conversation="c2", **wrong)
    rejected(core, "inventory_revision_mismatch", "nobody.knows", {"n": "x"}, call_id="k2", **wrong)
    assert core.result("k2")["error"]["detail"] == {"current": core.revision}  # type: ignore[index]
    rejected(core, "tool_not_advertised", "nobody.knows", {"n": "x"}, call_id="k3")
    rejected(core, "tool_input_invalid", "lab.poke", {"n": "x"}, call_id="k4")
    rejected(core, "app_instance_not_found", "lab.poke", {"n": 1}, call_id="k5")
    core.call_accepted("lab.launch", call_id="k6")
    core.call_accepted("lab.poke", call_id="k7")


def test_the_descriptor_of_a_disabled_app_says_so(core: Core) -> None:
    core.did("apps.disable", actor="operator", app_scope="lab")
    rejected(core, "app_disabled", "lab.poke", {"n": "x"})
    core.did("apps.enable", actor="operator", app_scope="lab")
    rejected(core, "tool_input_invalid", "lab.poke", {"n": "x"}, call_id="k2")


@pytest.mark.conformance("03-9.4")
@pytest.mark.parametrize(
    "input_", [None, [], "x", {}, {"n": 1.5}, {"n": True}, {"n": -1}, {"n": 1_000_001}, {"n": 1, "extra": 2}]
)
def test_input_against_the_schema_is_refused_with_its_path(core: Core, input_: Any) -> None:
    receipt = core.call("lab.direct", input_ if input_ is not None else [])
    assert receipt["code"] == "tool_input_invalid"
    assert receipt["detail"]["path"].startswith("/")
    assert receipt["detail"]["rule"]


def test_whole_floats_count_as_integers(core: Core) -> None:
    core.call_accepted("lab.direct", {"n": 2.0})
    assert core.row(CALLS, "a1", "k1").input == {"n": 2}


def test_an_accepted_call_is_queued_and_wants_a_worker(core: Core) -> None:
    core.call_accepted("lab.direct")
    assert status_of(core) == "waiting_for_app"
    assert [w.app_scope for w in core.unstarted] == ["lab"]
    assert core.row(AGENTS, "a1").in_flight == 1


def test_same_message_same_receipt_no_second_effect(core: Core) -> None:
    first = core.call("lab.direct", message_id="m-1")
    before = core.dump()
    assert core.call("lab.direct", message_id="m-1") == first
    assert core.dump() == before


def test_a_refusal_is_kept_for_its_message_too(core: Core) -> None:
    first = core.call("nobody.knows", message_id="m-1")
    before = core.dump()
    assert core.call("nobody.knows", message_id="m-1") == first
    assert core.dump() == before
    assert len(core.results("k1")) == 1


def test_an_identical_resend_gets_the_record(core: Core) -> None:
    core.call_accepted("lab.direct")
    again = core.call("lab.direct")
    assert again["accepted"]
    assert again["detail"]["status"] == "waiting_for_app"
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("tool.complete", call_id="k1", result={"n": 5})
    again = core.call("lab.direct")
    assert again["detail"]["result"] == {"n": 5}
    assert len(core.results("k1")) == 1
    assert len(worker.deliveries("tool.call")) == 1


def test_a_receipt_that_had_the_record_has_it_when_the_message_comes_again(core: Core) -> None:
    """The agent may never have seen it, and the result, which was taken over before, does not come again."""
    core.call_accepted("lab.direct", message_id="m-1")
    first = core.call("lab.direct", message_id="m-2")
    assert core.call("lab.direct", message_id="m-2") == first
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("tool.complete", call_id="k1", result={"n": 5})
    core.send("ack", {"seq": 1})
    again = core.call("lab.direct", message_id="m-2")
    assert (again["accepted"], again["detail"]["status"], again["detail"]["result"]) == (True, "completed", {"n": 5})
    other = core.call("lab.direct", call_id="k2", message_id="m-2")
    assert other["detail"]["call_id"] == "k1", "whatever its content, it is the message of before"
    assert "detail" not in core.call("lab.direct", message_id="m-1"), "the same receipt as the first time"
    assert core.results("k2") == []
    assert len(core.results("k1")) == 1


@pytest.mark.parametrize(("change", "conversation"), [({"n": 2}, "c1"), ({"n": 1}, "c9")])
def test_other_content_under_a_known_call_id_is_a_conflict(core: Core, change: Any, conversation: str) -> None:
    core.call_accepted("lab.direct")
    before = core.dump("receipts", "receipt_ring", "agents")
    receipt = core.call("lab.direct", change, conversation=conversation)
    assert receipt["code"] == "call_id_conflict"
    assert core.dump("receipts", "receipt_ring", "agents") == before
    assert core.result("k1") is None


def test_two_agents_may_use_the_same_call_id(core: Core) -> None:
    core.call_accepted("lab.direct", link="a1", conversation="c1")
    core.call_accepted("lab.direct", link="a2", conversation="c2")
    assert (status_of(core, agent_id="a1"), status_of(core, agent_id="a2")) == ("waiting_for_app",) * 2


def test_open_calls_of_one_agent_are_bounded(core: Core) -> None:
    core.call_accepted("lab.direct")
    row = core.row(AGENTS, "a1")
    with core.store.write() as txn:
        txn.put(AGENTS, ("a1",), rebuild(row, in_flight=limits.IN_FLIGHT_CALLS_PER_AGENT_MAX))
    core.check = lambda: None  # type: ignore[method-assign]  # the count is made up
    before = core.dump()
    receipt = core.call("lab.direct", call_id="k2", message_id="m-2")
    assert receipt["code"] == "rate_limited"
    assert core.dump() == before, "a refusal that asks to try again leaves nothing behind"
    with core.store.write() as txn:
        txn.put(AGENTS, ("a1",), rebuild(row, in_flight=0))
    assert core.call("lab.direct", call_id="k2", message_id="m-2")["accepted"], "the same message may succeed later"


def test_a_settled_call_gives_its_share_back(core: Core) -> None:
    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    assert core.row(AGENTS, "a1").in_flight == 0


@pytest.mark.parametrize(
    ("tool", "input_", "answer"),
    [
        (
            "choice",
            {"title": "T", "prompt": "P", "mode": "button", "actions": [{"id": "a", "label": "A"}]},
            {"action_ids": ["a"]},
        ),
        ("confirm", CONFIRM, {"approved": True}),
        (
            "input",
            {"title": "T", "prompt": "P", "fields": [{"id": "f", "label": "F", "type": "text"}]},
            {"values": {"f": "x"}},
        ),
    ],
)
def test_the_older_form_becomes_the_same_record(core: Core, tool: str, input_: Any, answer: Any) -> None:
    frames = core.send("tool.call", {"call_id": "k1", "tool": tool, "input": input_}, conversation="c1")
    (receipt,) = [f["payload"] for f in frames if f["type"] == "lineup.v1.receipt"]
    assert receipt["accepted"], receipt
    (question,) = core.questions()
    assert question["kind"] == tool
    assert question["owner"]["source"] == "agent_tool"
    assert question["owner"]["app_scope"] == "chat"
    core.did("interaction.answer", interaction_id=question["interaction_id"], result=answer)
    chat = core.start("chat")
    chat.accept("tool.complete", call_id="k1", result=answer)
    assert core.result("k1")["result"] == answer  # type: ignore[index]


@pytest.mark.parametrize("name", ["tool_id", "inventory_revision"])
def test_names_that_are_kept_are_short(core: Core, name: str) -> None:
    payload = {"call_id": "k1", "tool_id": "lab.poke", "inventory_revision": core.revision, "input": {}}
    before = core.dump("agents", "receipts", "receipt_ring")
    receipt = _receipt(core.send("tool.call", payload | {name: "x" * 129}, conversation="c1"))
    assert (receipt["accepted"], receipt["code"]) == (False, "message_invalid")
    assert receipt["detail"]["path"] == f"/payload/{name}"
    assert core.dump("agents", "receipts", "receipt_ring") == before


def test_a_reason_to_cancel_is_short(core: Core) -> None:
    core.call_accepted("lab.launch", call_id="k1")
    longest = limits.REASON_LENGTH_MAX
    receipt = _receipt(core.send("tool.cancel", {"call_id": "k1", "reason": "x" * (longest + 1)}))
    assert (receipt["accepted"], receipt["code"]) == (False, "message_too_large")
    assert _receipt(core.send("tool.cancel", {"call_id": "k1", "reason": "x" * longest}))["accepted"]


def _receipt(frames: list[Any]) -> Any:
    (receipt,) = [frame["payload"] for frame in frames if frame["type"] == "lineup.v1.receipt"]
    return receipt


def test_a_brief_list_leaves_out_what_may_be_large(core: Core) -> None:
    core.call_accepted("lab.launch", {"n": 1}, call_id="k1")
    (whole,), (brief,) = (core.query("calls", brief=brief)["calls"] for brief in (False, True))
    assert whole["input"] == {"n": 1}
    assert brief == {name: value for name, value in whole.items() if name not in ("input", "result", "error")}


@pytest.mark.parametrize("payload", [{"tool": "confirm", "tool_id": "confirm"}, {}, {"tool": "notice"}])
def test_exactly_one_of_tool_and_tool_id(core: Core, payload: Any) -> None:
    frames = core.send("tool.call", {"call_id": "k1", "input": CONFIRM, **payload}, conversation="c1")
    (answer,) = [f["payload"] for f in frames]
    assert answer["code"] == "message_invalid"
    assert core.results("k1") == []


@pytest.mark.parametrize(
    ("expires_at", "rule"),
    [("tomorrow", "RFC 3339"), ("2001-01-01T00:00:00Z", "future"), ("2026-11-30T08:00:00+02:00", "RFC 3339")],
)
def test_a_question_that_has_expired_before_it_is_asked_is_refused(core: Core, expires_at: str, rule: str) -> None:
    rejected(core, "tool_input_invalid", "confirm", {**CONFIRM, "expires_at": expires_at})
    assert rule in core.result("k1")["error"]["message"]  # type: ignore[index]


def test_duplicate_actions_are_refused_before_anything_is_written(core: Core) -> None:
    actions = [{"id": "a", "label": "A"}, {"id": "a", "label": "B"}]
    rejected(core, "tool_input_invalid", "choice", {"title": "T", "prompt": "P", "mode": "button", "actions": actions})


def test_a_full_focus_stack_refuses_a_call_that_takes_the_screen(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    core.call_accepted("lab.launch", call_id="k1")
    core.call_accepted("lab2.direct", call_id="k2")
    monkeypatch.setattr(limits, "FOCUS_DEPTH_MAX", 2)
    rejected(core, "lifecycle_denied", "lab2.launch", call_id="k3")
    rejected(core, "lifecycle_denied", "timer.start", {"duration_seconds": 5}, call_id="k4")
    core.call_accepted("lab.front", call_id="k5")


def test_no_new_call_while_the_runtime_stops(core: Core) -> None:
    core.call_accepted("lab.direct")
    core.start("lab")
    core.stop()
    assert core.call("lab.direct", call_id="k2")["code"] == "runtime_stopping"
    assert core.call("lab.direct", call_id="k1")["accepted"], "a resend is still answered"
    assert core.results("k2") == []


def test_tool_get(core: Core) -> None:
    core.call_accepted("lab.direct")
    receipt, state = core.send("tool.get", {"call_id": "k1"})
    assert receipt["payload"]["accepted"]
    assert state["type"] == "lineup.v1.tool.state"
    assert state["payload"]["record"]["status"] == "waiting_for_app"
    core.connect("a2")
    (receipt,) = core.send("tool.get", {"call_id": "k1"}, link="a2")
    assert receipt["payload"]["code"] == "call_not_found", "another agent's call does not exist for this one"


def test_receipts_are_bounded() -> None:
    core = Core(policy=Policy(receipts_kept=2))
    for n in range(4):
        core.call("nobody.knows", call_id=f"k{n}", message_id=f"m-{n}")
    assert [key[1] for key, _ in core.scan(RECEIPTS)] == ["m-2", "m-3"]
    again = core.call("nobody.knows", call_id="k3", message_id="m-3")
    assert again["code"] == "tool_not_advertised"
    forgotten = core.call("nobody.knows", call_id="k0", message_id="m-0")
    assert forgotten["accepted"], "taken as new, so the same call is answered by its record"
    assert forgotten["detail"]["status"] == "rejected"
