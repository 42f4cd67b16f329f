"""Looks over the core's shoulder: what each event has changed, and whether it was refused.

The participants see little of what a refusal leaves behind (an instance that nobody looks at, a conversation without a
word), so the rows are looked at. What a refusal may leave is judged by ``checkers.refusals``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkers.history import Refusal
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.step import step
from lineup_supervisor.core.txn import Table, Txn


class Witness:
    """Steps events as the core does. ``refusals``: by event, what those that were refused have changed."""

    def __init__(self) -> None:
        self.refusals: dict[str, Refusal] = {}

    def step(self, txn: Txn, event: Any, now: ev.Now) -> list[fx.Effect]:
        seen = _Seen(txn)
        effects = step(seen, event, now)
        found = _refusal(event, effects)
        if found is not None:
            kind, name, code = found
            self.refusals[event.event_id] = Refusal(kind, name, code, tuple(seen.changed()))
        return effects


def _refusal(event: Any, effects: list[fx.Effect]) -> tuple[str, str, str] | None:
    """``(kind, name, code)`` of what was answered with a refusal."""
    if isinstance(event, ev.HostAction):
        answers = [e for e in effects if isinstance(e, fx.ReplyHost) and e.reply_to == event.reply_to]
        return next((("action", event.name, str(e.code)) for e in answers if not e.accepted), None)
    frame = getattr(event, "frame", None)
    if not isinstance(frame, dict):
        return None
    if isinstance(event, ev.AgentFrame):
        kind, asked = "message", frame.get("message_id")
        said = [f["payload"] for e in effects if isinstance(e, fx.SendAgent) for f in e.frames]
        answers_ = [(payload.get("reply_to"), payload) for payload in said]
    else:
        kind, asked = "command", frame.get("id")
        messages = [m for e in effects if isinstance(e, fx.SendWorker) for m in e.messages]
        answers_ = [(m["body"].get("re"), m["body"]) for m in messages]
    refused = (body for re, body in answers_ if re is not None and re == asked and "code" in body)
    return next(((kind, str(frame.get("type")), str(body["code"])) for body in refused), None)


class _Seen:
    """A transaction whose writes are remembered, with the rows as they were before the first."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn
        self._before: dict[tuple[str, Any], tuple[Table[Any], Any]] = {}
        self.get = txn.get
        self.first = txn.first

    def scan(self, *args: Any, **more: Any) -> Iterator[Any]:
        return self._txn.scan(*args, **more)

    def put(self, table: Table[Any], key: Any, row: Any) -> None:
        self._note(table, key)
        self._txn.put(table, key, row)

    def delete(self, table: Table[Any], key: Any) -> bool:
        self._note(table, key)
        return self._txn.delete(table, key)

    def _note(self, table: Table[Any], key: Any) -> None:
        if (table.name, key) not in self._before:
            self._before[table.name, key] = (table, self._txn.get(table, key))

    def changed(self) -> list[str]:
        """What is not as it was: a table in which rows came or went, a field of a row, a kind of timer."""
        found: set[str] = set()
        for (name, key), (table, before) in self._before.items():
            after = self._txn.get(table, key)
            if name in ("timers", "timer_due") and before != after:
                found.add(f"timer.{key[2] if name == 'timers' else key[0]}")
            elif before is None or after is None:
                found |= {name} if before is not after else set()
            else:
                found |= {f"{name}.{field}" for field in table.row.__struct_fields__ if _differ(before, after, field)}
        return sorted(found)


def _differ(before: Any, after: Any, field: str) -> bool:
    return bool(getattr(before, field) != getattr(after, field))
