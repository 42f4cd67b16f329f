"""What is over goes in time, nothing else does, and the audit can be checked all the same (``core.retention``)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from core.harness import Core
from lineup_hostshell.cli.audit_chain import ChainCheck
from lineup_supervisor.core import events as ev
from lineup_supervisor.core import invariants, retention
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import (
    AUDIT,
    AUDIT_BY_SUBJECT,
    BUNDLES,
    CALLS,
    CALLS_BY_TIME,
    DESCRIPTORS,
    INSTANCES,
    INTERACTIONS,
    META,
    OPERATIONS,
    OUTBOX_ITEMS,
    RETIRED,
    SESSION_ENTRIES,
    SESSIONS,
    TABLES,
    TIMELINE,
    TIMER_DUE,
    BundleRow,
    Descriptor,
    Meta,
)
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.store_memory import MemoryStore
from storage.traffic import Traffic

DAY_MS = 86_400_000
SMALL = Policy(
    calls_kept_max=200, interactions_kept_max=50, sessions_kept_max=10, surfaces_kept_max=10, audit_rows_max=2_000
)


@pytest.fixture(autouse=True)
def _small_archive_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ARCHIVE_ROWS", 500)


def begin(policy: Policy, **options: Any) -> Traffic:
    traffic = Traffic(MemoryStore(TABLES, encoded=True), policy, **options)
    traffic.boot()
    return traffic


def rows(traffic: Traffic, table: Table[Any]) -> dict[Any, Any]:
    with traffic.store.read() as txn:
        return dict(txn.scan(table))


def meta(traffic: Traffic) -> Meta:
    (found,) = rows(traffic, META).values()
    assert isinstance(found, Meta)
    return found


def check(traffic: Traffic) -> None:
    with traffic.store.read() as txn:
        assert invariants.find_faults(txn) == []


def verified(traffic: Traffic) -> int:
    """The chain holds from the first archived row to the head; how many rows it has."""
    past = ChainCheck()
    for row in traffic.archive[: meta(traffic).audit_anchor_seq]:
        past.take(row)
    chain, after, head = None, 0, None
    while True:
        page = traffic.query("audit.page", after=after, limit=1_000).detail
        if chain is None:
            past.end(page["anchor"])
            assert past.broken is None
            chain, head = ChainCheck(page["anchor"]["seq"], page["anchor"]["hash"]), page["head"]
        for row in page["rows"]:
            chain.take(row)
            after = row["seq"]
        if not page["rows"]:
            break
    chain.end(head)
    assert chain.broken is None, chain.broken
    return past.rows + chain.rows


@pytest.mark.timeout(900)
def test_many_calls_leave_a_store_of_bounded_size() -> None:
    """A few thousand here; ``LINEUP_RETENTION_CALLS=100000`` asks for more."""
    count = int(os.environ.get("LINEUP_RETENTION_CALLS", "10000")) // 10
    traffic = begin(Policy(calls_kept_max=500, audit_rows_max=2_000))
    sizes = []
    for part in range(10):
        traffic.calls(part * count, count)
        for _ in range(100):
            traffic.pass_time(1_000)
        sizes.append({table.name: len(rows(traffic, table)) for table in TABLES})
    assert len(traffic.results) == count * 10
    assert all(result["status"] == "completed" for result in traffic.results.values())
    # Every table is as large after a part as it was after any other, but for one unfinished file of the audit.
    for name in sizes[0]:
        counts = [each[name] for each in sizes[5:]]
        assert max(counts) - min(counts) <= {"audit": 600, "audit_by_subject": 4 * 600}.get(name, 0), (name, counts)
    assert sizes[-1]["calls"] == 500
    assert sizes[-1]["audit"] <= 2_000 + 600
    check(traffic)
    assert verified(traffic) == meta(traffic).audit_seq > count * 30


def test_calls_go_by_age_on_the_steady_clock_alone() -> None:
    traffic = begin(Policy(calls_kept_ms=30 * DAY_MS))
    traffic.calls(0, 20)
    traffic.wall_ms += 400 * DAY_MS
    traffic.pass_time(29 * DAY_MS)
    assert len(rows(traffic, CALLS)) == 20
    traffic.calls(20, 5)
    traffic.pass_time(DAY_MS + retention.SWEEP_EVERY_MS)
    assert sorted(key[1] for key in rows(traffic, CALLS)) == [f"k{n}" for n in range(20, 25)]
    assert len(rows(traffic, CALLS_BY_TIME)) == 5
    check(traffic)


def test_a_call_whose_result_nobody_took_over_is_kept() -> None:
    """A resend before the acknowledgement finds the record, however long the agent was away."""
    traffic = begin(Policy(calls_kept_ms=DAY_MS), acknowledges=False)
    traffic.calls(0, 5)
    traffic.pass_time(40 * DAY_MS)
    assert len(rows(traffic, CALLS)) == 5
    again = traffic.call("k3", "lab.direct")
    traffic.run(again)
    receipt = traffic.receipts[again.frame["message_id"]]
    assert receipt["accepted"]
    assert receipt["detail"]["status"] == "completed"
    traffic.run(traffic.frame("ack", {"seq": 5}))
    assert rows(traffic, OUTBOX_ITEMS) == {}
    traffic.pass_time(2 * DAY_MS)
    assert rows(traffic, CALLS) == {}
    check(traffic)


def test_after_its_time_a_call_id_is_free_again() -> None:
    """The documented limit of idempotence: within ``calls_kept_ms`` the same answer, beyond it a new call."""
    traffic = begin(Policy(calls_kept_ms=DAY_MS))
    traffic.calls(0, 1)
    first = traffic.results.pop("k0")
    traffic.pass_time(2 * DAY_MS)
    traffic.calls(0, 1)
    assert traffic.results["k0"]["at"] != first["at"]
    assert len([row for row in rows(traffic, AUDIT).values() if row.kind == "call.received"]) == 2


def ask(traffic: Traffic, n: int, *, answer: bool = True) -> None:
    traffic.run(traffic.call(f"q{n}", "confirm", {"title": "Sure?", "prompt": "Shall we?"}))
    if answer:
        waiting = traffic.query("interactions").detail["interactions"]
        (asked,) = [row["interaction_id"] for row in waiting if row["owner"]["parent_call_id"] == f"q{n}"]
        assert traffic.action("interaction.answer", interaction_id=asked, result={"approved": True}).accepted


def test_settled_questions_are_bounded_and_open_ones_stay() -> None:
    traffic = begin(SMALL)
    ask(traffic, -1, answer=False)
    for n in range(120):
        ask(traffic, n)
    traffic.pass_time(60_000)
    kept = rows(traffic, INTERACTIONS)
    assert len(kept) == 51
    assert [row.parent_call_id for row in kept.values() if row.status == "pending"] == ["q-1"]
    entries = [row for row in rows(traffic, TIMELINE).values() if row.kind == "interaction"]
    assert {row.ref for row in entries} == {key[0] for key in kept}
    check(traffic)


def test_a_question_goes_by_age_only_when_its_call_is_over_and_its_owner_knows() -> None:
    traffic = begin(Policy(interactions_kept_ms=DAY_MS))
    ask(traffic, 0)
    ask(traffic, 1, answer=False)
    traffic.pass_time(3 * DAY_MS)
    assert [row.parent_call_id for row in rows(traffic, INTERACTIONS).values()] == ["q1"]
    check(traffic)


def test_by_default_questions_sessions_and_texts_are_kept_for_ever() -> None:
    traffic = begin(Policy())
    ask(traffic, 0)
    use_and_close(traffic, 1)
    traffic.run(traffic.frame("message.text", {"text": "hello"}, "c"))
    before = {table.name: rows(traffic, table) for table in (INTERACTIONS, SESSIONS, TIMELINE)}
    traffic.pass_time(10_000 * DAY_MS)
    assert {table.name: rows(traffic, table) for table in (INTERACTIONS, SESSIONS, TIMELINE)} == before
    assert rows(traffic, CALLS) == {}
    check(traffic)


def use_and_close(traffic: Traffic, n: int) -> None:
    """A MiniApp comes, is called three times, and goes."""
    for part in range(3):
        traffic.run(traffic.call(f"s{n}-{part}", "lab.launch"))
    (live,) = [row for row in rows(traffic, INSTANCES).values() if row.app_scope == "lab" and row.state != "closed"]
    assert traffic.action("instance.close", instance_id=live.instance_id, force=True).accepted


def test_closed_instances_go_with_all_that_is_theirs() -> None:
    traffic = begin(SMALL)
    for n in range(30):
        use_and_close(traffic, n)
    traffic.pass_time(60_000)
    closed = {key[0] for key, row in rows(traffic, INSTANCES).items() if row.state == "closed"}
    assert len(closed) == 10
    sessions = rows(traffic, SESSIONS)
    assert {row.instance_id for row in sessions.values()} == closed
    assert {key[0] for key in rows(traffic, SESSION_ENTRIES)} <= {key[0] for key in sessions}
    entries = rows(traffic, TIMELINE).values()
    assert {row.ref for row in entries if row.kind == "session"} == {key[0] for key in sessions}
    assert {row.session_id for row in entries} - {""} <= {key[0] for key in sessions}
    check(traffic)


def test_an_instance_with_a_long_session_goes_in_several_bounded_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = begin(msgspec.structs.replace(SMALL, sessions_kept_max=0))
    for part in range(600):
        traffic.run(traffic.call(f"l{part}", "lab.launch"))
    (live,) = [row for row in rows(traffic, INSTANCES).values() if row.app_scope == "lab"]
    deleted: list[int] = []
    spy_on_deletes(traffic, monkeypatch, deleted)
    assert traffic.action("instance.close", instance_id=live.instance_id, force=True).accepted
    traffic.pass_time(60_000)
    for _ in range(50):
        traffic.pass_time(100)
    assert [row for row in rows(traffic, INSTANCES).values() if row.app_scope == "lab"] == []
    assert rows(traffic, SESSION_ENTRIES) == {}
    assert max(deleted) <= 5 * retention.SWEEP_ROWS_MAX
    check(traffic)


def spy_on_deletes(traffic: Traffic, monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> None:
    """How many rows each sweep deletes."""
    from lineup_supervisor.core import step as step_module
    from lineup_supervisor.core.ctx import Ctx

    original = retention.sweep

    def sweep(ctx: Ctx) -> None:
        count = 0
        delete = ctx.txn.delete

        def counting(table: Table[Any], key: Any) -> bool:
            nonlocal count
            count += 1
            return delete(table, key)

        monkeypatch.setattr(ctx.txn, "delete", counting, raising=False)
        original(ctx)
        counts.append(count)

    monkeypatch.setitem(step_module._TIMERS, "sweep", lambda ctx, ref: sweep(ctx))


def test_a_sweep_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = begin(Policy(calls_kept_max=3_000))
    traffic.calls(0, 2_500)
    counts: list[int] = []
    spy_on_deletes(traffic, monkeypatch, counts)
    traffic.policy = SMALL
    traffic.boot()
    for _ in range(100):
        traffic.pass_time(1_000)
    assert len(rows(traffic, CALLS)) == 200
    assert len(counts) > 2_300 / retention.SWEEP_ROWS_MAX
    assert max(counts) <= 5 * retention.SWEEP_ROWS_MAX
    check(traffic)


def test_under_a_flood_that_leaves_the_timer_no_time_the_bounds_hold_all_the_same() -> None:
    traffic = begin(SMALL)
    for part in range(20):
        traffic.calls(part * 200, 200, ms=0)
        assert len(rows(traffic, CALLS)) <= 200 + 2 * retention.SWEEP_ROWS_MAX
    assert not traffic._is_due()
    check(traffic)


def test_what_is_held_is_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of cancelled questions that their owner has not heard of, because its worker does not start."""
    traffic = begin(msgspec.structs.replace(SMALL, interactions_kept_max=1))
    deaf, traffic._react = traffic._react, hear_only(traffic)  # type: ignore[method-assign]
    for n in range(400):
        traffic.run(traffic.call(f"q{n}", "confirm", {"title": "Sure?", "prompt": "Shall we?"}))
        waiting = traffic.query("interactions").detail["interactions"]
        for row in waiting:
            assert traffic.action("interaction.cancel", interaction_id=row["interaction_id"]).accepted
    assert len(rows(traffic, INTERACTIONS)) == 400
    looked: list[object] = []
    monkeypatch.setattr(retention, "HELD_LOOK_MAX", 64)
    monkeypatch.setitem(retention._RULES, "interaction", spied(retention._RULES["interaction"], looked))
    for _ in range(50):
        traffic.run(traffic.frame("ping", {}))
    assert len(looked) <= retention.SWEEP_ROWS_MAX
    check(traffic)
    traffic._react = deaf  # type: ignore[method-assign]
    traffic.boot()
    for _ in range(30):
        traffic.pass_time(retention.SWEEP_EVERY_MS)
    assert len(rows(traffic, INTERACTIONS)) == 1
    check(traffic)


