"""The two clocks of ``core.events.Now``. Owns where the moments come from; nothing else in the supervisor asks for one.

The steady clock goes on from the newest moment that was committed before (``base_ms``): it stands still while the
Runtime is down or the machine sleeps, and never goes back for anything that the store remembers.

``LINEUP_TEST_WALL_OFFSET_FILE`` names a file with milliseconds to add to the wall clock, read at every look: the tests'
way to move a real daemon's clock.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from lineup_protocol.times import WALL_MS_MAX
from lineup_supervisor.core.events import Now

OFFSET_VARIABLE = "LINEUP_TEST_WALL_OFFSET_FILE"


class SystemClock:
    def __init__(self, base_ms: int = 0) -> None:
        self._base_ms = base_ms
        self._started_ns = time.monotonic_ns()
        offset_file = os.environ.get(OFFSET_VARIABLE)
        self._offset_file = Path(offset_file) if offset_file else None

    def now(self) -> Now:
        steady_ms = self._base_ms + (time.monotonic_ns() - self._started_ns) // 1_000_000
        wall_ms = time.time_ns() // 1_000_000 + self._offset_ms()
        return Now(wall_ms=min(max(wall_ms, 0), WALL_MS_MAX), steady_ms=steady_ms)  # no wire can carry other years

    def _offset_ms(self) -> int:
        if self._offset_file is None:
            return 0
        try:
            return int(self._offset_file.read_text())
        except (OSError, ValueError):
            return 0
