"""The engine's three ways (committed, a step raised, the store is full), over a memory store and an obedient step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.store_memory import MemoryStore
from lineup_supervisor.engine import INTERNAL_ERRORS_MAX, KEPT_EVENTS_MAX, Engine, EngineFailed


class Line(msgspec.Struct, frozen=True):
    text: str


LINES = Table("lines", Line)
NOW = ev.Now(wall_ms=1_000, steady_ms=5)


class DiskStore(MemoryStore):
    """A memory store whose next commits fail."""

    full = False

    def transact(self, work: Callable[[Any], Any]) -> Any:
        with self.write() as txn:
            result = work(txn)
            if self.full:
                raise LineUpError("storage_full", "no space left")
            return result


def step(txn: Any, event: Any, now: ev.Now) -> list[Any]:
    """Writes the event's id down, unless its name says otherwise."""
    if "bug" in event.event_id:
        txn.put(LINES, ("half",), Line("half"))
        raise ZeroDivisionError(event.event_id)
    if isinstance(event, ev.HostQuery | ev.HostWatch):
        return [fx.ReplyHost(reply_to=event.reply_to, accepted=True, detail=len(list(txn.scan(LINES))))]
    last = next(txn.scan(LINES, reverse=True), ((-1,), None))[0][0]
    txn.put(LINES, (last + 1,), Line(event.event_id))
    return [fx.HostDelta(revision=0, changes=({"id": event.event_id},))]


def wake(name: str) -> ev.Wake:
    return ev.Wake(event_id=name)


def query(name: str) -> ev.HostQuery:
    return ev.HostQuery(event_id=name, reply_to=f"to-{name}", name="status", args={})


def watch(name: str) -> ev.HostWatch:
    return ev.HostWatch(event_id=name, reply_to=f"to-{name}", agent_id="a", call_id="k")


def action(name: str) -> ev.HostAction:
    return ev.HostAction(event_id=name, reply_to=f"to-{name}", action_id=name, actor="person", name="x", args={})


def agent(name: str, frame: Any) -> ev.AgentFrame:
    return ev.AgentFrame(event_id=name, link_id="l1", frame=frame)


def worker(name: str, message_id: str | None = None) -> ev.WorkerFrame:
    frame = {"type": "inbox.ack", "body": {}} | ({"id": message_id} if message_id else {})
    return ev.WorkerFrame(event_id=name, instance_id="i1", incarnation=2, frame=frame)


class Bench:
    def __init__(self) -> None:
        self.store = DiskStore((LINES,))
        self.faults: list[str] = []
        self.hooks: list[str] = []
        self.steady_ms = 0
        self.engine = Engine(
            self.store,
            step,
            lambda txn: (None, 77),
            on_fault=lambda event, error: self.faults.append(event.event_id),
            hook=self.hooks.append,
        )

    def run(self, *events: Any) -> Any:
        """A run at a moment when everything that waits may be tried again."""
        self.steady_ms += 10_000
        return self.run_soon(*events)

    def run_soon(self, *events: Any) -> Any:
        return self.engine.run(events, ev.Now(wall_ms=1_000, steady_ms=self.steady_ms))

    @property
    def lines(self) -> list[str]:
        with self.store.read() as txn:
            return [row.text for _, row in txn.scan(LINES)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def told(outcome: Any) -> list[str]:
    """Which events the core answered for, in order."""
    return [effect.changes[0]["id"] for effect in outcome.effects if isinstance(effect, fx.HostDelta)]


def test_a_batch_is_one_transaction_in_order(bench: Bench) -> None:
    outcome = bench.run(wake("a"), action("b"), wake("c"))
    assert bench.lines == told(outcome) == ["a", "b", "c"]
    assert outcome.next_due == (None, 77)
    assert outcome.retry_in_ms is None
    assert bench.hooks == ["before-commit", "after-commit"]


def test_queries_see_the_state_and_leave_no_trace(bench: Bench) -> None:
    bench.run(wake("a"))
    before = bench.store.dump()
    outcome = bench.run(query("q1"), query("q2"))
    assert [effect.detail for effect in outcome.effects] == [1, 1]
    assert bench.store.dump() == before
    assert bench.hooks == ["before-commit", "after-commit"]


def test_one_bad_event_costs_only_itself(bench: Bench) -> None:
    outcome = bench.run(wake("a"), action("bug"), wake("c"))
    assert bench.lines == ["a", "c"]
    assert bench.faults == ["bug"]
    assert [(e.reply_to, e.accepted, e.code) for e in outcome.effects if isinstance(e, fx.ReplyHost)] == [
        ("to-bug", False, "internal_error")
    ]
    assert told(outcome) == ["a", "c"]
    assert outcome.retry_in_ms is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            agent("bug1", {"type": "lineup.v1.tool.call", "message_id": "m1", "conversation_id": "c1"}),
            {"type": "lineup.v1.receipt", "conversation_id": "c1", "payload": {"reply_to": "m1", "accepted": False}},
        ),
        (
            agent("bug2", {"type": "lineup.v1.hello", "message_id": "m1"}),
            {"type": "lineup.v1.error", "payload": {"reply_to": "m1"}},
        ),
        (agent("bug3", [1, 2]), {"type": "lineup.v1.error", "payload": {}}),
        (agent("bug4", {"message_id": "not an id"}), {"type": "lineup.v1.error", "payload": {}}),
    ],
)
def test_an_agent_is_answered_for_an_event_that_was_dropped(bench: Bench, event: Any, expected: Any) -> None:
    (effect,) = bench.run(event).effects
    (frame,) = effect.frames
    assert effect.link_id == "l1"
    assert frame["payload"].pop("code") == "internal_error"
    assert frame["payload"].pop("message")
    assert frame.pop("sent_at") == "1970-01-01T00:00:01.000Z"
    assert frame.pop("message_id") == f"r-{event.event_id}"
    assert frame == expected


