"""Checks the audit's hash chain, independently of the Runtime that wrote it.

A row's ``hash`` is sha256 over the 32 bytes of ``prev`` (zeros before the first row) and the canonical JSON of the row
without ``prev`` and ``hash``. A changed row breaks its own hash, a removed or reordered one breaks the order of ``seq``
or the next ``prev``, and a removed end differs from the head that the Runtime keeps apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lineup_protocol.codec import canonical_json

NO_HASH = "0" * 64


@dataclass(frozen=True)
class Break:
    """The first place where the chain does not hold. ``seq`` is that of the row, or the one expected there."""

    seq: int
    reason: str


class ChainCheck:
    """Takes rows in order; ``broken`` is the first fault and stays. Rows after it are not looked at."""

    def __init__(self) -> None:
        self.rows = 0
        self.hash = NO_HASH
        self.broken: Break | None = None

    def take(self, row: Mapping[str, Any]) -> None:
        if self.broken is not None:
            return
        expected = self.rows + 1
        reason = self._fault(row, expected)
        if reason is not None:
            self.broken = Break(expected, reason)
            return
        self.rows = expected
        self.hash = row["hash"]

    def _fault(self, row: Mapping[str, Any], expected: int) -> str | None:
        if row.get("seq") != expected:
            return f"row {expected} is missing; row {row.get('seq')} stands in its place"
        if row.get("prev") != self.hash:
            return "it does not continue the row before it"
        body = {name: value for name, value in row.items() if name not in ("prev", "hash")}
        if row.get("hash") != row_hash(self.hash, body):
            return "its content does not match its hash"
        return None

    def end(self, head: object) -> None:
        """Compare with the head that the Runtime keeps: ``{seq, hash}`` or the hash alone."""
        if self.broken is not None:
            return
        seq, hash_ = (head.get("seq"), head.get("hash")) if isinstance(head, Mapping) else (self.rows, head)
        if (hash_ or NO_HASH) == self.hash and seq == self.rows:
            return
        if isinstance(seq, int) and seq > self.rows:
            self.broken = Break(self.rows + 1, f"the chain ends here but the head is row {seq}")
        else:
            self.broken = Break(self.rows, "the last row is not the head")


def row_hash(prev: str, body: Mapping[str, Any]) -> str:
    return hashlib.sha256(bytes.fromhex(prev) + canonical_json(body)).hexdigest()
