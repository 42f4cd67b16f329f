"""The checkers on histories written by hand: each sees its own fault, and a clean history has none."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from checkers.agents import check_outbox, check_receipts, check_results
from checkers.audit import check_chain, row_hash
from checkers.causes import check_causes
from checkers.history import AgentLog, Entry, History, WorkerLog
from checkers.operations import check_operations
from checkers.people import check_answers, check_focus
from checkers.remains import check_rest
from checkers.verdict import judge
from checkers.workers import check_inbox

Frame = dict[str, Any]


def history(*agent: tuple[str, Frame], settled: bool = True) -> History:
    made = History(seed=0, settled=settled, status={"open_calls": 0, "outbox": 0, "workers": {}, "instances": []})
    log = made.agents["a"] = AgentLog("a")
    for number, (what, frame) in enumerate(agent, start=1):
        log.entries.append(Entry(number, 0, what, frame, "l"))
    return made


def call(call_id: str = "k", message_id: str = "m") -> tuple[str, Frame]:
    payload = {"call_id": call_id, "tool_id": "lab.direct", "input": {}}
    return "sent", {"type": "lineup.v1.tool.call", "message_id": message_id, "conversation_id": "c", "payload": payload}


def result(seq: int, call_id: str = "k", **more: Any) -> tuple[str, Frame]:
    payload = {"call_id": call_id, "status": "completed", "result": {"n": 1}} | more
    return "received", {"type": "lineup.v1.tool.result", "seq": seq, "payload": payload}


def receipt(message_id: str = "m", **more: Any) -> tuple[str, Frame]:
    return "received", {"type": "lineup.v1.receipt", "payload": {"reply_to": message_id, "accepted": True} | more}


WELCOME = ("received", {"type": "lineup.v1.welcome", "payload": {"acked_seq": 0}})


def words(checker: Any, made: History) -> list[str]:
    return [fault.words for fault in checker(made)]


def test_a_clean_history_has_no_fault() -> None:
    made = history(WELCOME, call(), receipt(), result(1))
    worker = made.workers["i", 1] = WorkerLog("i", 1, "lab")
    worker.entries.append(Entry(3, 0, "sent", {"type": "tool.complete", "body": {"call_id": "k", "result": {"n": 1}}}))
    assert judge(made) == []


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((WELCOME, call(), receipt(), result(1), result(2)), "has 2 results"),
        ((WELCOME, call(), receipt()), "was taken and never ended"),
        ((WELCOME, call()), "was sent and never answered"),
        ((WELCOME, result(1)), "which it had not called"),
        ((WELCOME, call(), result(1, status="done")), "a result that is none"),
    ],
)
def test_results(entries: Any, expected: str) -> None:
    assert any(expected in each for each in words(check_results, history(*entries)))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((WELCOME, call(), result(2)), "seq 2 follows 0"),
        ((call(), result(1)), "before the welcome"),
        ((WELCOME, call(), result(1), WELCOME, result(1, result={"n": 2})), "other content"),
    ],
)
def test_outbox(entries: Any, expected: str) -> None:
    assert any(expected in each for each in words(check_outbox, history(*entries)))


def test_receipts() -> None:
    made = history(WELCOME, call(), receipt(), receipt(accepted=False, code="unauthorized", message="no"))
    assert len(words(check_receipts, made)) == 1


RECORD = {"call_id": "k", "status": "completed", "result": {"n": 1}}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((call(), receipt(), result(1), call(), receipt()), ""),
        ((call(), receipt(), result(1), call("k", "m2"), receipt("m2", detail=RECORD)), ""),
        ((call(), call(), receipt(detail={"call_id": "k", "status": "running"}), result(1)), ""),
        ((call(), receipt(), result(1), call("k", "m2"), receipt("m2")), "without its record"),
        ((call(), receipt(detail=RECORD), call(), receipt()), "was answered"),
        ((call(), receipt(), call(), receipt(detail=RECORD)), "was answered"),
        ((call(), result(1), receipt(detail=RECORD | {"status": "running"})), "its record is"),
        ((call(), result(1), receipt(detail=RECORD | {"result": {"n": 2}})), "its record is"),
        ((call(), receipt(detail=RECORD | {"call_id": "k2"})), "its record is"),
        (
            (
                call(),
                receipt(accepted=False, code="app_disabled", message="no", detail={"n": 1}),
                receipt(accepted=False, code="app_disabled", message="no"),
            ),
            "was answered",
        ),
    ],
)
def test_receipts_of_a_call_sent_again(entries: Any, expected: str) -> None:
    found = words(check_receipts, history(WELCOME, *entries))
    assert len(found) == bool(expected)
    assert all(expected in each for each in found)


def test_a_result_that_nobody_sent() -> None:
    assert "no worker sent" in words(check_causes, history(WELCOME, call(), result(1)))[0]


def test_an_unknown_outcome_needs_a_dead_worker() -> None:
    unknown = result(1, status="failed", error={"code": "outcome_unknown", "message": "x"})
    unknown[1]["payload"].pop("result")
    assert "has ended" in words(check_causes, history(WELCOME, call(), unknown))[0]


def delivery(seq: int) -> Frame:
    return {"type": "inbox.deliver", "body": {"seq": seq, "kind": "message.text", "message_id": f"m{seq}", "body": {}}}


def worker_history(*incarnations: list[tuple[str, Frame]]) -> History:
    made = history()
    at = 0
    for number, entries in enumerate(incarnations, start=1):
        log = made.workers["i", number] = WorkerLog("i", number, "lab")
        for what, message in entries:
            at += 1
            log.entries.append(Entry(at, 0, what, message))
    return made


@pytest.mark.parametrize(
    ("incarnations", "expected"),
    [
        (([("received", delivery(2)), ("received", delivery(1))],), "out of order"),
        (([("received", delivery(1))], [("received", delivery(2))]), "were not delivered again"),
        (([("received", delivery(2))],), "were never delivered"),
        (
            (
                [
                    ("received", delivery(1)),
                    ("sent", {"type": "inbox.ack", "id": "1", "body": {"seq": 1}}),
                    ("received", {"type": "receipt", "body": {"re": "1", "accepted": True}}),
                ],
                [("received", delivery(1))],
            ),
            "came again after the acknowledgement",
        ),
    ],
)
def test_inbox(incarnations: Any, expected: str) -> None:
    assert any(expected in each for each in words(check_inbox, worker_history(*incarnations)))


def test_chain() -> None:
    row = {
        "seq": 1,
        "at_ms": 0,
        "actor": "a",
        "kind": "k",
        "subjects": [],
        "cause": "c",
        "detail": {},
        "prev": "0" * 64,
    }
    row["hash"] = row_hash(row)
    made = history()
    made.audit, made.audit_head = [row], {"seq": 1, "hash": row["hash"]}
    assert words(check_chain, made) == []
    made.audit = [row | {"kind": "other"}]
    assert words(check_chain, made)
    made.audit = [row, row]
    assert words(check_chain, made)


def test_operations() -> None:
    started = {
        "kind": "operation.started",
        "subjects": ["op"],
        "at_ms": 0,
        "detail": {"ends_at": "1970-01-01T00:01:00.000Z"},
    }
    early = {"kind": "operation.completed", "subjects": ["op"], "at_ms": 59_999, "detail": {}}
    made = history()
    made.audit = [started]
    assert "never decided" in words(check_operations, made)[0]
    made.audit = [started, early]
    assert "completed before" in words(check_operations, made)[0]
    made.audit = [started, early | {"at_ms": 60_000}, early | {"at_ms": 60_000}]
    assert "decided 2 times" in words(check_operations, made)[0]


def host(made: History, *entries: tuple[str, Any]) -> History:
    made.host.entries += [Entry(number, 0, what, data) for number, (what, data) in enumerate(entries)]
    return made


def test_answers() -> None:
    asked = {"name": "interaction.answer", "args": {"interaction_id": "q", "result": {}}}
    said = {"accepted": True, "code": None, "message": None, "detail": {"result": {"approved": True}}}
    entries = [("action", asked | {"action_id": x}) for x in ("x1", "x2")] + [
        ("reply", said | {"action_id": x}) for x in ("x1", "x2")
    ]
    assert "took 2 answers" in words(check_answers, host(history(), *entries))[0]


@pytest.mark.parametrize(
    ("focus", "state", "expected"),
    [
        ([], "foreground", "the focus is []"),
        (["i"], "closed", "is closed"),
        (["x", "i"], "foreground", "x is unknown"),
    ],
)
def test_focus(focus: list[str], state: str, expected: str) -> None:
    instance = {"instance_id": "i", "conversation_id": "c", "state": state}
    conversation = {"conversation_id": "c", "focus": focus, "chat_instance_id": "i"}
    made = host(history(), ("snapshot", {"instances": [instance], "conversations": [conversation]}))
    assert any(expected in each for each in words(check_focus, made))


def test_rest() -> None:
    made = history()
    made.status["open_calls"] = 1
    assert words(check_rest, made) == ["open_calls is 1"]


def test_checkers_know_nothing_of_the_runtime() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith(("lineup_", "simulation")) for name in names), path.name
