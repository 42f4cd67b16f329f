"""What the rules work with while one event is handled: the transaction, the moment, and the effects so far.

Owns: making ids, appending effects, noticing projected rows, taking back what a refused rule has done. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.events import Event, Now
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import META, WORKERS, Meta
from lineup_supervisor.core.tables import WorkerState
from lineup_supervisor.core.txn import Key, Table, Txn

R = TypeVar("R", bound=msgspec.Struct)
P = ParamSpec("P")
T = TypeVar("T")

META_KEY: Key = ("runtime",)


class Frames:
    """Frames for one agent link or messages for one worker, gathered while the event is handled."""

    __slots__ = ("incarnation", "items", "target")

    def __init__(self, target: str, incarnation: int | None) -> None:
        self.target = target
        self.incarnation = incarnation
        self.items: list[dict[str, Any]] = []

    def effect(self) -> fx.Effect:
        if self.incarnation is None:
            return fx.SendAgent(link_id=self.target, frames=tuple(self.items))
        return fx.SendWorker(instance_id=self.target, incarnation=self.incarnation, messages=tuple(self.items))


class _Mark(NamedTuple):
    """How everything of an event's context but its rows stood before a rule that may refuse."""

    undo: int
    effects: int
    gathered: dict[tuple[str, int | None], int]
    changed: dict[tuple[Table[Any], Key], Any]
    extra_changes: int
    touched: dict[str, None]
    retired: bool
    meta: Meta
    cause: str
    actor: str


