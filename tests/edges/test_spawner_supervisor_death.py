"""``kill -9`` of a supervisor: every process it had started is gone within two seconds, at whatever moment it died."""

from __future__ import annotations

import os
import random
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import psutil
import pytest

SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from lineup_supervisor.edges.logs import LogDirectory
from lineup_supervisor.edges.spawner import Spawner, service_command
from lineup_supervisor.edges.workers import HostSettings, WorkerHost

home, level, count, entry, processes = sys.argv[1:]

async def main():
    (Path(home) / "app").mkdir(exist_ok=True)
    spawner = Spawner()
    logs = LogDirectory(Path(home, "logs"))
    settings = HostSettings(Path(home, "run"), logs, ("S3", "S2", "S1"), bwrap=os.environ.get("LINEUP_TEST_BWRAP"))
    host = WorkerHost(settings, spawner, entry=entry)
    print("spawning", flush=True)
    service = service_command((sys.executable, "-c", "import time; time.sleep(600) #" + home), env={})
    spawner.start(service, on_exit=print)
    for number in range(int(count)):
        host.start_worker(
            f"i-{number}", 1, app_scope="demo", bundle_path=home + "/app", level=level,
            limits={"processes": int(processes)},
            on_started=lambda pid, at: None,
            on_message=lambda payload: print("message", flush=True),
            on_exited=lambda *end: print("exited", *end, file=sys.stderr, flush=True),
        )
        await asyncio.sleep(0)
    await asyncio.sleep(600)

asyncio.run(main())
"""

PRELUDE = """
import os, sys, time
from lineup_sdk import confine
import zmq
confine.apply(os.environ["LINEUP_LEVEL"])
context = zmq.Context()
peer = context.socket(zmq.DEALER)
peer.connect(os.environ["LINEUP_SOCKET"])
"""
IDLE = PRELUDE + "peer.send(b'hello')\ntime.sleep(600)\n"
# As every worker does before it loads an app, which then hears nothing any more: only the kernel can end it.
DEAF = PRELUDE + "peer.send(b'hello')\ntime.sleep(1)\nconfine.seal()\nprint('sealed', flush=True)\nwhile True: pass\n"
DOUBLE_FORK = PRELUDE + (
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork(): os._exit(0)\n"
    "        time.sleep(600)\n"
    "peer.send(b'hello')\ntime.sleep(600)\n"
)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"lu-{secrets.token_hex(4)}-") as directory:
        yield Path(directory)


def alive(marker: str) -> list[psutil.Process]:
    """Processes whose command line carries the marker: bubblewrap, workers, their forks, the service."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(marker in part for part in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def sealed(home: Path) -> list[bytes]:
    """What of the workers' logs says that they are sealed."""
    return re.findall(rb"sealed", b"".join(path.read_bytes() for path in (home / "logs").rglob("*.log")))


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Supervisor:
    def __init__(self, home: Path, level: str, count: int, entry: str, processes: int = 0) -> None:
        self.marker = home.name
        arguments = [str(home), level, str(count), f"{entry}\n# {home.name}\n", str(processes)]
        # Unbuffered: a line that were read ahead would be waited for.
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, *arguments], stdout=subprocess.PIPE, bufsize=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()

    def wait_for(self, word: bytes, times: int = 1) -> None:
        assert self.process.stdout is not None
        for _ in range(times):
            ready, _, _ = select.select([self.process.stdout], [], [], 20)
            assert ready, "the supervisor said nothing"
            assert word in self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize(
    ("level", "entry", "processes"),
    [("S3", IDLE, 0), ("S3", DOUBLE_FORK, 16), ("S2", IDLE, 0), ("S1", IDLE, 0), ("S3", DEAF, 0), ("S2", DEAF, 0)],
    ids=["S3", "S3-double-fork", "S2", "S1", "S3-deaf", "S2-deaf"],
)
def test_nothing_survives_a_killed_supervisor(home: Path, level: str, entry: str, processes: int) -> None:
    with Supervisor(home, level, 3, entry, processes) as supervisor:
        supervisor.wait_for(b"spawning")
        supervisor.wait_for(b"message", 3)
        if entry is DEAF:
            assert until(lambda: len(sealed(home)) == 3, 20), "each has said so in its log"
        assert len(alive(supervisor.marker)) >= (10 if processes else 4), "workers, forks and the service are up"
        supervisor.kill()
    assert until(lambda: not alive(supervisor.marker), 2.0), f"left: {alive(supervisor.marker)}"


@pytest.mark.parametrize("level", ["S3", "S2"])
def test_nothing_survives_a_supervisor_killed_while_it_starts_workers(home: Path, level: str) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(int(os.environ.get("LINEUP_KILL_ROUNDS", "12"))):
        with Supervisor(home, level, 5, IDLE) as supervisor:
            supervisor.wait_for(b"spawning")
            time.sleep(rng.uniform(0.0, 0.12))  # the moment is what varies; nothing is waited for here
            supervisor.kill()
        assert until(lambda: not alive(home.name), 2.0), f"left: {alive(home.name)}"
