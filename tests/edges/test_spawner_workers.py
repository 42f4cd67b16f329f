"""WorkerHost on real sandboxed processes, at every level: one beginning, messages, one named end, nothing left."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lineup_protocol.codec import decode_message, encode_message
from lineup_supervisor.edges import sandbox, scratch, zmtp
from lineup_supervisor.edges.gate import GateLimits
from lineup_supervisor.edges.logs import LogDirectory
from lineup_supervisor.edges.spawner import Spawner
from lineup_supervisor.edges.workers import HostSettings, WorkerHost, WorkerProcess

LEVELS = ("S3", "S2", "S1")

PRELUDE = """
import os, sys, time
from lineup_sdk import confine
import zmq
confine.apply(os.environ["LINEUP_LEVEL"])
peer = zmq.Context().socket(zmq.DEALER)
peer.linger = 0
peer.connect(os.environ["LINEUP_SOCKET"])
peer.send(b"hello")
"""
ECHO = PRELUDE + "while True: peer.send(b'echo ' + peer.recv())\n"


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class Seen:
    """Everything that one worker's callbacks said, in order."""

    def __init__(self) -> None:
        self.story: list[tuple[Any, ...]] = []
        self.worker: WorkerProcess | None = None

    def on_message(self, payload: bytes) -> None:
        self.story.append(("message", payload))
        if self.worker is not None:
            self.worker.taken()

    @property
    def messages(self) -> list[bytes]:
        return [step[1] for step in self.story if step[0] == "message"]

    @property
    def ends(self) -> list[tuple[Any, ...]]:
        return [step[1:] for step in self.story if step[0] == "exited"]


class Bench:
    def __init__(self, home: Path, spawner: Spawner, **settings: Any) -> None:
        self.home = home
        self.bundle = home / "app"
        self.bundle.mkdir(exist_ok=True)
        self.logs = LogDirectory(home / "logs")
        self.host = WorkerHost(HostSettings(home / "run", self.logs, **{"levels": LEVELS, **settings}), spawner)

    def start(self, entry: str, level: str, limits: dict[str, Any] | None = None, bundle: str | None = None) -> Seen:
        seen = Seen()
        self.host.entry = entry
        seen.worker = self.host.start_worker(
            "i-1",
            1,
            app_scope="demo",
            bundle_path=bundle or str(self.bundle),
            limits=limits or {},
            level=level,
            on_started=lambda pid, at: seen.story.append(("started", pid, at)),
            on_message=seen.on_message,
            on_exited=lambda *end: seen.story.append(("exited", *end)),
        )
        return seen

    def log(self) -> str:
        return (self.home / "logs" / "demo.log").read_text()


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        yield Path(directory)


@pytest.fixture
async def bench(home: Path) -> AsyncIterator[Callable[..., Bench]]:
    spawner = Spawner()
    made: list[Bench] = []

    def build(**settings: Any) -> Bench:
        made.append(Bench(home, spawner, **settings))
        return made[-1]

    before = open_fds()
    yield build
    for each in made:
        for worker in list(each.host.workers):
            worker.kill("stopped", "the test is over")
    await until(lambda: not any(each.host.workers for each in made))
    for each in made:
        each.logs.close()
        assert os.listdir(home / "run" / "w") == [], "no socket and no scratch directory stays"
    assert open_fds() == before, "no descriptor stays"


def open_fds() -> int:
    return psutil.Process().num_fds()


