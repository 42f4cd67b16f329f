"""Rows as bytes: msgpack maps by field name, one cached decoder per row type.

Fields that are equal to their default may be missing and unknown ones are passed over, so that a row written by a
later program of the same schema version can be read; what is unknown is lost when the row is next written.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.txn import R, Table


@functools.cache
def _decoder(row: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(row)


# The bytes of a row. Raises OverflowError for an integer beyond 64 bits, TypeError for what msgpack cannot hold.
encode_row = msgspec.msgpack.Encoder().encode


def decode_row(table: Table[R], raw: bytes) -> R:
    """Raises Unreadable, of ``store_damaged``, if the bytes are no such row."""
    try:
        row: R = _decoder(table.row).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(table, "row", error) from error
    return row


class Unreadable(Exception):
    """Met in the middle of a transaction. No LineUpError before the transaction is over, so that no rule of the core
    can take it for a refusal of its own and go on.
    """

    def __init__(self, error: LineUpError) -> None:
        super().__init__(str(error))
        self.error = error


def unreadable(table: Table[Any], what: str, error: Exception) -> Unreadable:
    return Unreadable(
        LineUpError(
            "store_damaged",
            f"a {what} of {table.name} cannot be read ({error}); `lineup restore` brings a backup into an empty home",
        )
    )
