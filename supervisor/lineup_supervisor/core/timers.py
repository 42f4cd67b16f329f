"""Durable timers: one ordered table, at most one timer per kind and reference.

A timer only says "look again"; the rule that it wakes decides by the rows, so that a stale one is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import Now
from lineup_supervisor.core.schema import TIMER_DUE, TIMERS, TimerRow
from lineup_supervisor.core.txn import Key, Txn

Clock = Literal["wall", "steady"]


def set_timer(ctx: Ctx, clock: Clock, due_ms: int, kind: str, *ref: str) -> None:
    """Arm, or move, the timer ``(kind, *ref)``."""
    clear_timer(ctx, kind, *ref)
    row = TimerRow(clock=clock, due_ms=due_ms)
    ctx.put(TIMERS, (clock, due_ms, kind, *ref), row)
    ctx.put(TIMER_DUE, (kind, *ref), row)


def clear_timer(ctx: Ctx, kind: str, *ref: str) -> int | None:
    """Disarm it. Returns when it was due, or None if it was not armed."""
    row = ctx.get(TIMER_DUE, (kind, *ref))
    if row is None:
        return None
    ctx.delete(TIMERS, (row.clock, row.due_ms, kind, *ref))
    ctx.delete(TIMER_DUE, (kind, *ref))
    return row.due_ms


def is_armed(ctx: Ctx, kind: str, *ref: str) -> bool:
    return ctx.get(TIMER_DUE, (kind, *ref)) is not None


def next_due(txn: Txn) -> tuple[int | None, int | None]:
    """When the next timer of each clock is due: ``(wall_ms, steady_ms)``."""
    first: dict[str, int] = {}
    for clock in ("wall", "steady"):
        for key, _ in txn.scan(TIMERS, (clock,)):
            first[clock] = int(key[1])
            break
    return first.get("wall"), first.get("steady")


def take_due(ctx: Ctx, limit: int, now: Now) -> Iterator[tuple[str, Key, int]]:
    """Disarm up to ``limit`` due timers, wall clock first, in order of their time: ``(kind, ref, due_ms)``."""
    due: list[Key] = []
    for clock, moment in (("wall", now.wall_ms), ("steady", now.steady_ms)):
        for key, _ in ctx.txn.scan(TIMERS, (clock,)):
            if int(key[1]) > moment or len(due) >= limit:
                break
            due.append(key)
    for key in due:
        ctx.delete(TIMERS, key)
        ctx.delete(TIMER_DUE, key[2:])
    for key in due:
        yield str(key[2]), key[3:], int(key[1])
