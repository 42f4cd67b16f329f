"""The spawner on real processes: one completion per start, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from lineup_supervisor.edges.sandbox import Command
from lineup_supervisor.edges.spawner import Exit, Process, Spawner, service_command

PYTHON = os.path.realpath(sys.executable)


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


def python(code: str) -> Command:
    return Command((PYTHON, "-I", "-S", "-c", code), {"PATH": ""}, sandboxed=False)


SLEEP = Command((shutil.which("sleep") or "sleep", "60"), {"PATH": ""}, sandboxed=False)  # small, for many of them


class Ends:
    """Counts the completions of many starts."""

    def __init__(self) -> None:
        self.exits: list[Exit] = []
        self.pids: list[int] = []


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner()
    yield made
    for process in list(made.processes):
        process.kill("stopped")
    await until(lambda: not made.processes)


def start(spawner: Spawner, command: Command, ends: Ends) -> Process:
    return spawner.start(command, on_exit=ends.exits.append, on_pid=ends.pids.append)


@pytest.mark.parametrize(
    ("code", "reason", "exit_code", "signal_number"),
    [
        ("pass", "exited", 0, None),
        ("raise SystemExit(7)", "exited", 7, None),
        ("import os; os.kill(os.getpid(), 11)", "killed", None, signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 9)", "killed", None, signal.SIGKILL),
        ("import os; os.kill(os.getpid(), 31)", "limit", None, signal.SIGSYS),
        (
            "import resource, signal; signal.signal(25, signal.SIG_DFL)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); open('/tmp/lineup-fsize', 'wb').write(bytes(11))",
            "limit",
            None,
            signal.SIGXFSZ,
        ),
    ],
)
async def test_an_end_is_described(
    spawner: Spawner, code: str, reason: str, exit_code: int | None, signal_number: int | None
) -> None:
    ends = Ends()
    start(spawner, python(code), ends)
    await until(lambda: bool(ends.exits))
    end = ends.exits[0]
    assert (end.reason, end.exit_code, end.signal) == (reason, exit_code, signal_number)
    assert len(ends.pids) == 1
    assert not psutil.pid_exists(ends.pids[0]), "reaped"
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/tmp/lineup-fsize")


async def test_a_failed_start_is_a_completion_too(spawner: Spawner) -> None:
    ends = Ends()
    process = start(spawner, Command(("/no/such/program",), {}, sandboxed=False), ends)
    process.stop(1.0)
    process.kill("hung")
    await until(lambda: bool(ends.exits))
    assert ends.exits[0].reason == "start_failed"
    assert "/no/such/program" in ends.exits[0].detail
    assert ends.pids == []
    assert process.is_ended


async def test_with_no_room_for_a_watch_an_end_is_noticed_all_the_same(
    spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spawner.loop, "add_reader", refused)
    ends = Ends()
    start(spawner, python("raise SystemExit(7)"), ends)
    await until(lambda: bool(ends.exits))
    assert ends.exits == [Exit("exited", "exited with code 7", 7)]


async def test_stop_sends_term_and_the_handler_may_finish(spawner: Spawner) -> None:
    ends = Ends()
    code = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(3))\nwhile True: time.sleep(60)"
    process = start(spawner, python(code), ends)
    await until(lambda: b"SigCgt" in status_of(process) and catches_term(process))
    process.stop(4.0, detail="told to")
    await until(lambda: bool(ends.exits))
    assert ends.exits == [Exit("stopped", "told to", 3)]


def status_of(process: Process) -> bytes:
    try:
        return Path(f"/proc/{process.pid}/status").read_bytes()
    except OSError:
        return b""


def catches_term(process: Process) -> bool:
    mask = int(status_of(process).split(b"SigCgt:")[1].split()[0], 16)
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def ignores_term(process: Process) -> bool:
    found = status_of(process)
    return b"SigIgn:" in found and bool(int(found.split(b"SigIgn:")[1].split()[0], 16) >> 14 & 1)


async def test_who_ignores_term_is_killed_after_the_grace(spawner: Spawner) -> None:
    ends = Ends()
    process = start(spawner, python("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)"), ends)
    await until(lambda: ignores_term(process))
    began = time.monotonic()
    process.stop(0.4)
    await until(lambda: bool(ends.exits))
    assert 0.35 < time.monotonic() - began < 2
    assert (ends.exits[0].reason, ends.exits[0].signal) == ("stopped", signal.SIGKILL)


async def test_the_first_reason_stands(spawner: Spawner) -> None:
    ends = Ends()
    process = start(spawner, python("import time; time.sleep(60)"), ends)
    process.kill("hung", "no pong")
    process.stop(0.0)
    process.kill("gate", "late")
    await until(lambda: bool(ends.exits))
    await asyncio.sleep(0)
    assert [(end.reason, end.detail) for end in ends.exits] == [("hung", "no pong")]


async def test_spawn_and_stop_in_the_same_tick_a_thousand_times_leaves_nothing(spawner: Spawner) -> None:
    """And whoever stops them is never hit itself: a number that is not known yet stands for one's own group."""
    ends, rounds, hit = Ends(), 1_000, []
    before = len(psutil.Process().children(recursive=True))
    caught = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    usual = {number: signal.signal(number, lambda number, frame: hit.append(number)) for number in caught}
    try:
        for number in range(rounds):
            process = start(spawner, SLEEP, ends)
            process.stop(0.0 if number % 2 else 0.05)
            if number % 25 == 24:
                await until(lambda: not spawner.processes)
        await until(lambda: len(ends.exits) == rounds, 30)
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert hit == []
    assert {end.reason for end in ends.exits} == {"stopped"}
    assert len(psutil.Process().children(recursive=True)) == before


