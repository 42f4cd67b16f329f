"""The watch on a worker's whole tree: what counts as over, and a tree that is slowed down to its share."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from lineup_supervisor.edges import usage
from lineup_supervisor.edges.sandbox_policy import MIB, WorkerLimits


async def until(condition: Callable[[], bool], seconds: float) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not come true in time"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("seen", "limit"),
    [
        (usage.Usage((1,), 16, 900 * MIB, 0.0), None),  # its own memory is RLIMIT_DATA's to bound
        (usage.Usage((1,), 17, 0, 0.0), "threads"),
        (usage.Usage((1, 2, 3), 18, 100 * MIB, 0.0), None),
        (usage.Usage((1, 2, 3, 4), 4, 0, 0.0), "processes"),
        (usage.Usage((1, 2, 3), 3, 400 * MIB, 0.0), "memory_bytes"),
    ],
)
def test_what_is_over_has_a_name(seen: usage.Usage, limit: str | None) -> None:
    over = usage.exceeded(seen, WorkerLimits(processes=2, threads=16, memory_bytes=256 * MIB))
    assert (over and over[0]) == limit


def test_a_tree_is_measured_as_a_whole() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(1, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alone = usage.measure(process.pid, children_max=0)
        whole = usage.measure(process.pid, children_max=5)
        assert alone is not None
        assert whole is not None
        assert (len(alone.pids), len(whole.pids)) == (1, 2)
        subprocess.run(["kill", *map(str, whole.pids)], check=True)
    assert usage.measure(process.pid, children_max=0) is None


async def test_a_busy_tree_is_slowed_down_told_once_and_never_left_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LOOK_S", 0.05)
    monkeypatch.setattr(usage, "CPU_BURST_S", 0.1)
    slowed: list[str] = []
    with busy() as process:
        watch = usage.Watch(process.pid, WorkerLimits(cpu_share=0.05), on_over=lambda *_: None, on_slowed=slowed.append)
        try:
            await until(lambda: bool(slowed), 20)
            await until(lambda: state_of(process.pid) == "T", 5)
            watch.close()
            await until(lambda: state_of(process.pid) in "RS", 5)
        finally:
            watch.close()
            process.kill()
    assert len(slowed) == 1


async def test_the_more_a_tree_takes_the_sooner_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a standstill to all of four processors: slowed down at little over its burst, not a look's length later."""
    began = time.monotonic()
    looks: list[float] = []
    slowed: list[str] = []
    monkeypatch.setattr(usage, "_PROCESSORS", 4)

    def measure(pid: int, *, children_max: int) -> usage.Usage:
        looks.append(4 * (time.monotonic() - began))
        return usage.Usage((pid,), 4, 0, looks[-1])

    monkeypatch.setattr(usage, "measure", measure)
    with busy() as process:
        watch = usage.Watch(process.pid, WorkerLimits(cpu_share=0.1), on_over=lambda *_: None, on_slowed=slowed.append)
        try:
            await until(lambda: bool(slowed), 20)
        finally:
            watch.close()
            process.kill()
    assert looks[-1] < usage.CPU_BURST_S + 1.0, "a tenth of a second on four processors, and time to be late"


async def test_a_tree_that_rests_is_rarely_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(usage, "_PROCESSORS", 2)

    def measure(pid: int, *, children_max: int) -> usage.Usage:
        looks.append(pid)
        return usage.Usage((pid,), 1, 0, 0.2)

    monkeypatch.setattr(usage, "measure", measure)
    watch = usage.Watch(1, WorkerLimits(cpu_share=0.5), on_over=lambda *_: None, on_slowed=lambda _: None)
    began = time.monotonic()
    await until(lambda: len(looks) == 3, 20)
    watch.close()
    assert time.monotonic() - began > 2.5 * usage.LOOK_S


