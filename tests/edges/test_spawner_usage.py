"""The watch on a worker's whole tree: what counts as over, and a tree that is slowed down to its share."""

from __future__ import annotations

import asyncio
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


def busy() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
