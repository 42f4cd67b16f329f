"""What the rules work with while one event is handled: the transaction, the moment, and the effects so far.

Owns: making ids, appending effects, noticing projected rows. Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.events import Event, Now
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import META, WORKERS, Meta
from lineup_supervisor.core.tables import WorkerState
from lineup_supervisor.core.txn import Key, Table, Txn

R = TypeVar("R", bound=msgspec.Struct)

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
        self.txn.put(table, key, row)
        if table.projected is not None:
            self.changed[table, key] = row
        return row

    def delete(self, table: Table[Any], key: Key) -> bool:
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
