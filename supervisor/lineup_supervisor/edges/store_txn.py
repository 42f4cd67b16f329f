"""``core.txn.Txn`` over one LMDB transaction: rows and keys as bytes, scans by a cursor.

This file owns what a transaction offers the core; beginning, committing and ending it are ``store``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lmdb

from lineup_supervisor.core.txn import Key, R, Table
from lineup_supervisor.edges.store_keys import decode_key, encode_key, encode_prefix, prefix_end
from lineup_supervisor.edges.store_rows import decode_row, encode_row


class LmdbTxn:
    """``core.txn.Txn`` over one LMDB transaction."""

    def __init__(self, txn: lmdb.Transaction, dbs: dict[str, Any], *, writable: bool) -> None:
        self._txn = txn
        self._dbs = dbs
        self._writable = writable
        self._closed = False
        self._changes: dict[str, int] = {}
        self.number: int = txn.id()
        self.dirty = False

    def get(self, table: Table[R], key: Key) -> R | None:
        raw: Any = self._txn.get(encode_key(key), db=self._db(table))
        return None if raw is None else decode_row(table, raw)

    def put(self, table: Table[R], key: Key, row: R) -> None:
        self._check_writable(table)
        assert type(row) is table.row, f"{type(row).__name__} does not belong in {table.name}"
        self._txn.put(encode_key(key), encode_row(row), db=self._db(table))
        self.dirty = True

    def delete(self, table: Table[Any], key: Key) -> bool:
        self._check_writable(table)
        gone = bool(self._txn.delete(encode_key(key), db=self._db(table)))
        self.dirty |= gone
        return gone

    def scan(
        self, table: Table[R], prefix: Key = (), *, after: Key | None = None, reverse: bool = False
    ) -> Iterator[tuple[Key, R]]:
        start = encode_prefix(prefix)
        bound = None if after is None else encode_prefix(after)
        cursor = self._txn.cursor(db=self._db(table))
        found = _seek_last(cursor, prefix_end(start), bound) if reverse else _seek_first(cursor, start, bound)
        changes = self._changes.get(table.name, 0)
        key: Any
        raw: Any
        while found:
            key, raw = cursor.item()
            if not key.startswith(start):
                return
            yield decode_key(key), decode_row(table, raw)
            assert not self._closed, "the transaction of this scan has ended"
            if self._changes.get(table.name, 0) != changes:
                raise RuntimeError(f"table {table.name} changed during a scan; take a list first")
            found = cursor.prev() if reverse else cursor.next()

    def close(self) -> None:
        self._closed = True

    def _db(self, table: Table[Any]) -> Any:
        assert not self._closed, "the transaction has ended"
        return self._dbs[table.name]

    def _check_writable(self, table: Table[Any]) -> None:
        assert self._writable, "a read transaction writes nothing"
        self._changes[table.name] = self._changes.get(table.name, 0) + 1


def _seek_first(cursor: lmdb.Cursor, start: bytes, after: bytes | None) -> bool:
    if after is None or after < start:
        return bool(cursor.set_range(start) if start else cursor.first())
    found = bool(cursor.set_range(after) if after else cursor.first())
    return bool(cursor.next()) if found and cursor.key() == after else found


def _seek_last(cursor: lmdb.Cursor, end: bytes | None, after: bytes | None) -> bool:
    if after is not None and (end is None or after < end):
        end = after
    if end is None:
        return bool(cursor.last())
    if not end:
        return False
    return bool(cursor.prev() if cursor.set_range(end) else cursor.last())
