"""Ending a copy of the store before it is complete. Owns how; must not know what it is made for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CopyStop:
    """``ask``, from any thread, ends what another one copies within ``of``: LMDB asks nobody while it copies, but it
    gives up at the first write that fails. ``is_asked`` is for whoever can look by himself.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._lock = threading.Lock()
        self._fd = self._unwritable = -1

    def ask(self) -> None:
        """Never raises."""
        with self._lock:
            self.is_asked = True
            if self._fd >= 0:
                os.dup2(self._unwritable, self._fd, inheritable=False)

    @contextmanager
    def of(self, fd: int) -> Iterator[None]:
        """The block writes to ``fd`` and to nothing else."""
        with self._lock:
            self._fd, self._unwritable = fd, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if self.is_asked:
                os.dup2(self._unwritable, fd, inheritable=False)
        try:
            yield
        finally:
            with self._lock:
                os.close(self._unwritable)
                self._fd = self._unwritable = -1
