"""The core's view of the store: ordered typed tables inside one transaction.

A key is a tuple of strings (ids, no NUL) and non-negative integers below 2**63; order is that of the tuples. A row is
an immutable value. Two implementations exist, ``edges.store`` (LMDB) and ``edges.store_memory``; the same tests hold
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

R = TypeVar("R", bound=msgspec.Struct)
Key = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Table(Generic[R]):
    """A named table. ``projected`` names the kind under which people see its rows, if they do."""

    name: str
    row: type[R]
    projected: str | None = None


class Txn(Protocol):
    """One transaction: reads see its own writes; nothing lasts unless the owner commits."""

    def get(self, table: Table[R], key: Key) -> R | None: ...

    def put(self, table: Table[R], key: Key, row: R) -> None: ...

    def delete(self, table: Table[Any], key: Key) -> bool:
        """True if there was such a row."""
        ...

    def first(self, table: Table[Any], prefix: Key, *, after: Key | None = None, reverse: bool = False) -> Key | None:
        """The key that a scan with the same arguments would begin with, without reading the row."""
        ...

    def scan(
        self, table: Table[R], prefix: Key = (), *, after: Key | None = None, reverse: bool = False
    ) -> Iterator[tuple[Key, R]]:
        """Rows whose key starts with ``prefix``, in order (or in reverse); with ``after``, those strictly beyond that
        key in the direction of the scan. Whoever writes to the table meanwhile takes a list first."""
        ...
