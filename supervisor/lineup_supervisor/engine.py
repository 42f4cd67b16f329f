"""Runs events through the core: one transaction for a batch, and what to do when that cannot be.

This file owns the three ways a batch can go: committed; a step raised (a bug: find the one event and drop that one,
answered); the store is full (answer what was asked of us, keep what happened to us). It has no thread, clock, socket or
process, so that the daemon, the simulation and the test kit run the very same code.

Laws:
- An outcome's effects belong to transactions that are committed, but for queries, which write nothing.
- Events are stepped in the order in which they came; what is kept for later goes before what comes later.
- Every event that somebody waits for is answered once: by the core, ``internal_error`` or ``storage_full``.
- What nobody sends again, as nobody hears whether it was taken, is kept: what happened, and acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeGuard, TypeVar

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.txn import Txn

T = TypeVar("T")

INTERNAL_ERRORS_MAX = 10  # in a row: then nothing works any more, and a loud end is better than a silent one
KEPT_EVENTS_MAX = 2_000  # while the store is full; workers wait for receipts, so that only a flood gets there
RETRY_MS_MIN, RETRY_MS_MAX = 100, 5_000

Step = Callable[[Txn, Any, ev.Now], list[Any]]
NextDue = Callable[[Txn], tuple[int | None, int | None]]
_ACK = "lineup.v1.ack"
_LOOKS = (ev.HostQuery, ev.HostWatch)  # they write nothing
_REQUESTS = (ev.AgentFrame, ev.HostQuery, ev.HostAction, ev.HostWatch)
_REFUSAL = LineUpError("storage_full", "the store cannot be written; nothing was accepted")


class AnyStore(Protocol):
    """What ``edges.store.Store`` and ``edges.store_memory.MemoryStore`` have in common."""

    def transact(self, work: Callable[[Any], T]) -> T: ...

    def read(self) -> AbstractContextManager[Txn]: ...


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run.

    ``retry_in_ms`` is set while something waits for another try (events that are kept, or the Runtime's own that
    failed): run again then, with or without new events, and let no due timer ask before.
    """

    effects: tuple[fx.AnyEffect, ...]
    next_due: tuple[int | None, int | None]
    retry_in_ms: int | None = None
    kept: frozenset[str] = frozenset()
    """ids of events that are not decided yet: whoever sent them goes on waiting"""


class EngineFailed(Exception):
    """The core failed too often, or in an event without which there is no running: stop loudly."""


class _Seen(Exception):
    """Ends a transaction that only looked."""

    def __init__(self, effects: list[fx.AnyEffect], due: tuple[int | None, int | None]) -> None:
        self.effects = effects
        self.due = due


