"""What must not be, refused the same way every time: its code, nothing delivered, nothing changed, a row in the audit.

The rules one by one, with more ways to break them, are in ``tests/core``; here those that matter most stand together,
each as an attempt of one party at what belongs to another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from core.harness import CONFIRM, Core, Worker
from lineup_supervisor.core.schema import AUDIT, INTERACTIONS

ASKED = {"kind": "confirm", **CONFIRM}
YES = {"approved": True}
RESULT = {"n": 1}
# What a refused call writes, as its one result: its record, the way to its agent, and the answer to a resend.
OF_A_REJECTED_CALL = ("calls", "calls_by_id", "calls_by_time", "agents", "outbox", "receipts", "receipt_ring")
OF_A_HOSTS_ACTION = ("action_results", "timers", "timer_due")


@dataclass
class House:
    """Two agents; ``lab`` open in two conversations and ``lab2`` in one; a pending question and a call that is over."""

    core: Core
    mine: Worker  # lab in c1: k1 is open with the question, k0 is completed
    sibling: Worker  # lab in c2
    stranger: Worker  # lab2 in c1
    question: str

    def deliveries(self) -> int:
        return sum(len(worker.deliveries()) for worker in self.core.workers.values()) + len(self.core.unstarted)


@pytest.fixture
def house() -> House:
    core = Core()
    core.connect("a1")
    core.connect("a2")
    workers = []
    for tool, call_id, conversation in (
        ("lab.direct", "k0", "c1"),
        ("lab.direct", "k3", "c2"),
        ("lab2.direct", "k2", "c1"),
    ):
        core.call_accepted(tool, call_id=call_id, conversation=conversation)
        workers.append(core.start(tool.split(".")[0]))
        workers[-1].take(call_id)
    mine, sibling, stranger = workers
    mine.accept("tool.complete", call_id="k0", result=RESULT)
    core.call_accepted("lab.direct", call_id="k1")
    mine.take("k1")
    question = mine.accept("ui.request", request=ASKED, parent_call_id="k1")["interaction_id"]
    core.send("message.text", {"text": "hi"}, link="a2", conversation="c9")
    core.start("chat").take_all()
    return House(core, mine, sibling, stranger, str(question))


Attempt = Callable[[House], tuple[Worker, str, dict[str, Any]]]
BY_WORKERS: dict[str, tuple[str, Attempt]] = {
    "an owner in the request": (
        "interaction_invalid",
        lambda h: (h.stranger, "ui.request", {"request": ASKED | {"owner": {"app_scope": "lab"}}}),
    ),
    "another MiniApp's name in the request": (
        "interaction_invalid",
        lambda h: (h.stranger, "ui.request", {"request": ASKED | {"app_scope": "lab"}}),
    ),
    "a parent call of another MiniApp": (
        "app_scope_mismatch",
        lambda h: (h.stranger, "ui.request", {"request": ASKED, "parent_call_id": "k1"}),
    ),
    "a parent call of another instance": (
        "app_scope_mismatch",
        lambda h: (h.sibling, "ui.request", {"request": ASKED, "parent_call_id": "k1"}),
    ),
    "a parent call that has its result": (
        "call_already_final",
        lambda h: (h.mine, "ui.request", {"request": ASKED, "parent_call_id": "k0"}),
    ),
    "another MiniApp's question": (
        "app_scope_mismatch",
        lambda h: (h.stranger, "ui.cancel", {"interaction_id": h.question}),
    ),
    "another instance's question": (
        "app_scope_mismatch",
        lambda h: (h.sibling, "ui.cancel", {"interaction_id": h.question}),
    ),
    "a result after the final one": (
        "call_already_final",
        lambda h: (h.mine, "tool.complete", {"call_id": "k0", "result": {"n": 2}}),
    ),
    "a failure after the final result": (
        "call_already_final",
        lambda h: (h.mine, "tool.fail", {"call_id": "k0", "code": "x", "message": "x"}),
    ),
    "progress after the final result": (
        "call_already_final",
        lambda h: (h.mine, "tool.progress", {"call_id": "k0", "progress": 1.0}),
    ),
    "a result for another instance": (
        "app_scope_mismatch",
        lambda h: (h.sibling, "tool.complete", {"call_id": "k1", "result": RESULT}),
    ),
    "a result for another MiniApp": (
        "app_scope_mismatch",
        lambda h: (h.stranger, "tool.complete", {"call_id": "k1", "result": RESULT}),
    ),
    "output against the schema": (
        "tool_output_invalid",
        lambda h: (h.mine, "tool.complete", {"call_id": "k1", "result": {"n": "seven"}}),
    ),
}


@pytest.mark.conformance("03-9.5")
@pytest.mark.parametrize("what", BY_WORKERS)
def test_a_worker_is_refused(house: House, what: str) -> None:
    code, attempt = BY_WORKERS[what]
    worker, type_, body = attempt(house)
    before, delivered = house.core.dump(), house.deliveries()
    heard = {link: len(frames) for link, frames in house.core.frames.items()}
    assert worker.refused(type_, **body) == code
    assert house.core.dump() == before
    assert house.deliveries() == delivered
    assert {link: len(frames) for link, frames in house.core.frames.items()} == heard, "no agent hears of it"
    row = house.core.audited("command.refused")[-1]
    assert (row.detail["code"], worker.instance_id in row.subjects) == (code, True)


@pytest.mark.conformance("03-9.7")
@pytest.mark.parametrize("type_", ["interaction.answer", "interaction.result", "interaction.changed"])
def test_no_worker_can_answer_a_question(house: House, type_: str) -> None:
    """There is no such message from a worker; one that tries breaks the protocol and ends."""
    body = {"interaction_id": house.question, "result": YES}
    house.stranger.raw({"type": type_, "id": "z", "body": body})
    assert house.stranger.stopped is not None
    assert house.core.row(INTERACTIONS, house.question).status == "pending"
    assert house.core.row(INTERACTIONS, house.question).result is None
    assert house.mine.deliveries("interaction.result") == []
    assert house.core.audited("worker.violation")[-1].detail["code"] == "message_invalid"


BY_AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a stale revision": ("inventory_revision_mismatch", {"tool_id": "lab.direct", "inventory_revision": "r-0"}),
    "a disabled MiniApp": ("app_disabled", {"tool_id": "timer.start", "input_": {"duration_seconds": 1}}),
    "an unknown tool": ("tool_not_advertised", {"tool_id": "lab.nothing"}),
    "input against the schema": ("tool_input_invalid", {"tool_id": "lab.direct", "input_": {"n": "one"}}),
    "an instance that is not there": ("app_instance_not_found", {"tool_id": "lab2.poke", "conversation": "c2"}),
    "another agent's conversation": ("unauthorized", {"tool_id": "lab.direct", "link": "a2"}),
}


@pytest.mark.conformance("03-9.5")
@pytest.mark.parametrize("what", BY_AGENTS)
def test_an_agent_is_refused(house: House, what: str) -> None:
    code, call = BY_AGENTS[what]
    core = house.core
    core.did("apps.disable", actor="operator", app_scope="timer")
    before, delivered = core.dump(*OF_A_REJECTED_CALL), house.deliveries()
    receipt = core.call(**({"call_id": "k9"} | call))
    assert (receipt["accepted"], receipt["code"]) == (False, code)
    assert core.dump(*OF_A_REJECTED_CALL) == before
    assert house.deliveries() == delivered
    result = core.result("k9")
    assert result is not None
    assert (result["status"], result["error"]["code"]) == ("rejected", code)
    rows = [row for row in core.audited("call.rejected") if "k9" in row.subjects]
    assert [row.detail["code"] for row in rows] == [code]


BY_PEOPLE: dict[str, tuple[str, str, Callable[[House], dict[str, Any]]]] = {
    "no such question": (
        "interaction_not_found",
        "interaction.answer",
        lambda h: {"interaction_id": "q-0", "result": YES},
    ),
    "an answer to something else": (
        "interaction_invalid",
        "interaction.answer",
        lambda h: {"interaction_id": h.question, "result": {"action_ids": ["yes"]}},
    ),
    "an answer with an owner": (
        "interaction_invalid",
        "interaction.answer",
        lambda h: {"interaction_id": h.question, "result": YES | {"owner": "lab2"}},
    ),
    "what is for the operator": ("unauthorized", "apps.disable", lambda h: {"app_scope": "lab"}),
    "Interact's end": (
        "lifecycle_denied",
        "instance.close",
        lambda h: {"instance_id": h.core.instance("chat").instance_id, "force": True},
    ),
}


@pytest.mark.parametrize("what", BY_PEOPLE)
def test_a_person_is_refused(house: House, what: str) -> None:
    code, name, args = BY_PEOPLE[what]
    before, delivered = house.core.dump(*OF_A_HOSTS_ACTION), house.deliveries()
    assert house.core.action(name, **args(house)).code == code
    assert house.core.dump(*OF_A_HOSTS_ACTION) == before
    assert house.deliveries() == delivered
    row = house.core.audited("action.refused")[-1]
    assert (row.detail["code"], row.detail["action"], row.actor) == (code, name, "person")


def test_the_chain_of_the_audit_holds_over_all_of_it(house: House) -> None:
    for _, attempt in BY_WORKERS.values():
        worker, type_, body = attempt(house)
        worker.ask(type_, **body)
    rows = [row for _, row in house.core.scan(AUDIT)]
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert all(later.prev == row.hash for row, later in pairwise(rows))
    assert len([row for row in rows if row.kind == "command.refused"]) == len(BY_WORKERS)
