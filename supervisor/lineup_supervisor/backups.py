"""Backups of a Runtime that is running: one at a time, in a thread that the end of the Runtime does not wait for.

This file owns when one may begin and how it is ended before its time. Its form is ``backup``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_supervisor.backup import write_backup
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_copy import CopyStop
from lineup_supervisor.home import Home


class Backups:
    """Use from the loop's thread only."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store = store
        self._home = home
        self._stop = CopyStop()
        self._idle = asyncio.Event()
        self._idle.set()

    async def make(self, destination: Path) -> int:
        """Its bytes. Raises LineUpError as ``write_backup``, and ``conflict`` while another one is being made."""
        if self._stop.is_asked:
            raise LineUpError("runtime_stopping", "the Runtime is going down, and no backup was made")
        if not self._idle.is_set():
            raise LineUpError("conflict", "another backup of this home is being made; wait until it is there")
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # No pool's: what is not done with at the end must go with the process.
        thread = threading.Thread(target=self._main, args=(destination, done), name="backup", daemon=True)
        self._idle.clear()
        try:
            thread.start()
            return await done
        finally:
            self._idle.set()

    def stop(self) -> None:
        """End the one that is being made, and begin no other. Never raises."""
        self._stop.ask()

    async def ended(self, within_s: float) -> bool:
        """True once none is being made; False if that takes too long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), within_s)
        return self._idle.is_set()

    def _main(self, destination: Path, done: asyncio.Future[int]) -> None:
        size, error = 0, None
        try:
            size = write_backup(self._store, self._home, destination, self._stop)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            done.get_loop().call_soon_threadsafe(_settle, done, size, error)


def _settle(done: asyncio.Future[int], size: int, error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(size)
