"""The Runtime as a container's first process (catalogue F3): it reaps what becomes its own, and takes all along."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes.support.agent import Agent
from processes.support.family import Member, members, zombies_of
from processes.support.runtime import FORKING, Runtime
from processes.support.waiting import until, until_now


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes a PID namespace like this")
async def test_f3_killed_as_the_first_process_of_a_container_it_takes_all_along(own: Runtime, tmp_path: Path) -> None:
    container = in_a_container(own, tmp_path / "err")
    try:
        await until(lambda: own.facts() or container.poll() is not None, 30, "the daemon is ready")
        if container.poll() is not None:
            pytest.skip(f"no PID namespace of our own here: {(tmp_path / 'err').read_text().strip()[-200:]}")
        own.operator_pid = own.facts()["pid"]
        assert (own.operator_pid, own.facts()["isolation"]) == (1, "S3")
        own.add(FORKING)
        agent = Agent(own, "a")
        await agent.connect()
        for conversation in ("c-1", "c-2"):
            await agent.call("forking.fork", {"text": "x"}, call_id=f"k-{conversation}", conversation=conversation)
            assert (await agent.result(f"k-{conversation}"))["status"] == "completed"
        first = supervisor_of(own)
        await asyncio.to_thread(_close, own, "c-1")
        await until(lambda: not own.worker("forking", "c-1"), 10, "the first one is closed")
        await until(lambda: not zombies_of(first.pid), 5, "nobody that has ended waits to be reaped")
        family = members(own.home)
        assert len(family) >= 6, f"hostshell, a sandbox with three grandchildren, the supervisor: {family}"
        os.kill(first.pid, signal.SIGKILL)
        await agent.cut()
        until_now(lambda: not [m for m in family if m.is_alive()], 2.0, "everybody is gone")
    finally:
        container.kill()
        container.wait()


def in_a_container(runtime: Runtime, errors: Path) -> subprocess.Popen[bytes]:
    """A daemon that is the first process of a PID namespace; it goes when ``unshare`` does."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(runtime.home), "--port", "0"]
    with errors.open("w") as stderr:
        return subprocess.Popen([*unshare, *argv], stdout=subprocess.DEVNULL, stderr=stderr)


def supervisor_of(runtime: Runtime) -> Member:
    """As it is seen from outside."""
    (found,) = [m for m in members(runtime.home) if "-m lineup_supervisor run" in m.command and _pid_inside(m.pid) == 1]
    return found


def _pid_inside(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        (line,) = [line for line in file if line.startswith("NSpid:")]
    return int(line.split()[-1])


def _close(runtime: Runtime, conversation: str) -> None:
    (instance_id,) = [
        row["instance_id"]
        for row in runtime.query("status")["instances"]
        if (row["app_scope"], row["conversation_id"]) == ("forking", conversation)
    ]
    assert runtime.action("instance.close", f"close-{conversation}", instance_id=instance_id, force=True)["accepted"]