def test_a_worker_gets_a_receipt_only_if_it_waits_for_one(bench: Bench) -> None:
    outcome = bench.run(worker("bug1", "m9"), worker("bug2"))
    (effect,) = outcome.effects
    assert (effect.instance_id, effect.incarnation) == ("i1", 2)
    (message,) = effect.messages
    assert message["type"] == "receipt"
    assert (message["body"]["re"], message["body"]["code"]) == ("m9", "internal_error")


def test_an_own_event_that_fails_is_looked_at_again_later_and_not_at_once(bench: Bench) -> None:
    waits = [bench.run(wake(f"bug{n}")).retry_in_ms for n in range(3)]
    assert waits == [100, 200, 400]
    assert bench.run().retry_in_ms is None
    assert bench.run(wake("a")).retry_in_ms is None
    assert bench.run(wake("bug")).retry_in_ms == 100


def test_too_many_in_a_row_stop_the_engine(bench: Bench) -> None:
    for n in range(INTERNAL_ERRORS_MAX - 1):
        bench.run(action(f"bug{n}"))
    with pytest.raises(EngineFailed, match="in a row"):
        bench.run(action("bug"))
    assert len(bench.faults) == INTERNAL_ERRORS_MAX


def test_looking_again_does_not_count_as_success(bench: Bench) -> None:
    for n in range(INTERNAL_ERRORS_MAX - 1):
        bench.run(wake(f"bug{n}"))
        bench.run()
    with pytest.raises(EngineFailed):
        bench.run(wake("bug"))


def test_a_success_in_between_does(bench: Bench) -> None:
    for n in range(3 * INTERNAL_ERRORS_MAX):
        bench.run(action(f"bug{n}"), wake(f"a{n}"))
    assert len(bench.lines) == 3 * INTERNAL_ERRORS_MAX


@pytest.mark.parametrize(
    "event", [ev.Boot(event_id="bug", boot_id="b", isolation="S3"), ev.Stopping(event_id="bug", reason="r")]
)
def test_there_is_no_running_without_these(bench: Bench, event: Any) -> None:
    with pytest.raises(EngineFailed):
        bench.run(event)


def test_a_damaged_store_is_no_fault_of_an_event(bench: Bench) -> None:
    def read_garbage(*_: Any) -> list[Any]:
        raise LineUpError("store_damaged", "a row cannot be read")

    engine = Engine(bench.store, read_garbage, lambda txn: (None, None))
    with pytest.raises(LineUpError, match="store_damaged"):
        engine.run([action("a")], NOW)


def test_whoever_looks_at_what_is_damaged_is_told_and_ends_nobody_s_work(bench: Bench) -> None:
    def read_garbage(txn: Any, event: Any, now: ev.Now) -> list[Any]:
        if event.event_id.startswith("bad"):
            raise LineUpError("store_damaged", "a page cannot be read")
        return step(txn, event, now)

    engine = Engine(bench.store, read_garbage, lambda txn: (None, None))
    outcome = engine.run([query("bad"), action("a"), query("q")], NOW)
    replies = {e.reply_to: (e.accepted, e.code) for e in outcome.effects if isinstance(e, fx.ReplyHost)}
    assert replies == {"to-bad": (False, "store_damaged"), "to-q": (True, None)}
    assert bench.lines == ["a"]
    for _ in range(2 * INTERNAL_ERRORS_MAX):
        assert engine.run([query("bad")], NOW).effects[0].code == "store_damaged"
    with pytest.raises(LineUpError, match="store_damaged"):
        engine.run([query("q"), wake("bad")], NOW)
    bench.store.full = True
    full = engine.run([action("b"), query("bad")], NOW)
    assert [effect.code for effect in full.effects] == ["storage_full", "store_damaged"]


