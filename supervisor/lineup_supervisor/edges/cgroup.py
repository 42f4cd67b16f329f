"""A cgroup v2 scope per worker, where the operator's system delegates one to us (systemd: ``Delegate=yes``).

Owns: finding out whether a subtree is delegated, one child group per worker, and what its counters say at the end.
Must not know: processes beyond their pids. Without a delegated subtree all of this is absent and rlimits stand alone.

What it adds to rlimits: all memory counts (page cache, tmpfs, shared), processor share, a cap on threads and processes
that also holds for root, the name of an out-of-memory kill, and one write that ends a whole tree.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lineup_supervisor.edges.sandbox_policy import WorkerLimits

_CONTROLLERS = ("cpu", "memory", "pids")
_CPU_PERIOD_US = 100_000


class Cgroups:
    """The delegated subtree. We live in its ``supervisor`` leaf, workers in siblings (no processes in inner groups)."""

    def __init__(self, base: Path) -> None:
        self.base = base

    @classmethod
    def detect(cls) -> Cgroups | None:
        """Take over the subtree that we were started in, or None if it is not delegated to us."""
        base = _own_group()
        if base is None or not _is_delegated(base):
            return None
        try:
            return cls.take(base)
        except OSError:
            return None

    @classmethod
    def take(cls, base: Path) -> Cgroups | None:
        """Move ourselves into the leaf and hand the controllers down.

        Raises:
            OSError: the kernel refuses, for example because somebody else lives in the group too.
        """
        available = (base / "cgroup.controllers").read_text().split()
        if not {"memory", "pids"} <= set(available):
            return None
        leaf = base / "supervisor"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        wanted = " ".join(f"+{name}" for name in _CONTROLLERS if name in available)
        (base / "cgroup.subtree_control").write_text(wanted)
        return cls(base)

    def scope(self, name: str, limits: WorkerLimits) -> Scope | None:
        """A fresh group with these limits, or None if it cannot be made (then rlimits stand alone)."""
        path = self.base / f"worker-{name}"
        try:
            path.mkdir()
            scope = Scope(path)
            scope.limit(limits)
        except OSError:
            with contextlib.suppress(OSError):
                path.rmdir()
            return None
        return scope


class Scope:
    """One worker's group. ``caps_cpu``: the kernel keeps it to its processor share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.caps_cpu = False

    def limit(self, limits: WorkerLimits) -> None:
        self._write("memory.max", str(limits.memory_bytes + limits.tmp_bytes))
        self._write("pids.max", str(limits.threads + limits.processes))
        for name, value in (
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("cpu.max", f"{int(limits.cpu_share * _CPU_PERIOD_US)} {_CPU_PERIOD_US}"),
        ):
            with contextlib.suppress(OSError):  # absent without swap or without the cpu controller
                self._write(name, value)
                self.caps_cpu |= name == "cpu.max"

    def add(self, pid: int) -> None:
        """Move a process in; what it starts from then on is in as well."""
        with contextlib.suppress(OSError):
            self._write("cgroup.procs", str(pid))

    def exceeded(self) -> str | None:
        """The name of the limit that ended or hindered its processes, from the kernel's own counters."""
        if self._counter("memory.events", "oom_kill"):
            return "memory_bytes"
        if self._counter("pids.events", "max"):
            return "processes and threads"
        return None

    def close(self) -> None:
        """End whatever is left inside and remove the group."""
        with contextlib.suppress(OSError):
            self._write("cgroup.kill", "1")
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _write(self, name: str, value: str) -> None:
        # No O_CREAT: in a real cgroup file system an unknown name must fail.
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def _counter(self, file: str, name: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / file).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == name:
                    return int(value)
        return 0


def _own_group() -> Path | None:
    """The directory of our group in the unified hierarchy; never the root of it."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in groups if line.startswith("0::")), "/")
    for line in mounts:
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 ") and path != "/":
            return Path(left.split()[4]) / path.lstrip("/")
    return None


def _is_delegated(base: Path) -> bool:
    """For a person, being allowed to write is being delegated; for root the service manager's own mark decides."""
    if not os.access(base / "cgroup.procs", os.W_OK) or not os.access(base / "cgroup.subtree_control", os.W_OK):
        return False
    if os.geteuid() != 0:
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(base, name) == b"1":
                return True
    return False
