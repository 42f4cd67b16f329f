"""Which processes belong to a home, found from outside: by command line, environment or the mounts of a sandbox.

A worker in a sandbox has neither the home's path in its arguments nor in its environment, and what it forks may have
another parent; but its bundle and its socket are mounted from the home, and that no process can wipe off itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ZOMBIE = "Z"


@dataclass(frozen=True)
class Member:
    """One process; ``started`` (clock ticks since boot) tells it from a later one with the same pid."""

    pid: int
    started: int
    command: str

    def is_alive(self) -> bool:
        found = _stat(self.pid)
        return found is not None and found[1] == self.started and found[0] != ZOMBIE


def members(home: Path) -> list[Member]:
    """Every living process of this home, but for ourselves."""
    token = home.name.encode()
    mounts = not _is_mounted(os.getpid(), token)  # a test may have mounted the home itself, for everybody
    found = []
    for pid in psutil.pids():
        if pid == os.getpid() or not (_is_named(pid, token) or (mounts and _is_mounted(pid, token))):
            continue
        member = member_of(pid)
        if member is not None:
            found.append(member)
    return found


def member_of(pid: int) -> Member | None:
    found = _stat(pid)
    if found is None or found[0] == ZOMBIE:
        return None
    return Member(pid, found[1], _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")[:200])


def descendants(pid: int) -> list[Member]:
    """A process's children and theirs, as they are now."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [member for child in children if (member := member_of(child.pid)) is not None]


def alive(family: Iterable[Member]) -> list[Member]:
    return [member for member in family if member.is_alive()]


def zombies_of(pid: int) -> list[int]:
    """Children of a process that have ended and were not waited for."""
    return [child for child in _children(pid) if (_stat(child) or ("", 0))[0] == ZOMBIE]


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, _read(str(task / "children")).split())


def _is_named(pid: int, token: bytes) -> bool:
    return token in _read(f"/proc/{pid}/cmdline") or token in _read(f"/proc/{pid}/environ")


def _is_mounted(pid: int, token: bytes) -> bool:
    for line in _read(f"/proc/{pid}/mountinfo").splitlines():
        fields = line.split(b" ")
        if len(fields) > 3 and token in fields[3]:  # the mounted folder, as a path within its file system
            return True
    return False


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time of a process; None if there is none."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[19])) if len(fields) > 19 else None