async def test_five_hundred_killed_together_leave_no_zombie(spawner: Spawner) -> None:
    ends, count = Ends(), 500
    processes = [start(spawner, SLEEP, ends) for _ in range(count)]
    await until(lambda: len(ends.pids) == count, 30)
    began = time.monotonic()
    for process in processes:
        process.kill("stopped")
    await until(lambda: len(ends.exits) == count)
    assert time.monotonic() - began < 2
    zombies = [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]
    assert zombies == []


async def test_what_a_process_leaves_in_its_group_is_ended(spawner: Spawner) -> None:
    read, write = os.pipe()
    ends = Ends()
    code = "import os, time\nchild = os.fork()\nif child: print(child, flush=True); os._exit(0)\ntime.sleep(60)"
    spawner.start(python(code), on_exit=ends.exits.append, stdout=write)
    os.close(write)
    await until(lambda: bool(ends.exits))
    grandchild = int(os.read(read, 100))
    os.close(read)
    await until(lambda: is_gone(grandchild), 2)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_only_the_main_thread_may_spawn(spawner: Spawner) -> None:
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            start(spawner, python("pass"), Ends())
        except AssertionError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(caught) == 1


async def test_a_callback_that_raises_stops_nobody(spawner: Spawner) -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))

    def broken(_end: Exit) -> None:
        raise ValueError("a bug")

    ends = Ends()
    spawner.start(python("pass"), on_exit=broken)
    start(spawner, python("pass"), ends)
    await until(lambda: bool(ends.exits) and bool(told))
    assert isinstance(told[0]["exception"], ValueError)
    assert not spawner.processes


async def test_a_process_inherits_its_three_descriptors_only(spawner: Spawner) -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)  # even what somebody forgot to close on exec stays here
    ends = Ends()
    spawner.start(python("import os; print(os.listdir('/proc/self/fd'))"), on_exit=ends.exits.append, stdout=write)
    os.close(write)
    await until(lambda: bool(ends.exits))
    assert os.read(read, 1000).strip() == b"['0', '1', '2', '3']", "and 3 is the folder being listed"
    os.close(read)


async def test_a_service_is_an_ordinary_program(spawner: Spawner) -> None:
    read, write = os.pipe()
    ends = Ends()
    command = service_command((PYTHON, "-c", "import os; print(os.environ['WHO'])"), env={"WHO": "me"})
    spawner.start(command, on_exit=ends.exits.append, stdout=write)
    os.close(write)
    await until(lambda: bool(ends.exits))
    assert os.read(read, 100) == b"me\n"
    assert ends.exits[0].exit_code == 0
    os.close(read)
