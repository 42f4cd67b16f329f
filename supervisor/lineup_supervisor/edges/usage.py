"""What a worker's whole tree of processes uses, looked at from outside, where no cgroup bounds it for us.

Owns: counting processes, threads, memory and processor time of one tree, and slowing a tree down that takes more than
its share. Must not know: why a process exists, or what its end means. RLIMITs count per process and not at all for
root's own processes; this counts what they let through.

A tree over its processes, threads or memory is ended by its owner (``on_over``). One over its processor share is not
ended but stopped and continued by signals in turn, as a cgroup's ``cpu.max`` would do; ``on_slowed`` tells once per
spell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lineup_supervisor.edges.sandbox_policy import MIB, WorkerLimits

LOOK_S = 0.5
LOOK_AT_CHILDREN_S = 0.2  # a fork bomb makes some hundred processes in this time
LOOK_SOON_S = 0.1  # at the earliest; a look costs some 20 microseconds
CPU_BURST_S = 1.0  # processor seconds over the share before a tree is slowed down: loading an app takes less
STOP_S_MAX = 0.5  # at a time; far below a heartbeat
RUN_S = 0.02  # between two stops of a tree that has much to repay
SPELL_S = 10.0  # without being slowed down ends a spell
CHILD_BASE_BYTES = 32 * MIB  # a forked interpreter shares this much with its parent and still counts it
_PROCESSORS = os.cpu_count() or 1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """One look at a tree. ``cpu_s`` counts since each process began, those that have ended and were waited for too.

    ``memory_bytes`` is 0 of a tree that may have no children: nothing is bounded by it.
    """

    pids: tuple[int, ...]
    threads: int
    memory_bytes: int
    cpu_s: float


class Watch:
    """Watches one tree until ``close``. Use from the loop's thread only.

    ``on_over(limit, detail)`` at most once; ``on_slowed(detail)`` once per spell. ``caps_cpu`` off: a cgroup does it.
    """

    def __init__(
        self,
        pid: int,
        limits: WorkerLimits,
        *,
        on_over: Callable[[str, str], None],
        on_slowed: Callable[[str], None],
        caps_cpu: bool = True,
    ) -> None:
        self._pid = pid
        self._limits = limits
        self._on_over = on_over
        self._on_slowed = on_slowed
        self._caps_cpu = caps_cpu
        self._loop = asyncio.get_running_loop()
        self._every_s = LOOK_AT_CHILDREN_S if limits.processes else LOOK_S
        self._debt_s = 0.0  # processor time over the share
        self._cpu_s = 0.0
        self._looked_at = self._loop.time()
        self._slowed_at = -SPELL_S
        self._stopped: list[int] = []  # pidfds of who must be continued
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._wait_s(), self._look)

    def close(self) -> None:
        """No more looks, and nobody stays stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._go_on()

    def _wait_s(self) -> float:
        """Until the next look: before a tree on every processor that it can get could run far past its burst."""
        if not self._caps_cpu:
            return self._every_s
        at_most = min(_PROCESSORS, self._limits.threads + self._limits.processes) - self._limits.cpu_share
        if at_most <= 0:
            return self._every_s
        return min(self._every_s, max(LOOK_SOON_S, (CPU_BURST_S - self._debt_s) / at_most))

    def _look(self) -> None:
        usage = measure(self._pid, children_max=self._limits.processes)
        if usage is None:
            self._timer = None  # it is over; its exit says so
            return
        over = exceeded(usage, self._limits)
        if over is not None:
            self._timer = None
            self._on_over(*over)
            return
        pause_s = self._owed_pause_s(usage) if self._caps_cpu else 0.0
        if pause_s > 0:
            self._slow_down(usage, pause_s)
        else:
            self._timer = self._loop.call_later(self._wait_s(), self._look)

    def _owed_pause_s(self, usage: Usage) -> float:
        now = self._loop.time()
        used_s = max(0.0, usage.cpu_s - self._cpu_s)  # it falls when a process ends that nobody waits for
        share = self._limits.cpu_share
        self._debt_s = max(0.0, self._debt_s + used_s - share * (now - self._looked_at))
        self._cpu_s, self._looked_at = usage.cpu_s, now
        return min(STOP_S_MAX, (self._debt_s - CPU_BURST_S) / share) if self._debt_s > CPU_BURST_S else 0.0

    def _slow_down(self, usage: Usage, pause_s: float) -> None:
        now = self._loop.time()
        if now - self._slowed_at >= SPELL_S:
            self._on_slowed(f"it takes more than its share of {self._limits.cpu_share:g} processors and is slowed down")
        self._slowed_at = now
        self._stopped = _pidfds(usage.pids)
        _signal_all(self._stopped, signal.SIGSTOP)
        self._timer = self._loop.call_later(pause_s, self._pause_over)

    def _pause_over(self) -> None:
        self._go_on()
        is_in_debt = self._debt_s > CPU_BURST_S + self._limits.cpu_share * STOP_S_MAX
        self._timer = self._loop.call_later(RUN_S if is_in_debt else self._wait_s(), self._look)

    def _go_on(self) -> None:
        _signal_all(self._stopped, signal.SIGCONT)
        for pidfd in self._stopped:
            os.close(pidfd)
        self._stopped = []


def exceeded(usage: Usage, limits: WorkerLimits) -> tuple[str, str] | None:
    """``(limit, sentence)`` of the first limit that the tree is over, or None."""
    children = len(usage.pids) - 1
    if children > limits.processes:
        return "processes", f"{children} child processes, {limits.processes} are allowed"
    threads = usage.threads - children  # each child has one that the manifest has paid for
    if threads > limits.threads:
        return "threads", f"{threads} threads, {limits.threads} are allowed"
    most = limits.memory_bytes + children * CHILD_BASE_BYTES
    if children and usage.memory_bytes > most:
        return "memory_bytes", f"{usage.memory_bytes // MIB} MiB in all its processes, {most // MIB} are allowed"
    return None


def measure(pid: int, *, children_max: int) -> Usage | None:
    """What the tree below ``pid`` uses now; None if there is no such process.

    The walk ends at one child more than ``children_max``: of a fork bomb it is enough to know that it is one.
    """
    pids: list[int] = []
    threads, memory, cpu = 0, 0, 0.0
    left = [pid]
    while left and len(pids) <= children_max + 1:
        member = left.pop()
        try:
            fields = _read(f"/proc/{member}/stat").rpartition(b")")[2].split()
            if children_max:  # alone, it is bounded by its own RLIMIT_DATA
                pages = _read(f"/proc/{member}/statm").split()
                memory += (int(pages[1]) - int(pages[2])) * _PAGE_BYTES
                left += _children(member)
        except OSError:
            continue
        pids.append(member)
        threads += int(fields[17])
        cpu += sum(map(int, fields[11:15])) / _TICKS_PER_S
    return Usage(tuple(pids), threads, memory, cpu) if pid in pids else None


def _read(path: str) -> bytes:
    """A whole small file of /proc; without the layers above the system calls, which cost more than the calls."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4_096)
    finally:
        os.close(descriptor)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    return found


def _pidfds(pids: tuple[int, ...]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found.append(os.pidfd_open(pid))
    return found


def _signal_all(pidfds: list[int], number: int) -> None:
    for pidfd in pidfds:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, number)
