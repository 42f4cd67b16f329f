"""What a sandboxed worker tries in vain is heard of: by name, once each, at a price that the worker pays."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from lineup_supervisor.edges import denials
from lineup_supervisor.edges.logs import LogDirectory
from lineup_supervisor.edges.sandbox_policy import Level
from lineup_supervisor.edges.spawner import Spawner
from lineup_supervisor.edges.workers import HostSettings, WorkerHost, WorkerProcess

CONFINED: tuple[Level, ...] = ("S3", "S2")
PRELUDE = """
import ctypes, fcntl, os, socket, sys, threading, time
from lineup_sdk import confine
import zmq
confine.apply(os.environ["LINEUP_LEVEL"])
peer = zmq.Context().socket(zmq.DEALER)
peer.linger = 0
peer.connect(os.environ["LINEUP_SOCKET"])
peer.send(b"hello")
peer.recv()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def attempt(action):
    try:
        return "done: " + repr(action())
    except BaseException as error:
        return type(error).__name__ + ": " + str(error)
def say(what):
    peer.send(what.encode())
"""
SEALED = PRELUDE + "confine.seal()\n"


class Seen:
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.denied: list[str] = []
        self.ends: list[tuple[str, str]] = []


class Bench:
    """A host of workers, and what their callbacks said."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = LogDirectory(home / "logs")
        self.spawner = Spawner()
        self.host = WorkerHost(HostSettings(home / "run", self.logs, CONFINED), self.spawner)

    async def start(self, code: str, level: str = "S3", **limits: int) -> tuple[Seen, WorkerProcess]:
        """A worker that runs ``code`` once it is linked."""
        seen = Seen()
        self.host.entry = code

        def heard(payload: bytes) -> None:
            seen.messages.append(payload.decode())
            worker.taken()

        worker = self.host.start_worker(
            "i-1",
            1,
            app_scope="demo",
            bundle_path=str(self.home),
            limits=limits,
            level=level,
            on_started=lambda pid, at: None,
            on_message=heard,
            on_exited=lambda reason, detail, code: seen.ends.append((reason, detail)),
            on_denied=seen.denied.append,
        )
        await until(lambda: bool(seen.messages) or bool(seen.ends))
        assert worker.send(b"go on"), seen.ends
        return seen, worker

    def log(self) -> str:
        return (self.home / "logs" / "demo.log").read_text()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    before = psutil.Process().num_fds()
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        made = Bench(Path(directory))
        yield made
        for worker in list(made.host.workers):
            worker.kill("stopped", "the test is over")
        await until(lambda: not made.host.workers)
        made.logs.close()
    assert psutil.Process().num_fds() == before, "no descriptor stays"


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not come true in time"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("level", CONFINED)
async def test_each_attempt_is_told_once_by_name(bench: Bench, level: str) -> None:
    seen, _ = await bench.start(
        SEALED
        + """
tried = [
    lambda: socket.socket(socket.AF_INET),
    lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    lambda: socket.socket(40),
    lambda: socket.socket(socket.AF_UNIX),
    lambda: fcntl.ioctl(0, 0x5412, b"x"),
    lambda: fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
    lambda: fcntl.fcntl(os.open(os.environ["LINEUP_BUNDLE"], os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS),
    lambda: fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()),
    lambda: call(157, 4, 1, 0, 0, 0),
    lambda: call(302, 2, 7, 0, 0),
    lambda: call(56, 0x10000000 | 0x10000, 0, 0, 0, 0),
    os.fork,
    lambda: os.execv(sys.executable, [sys.executable]),
    lambda: call(425, 1, 0),
    lambda: call(101, 16, 2, 0, 0),
    lambda: os.memfd_create("x"),
]
for action in tried * 3:
    say(attempt(action))
say("over")
peer.recv()
""",
        level,
    )
    await until(lambda: "over" in seen.messages)
    assert {said.split(":")[0] for said in seen.messages[1:-1]} == {"PermissionError"}, seen.messages
    assert seen.denied == [
        "socket AF_INET",
        "socket AF_INET6",
        "socket AF_NETLINK",
        "socket AF_VSOCK",
        "socket AF_UNIX",
        "ioctl TIOCSTI",
        "fcntl F_SETLEASE",
        "fcntl F_NOTIFY",
        "fcntl F_SETOWN",
        "prctl PR_SET_DUMPABLE",
        "prlimit64",
        "clone",
        "execve",
        "io_uring_setup",
        "ptrace",
        "memfd_create",
    ], "fork is the C library's word for clone"
    assert bench.log().count("denied by the sandbox: ptrace") == 1


async def test_there_is_an_end_to_what_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "OPERATIONS_MAX", 3)
    seen, _ = await bench.start(
        SEALED
        + "for family in (2, 10, 16, 17, 40, 38):\n    attempt(lambda: socket.socket(family))\nsay('over')\npeer.recv()"
    )
    await until(lambda: "over" in seen.messages)
    assert seen.denied == ["socket AF_INET", "socket AF_INET6", "socket AF_NETLINK", "others"]


async def test_who_asks_on_and_on_waits_and_nobody_else_does(bench: Bench) -> None:
    """Eight threads that ask for nothing else for a second: few answers, and little of our own time."""
    seen, _ = await bench.start(
        SEALED
        + """
asked, until = [0] * 8, time.monotonic() + 1.0
def ask(number):
    while time.monotonic() < until:
        attempt(lambda: socket.socket(socket.AF_INET))
        asked[number] += 1
threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
say(str(sum(asked)))
peer.recv()
"""
    )
    began, used = time.monotonic(), time.thread_time()
    await until(lambda: len(seen.messages) == 2)
    took, used = time.monotonic() - began, time.thread_time() - used
    most = denials.FREE + denials.ANSWERS_AT_ONCE * (took / denials.PAUSE_S + 2)
    assert denials.FREE < int(seen.messages[1]) <= most
    assert used < 0.5
    assert seen.denied == ["socket AF_INET"]


