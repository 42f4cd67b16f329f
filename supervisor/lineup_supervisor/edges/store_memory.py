"""The store in memory: the same transactions as ``edges.store`` without a disk, for simulation and the test kit.

This file owns an ordered map per table and an undo log. Semantics are those of LMDB: keys pass the same encoding,
a transaction that fails leaves nothing, a table that changes under a scan is an error. Rows are kept as the values
that they are; with ``encoded=True`` they go through the same bytes as on disk, so that a row that the disk could not
give back, or one that somebody changes in place, shows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sortedcontainers import SortedDict

from lineup_supervisor.core.txn import Key, R, Table
from lineup_supervisor.edges.store_keys import encode_key, encode_prefix, prefix_end
from lineup_supervisor.edges.store_rows import decode_row, encode_row

T = TypeVar("T")
_ABSENT = object()


class MemoryStore:
    """One writer at a time; a read sees the last commit because nothing runs beside it (no threads)."""

    def __init__(self, tables: tuple[Table[Any], ...], *, encoded: bool = False) -> None:
        self._maps: dict[str, SortedDict] = {table.name: SortedDict() for table in tables}
        assert len(self._maps) == len(tables), "two tables share a name"
        self._encoded = encoded
        self._open: MemoryTxn | None = None

    @contextmanager
    def write(self) -> Iterator[MemoryTxn]:
        """One write transaction: committed at the end of the block, undone if it raises."""
        assert self._open is None, "one write transaction at a time"
        txn = self._open = MemoryTxn(self._maps, encoded=self._encoded, writable=True)
        try:
            yield txn
        except BaseException:
            txn.undo()
            raise
        finally:
            txn.close()
            self._open = None

    @contextmanager
    def read(self) -> Iterator[MemoryTxn]:
        """The committed state. Not beside an open write transaction: there is one thread."""
        assert self._open is None, "a write transaction is open"
        txn = MemoryTxn(self._maps, encoded=self._encoded, writable=False)
        try:
            yield txn
        finally:
            txn.close()

    def transact(self, work: Callable[[MemoryTxn], T]) -> T:
        """``work`` in one write transaction; its result after the commit."""
        with self.write() as txn:
            return work(txn)

    def dump(self) -> dict[str, list[tuple[bytes, Any]]]:
        """Every table's rows in order: for before/after comparisons."""
        return {name: [(key, entry[1]) for key, entry in rows.items()] for name, rows in self._maps.items()}


class MemoryTxn:
    """``core.txn.Txn`` over the maps, with an undo log."""

    def __init__(self, maps: dict[str, SortedDict], *, encoded: bool, writable: bool) -> None:
        self._maps = maps
        self._encoded = encoded
        self._writable = writable
        self._closed = False
        self._undo: list[tuple[str, bytes, Any]] = []
        self._changes: dict[str, int] = {}

    def get(self, table: Table[R], key: Key) -> R | None:
        entry = self._rows(table).get(encode_key(key))
        return None if entry is None else self._row(table, entry)

    def put(self, table: Table[R], key: Key, row: R) -> None:
        self._check_writable(table)
        assert type(row) is table.row, f"{type(row).__name__} does not belong in {table.name}"
        rows, encoded_key = self._rows(table), encode_key(key)
        self._undo.append((table.name, encoded_key, rows.get(encoded_key, _ABSENT)))
        rows[encoded_key] = (key, encode_row(row) if self._encoded else row)

    def delete(self, table: Table[Any], key: Key) -> bool:
        self._check_writable(table)
        rows, encoded_key = self._rows(table), encode_key(key)
        entry = rows.pop(encoded_key, _ABSENT)
        if entry is _ABSENT:
            return False
        self._undo.append((table.name, encoded_key, entry))
        return True

    def first(self, table: Table[Any], prefix: Key, *, after: Key | None = None, reverse: bool = False) -> Key | None:
        return next((key for key, _ in self.scan(table, prefix, after=after, reverse=reverse)), None)

    def scan(
        self, table: Table[R], prefix: Key = (), *, after: Key | None = None, reverse: bool = False
    ) -> Iterator[tuple[Key, R]]:
        rows, start = self._rows(table), encode_prefix(prefix)
        low: bytes | None = start
        high = prefix_end(start)
        low_in, high_in = True, False
        if after is not None:
            bound = encode_prefix(after)
            if not reverse and bound >= start:
                low, low_in = bound, False
            elif reverse and (high is None or bound < high):
                high, high_in = bound, False
        if low is not None and high is not None and low > high:
            return
        changes = self._changes.get(table.name, 0)
        for encoded_key in rows.irange(low, high, inclusive=(low_in, high_in), reverse=reverse):
            entry = rows[encoded_key]
            yield entry[0], self._row(table, entry)
            assert not self._closed, "the transaction of this scan has ended"
            if self._changes.get(table.name, 0) != changes:
                raise RuntimeError(f"table {table.name} changed during a scan; take a list first")

    def undo(self) -> None:
        """Put everything back, newest change first."""
        for name, encoded_key, entry in reversed(self._undo):
            if entry is _ABSENT:
                self._maps[name].pop(encoded_key, None)
            else:
                self._maps[name][encoded_key] = entry
        self._undo.clear()

    def close(self) -> None:
        self._closed = True

    def _rows(self, table: Table[Any]) -> SortedDict:
        assert not self._closed, "the transaction has ended"
        return self._maps[table.name]

    def _row(self, table: Table[R], entry: tuple[Key, Any]) -> R:
        return decode_row(table, entry[1]) if self._encoded else cast(R, entry[1])

    def _check_writable(self, table: Table[Any]) -> None:
        assert self._writable, "a read transaction writes nothing"
        self._changes[table.name] = self._changes.get(table.name, 0) + 1
