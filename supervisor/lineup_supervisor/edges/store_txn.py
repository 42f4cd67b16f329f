"""``core.txn.Txn`` over one LMDB transaction: rows and keys as bytes, scans by a cursor.

This file owns what a transaction offers the core; beginning, committing and ending it are ``store``'s.

Many events share a transaction, and each reads and writes the same few rows (its agent, its instance, the Runtime's
own). So a row that was read or written is kept as the value that it is, and what is written goes to LMDB when its
table is scanned or at the end (``write_out``): once, however often it changed. A short scan is kept too until its
table changes. Rows are encoded at once, so that one that cannot be stored is refused in the event that made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lmdb

from lineup_supervisor.core.txn import Key, R, Table
from lineup_supervisor.edges.store_keys import BadKey, decode_key, encode_key, encode_prefix, prefix_end
from lineup_supervisor.edges.store_rows import decode_row, encode_row, unreadable

_UNKNOWN: Any = object()
_KEPT_SCAN_ROWS_MAX = 16


class _Known:
    """What this transaction knows of one table."""

    __slots__ = ("changes", "db", "rows", "scans", "unwritten")

    def __init__(self, db: Any) -> None:
        self.db = db
        self.changes = 0
        self.rows: dict[Key, Any] = {}  # None: there is no such row
        self.unwritten: dict[bytes, bytes] = {}
        self.scans: dict[bytes, list[tuple[Key, Any]]] = {}  # whole scans by their prefix; none after a change


class LmdbTxn:
    """``core.txn.Txn`` over one LMDB transaction."""

    def __init__(self, txn: lmdb.Transaction, dbs: dict[str, Any], *, writable: bool) -> None:
        self._txn = txn
        self._dbs = dbs
        self._writable = writable
        self._closed = False
        self._known: dict[str, _Known] = {}
        self.number: int = txn.id()
        self.dirty = False

    def get(self, table: Table[R], key: Key) -> R | None:
        assert not self._closed, "the transaction has ended"
        known = self._known.get(table.name) or self._begin(table.name)
        row: R | None = known.rows.get(key, _UNKNOWN)
        if row is _UNKNOWN:
            raw: Any = self._txn.get(encode_key(key), db=known.db)
            row = known.rows[key] = None if raw is None else decode_row(table, raw)
        return row

    def put(self, table: Table[R], key: Key, row: R) -> None:
        assert type(row) is table.row, f"{type(row).__name__} does not belong in {table.name}"
        known = self._changing(table.name)
        known.unwritten[encode_key(key)] = encode_row(row)
        known.rows[key] = row
        self.dirty = True

    def delete(self, table: Table[Any], key: Key) -> bool:
        encoded_key = encode_key(key)
        known = self._changing(table.name)
        was_unwritten = known.unwritten.pop(encoded_key, None) is not None
        gone = bool(self._txn.delete(encoded_key, db=known.db)) or was_unwritten
        known.rows[key] = None
        self.dirty |= gone
        return gone

    def first(self, table: Table[Any], prefix: Key, *, after: Key | None = None, reverse: bool = False) -> Key | None:
        assert not self._closed, "the transaction has ended"
        known = self._known.get(table.name) or self._begin(table.name)
        self._write_out(known)
        start = encode_prefix(prefix)
        bound = None if after is None else encode_prefix(after)
        cursor = self._txn.cursor(db=known.db)
        if not (_seek_last(cursor, prefix_end(start), bound) if reverse else _seek_first(cursor, start, bound)):
            return None
        found: Any = cursor.key()
        return _key(table, found) if found.startswith(start) else None

    def write_out(self) -> None:
        """Give LMDB what it has not got yet. Raises ``lmdb.Error``, as every write may."""
        for known in self._known.values():
            self._write_out(known)

    def _write_out(self, known: _Known) -> None:
        if known.unwritten:
            self._txn.cursor(db=known.db).putmulti(sorted(known.unwritten.items()))
            known.unwritten.clear()

    def scan(
        self, table: Table[R], prefix: Key = (), *, after: Key | None = None, reverse: bool = False
    ) -> Iterator[tuple[Key, R]]:
        assert not self._closed, "the transaction has ended"
        known = self._known.get(table.name) or self._begin(table.name)
        start = encode_prefix(prefix)
        if after is None and not reverse:
            kept = known.scans.get(start)
            return self._walk_forward(table, known, start) if kept is None else self._walk_kept(table, known, kept)
        return self._walk(table, known, start, after, reverse)

    def _walk_kept(self, table: Table[R], known: _Known, kept: list[tuple[Key, R]]) -> Iterator[tuple[Key, R]]:
        changes = known.changes
        for item in kept:
            yield item
            self._check_unchanged(table, known, changes)

    def _walk_forward(self, table: Table[R], known: _Known, start: bytes) -> Iterator[tuple[Key, R]]:
        self._write_out(known)
        cursor = self._txn.cursor(db=known.db)
        found = cursor.set_range(start) if start else cursor.first()
        changes = known.changes
        seen: list[tuple[Key, R]] = []
        key: Any
        raw: Any
        while found:
            key, raw = cursor.item()
            if not key.startswith(start):
                break
            item = _key(table, key), decode_row(table, raw)
            if len(seen) <= _KEPT_SCAN_ROWS_MAX:
                seen.append(item)
            yield item
            self._check_unchanged(table, known, changes)
            found = cursor.next()
        if len(seen) <= _KEPT_SCAN_ROWS_MAX:
            known.scans[start] = seen

    def _walk(
        self, table: Table[R], known: _Known, start: bytes, after: Key | None, reverse: bool
    ) -> Iterator[tuple[Key, R]]:
        self._write_out(known)
        bound = None if after is None else encode_prefix(after)
        cursor = self._txn.cursor(db=known.db)
        found = _seek_last(cursor, prefix_end(start), bound) if reverse else _seek_first(cursor, start, bound)
        changes = known.changes
        key: Any
        raw: Any
        while found:
            key, raw = cursor.item()
            if not key.startswith(start):
                return
            yield _key(table, key), decode_row(table, raw)
            self._check_unchanged(table, known, changes)
            found = cursor.prev() if reverse else cursor.next()

    def _check_unchanged(self, table: Table[Any], known: _Known, changes: int) -> None:
        assert not self._closed, "the transaction of this scan has ended"
        if known.changes != changes:
            raise RuntimeError(f"table {table.name} changed during a scan; take a list first")

    def close(self) -> None:
        self._closed = True

    def _begin(self, name: str) -> _Known:
        known = self._known[name] = _Known(self._dbs[name])
        return known

    def _changing(self, name: str) -> _Known:
        assert not self._closed, "the transaction has ended"
        assert self._writable, "a read transaction writes nothing"
        known = self._known.get(name) or self._begin(name)
        known.changes += 1
        if known.scans:
            known.scans.clear()
        return known


def _key(table: Table[Any], raw: bytes) -> Key:
    """Raises Unreadable, of ``store_damaged``, for bytes that are no key of ours."""
    try:
        return decode_key(raw)
    except BadKey as error:
        raise unreadable(table, "key", error) from error


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
