"""The simulated disk: the in-memory store that may be full, or may fail at one write of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.schema import TABLES
from lineup_supervisor.edges.store_memory import MemoryStore


class WriteFailed(Exception):
    """EIO. No LineUpError, so that no rule of the core can take it for a refusal of its own."""


class Disk:
    """``full`` lets no transaction commit; ``fails_in`` counts writes (a commit is one) down to one that fails."""

    def __init__(self) -> None:
        self.rows = MemoryStore(TABLES)
        self.full = False
        self.fails_in: int | None = None
        self.failures = 0

    def transact(self, work: Callable[[Any], Any]) -> Any:
        def until_commit(txn: Any) -> Any:
            result = work(txn if self.fails_in is None else _Counted(txn, self))
            self.count_write()
            if self.full:
                raise LineUpError("storage_full", "no space left on the device")
            return result

        try:
            return self.rows.transact(until_commit)
        except WriteFailed as error:
            raise LineUpError("storage_full", "the store cannot be written (EIO)") from error

    def count_write(self) -> None:
        if self.fails_in is None:
            return
        self.fails_in -= 1
        if self.fails_in < 0:
            self.fails_in = None
            self.failures += 1
            raise WriteFailed

    def read(self) -> Any:
        return self.rows.read()


class _Counted:
    """A transaction whose writes are counted."""

    def __init__(self, txn: Any, disk: Disk) -> None:
        self._txn = txn
        self._disk = disk

    def get(self, table: Any, key: Any) -> Any:
        return self._txn.get(table, key)

    def first(self, table: Any, prefix: Any, **more: Any) -> Any:
        return self._txn.first(table, prefix, **more)

    def scan(self, *args: Any, **more: Any) -> Iterator[Any]:
        rows: Iterator[Any] = self._txn.scan(*args, **more)
        return rows

    def put(self, table: Any, key: Any, row: Any) -> None:
        self._disk.count_write()
        self._txn.put(table, key, row)

    def delete(self, table: Any, key: Any) -> bool:
        self._disk.count_write()
        return bool(self._txn.delete(table, key))