def hear_only(traffic: Traffic) -> Any:
    """Nobody but the agent and the asker of queries hears anything: no worker starts."""
    react = traffic._react
    return lambda effect: react(effect) if type(effect).__name__ in ("SendAgent", "ReplyHost") else []


def spied(rule: Any, looked: list[object]) -> Any:
    def is_held(ctx: Any, ref: Any) -> bool:
        looked.append(ref)
        return bool(rule.is_held(ctx, ref))

    return dataclasses.replace(rule, is_held=is_held)


def test_an_operation_outlives_its_call_and_goes_with_its_session() -> None:
    traffic = begin(Policy(calls_kept_ms=DAY_MS))
    traffic.run(traffic.call("op", "timer.start", {"duration_seconds": 60, "activity": "reading"}))
    traffic.pass_time(61_000)
    assert traffic.results["op"]["status"] == "completed"
    traffic.pass_time(2 * DAY_MS)
    assert rows(traffic, CALLS) == {}
    (operation,) = rows(traffic, OPERATIONS).values()
    (session,) = rows(traffic, SESSIONS).values()
    assert traffic.query("session", session_id=session.session_id).detail["operations"]
    check(traffic)
    traffic.policy = Policy(sessions_kept_ms=DAY_MS)
    traffic.boot()
    traffic.pass_time(3 * DAY_MS)
    assert rows(traffic, OPERATIONS) == rows(traffic, SESSIONS) == {}
    assert traffic.query("operation", operation_id=operation.operation_id).code == "not_found"
    check(traffic)


