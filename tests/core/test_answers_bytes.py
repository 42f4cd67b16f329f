"""No answer is larger than its room, however large the rows are; its pages together give every row, and it says when
there is more. What a MiniApp asks of people is bounded in bytes, and what was asked before the bound still opens."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from core.harness import Core, Worker
from lineup_protocol import limits
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import overview, quotas
from lineup_supervisor.core.schema import AUDIT, CALLS, INTERACTIONS, TIMELINE, USAGE

LARGE = 65_000
CONVERSATIONS = 9
QUESTIONS = 64
OTHERWISE = 64 * limits.KIB  # of an answer, what is not rows of its list
SNAPSHOT_BYTES_MAX = 7 * limits.MIB


def notice(n: int, length: int = LARGE) -> dict[str, Any]:
    return {"kind": "notice", "title": f"Notice {n}", "message": "m" * length}


def bytes_of(answer: Any) -> int:
    return len(json.dumps(answer, ensure_ascii=False).encode())


def pages(core: Core, name: str, **args: Any) -> list[dict[str, Any]]:
    """Every page of a list, each below its room."""
    found = [core.query(name, **args)]
    while "next" in found[-1]:
        found.append(core.query(name, **args, after=found[-1]["next"]))
    for page in found:
        assert bytes_of(page) <= limits.ANSWER_ROWS_BYTES_MAX + OTHERWISE
    return found


def rows(core: Core, name: str, **args: Any) -> list[dict[str, Any]]:
    return [row for page in pages(core, name, **args) for row in page[name]]


def lab(core: Core, conversation: str) -> Worker:
    core.call_accepted("lab.direct", call_id=f"k-{conversation}", conversation=conversation)
    return core.start("lab")


def grow(core: Core, table: Any, key: Any, **changes: Any) -> None:
    with core.store.write() as txn:
        row = txn.get(table, key)
        assert row is not None
        txn.put(table, key, msgspec.structs.replace(row, **changes))


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


@pytest.fixture
def crowded(core: Core, monkeypatch: pytest.MonkeyPatch) -> Core:
    """A home from before the bound: 9 conversations, in each of them 64 notices of 65,000 characters that wait."""
    with monkeypatch.context() as patch:
        patch.setattr(limits, "INTERACTIONS_PENDING_BYTES_PER_APP_MAX", limits.INTEGER_ABS_MAX)
        patch.setattr(core, "check", lambda: None)  # once, below: it looks at every question each time
        for c in range(CONVERSATIONS):
            worker = lab(core, f"c{c}")
            for n in range(QUESTIONS):
                worker.accept("ui.request", request=notice(n))
    for key, _ in core.scan(INTERACTIONS):
        grow(core, INTERACTIONS, key, charged=0)
    with core.store.write() as txn:
        txn.delete(USAGE, ("lab", quotas.QUESTIONS))
    core.check()
    return core


def test_a_workspace_comes_up_however_much_is_asked(crowded: Core) -> None:
    snapshot = crowded.query("snapshot")
    assert bytes_of(snapshot) <= SNAPSHOT_BYTES_MAX
    shown = snapshot["interactions"]
    assert len(snapshot["conversations"]) == CONVERSATIONS
    assert any(not row.get("cut") for row in shown)
    assert any(row.get("cut") for row in shown)
    for row in shown[::37]:
        assert row["request"]["title"].startswith("Notice")
        if row.get("cut"):
            whole = crowded.query("interaction", interaction_id=row["interaction_id"])
            assert len(whole["request"]["message"]) == LARGE
            assert whole["request"]["message"].startswith(row["request"]["message"][:-1])
    ids = {row["interaction_id"] for row in shown}
    if "interactions_next" in snapshot:
        assert "interactions" in snapshot["truncated"]
        rest = pages(crowded, "interactions", brief=True, after=snapshot["interactions_next"])
        ids |= {row["interaction_id"] for page in rest for row in page["interactions"]}
    assert len(ids) == CONVERSATIONS * QUESTIONS


def test_questions_from_before_the_bound_can_be_answered_and_dismissed(crowded: Core) -> None:
    first, second = (row["interaction_id"] for row in crowded.query("snapshot")["interactions"][:2])
    crowded.did("interaction.answer", interaction_id=first, result={"acknowledged": True})
    crowded.did("interaction.cancel", interaction_id=second)
    assert len(rows(crowded, "interactions")) == CONVERSATIONS * QUESTIONS - 2


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("state", ["open", "all"])
def test_questions_come_in_pages(crowded: Core, state: str, brief: bool) -> None:
    args = {"state": state, "brief": brief, "limit": 1_000}
    found = rows(crowded, "interactions", **args)
    ids = [row["interaction_id"] for row in found]
    assert len(ids) == len(set(ids)) == CONVERSATIONS * QUESTIONS
    assert all(bool(row.get("cut")) == brief for row in found)
    lengths = {len(row["request"]["message"]) for row in found}
    assert lengths == ({201} if brief else {LARGE})


def test_a_timeline_comes_in_pages_and_says_whether_there_is_more(crowded: Core) -> None:
    crowded.action("person.text", conversation_id="c0", text="t" * 65_000)
    for _ in range(40):
        crowded.did("person.text", conversation_id="c0", text="t" * 65_000)
    whole = sorted(row.n for _, row in crowded.scan(TIMELINE, "c0"))
    seen: list[int] = []
    before, asked = limits.INTEGER_ABS_MAX, set()
    while True:
        page = crowded.query("timeline", conversation_id="c0", before=before, limit=1_000)
        assert bytes_of(page) <= limits.ANSWER_ROWS_BYTES_MAX + OTHERWISE
        numbers = [entry["n"] for entry in page["entries"]]
        assert numbers == sorted(numbers)
        seen = numbers + seen
        asked |= {row["interaction_id"] for row in page["interactions"]}
        if not page["more"]:
            break
        before = numbers[0]
    assert seen == whole
    assert len(asked) == QUESTIONS


def test_a_session_comes_in_pages(crowded: Core) -> None:
    session = crowded.instance("lab", "c1").session_id
    found = [crowded.query("session", session_id=session)]
    while "next" in found[-1]:
        found.append(crowded.query("session", session_id=session, after=found[-1]["next"]))
    assert all(bytes_of(page) <= limits.ANSWER_ROWS_BYTES_MAX + OTHERWISE for page in found)
    numbers = [entry["n"] for page in found for entry in page["entries"]]
    assert numbers == sorted(set(numbers))
    assert len({row["interaction_id"] for page in found for row in page["interactions"]}) == QUESTIONS


@pytest.mark.parametrize("state", [None, "open", "waiting_for_app"])
def test_calls_come_in_pages(core: Core, state: str | None) -> None:
    for n in range(20):
        core.call_accepted("lab.direct", call_id=f"k{n}")
    for key, _ in core.scan(CALLS):
        grow(core, CALLS, key, input={"text": "i" * 500_000})
    args = {"limit": 400} if state is None else {"limit": 400, "state": state}
    found = rows(core, "calls", **args)
    assert sorted(row["call_id"] for row in found) == sorted(f"k{n}" for n in range(20))
    assert all(len(row["input"]["text"]) == 500_000 for row in found)
    assert len(pages(core, "calls", **args)) > 1
    assert len(pages(core, "calls", **args, brief=True)) == 1
    assert [len(page["calls"]) for page in pages(core, "calls", **args | {"limit": 7}, brief=True)] == [7, 7, 6]
    assert bytes_of(core.query("snapshot")) <= limits.MIB
    assert len(core.query("snapshot")["calls"]) == 20


def test_a_row_larger_than_its_room_still_comes(core: Core) -> None:
    core.call_accepted("lab.direct")
    grow(core, CALLS, ("a1", "k1"), input={"text": "i" * 2 * limits.ANSWER_ROWS_BYTES_MAX})
    (row,) = core.query("calls")["calls"]
    assert row["call_id"] == "k1"


def test_story_and_audit_come_in_pages(core: Core) -> None:
    core.call_accepted("lab.direct")
    for n in range(40):
        core.action("call.cancel", call_id="k1", agent_id="a1", reason=f"r{n}")
        core.call_accepted("lab.direct", call_id=f"m{n}")
    for key, _ in list(core.scan(AUDIT)):
        grow(core, AUDIT, key, detail={"reason": "r" * 300_000})
    instance = core.instance("lab").instance_id
    found = pages(core, "story", id=instance)
    assert all(page["truncated"] == ("next" in page) for page in found)
    told = [entry["seq"] for page in found for entry in page["entries"]]
    assert len(found) > 1
    assert told == sorted(set(told))
    seqs: list[int] = []
    while page := core.query("audit.page", after=seqs[-1] if seqs else 0):
        assert bytes_of(page) <= limits.ANSWER_ROWS_BYTES_MAX + OTHERWISE
        if not page["rows"]:
            break
        seqs += [row["seq"] for row in page["rows"]]
    assert seqs == list(range(1, core.query("audit.page")["head"]["seq"] + 1))
    assert set(told) <= set(seqs)


@pytest.mark.parametrize("name", ["status", "apps", "agents", "artifacts", "notifications", "grants", "snapshot"])
def test_whole_lists_say_so(core: Core, name: str) -> None:
    answer = core.query(name)
    assert "next" not in answer
    assert not answer.get("truncated")


@pytest.mark.parametrize("name", ["status", "snapshot"])
def test_lists_without_pages_name_themselves(core: Core, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        core.connect(f"agent-{n}")
    monkeypatch.setattr(limits, "ANSWER_ROWS_BYTES_MAX", 300)
    monkeypatch.setitem(overview.SNAPSHOT_ROOM, "agents", 300)
    answer = core.query(name)
    assert "agents" in answer["truncated"]
    assert 1 <= len(answer["agents"]) < 6


def test_pages_of_agents_and_apps(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        core.connect(f"agent-{n}")
    agents, apps = core.query("agents")["agents"], core.query("apps")["apps"]
    monkeypatch.setattr(limits, "ANSWER_ROWS_BYTES_MAX", 300)
    assert rows(core, "agents") == agents
    assert rows(core, "apps") == apps
    assert len(pages(core, "agents")) > 1


@pytest.mark.parametrize("after", [7, "a", "a/b/c", "x/y/z/w", "//", "-1/a/b", "1/a b/c", [], {}])
def test_a_place_that_no_answer_has_named_is_refused(core: Core, after: Any) -> None:
    for name in ("calls", "interactions", "apps"):
        if name == "apps" and after == "a":
            continue
        core.do(ev.HostQuery(event_id=core.new_id(), reply_to="q", name=name, args={"after": after}))
        reply = core.replies["q"]
        assert not reply.accepted
        assert reply.code == "message_invalid"


def test_bytes_of_waiting_questions_are_bounded_over_all_instances(core: Core) -> None:
    workers = [lab(core, "c0"), lab(core, "c1")]
    asked: list[str] = []
    while True:
        before = core.dump()
        receipt = workers[len(asked) % 2].ask("ui.request", request=notice(len(asked)))
        if not receipt["accepted"]:
            break
        asked.append(receipt["detail"]["interaction_id"])
    assert receipt["code"] == "rate_limited"
    detail = receipt["detail"]
    assert detail["used"] + detail["more"] > detail["allowed"] == limits.INTERACTIONS_PENDING_BYTES_PER_APP_MAX
    assert "answered or cancelled" in receipt["message"]
    assert core.dump() == before, "a refusal changes nothing"
    assert len(asked) == limits.INTERACTIONS_PENDING_BYTES_PER_APP_MAX // (LARGE + 600)
    core.did("interaction.answer", interaction_id=asked[0], result={"acknowledged": True})
    workers[1].accept("ui.request", request=notice(0))
    assert workers[0].refused("ui.request", request=notice(1)) == "rate_limited"
    for row in core.query("interactions")["interactions"]:
        core.did("interaction.cancel", interaction_id=row["interaction_id"])
    for row in rows(core, "interactions"):
        core.did("interaction.cancel", interaction_id=row["interaction_id"])
    assert core.row(USAGE, "lab", quotas.QUESTIONS).bytes == 0


def test_a_repeat_of_what_was_asked_needs_no_more_room(core: Core) -> None:
    worker = lab(core, "c0")
    made = worker.accept("ui.request", request=notice(0), key="once")
    n = 1
    while worker.ask("ui.request", request=notice(n))["accepted"]:
        n += 1
    assert worker.accept("ui.request", request=notice(0), key="once")["interaction_id"] == made["interaction_id"]


def test_what_closes_gives_its_room_back(core: Core) -> None:
    worker = lab(core, "c0")
    for n in range(5):
        worker.accept("ui.request", request=notice(n))
    assert core.row(USAGE, "lab", quotas.QUESTIONS).bytes > 5 * LARGE
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    assert core.row(USAGE, "lab", quotas.QUESTIONS).bytes == 0
