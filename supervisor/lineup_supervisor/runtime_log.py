"""The supervisor's own log: ``logs/runtime.log``, one JSON object a line, safe from every thread.

This file owns the form: ``at`` (RFC 3339 UTC), ``level``, ``event``, then fields, made harmless like a worker's output.
Not structlog: with what it imports it costs a fifth of the supervisor's memory budget and 0.3 s of every start. A log
that cannot be written never stops the Runtime.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from lineup_protocol.times import to_rfc3339
from lineup_supervisor.edges.logs import RotatingLog, escape

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FIELD_LENGTH_MAX = 16_384  # characters of one field's text


class RuntimeLog:
    def __init__(self, path: Path, level: str = "info") -> None:
        self._file = RotatingLog(path)
        self._threshold = LEVELS[level]
        self._lock = threading.Lock()

    def fault(self) -> str | None:
        """One sentence if nothing can be written there, for the start to say: later there is nobody to hear it."""
        with self._lock:
            error = self._file.try_open()
        return None if error is None else f"{self._file.path} cannot be written ({error.strerror}); nothing is logged"

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
            self._file.close()

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._threshold:
            return
        safe = {name: _safe(value) for name, value in fields.items()}
        head = {"at": to_rfc3339(time.time_ns() // 1_000_000), "level": level, "event": event}
        with self._lock:
            self._file.write(**{**head, **safe, **head})


def _safe(value: Any) -> Any:
    """Plain numbers and flags as they are; everything else as one line of harmless text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str):
        value = json.dumps(value, default=repr)
    shown = escape(value.encode(errors="backslashreplace"))
    return shown if len(shown) <= FIELD_LENGTH_MAX else shown[:FIELD_LENGTH_MAX] + "…"
