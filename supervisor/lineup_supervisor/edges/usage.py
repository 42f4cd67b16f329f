"""What a worker's whole tree of processes uses, looked at from outside, where no cgroup bounds it for us.

Owns: counting processes, threads, memory and processor time of one tree, and slowing a tree down that takes more than
its share. Must not know: why a process exists, or what its end means. RLIMITs count per process and not at all for
root's own processes; this counts what they let through.

A tree over its processes, threads or memory is ended by its owner (``on_over``). One over its processor share is not
ended but stopped and continued by signals in turn, as a cgroup's ``cpu.max`` would do; ``on_slowed`` tells once per
spell.

Looks and signals are one thread's, never the loop's: a tree of hundreds costs tens of milliseconds each time. All such
trees together get ``LOOKS_SHARE`` of a processor, so each is looked at the less often, the more it costs; between two
looks one in debt is stopped and continued on. No descriptor is kept of a process that is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineup_supervisor.edges.sandbox_policy import MIB, WorkerLimits
from lineup_supervisor.edges.upkeep import FAULT_PAUSE_S, Recurring, told

LOOK_S = 0.5
LOOK_AT_CHILDREN_S = 0.2  # a fork bomb makes some hundred processes in this time
LOOK_SOON_S = 0.1  # at the earliest; a look costs some 20 microseconds
LOOKS_SHARE = 0.1  # of a processor, for looking at all that cost more than this each time
DEAR_LOOK_S = 0.000_2
CONTINUE_AGAIN_S = 0.05  # until who could not be continued, for want of a descriptor, is tried again
CPU_BURST_S = 1.0  # processor seconds over the share before a tree is slowed down: loading an app takes less
STOP_S_MAX = 0.5  # at a time; far below a heartbeat
RUN_S = 0.02  # between two stops of a tree that has much to repay
SPELL_S = 10.0  # without being slowed down ends a spell
CHILD_BASE_BYTES = 32 * MIB  # a forked interpreter shares this much with its parent and still counts it
_PROCESSORS = os.cpu_count() or 1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BEGAN = 19  # in /proc/PID/stat, counted from behind the name
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of something ourselves: that says nothing of who is looked at


@dataclass(frozen=True)
class Usage:
    """One look at a tree. ``cpu_s`` counts since each process began, those that have ended and were waited for too.

    ``memory_bytes`` is 0 of a tree that may have no children: nothing is bounded by it.
    """

    pids: tuple[int, ...]
    threads: int
    memory_bytes: int
    cpu_s: float
    began: tuple[int, ...] = ()  # when each has, in the kernel's words: with its pid it names one process for ever


Members = tuple[tuple[int, int], ...]  # (pid, when it began)
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="looks")
_dear: set[Watch] = set()  # those whose looks share ``LOOKS_SHARE``


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
        self._members: Members = ()  # as of the last look
        self._stopped: Members = ()  # who must be continued
        self._look_not_before = 0.0
        self._is_closed = False
        self._timer = Recurring("watching what a worker uses", self._turn)
        self._timer.start(self._wait_s())

    def close(self) -> None:
        """No more looks, and nobody stays stopped."""
        self._is_closed = True
        self._timer.cancel()
        self._go_on()
        _dear.discard(self)

    def _wait_s(self) -> float:
        """Until the next look: before a tree on every processor that it can get could run far past its burst."""
        if not self._caps_cpu:
            return self._every_s
        at_most = min(_PROCESSORS, self._limits.threads + self._limits.processes) - self._limits.cpu_share
        if at_most <= 0:
            return self._every_s
        return min(self._every_s, max(LOOK_SOON_S, (CPU_BURST_S - self._debt_s) / at_most))

    def _turn(self) -> float | None:
        """Continue, stop again, or look; what follows from a look comes with ``_looked``."""
        now = self._loop.time()
        if self._stopped:
            self._go_on()
            return RUN_S if self._owed_s(now) > 0 else self._wait_s()
        if now < self._look_not_before:
            owed_s = self._owed_s(now)
            return self._slow_down(owed_s) if owed_s > 0 and self._members else self._look_not_before - now
        _in_thread(self._loop, _timed_look, self._pid, self._limits.processes, then=self._looked)
        return None

    def _looked(self, found: tuple[Usage | None, float] | Exception) -> None:
        if self._is_closed:
            return
        again_s: float | None = FAULT_PAUSE_S
        with told("watching what a worker uses"):
            if isinstance(found, OSError):  # nobody could look, for want of descriptors or memory: another time
                again_s = self._wait_s()
            elif isinstance(found, Exception):
                raise found
            else:
                again_s = self._judge(*found)
        if again_s is not None and not self._is_closed:
            self._timer.start(again_s)

    def _judge(self, usage: Usage | None, cost_s: float) -> float | None:
        """In how many seconds its next turn is; None if there is none."""
        if usage is None:
            return None  # it is over; its exit says so
        over = exceeded(usage, self._limits)
        if over is not None:
            self._on_over(*over)
            return None
        self._members = tuple(zip(usage.pids, usage.began, strict=False))
        self._pace(cost_s)
        if not self._caps_cpu:
            return self._wait_s()
        now = self._loop.time()
        used_s = max(0.0, usage.cpu_s - self._cpu_s)  # it falls when a process ends that nobody waits for
        self._debt_s = max(0.0, self._debt_s + used_s - self._limits.cpu_share * (now - self._looked_at))
        self._cpu_s, self._looked_at = usage.cpu_s, now
        owed_s = self._owed_s(now)
        return self._slow_down(owed_s) if owed_s > 0 else self._wait_s()

    def _pace(self, cost_s: float) -> None:
        if cost_s <= DEAR_LOOK_S:
            _dear.discard(self)
            return
        _dear.add(self)
        self._look_not_before = self._loop.time() + cost_s * len(_dear) / LOOKS_SHARE

    def _owed_s(self, now: float) -> float:
        """Processor time over its burst, by what was seen last and what it has been entitled to since."""
        if not self._caps_cpu:
            return 0.0
        return self._debt_s - self._limits.cpu_share * (now - self._looked_at) - CPU_BURST_S

    def _slow_down(self, owed_s: float) -> float:
        """For so many seconds."""
        now = self._loop.time()
        is_told = now - self._slowed_at < SPELL_S
        self._slowed_at = now
        if not is_told:
            self._on_slowed(f"it takes more than its share of {self._limits.cpu_share:g} processors and is slowed down")
        self._stopped = self._members
        _thread.submit(_signal_all, self._stopped, signal.SIGSTOP)
        return min(STOP_S_MAX, owed_s / self._limits.cpu_share)

    def _go_on(self) -> None:
        stopped, self._stopped = self._stopped, ()
        if stopped:
            _continue(self._loop, stopped)


def _in_thread(
    loop: asyncio.AbstractEventLoop, work: Callable[..., Any], *arguments: Any, then: Callable[[Any], None]
) -> None:
    """One after the other. ``then`` is called in the loop with what ``work`` gives, or raises."""

    def turn() -> None:
        try:
            given = work(*arguments)
        except Exception as error:
            given = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear of it
            loop.call_soon_threadsafe(then, given)

    _thread.submit(turn)


def _continue(loop: asyncio.AbstractEventLoop, members: Members) -> None:
    """Continue them all, however often that takes; after whatever stopped them."""

    def done(left: Members) -> None:
        if left:
            loop.call_later(CONTINUE_AGAIN_S, _continue, loop, left)

    _in_thread(loop, _signal_all, members, signal.SIGCONT, then=done)


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


def _timed_look(pid: int, children_max: int) -> tuple[Usage | None, float]:
    """And what it has cost, in processor seconds. Raises OSError as ``measure`` does."""
    began = time.thread_time()
    return measure(pid, children_max=children_max), time.thread_time() - began


def measure(pid: int, *, children_max: int) -> Usage | None:
    """What the tree below ``pid`` uses now; None if there is no such process.

    The walk ends at one child more than ``children_max``: of a fork bomb it is enough to know that it is one.

    Raises:
        OSError: nobody can look just now, for want of descriptors or memory.
    """
    pids: list[int] = []
    began: list[int] = []
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
        except OSError as error:
            if error.errno in _SHORT:
                raise
            continue
        pids.append(member)
        began.append(int(fields[_BEGAN]))
        threads += int(fields[17])
        cpu += sum(map(int, fields[11:15])) / _TICKS_PER_S
    return Usage(tuple(pids), threads, memory, cpu, tuple(began)) if pid in pids else None


def _read(path: str) -> bytes:
    """A whole small file of /proc; without the layers above the system calls, which cost more than the calls."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4_096)
    finally:
        os.close(descriptor)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with _unless_gone():
        for task in os.listdir(f"/proc/{pid}/task"):
            with _unless_gone():
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    return found


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _SHORT:
            raise


def _signal_all(members: Members, number: int) -> Members:
    """Signal each that is still the process that it was; those that could not be reached for want of descriptors."""
    left = []
    for pid, began in members:
        try:
            _signal(pid, began, number)
        except OSError as error:
            if error.errno in _SHORT:
                left.append((pid, began))
    return tuple(left)


def _signal(pid: int, began: int, number: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        if int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[_BEGAN]) == began:
            signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)