@pytest.mark.parametrize("level", LEVELS)
async def test_a_worker_from_start_to_stop(bench: Callable[..., Bench], level: str) -> None:
    seen = bench().start(ECHO, level)
    worker = seen.worker
    assert worker is not None
    assert seen.story == [], "nothing is called back from inside start_worker"
    await until(lambda: seen.messages == [b"hello"])
    assert seen.story[0] == ("started", worker.pid, level)
    assert worker.pid is not None
    assert psutil.Process(worker.pid).is_running()
    assert worker.send(b"x" * 100_000)
    await until(lambda: len(seen.messages) == 2)
    assert seen.messages[1] == b"echo " + b"x" * 100_000
    worker.stop("asked to", 200)
    await until(lambda: bool(seen.ends))
    assert seen.ends[0][:2] == ("stopped", "asked to")
    assert not psutil.pid_exists(worker.pid)
    assert worker.send(b"late") is False


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("code", "reason", "detail", "exit_code"),
    [
        ("sys.exit(0)", "exited", "exited with code 0", 0),
        ("raise ValueError('broken app')", "exited", "ValueError: broken app", 1),
        ("os.kill(os.getpid(), 9) if os.getpid() != 1 else os._exit(137)", "killed", "SIGKILL", None),
        ("time.sleep(0.05); x = bytearray(3 << 30)", "limit", "memory_bytes (256 MiB)", 1),
        ("import ctypes; ctypes.string_at(0)", "killed", "SIGSEGV", None),
    ],
)
async def test_an_end_of_its_own_is_named(
    bench: Callable[..., Bench], level: str, code: str, reason: str, detail: str, exit_code: int | None
) -> None:
    seen = bench().start(PRELUDE + code, level, {"memory_bytes": 256 << 20})
    await until(lambda: bool(seen.ends))
    assert seen.ends[0][0] == reason
    assert detail in seen.ends[0][1]
    if level != "S3" or exit_code is not None:
        assert seen.ends[0][2] == exit_code
    assert len(seen.ends) == 1


async def test_a_worker_that_never_connects_is_ended(bench: Callable[..., Bench]) -> None:
    seen = bench(connect_s=0.5).start("import time; time.sleep(60)", "S3")
    await until(lambda: bool(seen.ends), 5)
    assert seen.ends[0][0] == "start_failed"
    assert "did not connect" in seen.ends[0][1]


APP = """
import os
from lineup_sdk import SDK, MiniApp
app = MiniApp()
kept = []

@app.on_start
async def start(sdk: SDK) -> None:
    while len(kept) < 60:
        kept.append(os.open("/dev/null", os.O_RDONLY))
    for number in kept[::2]:  # libzmq's own must not need numbers that an app can leave it without
        os.close(number)
"""


@pytest.mark.parametrize("level", LEVELS)
async def test_a_sealed_worker_ends_as_it_should(bench: Callable[..., Bench], level: str) -> None:
    """At its end libzmq watches its sockets anew, in an epoll that an app may add nothing to."""
    made = bench()
    (made.bundle / "app.py").write_text(APP)
    seen = made.start(sandbox.WORKER_ENTRY, level)

    def said(type_: str) -> bool:
        return any(decode_message(each, "worker", from_runtime=False)[0] == type_ for each in seen.messages)

    def say(type_: str, body: dict[str, Any]) -> None:
        assert seen.worker is not None
        assert seen.worker.send(encode_message(type_, body, link="worker", from_runtime=True, message_id="m-1"))

    await until(lambda: bool(seen.ends) or said("worker.hello"))
    say("worker.welcome", WELCOME)
    await until(lambda: bool(seen.ends) or said("worker.ready"))
    await asyncio.sleep(0.1)
    say("worker.stop", {"reason": "enough", "grace_ms": 2_000})
    await until(lambda: bool(seen.ends))
    assert seen.ends == [("exited", "exited with code 0", 0)]


WELCOME: dict[str, Any] = {
    "protocol": 1,
    "context": {
        "app_scope": "demo",
        "instance_id": "i-1",
        "conversation_id": "c-1",
        "app_version": "1.0.0",
        "state": "starting",
    },
    "entry": "app:app",
    "limits": {},
    "state": None,
    "state_revision": 0,
    "operations": [],
    "interactions": [],
    "calls": [],
    "surfaces": [],
}

RAW = """
import os, socket, sys, time
from lineup_sdk import confine
confine.apply(os.environ["LINEUP_LEVEL"])
peer = socket.socket(socket.AF_UNIX)
peer.connect(os.environ["LINEUP_SOCKET"].removeprefix("ipc://"))
GREETING = b"\\xff\\0\\0\\0\\0\\0\\0\\0\\0\\x7f\\3\\1NULL" + bytes(48)
READY = b"\\x04\\x1c\\x05READY\\x0bSocket-Type\\0\\0\\0\\x06DEALER"
"""


