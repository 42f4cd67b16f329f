"""The supervisor's own log: one JSON object a line in ``logs/runtime.log``, rotated by size.

This file owns the form: ``at`` (RFC 3339 UTC), ``level``, ``event``, then fields. JSON escapes whatever a worker could
put into a field, so that no line can be forged. Written by hand because structlog, with what it imports, costs a fifth of
the supervisor's memory budget and 0.3 s of every start. A log that cannot be written never stops the Runtime.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from lineup_protocol.times import to_rfc3339

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
ROTATE_BYTES = 8 << 20  # some weeks of a quiet Runtime
KEPT_FILES = 4  # runtime.log.1 is the newest of them
FIELD_LENGTH_MAX = 16_384  # characters of one field's text


class RuntimeLog:
    """Safe from every thread."""

    def __init__(self, path: Path, level: str = "info") -> None:
        self._path = path
        self._threshold = LEVELS[level]
        self._lock = threading.Lock()
        self._fd = -1
        self._size = 0

    def set_level(self, level: str) -> None:
        self._threshold = LEVELS[level]

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._threshold:
            return
        entry = {"at": to_rfc3339(time.time_ns() // 1_000_000), "level": level, "event": event}
        entry |= {name: _short(value) for name, value in fields.items()}
        line = json.dumps(entry, ensure_ascii=True, default=repr).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            if self._fd < 0 or self._size + len(line) > ROTATE_BYTES:
                self._open()
            self._size += os.write(self._fd, line)

    def _open(self) -> None:
        rotate = self._fd >= 0
        self._close()
        if rotate:
            for number in range(KEPT_FILES - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.rename(self._path, f"{self._path}.1")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > FIELD_LENGTH_MAX:
        return value[:FIELD_LENGTH_MAX] + "…"
    return value