class Engine:
    """See the module. ``on_fault(event, error)`` hears of every step that raised, ``hook(name)`` passes kill points."""

    def __init__(
        self,
        store: AnyStore,
        step: Step,
        next_due: NextDue,
        *,
        on_fault: Callable[[ev.Event, Exception], None] = lambda event, error: None,
        hook: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._store = store
        self._step = step
        self._next_due = next_due
        self._on_fault = on_fault
        self._hook = hook
        self._kept: list[ev.AnyEvent] = []
        self._errors_in_a_row = 0
        self._lost = False  # a step raised in this run that nobody will send again
        self._retry_ms = 0
        self._retry_at_ms = 0  # steady; before it, a full store is not tried again
        self._due: tuple[int | None, int | None] = (None, None)

    @property
    def kept(self) -> int:
        """How many events wait for room in the store."""
        return len(self._kept)

    def run(self, events: Sequence[ev.AnyEvent], now: ev.Now) -> Outcome:
        """Step all of ``events``, commit, and say what to do.

        Raises:
            EngineFailed: see there. LineUpError: ``store_damaged``; a query alone is answered so. Nothing of the last
                transaction was committed.
        """
        if self._kept and now.steady_ms < self._retry_at_ms:
            effects = self._full(events, now)
            return self._outcome(effects, self._retry_at_ms - now.steady_ms)
        batch = [*self._kept, *events]
        self._kept = []
        self._lost = False
        effects = self._try(batch, now)
        if self._kept or self._lost:
            self._retry_ms = min(max(self._retry_ms * 2, RETRY_MS_MIN), RETRY_MS_MAX)
            self._retry_at_ms = now.steady_ms + self._retry_ms
        elif batch:
            self._retry_ms = 0
        waits = self._retry_ms if self._kept or self._lost else None
        return self._outcome(effects, waits)

    def _outcome(self, effects: Sequence[fx.AnyEffect], retry_in_ms: int | None) -> Outcome:
        kept = frozenset(event.event_id for event in self._kept)
        return Outcome(effects=tuple(effects), next_due=self._due, retry_in_ms=retry_in_ms, kept=kept)

    def _try(self, batch: Sequence[ev.AnyEvent], now: ev.Now) -> list[fx.AnyEffect]:
        try:
            only_asked = all(isinstance(event, _LOOKS) for event in batch)
            effects = self._look(batch, now) if only_asked else self._commit(batch, now)
        except Exception as error:
            may_be_a_query = _is_damage(error) and any(isinstance(event, _LOOKS) for event in batch)
            if _is_fatal(error) and not may_be_a_query:
                raise
            return self._full(batch, now) if _is_full(error) else self._one_by_one(batch, now)
        if batch:
            self._errors_in_a_row = 0
        return effects

    def _commit(self, batch: Sequence[ev.AnyEvent], now: ev.Now) -> list[fx.AnyEffect]:
        def work(txn: Txn) -> tuple[list[fx.AnyEffect], tuple[int | None, int | None]]:
            effects: list[fx.AnyEffect] = []
            for event in batch:
                effects.extend(self._step(txn, event, now))
            due = self._next_due(txn)
            self._hook("before-commit")
            return effects, due

        effects, self._due = self._store.transact(work)
        self._hook("after-commit")
        return effects

    def _look(self, queries: Sequence[ev.AnyEvent], now: ev.Now) -> list[fx.AnyEffect]:
        """Step queries and keep nothing of it: no fsync, and no room needed in a full store."""

        def work(txn: Txn) -> None:
            effects: list[fx.AnyEffect] = []
            for query in queries:
                effects.extend(self._step(txn, query, now))
            raise _Seen(effects, self._next_due(txn))

        try:
            self._store.transact(work)
        except _Seen as seen:
            self._due = seen.due
            return seen.effects
        raise AssertionError("work always raises")

    def _one_by_one(self, batch: Sequence[ev.AnyEvent], now: ev.Now) -> list[fx.AnyEffect]:
        """Each event in its own transaction, so that only the one that raises is lost."""
        effects: list[fx.AnyEffect] = []
        for at, event in enumerate(batch):
            try:
                look = isinstance(event, _LOOKS)
                effects += self._look([event], now) if look else self._commit([event], now)
                self._errors_in_a_row = 0
            except Exception as error:
                if isinstance(event, _LOOKS) and _is_damage(error):
                    effects += self._unreadable(event, error, now)
                    continue
                if _is_fatal(error):
                    raise
                if _is_full(error):
                    return effects + self._full(batch[at:], now)
                effects += self._fault(event, error, now)
        return effects

    def _fault(self, event: ev.AnyEvent, error: Exception, now: ev.Now) -> list[fx.AnyEffect]:
        self._on_fault(event, error)
        self._errors_in_a_row += 1
        self._lost |= not isinstance(event, _REQUESTS)
        if isinstance(event, ev.Boot | ev.Stopping):
            raise EngineFailed(f"{type(event).__name__} cannot be handled: {error!r}") from error
        if self._errors_in_a_row >= INTERNAL_ERRORS_MAX:
            raise EngineFailed(
                f"{self._errors_in_a_row} events in a row failed, the last one with {error!r}"
            ) from error
        return answers(event, LineUpError("internal_error", "a fault of the Runtime; nothing was changed"), now)

    def _full(self, batch: Sequence[ev.AnyEvent], now: ev.Now) -> list[fx.AnyEffect]:
        """Nothing can be written: refuse requests, answer what only reads, keep the rest in order."""
        effects: list[fx.AnyEffect] = []
        for event in batch:
            if isinstance(event, _LOOKS):
                effects += self._query(event, now)
            elif is_ack(event):
                self._keep_ack(event)
            elif isinstance(event, _REQUESTS):
                effects += answers(event, _REFUSAL, now)
            elif isinstance(event, ev.WorkerFrame) and len(self._kept) >= KEPT_EVENTS_MAX:
                effects.append(_let_go(event))
            else:
                self._kept.append(event)
        return effects

    def _keep_ack(self, ack: ev.AgentFrame) -> None:
        """The newest of each link says what those before it said, and what never came must not be held back for it."""
        self._kept = [event for event in self._kept if not (is_ack(event) and event.link_id == ack.link_id)]
        self._kept.append(ack)

    def _query(self, event: ev.HostQuery | ev.HostWatch, now: ev.Now) -> list[fx.AnyEffect]:
        try:
            return self._look([event], now)
        except Exception as error:
            if _is_damage(error):
                return self._unreadable(event, error, now)
            if _is_fatal(error):
                raise
            if _is_full(error):  # it cannot be opened anew, so it cannot be read either
                return answers(event, _REFUSAL, now)
            return self._fault(event, error, now)

    def _unreadable(self, event: ev.HostQuery | ev.HostWatch, error: Exception, now: ev.Now) -> list[fx.AnyEffect]:
        """Whoever only looks is told what is damaged, and ends nobody's work: what is decided is not built on it."""
        assert isinstance(error, LineUpError)
        self._on_fault(event, error)
        return answers(event, error, now)


def is_ack(event: ev.AnyEvent) -> TypeGuard[ev.AgentFrame]:
    """Whether it is an agent's acknowledgement: it has no receipt, so that nobody would send a refused one again, and
    what its window holds back would never come.
    """
    return isinstance(event, ev.AgentFrame) and isinstance(event.frame, dict) and event.frame.get("type") == _ACK


def _is_full(error: Exception) -> bool:
    return isinstance(error, LineUpError) and error.code == "storage_full"


def _is_damage(error: Exception) -> bool:
    return isinstance(error, LineUpError) and error.code == "store_damaged"


def _is_fatal(error: Exception) -> bool:
    return isinstance(error, EngineFailed | MemoryError) or (
        isinstance(error, LineUpError) and error.code in ("store_damaged", "store_newer")
    )


def _let_go(event: ev.WorkerFrame) -> fx.AnyEffect:
    """A worker that floods a full store: its next incarnation hears again of everything that it did not acknowledge."""
    return fx.StopWorker(
        instance_id=event.instance_id, incarnation=event.incarnation, reason="storage_full", grace_ms=0
    )


def answers(event: ev.AnyEvent, error: LineUpError, now: ev.Now) -> list[fx.AnyEffect]:
    """What whoever waits for ``event`` hears when the core could not take it; nothing if nobody waits."""
    if isinstance(event, ev.HostQuery | ev.HostAction | ev.HostWatch):
        return [fx.ReplyHost(reply_to=event.reply_to, accepted=False, code=error.code, message=error.message)]
    if isinstance(event, ev.AgentFrame):
        return [fx.SendAgent(link_id=event.link_id, frames=(_agent_refusal(event, error, now),))]
    if isinstance(event, ev.WorkerFrame) and isinstance(event.frame, dict) and is_id(event.frame.get("id")):
        body = {"re": event.frame["id"], "accepted": False, **error.as_dict()}
        receipt = {"type": "receipt", "body": body}
        return [fx.SendWorker(instance_id=event.instance_id, incarnation=event.incarnation, messages=(receipt,))]
    return []


def _agent_refusal(event: ev.AgentFrame, error: LineUpError, now: ev.Now) -> dict[str, Any]:
    frame = event.frame if isinstance(event.frame, dict) else {}
    reply_to, conversation_id, type_ = frame.get("message_id"), frame.get("conversation_id"), frame.get("type")
    has_receipt = is_id(reply_to) and isinstance(type_, str) and type_ not in _WITHOUT_RECEIPT
    payload: dict[str, Any] = {"reply_to": reply_to, "accepted": False} if has_receipt else {}
    if is_id(reply_to):
        payload["reply_to"] = reply_to
    payload |= error.as_dict()
    answer = {
        "type": "lineup.v1.receipt" if has_receipt else "lineup.v1.error",
        "message_id": f"r-{event.event_id}",
        "sent_at": to_rfc3339(now.wall_ms),
        "payload": payload,
    }
    if is_id(conversation_id):
        answer["conversation_id"] = conversation_id
    return answer


_WITHOUT_RECEIPT = ("lineup.v1.hello", _ACK, "lineup.v1.ping")