@pytest.mark.parametrize("level", ["S3", "S2"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("peer.sendall(GREETING + READY + b'\\x01\\x01x' * 200_001); time.sleep(60)", "frames_per_message"),
        ("peer.sendall(b'GET / HTTP/1.0'); time.sleep(60)", "greeting"),
        ("peer.sendall(GREETING[:20]); time.sleep(60)", "handshake_timeout"),
        ("peer.sendall(GREETING + READY); peer.close(); time.sleep(60)", "disconnected"),
    ],
)
async def test_a_harmful_peer_is_ended_by_the_gate(
    bench: Callable[..., Bench], level: str, code: str, reason: str
) -> None:
    seen = bench(gate=GateLimits(handshake_s=0.3)).start(RAW + code, level)
    await until(lambda: bool(seen.ends))
    assert seen.ends[0][0] == "gate"
    assert seen.ends[0][1].startswith(reason)


async def test_a_flooding_worker_is_noted_then_ended_and_others_stay_quick(bench: Callable[..., Bench]) -> None:
    limits = GateLimits(wire=zmtp.Limits(messages_per_s=2_000, messages_burst=1_000), flood_cut_s=1.5)
    made = bench(gate=limits)
    quiet = made.start(ECHO, "S3")
    await until(lambda: bool(quiet.messages))
    flood = made.start(PRELUDE + "while True: peer.send(b'x')\n", "S3")
    await until(lambda: len(flood.messages) > 500)
    latencies: list[float] = []
    while not flood.ends:
        began, count = time.monotonic(), len(quiet.messages)
        assert quiet.worker is not None
        quiet.worker.send(b"ping")
        await until(lambda count=count: len(quiet.messages) > count)  # type: ignore[misc]
        latencies.append(time.monotonic() - began)
        assert len(latencies) < 100_000
    assert flood.ends[0][0] == "gate"
    assert flood.ends[0][1].startswith("rate_limited")
    assert "more than its rate allows" in made.log()
    latencies.sort()
    p99 = latencies[int(len(latencies) * 0.99)]
    print(f"p99 of a quiet worker's echo during the flood: {p99 * 1000:.1f} ms over {len(latencies)}")
    assert p99 < 0.1


@pytest.mark.parametrize("level", ["S3", "none", ""])
async def test_a_level_that_does_not_hold_is_refused_never_weakened(bench: Callable[..., Bench], level: str) -> None:
    made = bench(levels=("S2",), why_not="user namespaces are off (switch them on)")
    seen = made.start(ECHO, level)
    await until(lambda: bool(seen.ends))
    assert seen.story == [("exited", *seen.ends[0])], "no process came to be"
    assert seen.ends[0][0] == "isolation_insufficient"
    assert "switch them on" in seen.ends[0][1]


async def test_a_missing_bundle_is_what_another_start_would_not_mend(bench: Callable[..., Bench]) -> None:
    seen = bench().start(ECHO, "S3", bundle="/no/such/bundle")
    await until(lambda: bool(seen.ends))
    assert seen.ends[0][0] == "app_start_failed"


async def test_a_broken_bubblewrap_is_isolation_insufficient(bench: Callable[..., Bench], home: Path) -> None:
    stub = home / "bwrap"
    stub.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    stub.chmod(0o755)
    seen = bench(bwrap=str(stub)).start(ECHO, "S3")
    await until(lambda: bool(seen.ends))
    assert seen.ends[0][0] == "isolation_insufficient"
    assert "uid map" in seen.ends[0][1]


async def test_a_shortage_says_nothing_against_the_level(bench: Callable[..., Bench], home: Path) -> None:
    """Too many processes of this person, say: another start may well work."""
    stub = home / "bwrap"
    stub.write_text(
        "#!/bin/sh\necho 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2\nexit 1"
    )
    stub.chmod(0o755)
    seen = bench(bwrap=str(stub)).start(ECHO, "S3")
    await until(lambda: bool(seen.ends))
    assert seen.ends[0][0] == "unconfined"
    assert "temporarily unavailable" in seen.ends[0][1]


