"""What a worker's message costs the core: the processor's time of its step, for those that cost more than usual.

This file owns the measuring. It stands between the engine and the core, neither of which knows a clock. Used in the
store's thread alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lineup_supervisor.app_lane import CHEAP_S
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.txn import Txn


class StepCosts:
    """Is a ``step``, and notes."""

    def __init__(self, step: Callable[[Txn, Any, ev.Now], list[Any]]) -> None:
        self._step = step
        self._dear: dict[str, float] = {}

    def __call__(self, txn: Txn, event: Any, now: ev.Now) -> list[Any]:
        if not isinstance(event, ev.WorkerFrame):
            return self._step(txn, event, now)
        began = time.thread_time()
        try:
            return self._step(txn, event, now)
        finally:
            cost_s = time.thread_time() - began
            if cost_s > CHEAP_S:  # a step that is run again, in a larger map, is paid for again
                self._dear[event.event_id] = self._dear.get(event.event_id, 0.0) + cost_s

    def take(self) -> dict[str, float]:
        """Seconds by the event's id, since the last time."""
        dear, self._dear = self._dear, {}
        return dear
