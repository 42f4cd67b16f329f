"""A number that another process has by now is never hit (catalogue F6).

In a PID namespace of its own, where the next number that the kernel gives out can be chosen: as if all the others had
been used up meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROUNDS = 8
# What runs as the namespace's first process. It ends a process, has the spawner see that, gives its number to an
# innocent one, and then asks for the ended one's end again, in every way that there is.
SCRIPT = """
import asyncio
import os
import signal
import sys

from lineup_supervisor.edges.sandbox import Command
from lineup_supervisor.edges.spawner import Spawner

def innocent(pid):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    assert child == pid, (child, pid)

async def main(rounds):
    spawner = Spawner()
    for number in range(rounds):
        ended = asyncio.Event()
        command = Command(("/bin/sleep", "60"), {"PATH": ""}, sandboxed=False)
        process = spawner.start(command, on_exit=lambda end: ended.set())
        pid = process._child_pid
        if number % 2:
            process.stop(1.0)  # its timers for TERM and KILL are armed when it dies
        os.kill(pid, signal.SIGKILL)
        await ended.wait()
        innocent(pid)
        process.stop(0.0)
        process.kill("again")
        process._signal(signal.SIGKILL)
        await asyncio.sleep(0)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "an innocent process was hit"
        os.kill(pid, signal.SIGKILL)  # as somebody would who only knows the number
        os.waitpid(pid, 0)
    print("rounds", rounds)

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root makes a PID namespace like this")
def test_f6_no_signal_reaches_a_recycled_number() -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", SCRIPT, str(ROUNDS)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare failed" in done.stderr or "ns_last_pid" in done.stderr:
        pytest.skip(f"no PID namespace of our own here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"rounds {ROUNDS}\n"
