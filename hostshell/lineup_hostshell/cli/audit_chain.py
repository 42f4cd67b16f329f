"""Checks the audit's hash chain, independently of the Runtime that wrote it.

A row's ``hash`` is sha256 over the 32 bytes of ``prev`` (zeros before the first row) and the canonical JSON of the row
without ``prev`` and ``hash``. A changed row breaks its own hash, a removed or reordered one breaks the order of ``seq``
or the next ``prev``, and a removed end differs from the head that the Runtime keeps apart.

Old rows move into files, ``logs/audit-<first>-<last>.jsonl``. The store then goes on from an anchor, the seq and hash
of the last row that moved; the files' own chain has to end there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lineup_hostshell.cli.failure import CommandFailure
from lineup_protocol.codec import canonical_json
from lineup_protocol.errors import LineUpError

NO_HASH = "0" * 64
_LINE_BYTES_MAX = 4 << 20  # more than any row has
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ARCHIVE = re.compile(r"audit-(\d{12})-(\d{12})\.jsonl", re.ASCII)


@dataclass(frozen=True)
class Break:
    """The first place where the chain does not hold. ``seq`` is that of the row, or the one expected there."""

    seq: int
    reason: str


class ChainCheck:
    """Takes rows in order, the first of them the one after the anchor ``seq`` and ``hash_``.

    ``broken`` is the first fault and stays. Rows after it are not looked at.
    """

    def __init__(self, seq: int = 0, hash_: str = NO_HASH) -> None:
        self.rows = 0
        self.seq = seq
        self.hash = hash_
        self.broken: Break | None = None

    def take(self, row: Mapping[str, Any]) -> None:
        if self.broken is not None:
            return
        expected = self.seq + 1
        reason = self._fault(row, expected)
        if reason is not None:
            self.broken = Break(expected, reason)
            return
        self.rows += 1
        self.seq = expected
        self.hash = row["hash"]

    def _fault(self, row: Mapping[str, Any], expected: int) -> str | None:
        if row.get("seq") != expected:
            return f"row {expected} is missing; row {row.get('seq')} stands in its place"
        if row.get("prev") != self.hash:
            return "it does not continue the row before it"
        body = {name: value for name, value in row.items() if name not in ("prev", "hash")}
        try:
            is_whole = row.get("hash") == row_hash(self.hash, body)
        except (ValueError, RecursionError, LineUpError):  # what no row of the audit can hold
            is_whole = False
        return None if is_whole else "its content does not match its hash"

    def end(self, head: object) -> None:
        """Compare with the head that the Runtime keeps: ``{seq, hash}`` or the hash alone."""
        if self.broken is not None:
            return
        seq, hash_ = (head.get("seq"), head.get("hash")) if isinstance(head, Mapping) else (self.seq, head)
        if (hash_ or NO_HASH) == self.hash and seq == self.seq:
            return
        if isinstance(seq, int) and seq > self.seq:
            self.broken = Break(self.seq + 1, f"the chain ends here but the head is row {seq}")
        else:
            self.broken = Break(self.seq, "the last row is not the head")


def check_archive(logs: Path, anchor: Mapping[str, Any]) -> ChainCheck | None:
    """Check the files in ``logs`` up to the anchor; None if there is none.

    Files at the beginning may have been taken elsewhere: the chain is then checked from the first one that is there.

    Raises:
        CommandFailure: one of them is no file, or cannot be read.
    """
    check: ChainCheck | None = None
    for row in _archived_rows(logs, int(anchor["seq"])):
        if isinstance(seq := row.get("seq"), int) and seq > int(anchor["seq"]):
            break  # the store lets go of a file's rows in parts: what follows is still there, and checked there
        if check is None:
            seq, prev = row.get("seq"), row.get("prev")
            whole = isinstance(seq, int) and isinstance(prev, str) and _HASH.fullmatch(prev)
            check = ChainCheck(seq - 1, prev) if whole and seq > 1 else ChainCheck()  # type: ignore[operator, arg-type]
        check.take(row)
        if check.broken is not None:
            return check
    if check is not None:
        check.end(anchor)
    return check


def _archived_rows(logs: Path, last_seq: int) -> Iterator[dict[str, Any]]:
    """Their rows in order; a file after the anchor was never confirmed and counts for nothing."""
    names = sorted(path.name for path in logs.iterdir()) if logs.is_dir() else []
    for name in names:
        found = _ARCHIVE.fullmatch(name)
        if found is None or int(found[1]) > last_seq:
            continue
        with _open(logs / name) as file:
            while line := file.readline(_LINE_BYTES_MAX):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):  # half of an overlong line is no JSON either
                    row = None
                yield row if isinstance(row, dict) else {}


def _open(path: Path) -> BinaryIO:
    """Raises CommandFailure for what is not a plain file: a FIFO would wait for a writer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise _unreadable(path, why) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unreadable(path, "it is not a file")
    return open(fd, "rb")


def _unreadable(path: Path, why: str | None) -> CommandFailure:
    return CommandFailure(
        f"{path} cannot be read ({why})", "put the file itself there, or move it elsewhere to check the other ones"
    )


def row_hash(prev: str, body: Mapping[str, Any]) -> str:
    return hashlib.sha256(bytes.fromhex(prev) + canonical_json(body)).hexdigest()
