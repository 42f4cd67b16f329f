"""Reads a home from outside: where its files are, and which Runtime, if any, is alive in it.

This file owns the reading of ``run/runtime.json`` and of the store's lock, and the question "is that very process still
there". It must not write into a home; only the Runtime does that.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineup_hostshell.cli.failure import CommandFailure, no_runtime

_RUNTIME_JSON_BYTES_MAX = 65_536  # the real one has a few hundred bytes; more is not ours
_PID_BYTES_MAX = 32
_CLOCK_SLACK_S = 2.0  # file times and process start times come from different clocks


@dataclass(frozen=True)
class RuntimeInfo:
    """``run/runtime.json`` of a Runtime whose process is alive."""

    pid: int
    boot_id: str
    workspace_url: str | None
    agent_url: str | None
    version: str
    isolation: str
    raw: dict[str, Any]


def run_dir(home: Path) -> Path:
    return home / "run"


def runtime_json(home: Path) -> Path:
    return run_dir(home) / "runtime.json"


def find_runtime(home: Path) -> RuntimeInfo | None:
    """The Runtime that is alive in this home, or None (nothing there, or what a dead one left behind)."""
    path = runtime_json(home)
    try:
        text = path.read_bytes()[:_RUNTIME_JSON_BYTES_MAX]
        written_at_s = path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise CommandFailure(
            f"{path} cannot be read: {error.strerror}", "choose another home with --home DIR"
        ) from error
    try:
        raw = json.loads(text)
        info = _info(raw)
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailure(
            f"{path} is damaged ({error})", "stop that Runtime by its pid and start it again"
        ) from error
    return info if is_supervisor(info.pid, written_at_s) else None


def find_daemon(home: Path) -> int | None:
    """The pid of the Runtime that has this home, one that is only starting or is stopping included: it has no
    ``runtime.json``, but the store's lock, which names it."""
    try:
        descriptor = os.open(home / "data" / "lineup.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as lock:
        pid, written_at_s = lock.read(_PID_BYTES_MAX).strip(), os.fstat(lock.fileno()).st_mtime
        if not pid.isdigit() or not is_supervisor(int(pid), written_at_s, job="run"):
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # only to see whether somebody has it; given back at once
        except BlockingIOError:
            return int(pid)
        return None


def _info(raw: dict[str, Any]) -> RuntimeInfo:
    pid = raw["pid"]
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1:
        raise ValueError(f"pid {pid!r} is not a process id")
    return RuntimeInfo(
        pid=pid,
        boot_id=str(raw["boot_id"]),
        workspace_url=raw.get("workspace_url"),
        agent_url=raw.get("agent_url"),
        version=str(raw.get("version", "")),
        isolation=str(raw.get("isolation", "")),
        raw=raw,
    )


def require_runtime(home: Path) -> RuntimeInfo:
    """Raises the "no Runtime" failure (exit 7) if there is none."""
    info = find_runtime(home)
    if info is None:
        raise no_runtime(home)
    return info


def has_desktop() -> bool:
    """True if a person sits at this terminal and a browser could show up."""
    return sys.stdout.isatty() and (
        sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    )


def is_supervisor(pid: int, written_at_s: float, *, job: str = "") -> bool:
    """True if ``pid`` is a supervisor that already lived when the file that names it was written; else the pid was
    reused. ``job``: only if that is what it does."""
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE or process.create_time() > written_at_s + _CLOCK_SLACK_S:
                return False
            words = process.cmdline()
            return any("lineup_supervisor" in word for word in words) and (not job or job in words)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return False


class ProcessHandle:
    """One process, held so that its pid cannot be reused under us. Use as a context manager."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd: int | None = None
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = None

    def __enter__(self) -> ProcessHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def wait_gone(self, timeout_s: float) -> bool:
        """True if the process has ended within ``timeout_s``."""
        if self._fd is None:
            return True
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(max(0, int(timeout_s * 1000))))

    def send(self, signum: signal.Signals) -> None:
        """Signal exactly this process; one that is gone swallows it."""
        if self._fd is None:
            return
        try:
            signal.pidfd_send_signal(self._fd, signum)
        except ProcessLookupError:
            pass
