"""One step from a version of the schema to the next, and what it works on: rows without their types.

This file owns how older rows are read, and what is said of those that nobody can read. It must not know what they mean,
nor when the steps are run: that is ``store``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lmdb
import msgspec

from lineup_supervisor.core.txn import Key
from lineup_supervisor.edges.store_keys import BadKey, decode_key, encode_key, encode_prefix


class BadRow(Exception):
    """What a row says to a migration is what no program has written. It ends the opening as ``store_damaged``; whatever
    else a step raises is a fault of the step.
    """

    def __init__(self, table: str, key: Key | bytes, why: object) -> None:
        super().__init__(f"its row {key!r} of {table} cannot be brought up to date ({why})")


class RawTxn:
    """What a migration works on: rows as plain maps, tables by name."""

    def __init__(self, env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        self._env, self._txn = env, txn

    def scan(self, table: str, prefix: Key = ()) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Rows whose key starts with ``prefix``, in order. Whoever writes meanwhile takes a list first.

        Raises BadRow for bytes that are no key, or no map with names.
        """
        cursor = self._txn.cursor(db=self._env.open_db(table.encode(), txn=self._txn))
        start = encode_prefix(prefix)
        found = cursor.set_range(start) if start else cursor.first()
        while found and bytes(cursor.key()).startswith(start):
            yield _raw_row(table, bytes(cursor.key()), cursor.value())
            found = cursor.next()

    def put(self, table: str, key: Key, row: dict[str, Any]) -> None:
        db = self._env.open_db(table.encode(), txn=self._txn)
        self._txn.put(encode_key(key), msgspec.msgpack.encode(row), db=db)

    def delete(self, table: str, key: Key) -> bool:
        return bool(self._txn.delete(encode_key(key), db=self._env.open_db(table.encode(), txn=self._txn)))


def _raw_row(table: str, raw_key: bytes, raw: Any) -> tuple[Key, dict[str, Any]]:
    key: Key | bytes = raw_key
    try:
        key = decode_key(raw_key)
        return key, _decode_map(raw)
    except (BadKey, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRow(table, key, error) from error


_decode_map = msgspec.msgpack.Decoder(dict[str, Any]).decode


@dataclass(frozen=True)
class Migration:
    """From version ``source`` to the next; all pending ones run in one transaction: a kill leaves none half done.

    ``run`` raises BadRow for rows that it cannot make sense of; all is then left as it was.
    """

    source: int
    run: Callable[[RawTxn], None]