def test_a_conversation_keeps_as_many_entries_as_the_operator_wants() -> None:
    traffic = begin(Policy(timeline_entries_max=50))
    ask(traffic, 0, answer=False)
    for n in range(300):
        traffic.run(traffic.frame("message.text", {"text": f"text {n}"}, "c"))
    kept = list(rows(traffic, TIMELINE).values())
    assert len(kept) == 51
    assert [row.kind for row in kept].count("interaction") == 1
    assert kept[-1].text == "text 299"
    check(traffic)


def test_nothing_is_armed_while_nothing_can_grow_too_old() -> None:
    traffic = begin(Policy())
    assert ("sweep",) not in rows(traffic, TIMER_DUE)
    traffic.run(traffic.frame("message.text", {"text": "hello"}, "c"))
    assert ("sweep",) not in rows(traffic, TIMER_DUE)
    traffic.calls(0, 1)
    assert rows(traffic, TIMER_DUE)[("sweep",)].due_ms == pytest.approx(traffic.steady_ms + 30 * DAY_MS, abs=1_000)


# the audit


def test_archived_rows_leave_only_when_they_are_in_a_file() -> None:
    traffic = begin(SMALL)
    traffic.can_archive = False
    traffic.calls(0, 1_500)
    for _ in range(10):
        traffic.pass_time(60_000)
    assert meta(traffic).audit_anchor_seq == 0
    assert len(rows(traffic, AUDIT)) == meta(traffic).audit_seq > 4_000
    assert any(row.kind == "audit.archive_failed" for row in rows(traffic, AUDIT).values())
    traffic.can_archive = True
    for _ in range(60):
        traffic.pass_time(60_000)
    assert len(rows(traffic, AUDIT)) < 2_000 + 500 + 100
    assert verified(traffic) == meta(traffic).audit_seq
    subjects = rows(traffic, AUDIT_BY_SUBJECT)
    assert min(key[1] for key in subjects) == meta(traffic).audit_anchor_seq + 1
    assert traffic.query("story", id="k0").code == "not_found"
    assert traffic.query("story", id="k1499").accepted
    check(traffic)


