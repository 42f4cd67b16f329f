"""Named points at which a test can have the daemon killed: ``LINEUP_CRASH_AT=name:N`` ends it at the N-th passing.

Without the variable a point costs one comparison. The names are listed here, so that the crash matrix covers a new one
when it is added.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "LINEUP_CRASH_AT"

CRASH_POINTS = (
    "boot-before-store",
    "boot-after-store",
    "boot-before-ready",
    "boot-after-ready",
    "before-commit",
    "after-commit",
    "before-send-worker",
    "after-send-worker",
    "before-send-agent",
    "after-send-agent",
    "before-reply-host",
    "after-reply-host",
    "before-start-worker",
    "after-start-worker",
    "before-stop-worker",
    "after-stop-worker",
    "before-save-blob",
    "after-save-blob",
    "stop-before-workers",
    "stop-after-workers",
)

_armed = ""
_passings_left = 0


def arm(setting: str | None = None) -> None:
    """Read ``name`` or ``name:N``, from the environment by default. Raises ValueError for an unknown name."""
    global _armed, _passings_left
    text = os.environ.get(VARIABLE, "") if setting is None else setting
    name, _, count = text.partition(":")
    if name and name not in CRASH_POINTS:
        raise ValueError(f"{VARIABLE}={text}: there is no point of this name")
    _armed, _passings_left = name, int(count or 1)


def crash_point(name: str) -> None:
    """Die here, as if the power had gone, if this passing was asked for."""
    if name != _armed:
        return
    global _passings_left
    _passings_left -= 1
    if _passings_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()  # another thread may run on for an instant; this one must not