async def test_a_stopped_tree_takes_no_descriptors_and_is_continued_when_they_were_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One for each process would be a thousand for four MiniApps with as many children as they may have."""
    monkeypatch.setattr(usage, "LOOK_S", 0.05)
    monkeypatch.setattr(usage, "LOOK_AT_CHILDREN_S", 0.05)
    monkeypatch.setattr(usage, "CPU_BURST_S", 0.1)
    send, refused = usage._signal, 3

    def lacking(pid: int, began: int, number: int) -> None:
        nonlocal refused
        if refused > 0 and number == signal.SIGCONT:
            refused -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        send(pid, began, number)

    monkeypatch.setattr(usage, "_signal", lacking)
    limits = WorkerLimits(cpu_share=0.05, processes=30)
    with busy_family() as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = len(os.listdir("/proc/self/fd"))
        watch = usage.Watch(process.pid, limits, on_over=lambda *_: None, on_slowed=lambda _: None)
        try:
            await until(lambda: state_of(process.pid) == "T", 20)
            seen = usage.measure(process.pid, children_max=30)
            assert seen is not None
            assert len(seen.pids) == 21
            await until(lambda: {state_of(pid) for pid in seen.pids} == {"T"}, 5)
            assert len(os.listdir("/proc/self/fd")) <= before + 1
            watch.close()
            await until(lambda: not {state_of(pid) for pid in seen.pids} & {"T"}, 5)
            assert refused == 0
        finally:
            watch.close()
            os.killpg(process.pid, signal.SIGKILL)


def test_a_signal_reaches_only_who_it_was_meant_for() -> None:
    """A number that another process has got meanwhile is not its."""
    with busy() as process:
        try:
            seen = usage.measure(process.pid, children_max=0)
            assert seen is not None
            assert usage._signal_all(((process.pid, seen.began[0] + 1),), signal.SIGSTOP) == ()
            assert state_of(process.pid) in "RS"
            assert usage._signal_all(((process.pid, seen.began[0]),), signal.SIGSTOP) == ()
            time.sleep(0.05)
            assert state_of(process.pid) == "T"
        finally:
            process.kill()


async def test_looks_at_many_large_trees_take_their_share_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none of the loop's time; those in debt are stopped and continued meanwhile."""
    looks: list[float] = []
    signals: list[int] = []

    def look(pid: int, children_max: int) -> tuple[usage.Usage, float]:
        looks.append(time.monotonic())
        return usage.Usage((pid,), 1, 0, len(looks) * 100.0, (1,)), 0.02

    monkeypatch.setattr(usage, "_timed_look", look)
    monkeypatch.setattr(usage, "_signal_all", lambda members, number: signals.append(number) or ())
    limits = WorkerLimits(processes=200, cpu_share=4.0)
    watches = [
        usage.Watch(n, limits, on_over=lambda *_: None, on_slowed=lambda _: None, caps_cpu=n == 1) for n in range(1, 6)
    ]
    began = time.monotonic()
    await asyncio.sleep(2.5)
    took = time.monotonic() - began
    for watch in watches:
        watch.close()
    # The first look of each, and then a second each for five looks of 20 ms: a tenth of the time.
    assert 10 <= len(looks) <= 5 + 5 * (took + 1)
    assert signals.count(signal.SIGSTOP) >= 3, "it is held to its share between two looks"
    assert usage._dear == set()


async def test_a_look_that_is_not_possible_just_now_is_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LOOK_S", 0.05)
    over: list[str] = []
    looks = 0

    def measure(pid: int, *, children_max: int) -> usage.Usage:
        nonlocal looks
        looks += 1
        if looks < 4:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return usage.Usage((pid,), 99, 0, 0.0)

    monkeypatch.setattr(usage, "measure", measure)
    watch = usage.Watch(1, WorkerLimits(), on_over=lambda limit, _: over.append(limit), on_slowed=lambda _: None)
    await until(lambda: bool(over), 5)
    watch.close()
    assert over == ["threads"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_whoever_cannot_look_just_now_looks_again(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """For want of a descriptor, say: that a process cannot be looked at does not mean that it is gone."""
    monkeypatch.setattr(usage, "LOOK_S", 0.05)
    monkeypatch.setattr(usage, "CPU_BURST_S", 0.1)
    slowed: list[str] = []
    attempts = 0

    def refuse(path: str) -> bytes:
        nonlocal attempts
        attempts += 1
        raise OSError(number, os.strerror(number))

    with busy() as process:
        watch = usage.Watch(process.pid, WorkerLimits(cpu_share=0.05), on_over=lambda *_: None, on_slowed=slowed.append)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(usage, "_read", refuse)
                await until(lambda: attempts > 2, 20)
            assert slowed == []
            await until(lambda: bool(slowed), 20)
        finally:
            watch.close()
            process.kill()


def test_children_that_cannot_be_counted_just_now_are_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(OSError, match="Too many"):
        usage.measure(os.getpid(), children_max=5)


def busy() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def busy_family() -> subprocess.Popen[bytes]:
    """Twenty children that sleep, and a leader that does not; it says when they are all there."""
    code = (
        "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "print(1, flush=True)\nwhile True: pass"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