def stale_answers(traffic: Traffic) -> Iterator[ev.AuditArchived]:
    last = next(iter(rows(traffic, AUDIT).values()))
    yield ev.AuditArchived(event_id=traffic.event_id(), after_seq=0, up_to_seq=last.seq, hash="0" * 64)
    yield ev.AuditArchived(event_id=traffic.event_id(), after_seq=3, up_to_seq=last.seq + 9, hash=last.hash)
    yield ev.AuditArchived(event_id=traffic.event_id(), after_seq=0, up_to_seq=10**9, hash=last.hash)
    yield ev.AuditArchived(event_id=traffic.event_id(), after_seq=0, up_to_seq=last.seq, error="no room")


def test_an_answer_that_does_not_fit_deletes_nothing() -> None:
    traffic = begin(SMALL)
    traffic.calls(0, 10)
    for answer in stale_answers(traffic):
        traffic.run(answer)
        traffic.pass_time(2 * retention.SWEEP_EVERY_MS)
        assert meta(traffic).audit_archived_seq == 0
    assert len(rows(traffic, AUDIT)) == meta(traffic).audit_seq
    assert verified(traffic) == meta(traffic).audit_seq


def test_a_lost_request_to_archive_is_made_again_after_a_restart() -> None:
    traffic = begin(SMALL)
    traffic.calls(0, 400)
    react, traffic._react = traffic._react, lambda effect: []  # type: ignore[method-assign]
    traffic.calls(400, 300)
    traffic.pass_time(retention.SWEEP_PAUSE_MS)
    traffic._react = react  # type: ignore[method-assign]
    traffic.boot()
    traffic.calls(700, 600)
    for _ in range(20):
        traffic.pass_time(10_000)
    assert meta(traffic).audit_anchor_seq > 0
    verified(traffic)


