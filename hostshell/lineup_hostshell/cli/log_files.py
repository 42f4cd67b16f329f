"""Reads the structured logs of a home: JSON lines in ``logs/*.log`` and, of MiniApps, in ``logs/apps/*.log``, in the
order of time, across rotation.

Owns finding, merging and following the files; works without a daemon. A line that is no JSON is passed on as text:
what a crash leaves behind must stay readable.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_POLL_S = 0.2
_LINE_BYTES_MAX = 262_144  # a longer line is cut, so that one bad writer cannot fill the reader's memory
_SUFFIX = ".log"
_RUNTIME_STEMS = frozenset({"runtime", "supervisor"})
_APPS = "apps"  # the folder of the MiniApps' own output; an older Runtime wrote it beside its own


@dataclass(frozen=True)
class LogLine:
    """One entry: the file that it stands in, and its fields (``{"text": …}`` for a line that is no JSON). ``of_app``:
    a MiniApp has written it, and whatever it says, nobody else has.
    """

    source: str
    fields: dict[str, Any]
    of_app: bool = False

    @property
    def at(self) -> str:
        return str(self.fields.get("at") or "")

    @property
    def stem(self) -> str:
        return self.source.partition(_SUFFIX)[0]


def log_files(home: Path) -> list[Path]:
    """Every log file, rotated ones (``name.log.1``) before the one being written."""
    found: list[Path] = []
    for directory in (home / "logs", home / "logs" / _APPS):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found += [path for path in directory.iterdir() if path.is_file() and not path.is_symlink() and _stem(path)]
    return sorted(found, key=lambda path: (path.parent, _stem(path) or "", -_rotation(path)))


def _of_app(path: Path) -> bool:
    """By the file's place alone; an older Runtime's by its name."""
    return path.parent.name == _APPS or _stem(path) not in _RUNTIME_STEMS


def _stem(path: Path) -> str | None:
    """``supervisor`` for ``supervisor.log`` and ``supervisor.log.2``; None for other files."""
    name, found, rest = path.name.partition(_SUFFIX)
    return name if found and (rest == "" or rest.removeprefix(".").isdigit()) else None


def _rotation(path: Path) -> int:
    digits = path.name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0


def read_last(home: Path, count: int, *, app_scope: str | None = None) -> list[LogLine]:
    """The last ``count`` entries of all files together, the oldest first."""
    streams = []
    by_log: dict[Path, list[Path]] = {}
    for path in log_files(home):
        by_log.setdefault(path.with_name(_stem(path) or ""), []).append(path)
    for paths in by_log.values():
        kept: deque[LogLine] = deque(maxlen=count)
        for path in paths:
            kept.extend(line for line in _read(path) if belongs_to(line, app_scope))
        streams.append(kept)
    merged = heapq.merge(*streams, key=lambda line: line.at)
    return list(deque(merged, maxlen=count))


def belongs_to(line: LogLine, app_scope: str | None) -> bool:
    """A MiniApp's own output stands in a file of its name; the Runtime's lines about it name it."""
    return app_scope is None or app_scope == (line.stem if line.of_app else line.fields.get("app_scope"))


def known_scopes(home: Path) -> set[str]:
    """The MiniApps that the logs know: each has a file of its own once it printed something, or is named in a line."""
    found: set[str] = set()
    for path in log_files(home):
        if _of_app(path):
            found.add(_stem(path) or "")
        else:
            found |= {str(line.fields["app_scope"]) for line in _read(path) if line.fields.get("app_scope")}
    return found


def _read(path: Path) -> Iterator[LogLine]:
    try:
        with path.open("rb") as stream:
            while data := stream.readline(_LINE_BYTES_MAX):
                yield parse(data, path.name, of_app=_of_app(path))
    except FileNotFoundError:  # rotated away between the listing and now
        return


def parse(data: bytes, source: str, *, of_app: bool = False) -> LogLine:
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    return LogLine(source, fields if isinstance(fields, dict) else {"text": text}, of_app)


class Follower:
    """Gives what is appended to any log file from now on, over rotation and new files."""

    def __init__(self, home: Path, *, app_scope: str | None = None) -> None:
        self._home = home
        self._app_scope = app_scope
        self._open: dict[tuple[int, int], tuple[Path, BinaryIO, bytearray]] = {}
        for path in log_files(home):
            self._take_up(path, at_end=True)

    def lines(self, *, poll_s: float = _POLL_S) -> Iterator[LogLine]:
        """For ever; the caller stops it."""
        while True:
            found = self.new_lines()
            yield from found
            if not found:
                time.sleep(poll_s)

    def new_lines(self) -> list[LogLine]:
        """What has come since the last look, in the order of time."""
        for path in log_files(self._home):
            self._take_up(path, at_end=False)
        lines = [line for key in list(self._open) for line in self._drain(key)]
        return sorted((line for line in lines if belongs_to(line, self._app_scope)), key=lambda line: line.at)

    def close(self) -> None:
        for _, stream, _ in self._open.values():
            stream.close()
        self._open.clear()

    def _take_up(self, path: Path, *, at_end: bool) -> None:
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            return
        status = os.fstat(stream.fileno())
        key = (status.st_dev, status.st_ino)
        if key in self._open:
            stream.close()
            return
        if at_end:
            stream.seek(0, os.SEEK_END)
        self._open[key] = (path, stream, bytearray())

    def _drain(self, key: tuple[int, int]) -> Iterator[LogLine]:
        """Whole lines only; a file that was cut is read from its start, a deleted one is let go once it is read."""
        path, stream, rest = self._open[key]
        status = os.fstat(stream.fileno())
        if status.st_size < stream.tell():
            stream.seek(0)
            rest.clear()
        while data := stream.readline(_LINE_BYTES_MAX):
            rest += data
            if data.endswith(b"\n") or len(rest) >= _LINE_BYTES_MAX:
                yield parse(bytes(rest), path.name, of_app=_of_app(path))
                rest.clear()
        if status.st_nlink == 0:
            stream.close()
            del self._open[key]
