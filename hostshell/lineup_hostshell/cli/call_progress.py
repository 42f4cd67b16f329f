"""The progress of a watched call: a bar on a terminal, a line per change elsewhere; always on stderr."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from lineup_hostshell.cli.failure import CALL_EXITS
from lineup_hostshell.cli.hints import with_home
from lineup_hostshell.cli.output import console, note, safe_line

_WAITING_WORDS = {
    "received": "received",
    "routing": "on its way",
    "waiting_for_app": "waiting for the MiniApp",
    "running": "running",
    "submitted": "finishing",
}
_ANSWER_FORMS = {
    "notice": '{"acknowledged": true}',
    "choice": '{"action_ids": ["…"]}',
    "confirm": '{"approved": true}',
    "input": '{"values": {…}}',
}


class ProgressView:
    """Use as a context manager; ``show`` takes each record as it comes. ``quiet`` shows nothing off a terminal."""

    def __init__(self, call_id: str, *, quiet: bool) -> None:
        self._call_id = call_id
        self._on_terminal = sys.stderr.isatty()
        self._quiet = quiet and not self._on_terminal
        self._bar: Any = None
        self._task: Any = None
        self._last = ""

    def __enter__(self) -> ProgressView:
        if self._on_terminal:
            from rich.progress import (
                BarColumn,
                Progress,
                SpinnerColumn,
                TaskProgressColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                console=console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._call_id, total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, record: dict[str, Any]) -> None:
        share, words = progress_of(record)
        if self._bar is not None:
            total = None if share is None else 1.0
            self._bar.update(self._task, description=f"{self._call_id}  {words}", completed=share or 0.0, total=total)
        elif not self._quiet:
            line = words if share is None else f"{share:4.0%}  {words}"
            if line != self._last:
                self._last = line
                note(line)


def waits_for_a_person(record: dict[str, Any]) -> bool:
    """The call is a question to a person, and is open."""
    return bool(record.get("interaction_id")) and record.get("status") not in CALL_EXITS


def progress_of(record: dict[str, Any]) -> tuple[float | None, str]:
    """``(share or None, words)`` of a record; the MiniApp's own message comes before the state's words."""
    progress = record.get("progress")
    message = record.get("progress_message")
    if isinstance(progress, dict):
        message = progress.get("message") or message
        progress = progress.get("progress")
    share = float(progress) if isinstance(progress, int | float) and not isinstance(progress, bool) else None
    status = str(record.get("status", ""))
    if waits_for_a_person(record):
        form = _ANSWER_FORMS.get(str(record.get("tool_id")), "JSON")
        form = form if form == "JSON" else f"'{form}'"
        return share, with_home(safe_line(f"waiting for a person: `lineup answer {record['interaction_id']} {form}`"))
    return share, safe_line(message) if message else _WAITING_WORDS.get(status, status)
