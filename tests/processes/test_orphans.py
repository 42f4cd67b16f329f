"""``kill -9`` of the supervisor leaves nobody alive after two seconds (catalogue F3), however it was started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processes.support.agent import Agent
from processes.support.family import Member, members
from processes.support.runtime import FORKING, LAB, Runtime
from processes.support.waiting import until, until_async, until_now

Start = Callable[[Runtime, Path], None]


async def busy(runtime: Runtime, *conversations: str) -> Agent:
    """Workers that run, one per conversation, hostshell and the demo agent."""
    agent = Agent(runtime, "orphan")
    await agent.connect()
    for conversation in conversations:
        await agent.call(
            "lab.hold", {"text": "x", "until_attempt": 9}, call_id=f"k-{conversation}", conversation=conversation
        )
    for conversation in conversations:
        call_id = f"k-{conversation}"
        await until_async(lambda call_id=call_id: _runs(agent, call_id), 30, f"{call_id} runs")
    return agent


async def _runs(agent: Agent, call_id: str) -> bool:
    return bool((await agent.record(call_id))["status"] == "running")


async def test_workers_hostshell_and_demo_go_with_the_supervisor(own: Runtime) -> None:
    own.start("--port", "0", "--demo")
    own.add(LAB)
    agent = await busy(own, "c-1", "c-2")
    await until(lambda: own.service("demo"), 10, "the demo agent runs")
    family = own.remember_family()
    assert len(family) >= 7, f"two sandboxes of two processes, hostshell, demo and the supervisor: {family}"
    own.kill()
    await agent.cut()


async def test_what_forked_twice_goes_too(own: Runtime) -> None:
    """A worker that may fork leaves grandchildren in sessions of their own; the sandbox takes them along."""
    own.start()
    own.add(FORKING)
    agent = Agent(own, "orphan")
    await agent.connect()
    before = members(own.home)
    await agent.call("forking.fork", {"text": "x"}, call_id="k")
    result = await agent.result("k")
    assert result["status"] == "completed", result
    hidden = [member for member in members(own.home) if member not in before]
    assert len(hidden) >= 3 + 2, f"three grandchildren, the worker and its bubblewrap: {hidden}"
    own.kill()
    await agent.cut()


async def test_what_forked_twice_goes_when_the_worker_is_stopped_or_killed(own: Runtime) -> None:
    own.start()
    own.add(FORKING)
    agent = Agent(own, "orphan")
    await agent.connect()
    for number, end in enumerate((_close, _kill_worker)):
        conversation = f"c-{number}"
        before = set(members(own.home))
        await agent.call("forking.fork", {"text": "x"}, call_id=f"k-{number}", conversation=conversation)
        assert (await agent.result(f"k-{number}"))["status"] == "completed"
        hidden = set(members(own.home)) - before
        end(own, conversation)
        await until(lambda hidden=hidden: not _alive(hidden), 5, f"all of {hidden} are gone")
    await agent.leave()
    assert own.stop() == 0
    own.assert_clean()


def _alive(family: set[Member]) -> list[Member]:
    return [member for member in family if member.is_alive()]


def _close(runtime: Runtime, conversation: str) -> None:
    (instance_id,) = [
        row["instance_id"]
        for row in runtime.query("status")["instances"]
        if (row["app_scope"], row["conversation_id"]) == ("forking", conversation)
    ]
    assert runtime.action("instance.close", f"close-{conversation}", instance_id=instance_id, force=True)["accepted"]


def _kill_worker(runtime: Runtime, conversation: str) -> None:
    pid = runtime.worker("forking", conversation)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def test_without_a_sandbox_of_namespaces_nobody_stays_either(own: Runtime, tmp_path: Path) -> None:
    """S2, which the operator has to allow: bubblewrap fails here, so parent-death signals have to do it."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: no namespaces on this machine' >&2\nexit 1\n")
    broken.chmod(0o755)
    (own.home / "config.toml").write_text('[isolation]\nminimum = "S2"\n')
    facts = own.start(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert facts["isolation"] == "S2"
    own.add(FORKING)
    agent = Agent(own, "orphan")
    await agent.connect()
    await agent.call("forking.echo", {"text": "x"}, call_id="k")
    assert (await agent.result("k"))["status"] == "completed"
    await agent.call("forking.fork", {"text": "x"}, call_id="f")
    refused = await agent.result("f")
    assert refused["error"]["code"] == "tool_failed", "nothing would take a child along there, so there is none"
    assert "PermissionError" in refused["error"]["message"]
    own.kill()
    await agent.cut()


@pytest.mark.parametrize("wanted", [0, 2, 4, 6])
async def test_killed_while_workers_start(own: Runtime, wanted: int) -> None:
    """The moment varies: from before the first fork to after the last worker has connected."""
    own.start()
    own.add(LAB)
    agent = Agent(own, "orphan")
    await agent.connect()
    for number in range(3):
        await agent.call("lab.echo", {"text": "x"}, call_id=f"k-{number}", conversation=f"c-{number}")
    await until(lambda: len(members(own.home)) >= 2 + wanted, 10, "enough processes are there")
    own.kill()
    await agent.cut()


def _from_a_shell_in_the_background(runtime: Runtime, place: Path) -> None:
    _shell(runtime, place, "{up} >out 2>&1 &")


def _with_nohup_and_setsid(runtime: Runtime, place: Path) -> None:
    _shell(runtime, place, "nohup setsid {up} >out 2>&1 </dev/null &")


def _from_a_subshell_that_ends(runtime: Runtime, place: Path) -> None:
    _shell(runtime, place, "( ( {up} >out 2>&1 & ) & )")


def _detached_by_itself(runtime: Runtime, place: Path) -> None:
    done = runtime.cli("up", "--detach", "--no-open", "--port", "0", "--demo", within_s=60)
    assert done.returncode == 0, done.stderr


def _shell(runtime: Runtime, place: Path, line: str) -> None:
    up = f"{sys.executable} -m lineup_hostshell.cli.main up --no-open --port 0"
    subprocess.run(["sh", "-c", line.format(up=up)], cwd=place, env=runtime.cli_environment(), check=True, timeout=20)


@pytest.mark.parametrize(
    "start",
    [_from_a_shell_in_the_background, _with_nohup_and_setsid, _from_a_subshell_that_ends, _detached_by_itself],
    ids=lambda start: start.__name__.strip("_"),
)
async def test_started_from_any_shell(own: Runtime, tmp_path: Path, start: Start) -> None:
    await asyncio.to_thread(start, own, tmp_path)
    pid = await until(lambda: own.facts().get("pid"), 30, "the Runtime is ready")
    assert own.action("apps.add", "add", path=str(LAB))["accepted"]
    agent = await busy(own, "c-1")
    assert len(members(own.home)) >= 4
    os.kill(pid, signal.SIGKILL)
    await agent.cut()
    until_now(lambda: not members(own.home), 2.0, "everybody is gone")