async def test_with_nobody_to_answer_the_kernel_denies(bench: Bench) -> None:
    seen, worker = await bench.start(
        SEALED
        + """
say(attempt(lambda: socket.socket(socket.AF_INET)))
peer.recv()
say(attempt(lambda: socket.socket(socket.AF_INET)))
say(attempt(os.fork))
peer.recv()
"""
    )
    await until(lambda: len(seen.messages) == 2)
    assert worker._denials is not None
    worker._denials.close()
    worker.send(b"go on")
    await until(lambda: len(seen.messages) == 4)
    assert seen.messages[1].startswith("PermissionError")
    assert [said[:18] for said in seen.messages[2:]] == ["OSError: [Errno 38"] * 2, "not implemented, says the kernel"


async def test_a_worker_that_is_ended_while_it_waits_leaves_nothing(bench: Bench) -> None:
    seen, worker = await bench.start(SEALED + "while True: attempt(lambda: socket.socket(socket.AF_INET))")
    await until(lambda: seen.denied == ["socket AF_INET"])
    worker.kill("stopped", "enough")
    await until(lambda: bool(seen.ends))
    assert seen.ends == [("stopped", "enough")]


async def test_where_another_listener_came_first_it_is_denied_all_the_same(bench: Bench) -> None:
    """As in some containers; the worker's own log says that nobody will hear what it tries."""
    seen, _ = await bench.start(
        PRELUDE
        + """
load = confine._load_filter
def busy(program, flags=0):
    if flags:
        raise confine.ConfineError("seccomp could not be applied: Device or resource busy")
    return load(program)
confine._load_filter = busy
confine.seal()
say(attempt(lambda: socket.socket(socket.AF_UNIX)))
say(attempt(os.fork))
peer.recv()
"""
    )
    await until(lambda: len(seen.messages) == 3)
    assert all(said.startswith("PermissionError") for said in seen.messages[1:]), seen.messages
    assert seen.denied == []
    assert "not reported on this machine: not reported: seccomp could not be applied" in bench.log()


async def test_a_listener_that_cannot_be_handed_over_fails_no_start(bench: Bench) -> None:
    """So many descriptors of this person are under way that a worker may add none: it is denied as much, and untold."""
    ends = socket.socketpair()
    with ends[0], ends[1]:
        socket.send_fds(ends[0], [b"x"], [ends[0].fileno()] * 200)
        seen, _ = await bench.start(
            SEALED
            + """
say(attempt(lambda: socket.socket(socket.AF_UNIX)))
say(attempt(lambda: socket.send_fds(socket.socketpair()[0], [b"x"], [0])))
say(attempt(lambda: confine._load_filter(b"\\x06\\0\\0\\0\\0\\0\\xff\\x7f")))
say(attempt(os.fork))
peer.recv()
"""
        )
        await until(lambda: len(seen.messages) == 5 or bool(seen.ends))
    assert [said[:15] for said in seen.messages[1:3]] == ["PermissionError"] * 2, seen.messages
    assert seen.messages[3] == "ConfineError: seccomp could not be applied: Operation not permitted"
    assert seen.messages[4].startswith("PermissionError")
    assert seen.denied == []
    assert "not reported: the listener of denied calls could not be handed over" in bench.log()


@pytest.mark.parametrize("level", CONFINED)
@pytest.mark.parametrize("first_to_fail", [0, 1, 2])
async def test_what_cannot_confine_itself_ends_by_that_name(bench: Bench, level: str, first_to_fail: int) -> None:
    """Whichever filter cannot be loaded; and with the same words on its output an app ends as what it is."""
    code = (
        PRELUDE
        + f"""
load, left = confine._load_filter, {first_to_fail}
def fails(program, flags=0):
    global left
    if left == 0:
        raise confine.ConfineError("seccomp could not be applied: Cannot allocate memory")
    left -= 1
    return load(program, flags)
confine._load_filter = fails
try:
    confine.seal()
except confine.ConfineError as fault:
    print("cannot start:", fault, file=sys.stderr)
    os._exit(2)
print("not confined: so it says", file=sys.stderr)
os._exit(2)
"""
    )
    seen, _ = await bench.start(code, level)
    await until(lambda: bool(seen.ends))
    assert [reason for reason, _ in seen.ends] == ["exited" if first_to_fail == 2 else "unconfined"]
    if first_to_fail < 2:
        assert "could not confine itself: seccomp could not be applied: Cannot allocate memory" in seen.ends[0][1]


async def test_what_is_no_listener_is_closed(bench: Bench) -> None:
    """It comes from our own code, which is no reason to trust it."""
    (bench.home / "trap").write_text("x")
    seen, worker = await bench.start(
        PRELUDE
        + """
files = [os.open(os.environ["LINEUP_BUNDLE"] + "/trap", os.O_RDONLY) for _ in range(5)]
socket.send_fds(confine._report, [b"listener"], files)
say("sent")
peer.recv()
"""
    )
    await until(lambda: "sent" in seen.messages)
    await until(lambda: bool(worker._denials and worker._denials._report is None))
    trap = (bench.home / "trap").stat()
    assert [name for name in os.listdir("/proc/self/fd") if _is_same(int(name), trap)] == []


def _is_same(descriptor: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False
