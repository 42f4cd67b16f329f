"""``core.txn.Txn`` over one LMDB transaction: rows and keys as bytes, scans by a cursor.

This file owns what a transaction offers the core; beginning, committing and ending it are ``store``'s.

Many events share a transaction, and each reads and writes the same few rows (its agent, its instance, the Runtime's
own). So a row that was read or written is kept as the value that it is, and what is written goes to LMDB when its
table is scanned or at the end (``write_out``): once, however often it changed. Rows are encoded at once, so that one
that cannot be stored is refused in the event that made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lmdb

from lineup_supervisor.core.txn import Key, R, Table
from lineup_supervisor.edges.store_keys import decode_key, encode_key, encode_prefix, prefix_end
from lineup_supervisor.edges.store_rows import decode_row, encode_row

_UNKNOWN: Any = object()


class LmdbTxn:
    """``core.txn.Txn`` over one LMDB transaction."""

    def __init__(self, txn: lmdb.Transaction, dbs: dict[str, Any], *, writable: bool) -> None:
        self._txn = txn
        self._dbs = dbs
        self._writable = writable
        self._closed = False
        self._changes: dict[str, int] = {}
        self._rows: dict[str, dict[Key, Any]] = {}  # by table, what is known of it; None: there is no such row
        self._unwritten: dict[str, dict[bytes, bytes]] = {}
        self.number: int = txn.id()
        self.dirty = False

    def get(self, table: Table[R], key: Key) -> R | None:
        assert not self._closed, "the transaction has ended"
        rows = self._rows.get(table.name)
        if rows is None:
            rows = self._rows[table.name] = {}
        row: R | None = rows.get(key, _UNKNOWN)
        if row is _UNKNOWN:
            raw: Any = self._txn.get(encode_key(key), db=self._dbs[table.name])
            row = rows[key] = None if raw is None else decode_row(table, raw)
        return row

    def put(self, table: Table[R], key: Key, row: R) -> None:
        self._check_writable(table)
        name = table.name
        assert type(row) is table.row, f"{type(row).__name__} does not belong in {name}"
        encoded_key, encoded_row = encode_key(key), encode_row(row)
        if name not in self._unwritten:
            self._unwritten[name] = {}
        self._unwritten[name][encoded_key] = encoded_row
        if name not in self._rows:
            self._rows[name] = {}
        self._rows[name][key] = row
        self.dirty = True

    def delete(self, table: Table[Any], key: Key) -> bool:
        self._check_writable(table)
        encoded_key = encode_key(key)
        was_unwritten = self._unwritten.get(table.name, {}).pop(encoded_key, None) is not None
        gone = bool(self._txn.delete(encoded_key, db=self._dbs[table.name])) or was_unwritten
        self._rows.setdefault(table.name, {})[key] = None
        self.dirty |= gone
        return gone

    def write_out(self) -> None:
        """Give LMDB what it has not got yet. Raises ``lmdb.Error``, as every write may."""
        for name in self._unwritten:
            self._write_out(name)

    def _write_out(self, name: str) -> None:
        unwritten = self._unwritten.get(name)
        if unwritten:
            self._txn.cursor(db=self._dbs[name]).putmulti(sorted(unwritten.items()))
            unwritten.clear()

    def scan(
        self, table: Table[R], prefix: Key = (), *, after: Key | None = None, reverse: bool = False
    ) -> Iterator[tuple[Key, R]]:
        assert not self._closed, "the transaction has ended"
        self._write_out(table.name)
        start = encode_prefix(prefix)
        bound = None if after is None else encode_prefix(after)
        cursor = self._txn.cursor(db=self._dbs[table.name])
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

    def _check_writable(self, table: Table[Any]) -> None:
        assert not self._closed, "the transaction has ended"
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
