"""What goes on for as long as the Runtime does: timers and tasks whose next turn comes, whatever became of this one.

This file owns that nothing of the kind stops in silence: a turn that raises is told to the loop's exception handler,
which is the daemon's log, and costs that turn alone. It must not know what a turn does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

FAULT_PAUSE_S = 1.0  # at least, after a turn that raised: a fault that lasts must not fill the log


class Recurring:
    """A timer. ``turn()`` says in how many seconds it is to be called again; None: not before the next ``start``.

    Use from the loop's thread only; ``start`` and ``cancel`` may be called from inside the turn.
    """

    def __init__(self, what: str, turn: Callable[[], float | None]) -> None:
        self._what = what
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._is_wanted = False

    @property
    def is_set(self) -> bool:
        return self._handle is not None

    def start(self, in_s: float) -> None:
        """Call in so many seconds; an earlier ``start`` counts no more."""
        self.cancel()
        self._is_wanted = True
        self._handle = self._loop.call_later(in_s, self._on_time)

    def cancel(self) -> None:
        self._is_wanted = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_time(self) -> None:
        self._handle = None
        again_s: float | None = FAULT_PAUSE_S
        with told(self._what):
            again_s = self._turn()
        if again_s is not None and self._is_wanted and self._handle is None:
            self._handle = self._loop.call_later(again_s, self._on_time)


async def every(what: str, pause_s: float, turn: Callable[[], Awaitable[None]]) -> None:
    """Never returns: ``turn`` after each pause."""
    while True:
        await asyncio.sleep(pause_s)
        with told(what):
            await turn()


@contextmanager
def told(what: str) -> Iterator[None]:
    """Whatever is raised inside is told to the running loop's exception handler, and goes no further."""
    try:
        yield
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler({"message": f"{what} failed", "exception": error})
