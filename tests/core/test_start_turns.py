"""Whose turn it is to start: one MiniApp that hangs while it is loaded holds up itself and nobody else."""

from __future__ import annotations

from collections import Counter

import pytest

from core.harness import Core, rebuild, status_of
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import (
    APPS,
    CALLS,
    CONVERSATIONS,
    INSTANCES,
    META,
    START_QUEUE,
    STARTS,
    WANTED,
    Mark,
    Wish,
)
from simulation import bundles

TIMEOUT_S = Policy().worker_start_timeout_ms / 1000
SHARE = Policy().workers_starting_max // 2


def scopes(core: Core) -> list[str]:
    """Of the starts under way, in the order in which they began."""
    return [worker.app_scope for worker in core.unstarted]


def ask(core: Core, app: str, count: int, *, since: int = 0) -> None:
    """Calls of ``app``, each in a conversation of its own."""
    for n in range(since, since + count):
        core.call_accepted(f"{app}.safe", call_id=f"{app}-{n}", conversation=f"{app}-{n}")


def time_out(core: Core) -> int:
    """The starts under way hang until they are killed; how many those were."""
    hung = list(core.unstarted)
    core.advance(TIMEOUT_S + 1)
    for worker in hung:
        assert worker.stopped == "start_timeout"
        worker.exit("stopped")
    return len(hung)


@pytest.fixture
def core() -> Core:
    made = Core(manifests=tuple(bundles.lab(f"lab{n}") for n in range(3, 9)))
    made.connect("a1")
    return made


def test_no_miniapp_has_more_than_half_of_the_starts(core: Core) -> None:
    ask(core, "lab", 8)
    assert scopes(core) == ["lab"] * SHARE
    assert core.row(STARTS, "lab").waiting == 8 - SHARE
    ask(core, "lab2", 1)
    assert scopes(core) == ["lab"] * SHARE + ["lab2"], "whoever comes later does not wait for it"


def test_a_start_that_is_over_makes_room_for_the_next_of_its_miniapp(core: Core) -> None:
    ask(core, "lab", 8)
    for left in range(8, 0, -1):
        assert scopes(core) == ["lab"] * min(left, SHARE)
        core.start("lab")
    (left,) = [row for key, row in core.scan(STARTS) if key == ("lab",)]
    assert (left.under_way, left.waiting, left.places) == (0, 0, 8)


def test_the_next_is_who_has_the_fewest_under_way_and_of_these_who_waits_longest(core: Core) -> None:
    ask(core, "lab", 4)
    ask(core, "lab2", 4)
    assert scopes(core) == ["lab", "lab", "lab2", "lab2"]
    core.advance(1)
    ask(core, "lab", 1, since=4)
    for app in ("lab4", "lab3"):
        core.advance(1)
        ask(core, app, 2)
    core.start("lab")
    assert scopes(core)[-1] == "lab4", "it has none under way, and waits longer than lab3"
    core.start("lab2")
    assert scopes(core)[-1] == "lab3"
    core.start("lab")
    assert scopes(core)[-1] == "lab", "it has none under way any more"
    core.start("lab3")
    assert scopes(core)[-1] == "lab3", "none under way, however late it came"


def test_within_a_miniapp_the_first_come_is_the_first_served(core: Core) -> None:
    ask(core, "lab", 1)
    for n in range(1, 6):
        core.advance(0.5)
        ask(core, "lab", 1, since=n)
    order = []
    while core.unstarted:
        worker = core.unstarted[0]
        order.append(core.row(INSTANCES, worker.instance_id).conversation_id)
        core.start("lab")
    assert order == [f"lab-{n}" for n in range(6)]


def test_nobody_waits_for_ever_beside_others_that_always_come(core: Core) -> None:
    """Six MiniApps start as fast as they can, each as soon as it may; one that asks once still has its turn."""
    core.policy = Policy(workers_max=1_000)
    core.boot()
    core.connect("a1")
    others = [f"lab{n}" for n in range(3, 9)]
    for app in others:
        ask(core, app, 3)
    ask(core, "lab", 2)
    seen = Counter(scopes(core))
    for number in range(60):
        worker = core.unstarted[0]
        core.start(worker.app_scope)
        ask(core, worker.app_scope, 1, since=10 + number)
        seen.update(scopes(core)[-1:])
        core.advance(0.1)
    assert seen["lab"] >= 2
    assert status_of(core, "lab-1") != "waiting"