@pytest.mark.parametrize("level", LEVELS)
async def test_with_no_room_for_one_more_watch_a_start_fails_and_the_next_works(
    bench: Callable[..., Bench], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel says when the person's programs watch as much as it allows; whichever watch it refuses."""
    made = bench()
    loop = asyncio.get_running_loop()
    add_reader, left = loop.add_reader, 0

    def refused(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        add_reader(*arguments)

    for watches in range(12):
        left = watches
        with monkeypatch.context() as patch:
            patch.setattr(loop, "add_reader", refused)
            seen = made.start(ECHO, level)
            await until(lambda seen=seen: bool(seen.ends) or b"hello" in seen.messages)  # type: ignore[misc]
        if seen.ends:
            assert seen.ends[0][0] == "start_failed", seen.ends
        else:
            assert seen.worker is not None
            await until(lambda seen=seen: seen.worker.send(b"on"))  # type: ignore[misc]
            await until(lambda seen=seen: b"echo on" in seen.messages)  # type: ignore[misc]
            seen.worker.stop("enough", 0)
            await until(lambda seen=seen: bool(seen.ends))  # type: ignore[misc]


@pytest.mark.parametrize("level", LEVELS)
async def test_started_and_stopped_in_one_tick(bench: Callable[..., Bench], level: str) -> None:
    made = bench()
    seen = [made.start(ECHO, level) for _ in range(15)]
    for number, each in enumerate(seen):
        assert each.worker is not None
        each.worker.stop("at once", 0 if number % 2 else 50)
    await until(lambda: all(each.ends for each in seen), 30)
    assert {each.ends[0][0] for each in seen} == {"stopped"}
    assert all(len(each.ends) == 1 for each in seen)


async def test_grandchildren_in_a_sandbox_die_with_it(bench: Callable[..., Bench]) -> None:
    code = PRELUDE + (
        "for _ in range(2):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "        time.sleep(600)\n"
        "peer.send(b'forked')\ntime.sleep(600)\n"
    )
    seen = bench().start(code, "S3", {"processes": 8})
    await until(lambda: b"forked" in seen.messages)
    assert seen.worker is not None
    inside = psutil.Process(seen.worker.pid).children(recursive=True)
    assert len(inside) >= 2, "the double-forked ones belong to the first process of their namespace"
    seen.worker.kill("hung", "no pong")
    await until(lambda: bool(seen.ends))
    assert [process.pid for process in inside if process.is_running()] == []
    assert seen.ends[0][:2] == ("hung", "no pong")


LITTER = PRELUDE + "for n in range(50): open(os.path.join(os.environ['TMPDIR'], str(n)), 'w').close()\n"


async def test_what_a_worker_leaves_in_its_tmp_holds_up_neither_its_end_nor_a_start(
    bench: Callable[..., Bench], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At S2 nothing bounds how many files that are; removing them may take minutes."""
    may_remove, at_work = threading.Event(), threading.Event()
    remove_tree = scratch.remove_tree

    def slow(root: Path) -> None:
        at_work.set()
        assert may_remove.wait(60)
        remove_tree(root)

    monkeypatch.setattr(scratch, "remove_tree", slow)
    try:
        first = bench()
        seen = first.start(LITTER, "S2")
        await until(lambda: bool(seen.ends))
        await until(at_work.is_set)
        assert os.listdir(home / "run" / "w") == []
        left = [path for path in (home / "run").glob("w-*/t/*") if path.is_file()]
        assert len(left) == 50

        (home / "run" / "w" / "0badcafe" / "t" / "x").mkdir(parents=True)  # as of a run that was killed
        again = bench()
        assert os.listdir(home / "run" / "w") == []
        seen = again.start(ECHO, "S2")
        await until(lambda: seen.messages == [b"hello"])
    finally:
        may_remove.set()
    await until(lambda: os.listdir(home / "run") == ["w"])
