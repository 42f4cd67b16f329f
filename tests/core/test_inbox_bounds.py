"""What waits for a MiniApp is bounded in items and bytes, whoever sends it; what is owed always finds room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.harness import CONFIRM, Core, Worker, rebuild
from lineup_protocol import limits
from lineup_supervisor.core import inbox, quotas, retention
from lineup_supervisor.core.schema import CALLS, INBOX, INSTANCES, TIMELINE, USAGE

QUESTION = {"kind": "confirm", **CONFIRM}
NOTIFY = {"capability": "notification.show", "reason": "to tell you", "arguments": {"title": "Done"}}


@pytest.fixture
def core() -> Core:
    made = Core()
    made.connect("a1")
    return made


def running(core: Core, tool: str = "lab.front", call_id: str = "k0") -> Worker:
    core.call_accepted(tool, call_id=call_id)
    worker = core.start("lab")
    worker.take(call_id)
    return worker


def board(core: Core) -> tuple[Worker, str]:
    worker = running(core)
    return worker, str(worker.accept("surface.open", entry="surface/index.html")["surface_id"])


def waiting(core: Core, worker: Worker) -> list[str]:
    return [item.kind for _, item in core.scan(INBOX, worker.instance_id)]


def bytes_of(core: Core, app: str = "lab") -> int:
    return int(core.row(USAGE, app, quotas.INBOX).bytes)


def filled(core: Core, worker: Worker, surface_id: str, count: int) -> None:
    for n in range(count):
        core.did("surface.submit", surface_id=surface_id, payload=n)
    assert len(waiting(core, worker)) == count


def test_nothing_new_is_taken_by_a_full_inbox_whoever_sends_it(core: Core, small_limits: Callable[..., Any]) -> None:
    worker, surface_id = board(core)
    asked = worker.accept("capability.request", **NOTIFY)
    core.did(
        "interaction.answer", interaction_id=core.questions()[0]["interaction_id"], result={"action_ids": ["session"]}
    )
    assert not asked.get("granted")
    worker.take_all()
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=5):
        filled(core, worker, surface_id, 5)
        before = core.dump("actions", "action_results", "timers", "timer_due")
        refused = core.action("surface.submit", surface_id=surface_id, payload="one more")
        assert refused.code == "rate_limited"
        assert refused.detail == {"waiting": 5, "allowed": 5}
        assert worker.refused("capability.request", **NOTIFY) == "rate_limited"
        assert worker.refused("ui.request", request=QUESTION) == "rate_limited"
        assert core.call("lab.poke", call_id="k1")["code"] == "rate_limited"
        after = core.dump("actions", "action_results", "timers", "timer_due")
        assert {name for name in before if before[name] != after[name]} <= {"surfaces"}, (
            "but a count of what its page said"
        )
        assert list(core.scan(CALLS, "a1", "k1")) == [], "so that the same call may come again"
        worker.take_all()
        core.call_accepted("lab.poke", call_id="k1")
        assert waiting(core, worker) == ["tool.call"]


def test_a_page_is_not_opened_whose_end_could_not_be_told(core: Core, small_limits: Callable[..., Any]) -> None:
    worker = running(core)
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=0):
        assert worker.refused("surface.open", entry="surface/index.html") == "rate_limited"


def test_a_standing_consent_fills_no_inbox(core: Core, small_limits: Callable[..., Any]) -> None:
    worker, _ = board(core)
    worker.accept("capability.request", **NOTIFY)
    core.did(
        "interaction.answer", interaction_id=core.questions()[0]["interaction_id"], result={"action_ids": ["session"]}
    )
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=20):
        answers = [worker.ask("capability.request", **NOTIFY) for _ in range(60)]
    assert [a.get("code") for a in answers].count("rate_limited") == 60 - 19
    assert len(waiting(core, worker)) == 20


def test_questions_that_are_taken_back_fill_no_inbox(core: Core, small_limits: Callable[..., Any]) -> None:
    worker, _ = board(core)
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=20):
        for _ in range(60):
            asked = worker.ask("ui.request", request=QUESTION)
            if asked["accepted"]:
                worker.accept("ui.cancel", interaction_id=asked["detail"]["interaction_id"])
    assert waiting(core, worker) == ["interaction.result"] * 20


def test_a_text_that_has_no_room_is_not_said(core: Core, small_limits: Callable[..., Any]) -> None:
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=2):
        for _ in range(2):
            core.send("message.text", {"text": "hello"}, conversation="c1")
        said = len(list(core.scan(TIMELINE, "c1")))
        (receipt,) = core.send("message.text", {"text": "hello"}, conversation="c1", message_id="m-late")
        assert receipt["payload"]["code"] == "rate_limited"
        assert len(list(core.scan(TIMELINE, "c1"))) == said
        core.start("chat").take_all()
        (receipt,) = core.send("message.text", {"text": "hello"}, conversation="c1", message_id="m-late")
        assert receipt["payload"]["accepted"], "the same message again"


def test_what_is_owed_finds_room_in_a_full_inbox(core: Core, small_limits: Callable[..., Any]) -> None:
    """A cancel, an answer, an outcome, the end of a page, a call that is delivered again, and no more than these."""
    worker, surface_id = board(core)
    core.call_accepted("lab.safe", call_id="k-safe")
    worker.take("k-safe")
    worker.accept("ui.request", request=QUESTION)
    worker.accept("capability.request", **NOTIFY)
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=2, INBOX_BYTES_PER_APP_MAX=1):
        filled_with = waiting(core, worker)
        assert filled_with == []
        core.send("tool.cancel", {"call_id": "k0"})
        for question in core.questions():
            result = {"approved": True} if question["kind"] == "confirm" else {"action_ids": ["once"]}
            core.did("interaction.answer", interaction_id=question["interaction_id"], result=result)
        core.did("surface.torn", surface_id=surface_id)
        worker.exit("killed")
        owed = ["tool.cancel", "interaction.result", "capability.result", "surface.event", "tool.call"]
        assert sorted(waiting(core, worker)) == sorted(owed)
        core.advance(1)
        assert core.start("lab").deliveries("interaction.result")
    assert bytes_of(core) > 1


@pytest.mark.parametrize("instances", [1, 3])
def test_bytes_are_bounded_for_all_instances_of_a_miniapp(
    core: Core, small_limits: Callable[..., Any], instances: int
) -> None:
    pages = []
    for n in range(instances):
        core.call_accepted("lab.front", call_id=f"k{n}", conversation=f"c{n}")
        worker = core.start("lab")
        worker.take(f"k{n}")
        pages.append((worker, worker.accept("surface.open", entry="surface/index.html")["surface_id"]))
    with small_limits(INBOX_BYTES_PER_APP_MAX=100_000):
        answers = []
        for n in range(30):
            core.advance(1)
            _, surface_id = pages[n % instances]
            answers.append(core.action("surface.submit", surface_id=surface_id, payload="x" * 10_000))
        assert [answer.accepted for answer in answers] == [True] * 9 + [False] * 21
        assert answers[-1].code == "rate_limited"
        assert set(answers[-1].detail) == {"used", "more", "allowed"}
        assert 90_000 < bytes_of(core) <= 100_000
        assert (
            core.call("lab.safe", {"n": 1, "by": "y" * 20_000}, call_id="big", conversation="c0")["code"]
            == "rate_limited"
        )
        assert (
            core.call("lab.safe", {"n": 1, "by": "y" * 20_000}, call_id="new", conversation="cx")["code"]
            == "rate_limited"
        )
        core.call_accepted("lab2.safe", call_id="other")  # another MiniApp has its own
        for worker, _ in pages:
            worker.take_all()
        assert bytes_of(core) == 0, "what was taken over gives back"
        assert core.action("surface.submit", surface_id=pages[0][1], payload="x" * 10_000).accepted


def test_what_ends_gives_back(core: Core) -> None:
    worker = running(core, "lab.brief")
    core.call_accepted("lab.brief", {"n": 1}, call_id="k1")
    assert bytes_of(core) > limits.INBOX_ITEM_OVERHEAD_BYTES
    core.call_accepted("lab.poke", {"n": 1}, call_id="k2")
    core.send("tool.cancel", {"call_id": "k2"})
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    assert bytes_of(core) == 0


def test_a_long_backlog_goes_in_slices_after_its_instance(core: Core) -> None:
    """No event deletes more than a little, by number and by bytes, and nobody is told any of it."""
    worker, surface_id = board(core)
    for n in range(308):
        payload = "x" * 1_000_000 if n >= 300 else n
        core.did("surface.submit", surface_id=surface_id, payload=payload)
        core.steady_ms += 20
    core.did("instance.close", instance_id=worker.instance_id, force=True)
    left = waiting(core, worker)
    assert len(left) >= 308 - inbox.ROWS_AT_ONCE
    assert bytes_of(core) > 7_000_000
    sweeps = 0
    while left:
        before, size, sweeps = len(left), bytes_of(core), sweeps + 1
        core.steady_ms += retention.SWEEP_AGAIN_MS
        core.wake()
        left = waiting(core, worker)
        assert 0 < before - len(left) <= retention.SWEEP_ROWS_MAX
        assert size - bytes_of(core) < retention.SWEEP_ROWS_MAX * inbox.BYTES_PER_ROW + 1_100_000
    assert sweeps > 2
    assert bytes_of(core) == 0


def test_an_item_of_an_older_store_was_not_counted_and_gives_nothing_back(core: Core) -> None:
    core.call_accepted("lab.direct", call_id="k0")
    worker = core.start("lab")
    ((key, item),) = core.scan(INBOX, worker.instance_id)
    core.did("apps.disable", actor="operator", app_scope="lab2")
    with core.store.write() as txn:
        txn.put(INBOX, key, rebuild(item, bytes=0))
        txn.put(USAGE, ("lab", quotas.INBOX), rebuild(txn.get(USAGE, ("lab", quotas.INBOX)), bytes=0))
    worker.exit("killed")
    core.advance(1)
    core.start("lab").take("k0")
    assert bytes_of(core) == 0
    assert core.row(INSTANCES, worker.instance_id).next_inbox == 2
