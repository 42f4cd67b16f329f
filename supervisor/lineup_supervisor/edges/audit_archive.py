"""The audit's archive: files of rows that the store lets go of, ``logs/audit-<first>-<last>.jsonl``.

This file owns the files' names and form: one row a line, every field, so that the hash chain runs from the first file
over all of them into the store. A file is complete and on the disk, or it is not there under its name. It must not know
when rows are archived.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import canonical_json
from lineup_supervisor.core.audit import public
from lineup_supervisor.core.rows import AuditRow
from lineup_supervisor.core.schema import AUDIT
from lineup_supervisor.core.txn import Txn
from lineup_supervisor.edges.store_file import fsync_directory

ROWS_AT_ONCE = 250  # no page that the store lets go of can be used again while one of our snapshots is open
LAST_LINE_BYTES_MAX = 4 << 20  # more than any row has
_NAME = re.compile(r"audit-(\d{12})-(\d{12})\.jsonl", re.ASCII)


class AuditArchive:
    """The files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, read: Callable[[], AbstractContextManager[Txn]], after_seq: int, up_to_seq: int) -> str:
        """Write the rows after ``after_seq`` up to ``up_to_seq``; the hash of the last one. Again is no harm.

        ``read()`` is a snapshot of the store. Several short ones are taken: the rows stay until they are archived.

        Raises:
            OSError: nothing stays under the file's name but what was there before.
            LineUpError: ``conflict`` if a file that begins with the same row has rows of another chain than the store.
        """
        assert 0 <= after_seq < up_to_seq
        path = self._folder / f"audit-{after_seq + 1:012d}-{up_to_seq:012d}.jsonl"
        rivals = self._rivals(path, read)
        unfinished = self._folder / f".audit-{secrets.token_hex(8)}"
        expected, last_hash = after_seq + 1, ""
        try:
            with open(unfinished, "xb", opener=_private) as file:
                for row in _rows(read, after_seq, up_to_seq):
                    assert row.seq == expected, f"row {expected} of the audit is missing"
                    file.write(canonical_json(public(row)) + b"\n")
                    expected, last_hash = expected + 1, row.hash
                assert expected == up_to_seq + 1, f"the audit ends before row {up_to_seq}"
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        for rival in rivals:
            if rival != path:
                rival.unlink(missing_ok=True)
        fsync_directory(self._folder)
        return last_hash

    def clear(self) -> None:
        """At start: what a crash left half written."""
        for left in self._folder.glob(".audit-*"):
            with contextlib.suppress(OSError):
                left.unlink()

    def _rivals(self, path: Path, read: Callable[[], AbstractContextManager[Txn]]) -> list[Path]:
        """The files that begin with the same row. They give way: none was ever confirmed, or it would not be asked for.

        Raises LineUpError ``conflict`` for one whose rows the store has not got: another store has let go of them.
        """
        first = path.name.split("-")[1]
        rivals = [other for other in self._folder.glob(f"audit-{first}-*.jsonl") if _NAME.fullmatch(other.name)]
        for rival in rivals:
            if not _holds_rows_of(rival, read):
                raise LineUpError(
                    "conflict",
                    f"{rival} does not have the rows that the store has; it was left as it is, and nothing is archived "
                    "until you move it elsewhere",
                )
        return rivals


def _holds_rows_of(path: Path, read: Callable[[], AbstractContextManager[Txn]]) -> bool:
    """Whether the store has the file's last row, the one that its name says: by its hash, those before it too."""
    found = _NAME.fullmatch(path.name)
    assert found is not None
    with read() as txn:
        row = txn.get(AUDIT, (int(found[2]),))
    return row is not None and _last_line(path, LAST_LINE_BYTES_MAX) == canonical_json(public(row))


def _last_line(path: Path, bytes_max: int) -> bytes | None:
    """Without its end; None for what is no file of whole lines, or has a longer one. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        return None
    with open(fd, "rb") as file:
        file.seek(max(0, status.st_size - bytes_max))
        lines = file.read(bytes_max).split(b"\n")
    return lines[-2] if len(lines) >= 2 and not lines[-1] else None


def _rows(read: Callable[[], AbstractContextManager[Txn]], after_seq: int, up_to_seq: int) -> Iterator[AuditRow]:
    while after_seq < up_to_seq:
        with read() as txn:
            scan = txn.scan(AUDIT, after=(after_seq,))
            rows = [row for _, row in itertools.islice(scan, min(ROWS_AT_ONCE, up_to_seq - after_seq))]
        if not rows:
            return
        yield from rows
        after_seq = rows[-1].seq


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