def test_a_full_store_refuses_requests_and_keeps_what_happened(bench: Bench) -> None:
    bench.run(wake("first"))
    bench.store.full = True
    frame = {"type": "lineup.v1.tool.call", "message_id": "m1"}
    outcome = bench.run(wake("a"), action("b"), agent("c", frame), query("q"), watch("w"), worker("d", "m2"))
    assert bench.lines == ["first"]
    by_type = {type(effect): effect for effect in outcome.effects}
    assert len(outcome.effects) == 4
    assert outcome.kept == {"a", "d"}, "whoever sent these is not to send more yet"
    assert by_type[fx.SendAgent].frames[0]["payload"]["code"] == "storage_full"
    replies = {e.reply_to: (e.accepted, e.code) for e in outcome.effects if isinstance(e, fx.ReplyHost)}
    assert replies == {"to-b": (False, "storage_full"), "to-q": (True, None), "to-w": (True, None)}
    assert bench.engine.kept == 2
    assert bench.faults == []
    assert outcome.retry_in_ms == 100
    tries = len(bench.hooks)
    assert bench.run_soon(action("too soon")).effects[0].code == "storage_full"
    assert bench.run_soon(query("q2")).effects[0].accepted
    assert len(bench.hooks) == tries
    assert bench.run(wake("e")).retry_in_ms == 200
    for _ in range(10):
        last = bench.run().retry_in_ms
    assert last == 5_000
    bench.store.full = False
    outcome = bench.run(action("f"))
    assert bench.lines == ["first", "a", "d", "e", "f"]
    assert told(outcome) == ["a", "d", "e", "f"]
    assert outcome.retry_in_ms is None
    assert bench.engine.kept == 0


def test_of_the_acknowledgements_to_a_full_store_the_newest_of_each_link_is_kept(bench: Bench) -> None:
    """Nobody sends one again, and what is behind a full window would never come."""

    def ack(name: str, link_id: str) -> ev.AgentFrame:
        return ev.AgentFrame(event_id=name, link_id=link_id, frame={"type": "lineup.v1.ack", "message_id": name})

    bench.store.full = True
    outcome = bench.run(ack("a1", "l1"), ack("b1", "l2"), wake("w"), ack("a2", "l1"))
    assert outcome.effects == ()
    bench.run(ack("a3", "l1"))
    assert bench.engine.kept == 3
    bench.store.full = False
    bench.run()
    assert bench.lines == ["b1", "w", "a3"]


def test_a_store_that_fills_up_while_a_bug_is_looked_for_loses_nothing(bench: Bench) -> None:
    real = bench.store.transact
    commits = 0

    def transact(work: Any) -> Any:
        nonlocal commits
        commits += 1
        bench.store.full = commits > 2
        return real(work)

    bench.store.transact = transact  # type: ignore[method-assign]
    outcome = bench.run(wake("a"), wake("b"), wake("bug"), wake("c"))
    assert told(outcome) == ["a"]
    assert bench.engine.kept == 3
    commits = -100
    bench.run()
    assert bench.lines == ["a", "b", "c"]
    assert bench.faults == ["bug"]


def test_questions_to_a_store_that_cannot_be_opened_anew_are_refused_and_end_nothing(bench: Bench) -> None:
    real = bench.store.transact

    def transact(work: Any) -> Any:
        raise LineUpError("storage_full", "it could not be opened anew yet")

    bench.store.transact = transact  # type: ignore[method-assign]
    for n in range(2 * INTERNAL_ERRORS_MAX):
        asked = [query(f"q{n}")] if n % 2 else [query(f"q{n}"), action(f"a{n}")]
        assert {effect.code for effect in bench.run(*asked).effects} == {"storage_full"}
    assert bench.faults == []
    bench.store.transact = real  # type: ignore[method-assign]
    assert bench.run(query("then")).effects[0].accepted


def test_a_flood_into_a_full_store_ends_with_its_worker(bench: Bench) -> None:
    bench.store.full = True
    bench.run(*[worker(f"w{n}") for n in range(KEPT_EVENTS_MAX)])
    (effect,) = bench.run(worker("one-more")).effects
    assert isinstance(effect, fx.StopWorker)
    assert (effect.instance_id, effect.incarnation, effect.grace_ms) == ("i1", 2, 0)
    bench.run(ev.WorkerExited(event_id="x", instance_id="i1", incarnation=2, reason="killed"))
    assert bench.engine.kept == KEPT_EVENTS_MAX + 1