class Ctx:
    """One event's context. ``cause`` is the causation id that every row and effect of this event carries."""

    def __init__(self, txn: Txn, event: Event, now: Now) -> None:
        self.txn = txn
        self.get = txn.get  # type: ignore[method-assign]  # the most frequent call of all
        self.event = event
        self.now = now
        self.cause = event.event_id
        self.actor = "runtime"
        self._effects: list[fx.Effect | Frames] = []
        self._gathered: dict[tuple[str, int | None], Frames] = {}
        self._ids = 0
        self._undo: list[tuple[Table[Any], Key, Any]] | None = None  # rows as they were; only while a rule may refuse
        self.changed: dict[tuple[Table[Any], Key], Any] = {}
        # What people must hear of beside projected rows: `{kind, id, row}`, in order.
        self.extra_changes: list[dict[str, Any]] = []
        self.touched: dict[str, None] = {}
        self.retired = False  # something came to its end in this event (``retention``)
        meta = txn.get(META, META_KEY)
        self.meta = meta if meta is not None else Meta()

    @property
    def policy(self) -> Policy:
        return self.meta.policy

    # rows

    if TYPE_CHECKING:

        def get(self, table: Table[R], key: Key) -> R | None: ...

    def need(self, table: Table[R], key: Key) -> R:
        """A row that must exist; its absence is a bug."""
        row = self.get(table, key)
        assert row is not None, f"{table.name} {key} is missing"
        return row

    def put(self, table: Table[R], key: Key, row: R) -> R:
        if self._undo is not None:
            self._undo.append((table, key, self.get(table, key)))
        self.txn.put(table, key, row)
        if table.projected is not None:
            self.changed[table, key] = row
        return row

    def add(self, table: Table[R], key: Key, row: R) -> R:
        """``put`` of a row whose key was never there, by a number that only goes up: nobody has to look."""
        if self._undo is not None:
            self._undo.append((table, key, None))
        self.txn.put(table, key, row)
        if table.projected is not None:
            self.changed[table, key] = row
        return row

    def put_unseen(self, table: Table[R], key: Key, row: R) -> R:
        """``put`` past the projection: people see nothing of what has changed in it."""
        if self._undo is not None:
            self._undo.append((table, key, self.get(table, key)))
        self.txn.put(table, key, row)
        return row

    def put_kept(self, table: Table[R], key: Key, row: R) -> R:
        """``put`` past the projection and past a refusal: what trying has cost. Before anything else is done to it."""
        self.txn.put(table, key, row)
        return row

    def delete(self, table: Table[Any], key: Key) -> bool:
        if self._undo is not None:
            self._undo.append((table, key, self.get(table, key)))
        existed = self.txn.delete(table, key)
        if existed and table.projected is not None:
            self.changed[table, key] = None
        return existed

    def set_meta(self, **changes: Any) -> None:
        self.meta = msgspec.structs.replace(self.meta, **changes)

    def touch(self, instance_id: str) -> None:
        """Look again, at the end of this event, whether this instance needs a worker or a delivery."""
        self.touched[instance_id] = None

    def new_id(self, prefix: str) -> str:
        """A new id: unique because the event's id is, the same at every replay."""
        self._ids += 1
        return f"{prefix}-{self.event.event_id}" if self._ids == 1 else f"{prefix}-{self.event.event_id}.{self._ids}"

    # refusals

    def attempt(self, rule: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a rule that may refuse. After its refusal it is as if it had never begun: no row, no effect, no change.

        So a rule may refuse at any place, and who catches it writes the refusal down.

        Raises:
            LineUpError: the rule's.
        """
        outermost = self._undo is None
        if self._undo is None:
            self._undo = []
        mark = self._mark(len(self._undo))
        try:
            return rule(*args, **kwargs)
        except LineUpError:
            self._take_back(mark)
            raise
        finally:
            if outermost:
                self._undo = None

    def _mark(self, undo: int) -> _Mark:
        return _Mark(
            undo,
            len(self._effects),
            {target: len(frames.items) for target, frames in self._gathered.items()},
            dict(self.changed),
            len(self.extra_changes),
            dict(self.touched),
            self.retired,
            self.meta,
            self.cause,
            self.actor,
        )

    def _take_back(self, mark: _Mark) -> None:
        assert self._undo is not None
        for table, key, row in reversed(self._undo[mark.undo :]):
            if row is None:
                self.txn.delete(table, key)
            else:
                self.txn.put(table, key, row)
        del self._undo[mark.undo :]
        del self._effects[mark.effects :]
        self._gathered = {target: frames for target, frames in self._gathered.items() if target in mark.gathered}
        for target, count in mark.gathered.items():
            del self._gathered[target].items[count:]
        del self.extra_changes[mark.extra_changes :]
        self.changed, self.touched, self.retired = mark.changed, mark.touched, mark.retired
        self.meta, self.cause, self.actor = mark.meta, mark.cause, mark.actor

    # effects

    def emit(self, effect: fx.Effect) -> None:
        self._effects.append(effect)

    def send_agent(self, link_id: str, frame: dict[str, Any]) -> None:
        self._gather(link_id, None).append(frame)

    def send_worker(self, instance_id: str, incarnation: int, message: dict[str, Any]) -> None:
        self._gather(instance_id, incarnation).append(message)

    def tell_worker(self, instance_id: str, type_: str, body: dict[str, Any]) -> None:
        """Tell the instance's worker what has changed. One that was not welcomed yet will read it in its welcome."""
        worker = self.txn.get(WORKERS, (instance_id,))
        if worker is not None and worker.welcomed and worker.state != WorkerState.STOPPING:
            self.send_worker(instance_id, worker.incarnation, {"type": type_, "body": body})

    def _gather(self, target: str, incarnation: int | None) -> list[dict[str, Any]]:
        frames = self._gathered.get((target, incarnation))
        if frames is None:
            frames = self._gathered[target, incarnation] = Frames(target, incarnation)
            self._effects.append(frames)
        return frames.items

    def reply_host(
        self,
        reply_to: str,
        accepted: bool,
        *,
        code: str | None = None,
        message: str | None = None,
        detail: Any = None,
    ) -> None:
        self.emit(fx.ReplyHost(reply_to=reply_to, accepted=accepted, code=code, message=message, detail=detail))

    def effects(self) -> list[fx.Effect]:
        return [e.effect() if isinstance(e, Frames) else e for e in self._effects]