@pytest.mark.parametrize(("most", "workers"), [(1, 64), (2, 64), (3, 64), (4, 1), (4, 2)])
def test_the_share_is_at_least_one_and_leaves_room_where_it_can(most: int, workers: int) -> None:
    core = Core(policy=Policy(workers_starting_max=most, workers_max=workers))
    ask(core, "lab", 3)
    assert scopes(core) == ["lab"], "half of two or three, and one of one"
    ask(core, "lab2", 1)
    assert ("lab2" in scopes(core)) == (most > 1 and workers > 1)


def test_no_room_is_made_for_a_start_that_has_to_wait_for_its_own() -> None:
    core = Core(policy=Policy(workers_max=4), manifests=(bundles.lab("lab3"),))
    ask(core, "lab2", 2)
    idle = [core.start("lab2"), core.start("lab2")]
    for n, worker in enumerate(idle):
        worker.take(f"lab2-{n}")
        worker.accept("tool.complete", call_id=f"lab2-{n}", result={"n": 1})
    ask(core, "lab", 8)
    assert [worker.stopped for worker in idle] == [None, None], "they would go for nothing"
    ask(core, "lab3", 1)
    assert [worker.stopped for worker in idle] == ["reclaimed", None], "one goes for the one that has its turn"


class TestStartsThatHang:
    """What is loaded for ever is ended as what crashes for ever is, though never as quickly."""

    def test_an_instance_that_is_never_ready_is_closed(self, core: Core) -> None:
        core.call_accepted("lab.launch")
        for n in range(Policy().late_starts_max + 1):
            assert core.instance("lab").state == "starting", n
            assert time_out(core) == 1
            core.advance(1)
        error = core.result()["error"]  # type: ignore[index]
        assert error["code"] == "app_crashed"
        assert error["detail"] == {"reason": "start_timeout", "ends": 3}
        assert "not ready within 20 s, 3 times in a row" in error["message"]
        core.advance(3_600)
        assert core.unstarted == [], "and not started again"

    def test_one_that_gets_ready_in_between_is_not(self, core: Core) -> None:
        core.call_accepted("lab.launch")
        for _ in range(6):
            time_out(core)
            core.advance(1)
            worker = core.start("lab")
            core.advance(61)
            worker.exit("killed")
            core.advance(1)
        assert core.instance("lab").state != "closed"

    def test_one_that_is_ready_just_as_it_is_killed_is_not_late(self, core: Core) -> None:
        core.call_accepted("lab.launch")
        worker = core.unstarted.pop()
        core.advance(TIMEOUT_S + 1)
        worker.run().exit("stopped")
        assert core.row(INSTANCES, worker.instance_id).late_starts == 0

    def test_a_miniapp_whose_starts_all_hang_is_quarantined_and_others_never_wait(self, core: Core) -> None:
        ask(core, "lab", 8)
        for second in range(12):
            ask(core, "lab2", 1, since=second)
            core.start("lab2")
            time_out(core)
            core.advance(6)
        assert core.row(APPS, "lab").quarantined
        assert "not ready within 20 s" in core.row(APPS, "lab").quarantine_reason
        calls = [call for _, call in core.scan(CALLS) if call.app_scope == "lab"]
        assert len(calls) == 8
        assert {call.error["code"] for call in calls} <= {"app_crashed", "tool_timeout"}, "each has its result"
        assert core.unstarted == []


def test_the_queue_of_an_older_store_is_taken_over() -> None:
    """Version 0.1.0 kept it by time alone and did not count it."""
    core = Core(policy=Policy(workers_starting_max=2))
    for app in ("lab", "lab2"):
        ask(core, app, 3)
        core.advance(1)
    waited = [key for key, _ in core.scan(START_QUEUE)]
    assert len(waited) == 4
    with core.store.write() as txn:
        for app, since_ms, instance_id in waited:
            txn.delete(START_QUEUE, (app, since_ms, instance_id))
            txn.put(START_QUEUE, (since_ms, instance_id), Mark())
            txn.put(WANTED, (instance_id,), Wish(queued_ms=since_ms))
        for key, _ in list(txn.scan(STARTS)):
            txn.delete(STARTS, key)
        txn.put(META, ("runtime",), rebuild(txn.get(META, ("runtime",)), starts_queued=0))
    core.boot()
    for app in ("lab", "lab2") * 3:
        core.start(app)
    assert core.unstarted == []
    assert len(list(core.scan(CONVERSATIONS))) == 6