# versions


def test_versions_that_nothing_refers_to_go_at_the_start() -> None:
    traffic = begin(Policy())
    traffic.calls(0, 3)
    known = {table.name: set(rows(traffic, table)) for table in (BUNDLES, DESCRIPTORS)}
    with traffic.store.write() as txn:  # type: ignore[attr-defined]
        txn.put(BUNDLES, ("f" * 64,), BundleRow(digest="f" * 64, path="/gone", manifest={"tools": []}))
        txn.put(DESCRIPTORS, ("e" * 32,), Descriptor(descriptor={"output_schema": {}}))
    traffic.boot()
    assert {table.name: set(rows(traffic, table)) for table in (BUNDLES, DESCRIPTORS)} == known


def test_a_version_that_a_live_instance_runs_on_stays() -> None:
    traffic = begin(Policy())
    traffic.calls(0, 1)
    with traffic.store.write() as txn:  # type: ignore[attr-defined]
        (key, live) = next((k, r) for k, r in txn.scan(INSTANCES) if r.app_scope == "lab")
        bundle = txn.get(BUNDLES, (live.digest,))
        txn.put(BUNDLES, ("d" * 64,), msgspec.structs.replace(bundle, digest="d" * 64))
        txn.put(INSTANCES, key, msgspec.structs.replace(live, digest="d" * 64))
    traffic.boot()
    assert ("d" * 64,) in rows(traffic, BUNDLES)


def test_the_queue_and_its_counts_are_what_the_invariants_hold_them_to() -> None:
    traffic = begin(SMALL)
    traffic.calls(0, 3)
    check(traffic)
    with traffic.store.write() as txn:  # type: ignore[attr-defined]
        txn.delete(RETIRED, next(iter(txn.scan(RETIRED)))[0])
    with traffic.store.read() as txn:
        assert any("retired" in fault for fault in invariants.find_faults(txn))


def test_what_is_closed_and_swept_in_one_event_leaves_no_wish_for_a_worker() -> None:
    """Its process was still to be started when its deadline came, and the sweep of that very moment took it away."""
    core = Core(policy=Policy(sessions_kept_max=0, workers_max=1, direct_timeout_ms=10 * 60_000))
    core.connect("a1")
    core.call_accepted("lab.direct", call_id="k1")
    busy = core.start("lab")
    busy.take("k1")
    for n, seconds in enumerate((60, 70)):  # the end of the first one plans a sweep ten seconds later
        core.call_accepted("timer.start", {"duration_seconds": seconds}, call_id=f"t{n}", conversation=f"c{n}")
    core.advance(71)
    assert [row.app_scope for _, row in core.scan(INSTANCES) if row.state != "closed"].count("timer") == 0
    assert core.audited("retention.swept"), "both are gone"
    busy.accept("tool.complete", call_id="k1", result={"n": 1})
    core.did("instance.close", instance_id=busy.instance_id, force=True)
    busy.exit("stopped")
    assert core.unstarted == []
