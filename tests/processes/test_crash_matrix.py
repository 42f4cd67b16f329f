"""SIGKILL anywhere (catalogue A1, A3 to A7, A9): each call has one result, real or explicit, and nothing is left."""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import termios
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lineup_supervisor.crash_points import CRASH_POINTS
from processes.support.agent import Agent
from processes.support.judge import assert_kept, settled
from processes.support.runtime import LAB, Runtime, runtime
from processes.support.scenario import Day, is_over, tags
from processes.support.waiting import until, until_async

# Beside the first passing: one in the middle of a day's work. A point that is not named here is tried at its first.
LATER = {"before-commit": (7, 16), "after-commit": (7, 16), "before-send-worker": (4,), "before-send-agent": (5,)}
POINTS = [(name, n) for name in CRASH_POINTS for n in (1, *LATER.get(name, ()))]
PAIRS = [POINTS[at : at + 2] for at in range(0, len(POINTS), 2)]  # two homes at a time, for two cores
next_tag = tags("d")


class Bench:
    """One Runtime with the lab and one agent, for all tests of this module, over all their deaths."""

    def __init__(self, made: Runtime) -> None:
        self.runtime = made
        self.agent = Agent(made, "matrix")

    def day(self) -> Day:
        return Day(self.runtime, self.agent, next_tag())

    async def begin(self) -> None:
        """Up, and the person has agreed to what the lab saves."""
        if not self.runtime.is_up:
            await self.restart()
        if not self.agent.results:
            await self.agent.connect()
            await self.day().consent()
            await self.agent.cut()

    async def restart(self) -> None:
        """After a death: nobody is left, and the next daemon goes on."""
        await is_over(self.runtime)
        await asyncio.to_thread(self.runtime.assert_nobody)
        assert await self.runtime.start_async(), self.runtime.errors()

    async def die_at(self, point: str) -> None:
        """The supervisor dies at this point, somewhere in a day; the day goes on after a restart."""
        found, day = self.runtime, self.day()
        await asyncio.to_thread(found.kill)
        died_at_start = not await found.start_async(crash_at=point)
        if died_at_start:
            await self.restart()
        await day.run(self.restart)
        if point.startswith("stop-"):
            found.send(signal.SIGTERM)
            assert await is_over(found) == -signal.SIGKILL
            await self.restart()
            day.deaths += 1
            await day.survive(day.looked_at, self.restart)
        assert died_at_start or day.deaths == 1, f"{point} was never passed"
        await day.verdict()


@pytest.fixture(scope="module")
def two_benches() -> Iterator[tuple[Bench, Bench]]:
    with runtime() as one, runtime() as two:
        for found in (one, two):
            found.start()
            found.add(LAB)
        yield Bench(one), Bench(two)


@pytest.fixture
async def benches(two_benches: tuple[Bench, Bench]) -> AsyncIterator[tuple[Bench, Bench]]:
    """The agents' tasks belong to one test's loop, so their links end with it."""
    for each in two_benches:
        await each.begin()
    yield two_benches
    for each in two_benches:
        await each.agent.cut()


@pytest.fixture
def bench(benches: tuple[Bench, Bench]) -> Bench:
    return benches[0]


@pytest.mark.parametrize("points", PAIRS, ids=["+".join(f"{name}-{n}" for name, n in pair) for pair in PAIRS])
async def test_every_named_point(benches: tuple[Bench, Bench], points: list[tuple[str, int]]) -> None:
    """A1: before and after each commit, send, start, stop and file; at its first passing, some at later ones too."""
    await asyncio.gather(*(each.die_at(f"{name}:{nth}") for each, (name, nth) in zip(benches, points, strict=False)))


def test_no_point_is_left_out() -> None:
    assert {name for pair in PAIRS for name, _ in pair} == set(CRASH_POINTS)


async def test_an_export_that_was_committed_is_carried_out_by_the_next_run(bench: Bench) -> None:
    """Nobody asks for it again: the call must not run twice. The person was promised the file all the same."""
    found, agent, day = bench.runtime, bench.agent, bench.day()
    await asyncio.to_thread(found.kill)
    assert await found.start_async(crash_at="before-save-blob:1")
    await agent.connect()
    call_id = await day._ask("k", "lab.keep_once", text=day.tag)
    assert await is_over(found) == -signal.SIGKILL
    assert not day.is_exported()
    await agent.cut()
    await bench.restart()
    assert day.is_exported()
    await agent.connect()
    assert (await agent.result(call_id))["error"]["code"] == "outcome_unknown"
    await day.verdict()


async def test_three_kills_during_recovery(bench: Bench) -> None:
    """A3 and A9: open calls in the store; recovery itself is killed three times, at three different steps."""
    day, found = bench.day(), bench.runtime
    await bench.agent.connect()
    for number in range(4):
        await bench.agent.call("lab.hold", {"text": "x", "until_attempt": 2}, call_id=f"{day.tag}-{number}")
        await bench.agent.call("lab.hold_once", {"text": "x", "until_attempt": 9}, call_id=f"{day.tag}-once-{number}")
    await until_async(lambda: _all_running(bench.agent, day.tag, 4), 20, "all of them run")
    found.kill()
    await bench.agent.cut()
    for point in ("before-commit:1", "after-commit:1", "before-start-worker:1"):
        if await found.start_async(crash_at=point):
            assert await is_over(found) == -signal.SIGKILL
        await asyncio.to_thread(found.assert_nobody)
    assert await found.start_async()
    await bench.agent.connect()
    for number in range(4):
        safe = await bench.agent.result(f"{day.tag}-{number}")
        assert safe["status"] == "completed", safe
        once = await bench.agent.result(f"{day.tag}-once-{number}")
        assert once["error"]["code"] == "outcome_unknown", once
    await day.verdict()


async def _all_running(agent: Agent, tag: str, count: int) -> bool:
    names = [f"{tag}-{n}" for n in range(count)] + [f"{tag}-once-{n}" for n in range(count)]
    return all([(await agent.record(name))["status"] == "running" for name in names])


# -- the worker dies


async def lab_worker(bench: Bench) -> int:
    """The pid of the lab's worker in the agent's conversation."""
    scope = "lab"
    return int(await until(lambda: bench.runtime.worker(scope, bench.agent.conversation), 20, "the lab has a worker"))


@pytest.mark.parametrize("tool", ["echo", "once"])
async def test_the_worker_dies_before_it_received(bench: Bench, tool: str) -> None:
    """A4: while its instance is starting. What was never handed over is handed to the next one, run-once or not."""
    day, agent = bench.day(), bench.agent
    await agent.connect()
    await agent.result(await day._ask("finish", "lab.finish", text="x"))  # so that the next one starts anew
    await until(lambda: not bench.runtime.worker("lab", agent.conversation), 10, "the lab is closed")
    call_id = await day._ask("k", f"lab.{tool}", text=day.tag)
    os.kill(await lab_worker(bench), signal.SIGKILL)
    result = await agent.result(call_id)
    assert (result["status"], result["result"]["attempt"]) == ("completed", 1), result
    await day.verdict()


@pytest.mark.parametrize(("tool", "status"), [("hold", "completed"), ("hold_once", "failed")])
async def test_the_worker_dies_while_it_works(bench: Bench, tool: str, status: str) -> None:
    """A4: delivered again with ``attempt + 1`` if the tool is retry_safe, else ``outcome_unknown``."""
    day, agent = bench.day(), bench.agent
    await agent.connect()
    call_id = await day._ask("k", f"lab.{tool}", text=day.tag, until_attempt=2)
    await until_async(lambda: _is(agent, call_id, "running"), 20, "the call runs")
    os.kill(await lab_worker(bench), signal.SIGKILL)
    result = await agent.result(call_id)
    assert result["status"] == status, result
    if status == "completed":
        assert result["result"]["attempt"] == 2
    else:
        assert result["error"]["code"] == "outcome_unknown"
    await day.verdict()


async def _is(agent: Agent, call_id: str, status: str) -> bool:
    return bool((await agent.record(call_id))["status"] == status)


@pytest.mark.parametrize("tool", ["on_cue", "on_cue_once"])
async def test_the_worker_dies_after_it_sent(bench: Bench, tool: str) -> None:
    """A4: its result lies in the supervisor's socket when it dies, and was never acknowledged to it."""
    day, agent, found = bench.day(), bench.agent, bench.runtime
    await agent.connect()
    call_id = await day._ask("k", f"lab.{tool}", text=day.tag)
    await until_async(lambda: _is(agent, call_id, "running"), 20, "the call runs")
    pid = await lab_worker(bench)
    with stopped(found.pid):
        cue(pid).touch()
        await until(lambda: unread_bytes(found.pid) > 0, 5, "the worker's result lies in the supervisor's socket")
        os.kill(pid, signal.SIGKILL)
    result = await agent.result(call_id)
    if result["status"] != "completed":
        assert (tool, result["error"]["code"]) == ("on_cue_once", "outcome_unknown"), result
    await day.verdict()


def cue(pid: int) -> Path:
    """The file inside a worker's own ``/tmp`` for which ``lab.on_cue`` waits."""
    return Path("/proc", str(pid), "root", "tmp", "cue")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP for the time of a block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def unread_bytes(pid: int) -> int:
    """What lies unread in the workers' sockets (SOCK_STREAM, unix) of a process; read without disturbing it."""
    total = 0
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith("socket:"):
                continue
            copy = _pidfd_getfd(pid, int(descriptor))
        except OSError:
            continue
        with socket.socket(fileno=copy) as found:
            if found.family != socket.AF_UNIX or found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            waiting = array.array("i", [0])
            fcntl.ioctl(found, termios.FIONREAD, waiting)
            total += waiting[0]
    return total


def _pidfd_getfd(pid: int, descriptor: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        copy = int(libc.syscall(438, pidfd, descriptor, 0))
    finally:
        os.close(pidfd)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return copy


async def test_a_worker_that_keeps_dying_is_given_up(bench: Bench) -> None:
    """Restart intensity: the sixth end within a minute closes the instance; its calls end as ``app_crashed``."""
    day, agent = bench.day(), bench.agent
    await agent.connect()
    call_id = await day._ask("k", "lab.die", text=day.tag, until_attempt=1_000_000)
    result = await agent.result(call_id, 40)
    assert (result["status"], result["error"]["code"]) == ("failed", "app_crashed"), result
    await agent.call("lab.echo", {"text": "again"}, call_id=f"{day.tag}-again")
    assert (await agent.result(f"{day.tag}-again"))["status"] == "completed"
    await day.verdict()


# -- others die, or stand still


async def test_hostshell_is_killed(bench: Bench) -> None:
    """It comes back on the same port; the agent reconnects; nothing is lost and nothing comes twice."""
    day, agent, found = bench.day(), bench.agent, bench.runtime
    await agent.connect()
    url = found.facts()["agent_url"]
    call_id = await day._ask("k", "lab.hold", text=day.tag, until_attempt=1_000_000)
    await until_async(lambda: _is(agent, call_id, "running"), 20, "the call runs")
    pid = found.service("hostshell")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: agent.closed, 5, "the link is gone")
    await until(lambda: found.service("hostshell") not in (None, pid), 10, "it is started again")
    assert await _is_connected_again(day, agent)
    assert found.facts()["agent_url"] == url
    await agent.say("tool.cancel", {"call_id": call_id})
    assert (await agent.result(call_id))["status"] == "cancelled"
    await day.run(bench.restart)
    assert day.deaths == 0
    await day.verdict()


async def _is_connected_again(day: Day, agent: Agent) -> bool:
    await day.survive(day.looked_at, _nobody_dies)
    return agent.is_connected


async def _nobody_dies() -> None:
    raise AssertionError("the supervisor has died")


async def test_the_link_is_cut_before_the_acknowledgement(bench: Bench) -> None:
    """A7: the same seq and message_id come again, and only until they are acknowledged."""
    day, agent = bench.day(), bench.agent
    agent.acks = False
    try:
        await agent.connect()
        call_id = await day._ask("k", "lab.echo", text=day.tag)
        await agent.result(call_id)
        sent = [frame for frame in agent.frames if frame.get("seq") == agent.taken_seq]
        for _ in range(3):
            await agent.cut()
            await agent.connect()
            await agent.until(lambda: agent.frames[-1].get("seq") == agent.taken_seq, 5, "the result again")
        again = [frame for frame in agent.frames if frame.get("seq") == agent.taken_seq]
        assert again == sent * 4
        await agent.ack()
    finally:
        agent.acks = True
    await day.verdict()


async def test_supervisor_and_workers_are_killed_together(bench: Bench) -> None:
    """A5: six calls, everything dies at once; after the restart all six end, each once."""
    day, agent, found = bench.day(), bench.agent, bench.runtime
    await agent.connect()
    for number in range(3):
        await agent.call("lab.hold", {"text": "x", "until_attempt": 2}, call_id=f"{day.tag}-{number}")
        await agent.call("lab.hold_once", {"text": "x", "until_attempt": 2}, call_id=f"{day.tag}-once-{number}")
    await until_async(lambda: _all_running(agent, day.tag, 3), 20, "all of them run")
    pids = [row["worker_pid"] for row in found.query("status")["instances"] if row["worker_pid"]]
    assert pids
    found.remember_family()
    for pid in (found.pid, *pids):
        with contextlib.suppress(
            ProcessLookupError
        ):  # a worker may be gone already: it does not outlive its supervisor
            os.kill(pid, signal.SIGKILL)
    await agent.cut()
    await bench.restart()
    await agent.connect()
    for number in range(3):
        assert (await agent.result(f"{day.tag}-{number}"))["result"]["attempt"] == 2
        assert (await agent.result(f"{day.tag}-once-{number}"))["error"]["code"] == "outcome_unknown"
    await day.verdict()


async def test_the_supervisor_stands_still_past_a_deadline(bench: Bench) -> None:
    """A6: SIGSTOP past the call's time, with the worker's result in the socket: one end, whichever came first."""
    day, agent, found = bench.day(), bench.agent, bench.runtime
    await agent.connect()
    await agent.result(await day._ask("warm", "lab.echo", text=day.tag))
    call_id = await day._ask("k", "lab.brief", text=day.tag)
    await until_async(lambda: _is(agent, call_id, "running"), 5, "the call runs")
    pid = await lab_worker(bench)
    with stopped(found.pid):
        over_at = time.monotonic() + 0.6  # the call's time is 0.3 s
        await until(lambda: time.monotonic() > over_at, 5, "its time is over")
    result = await agent.result(call_id)
    assert (result["status"], result["error"]["code"]) == ("expired", "tool_timeout")
    assert await lab_worker(bench) == pid, "nobody is hung because the supervisor stood still"
    await day.verdict()


async def test_a_worker_stands_still_and_goes_on(bench: Bench) -> None:
    """SIGSTOP and SIGCONT of a worker within the heartbeat's patience: the call goes on in the same process."""
    day, agent = bench.day(), bench.agent
    await agent.connect()
    call_id = await day._ask("k", "lab.on_cue", text=day.tag)
    await until_async(lambda: _is(agent, call_id, "running"), 20, "the call runs")
    pid = await lab_worker(bench)
    with stopped(pid):
        cue(pid).touch()
        await agent.send_frame(agent.frame("ping", {}))
        await agent.until(lambda: agent.frames[-1]["type"] == "lineup.v1.pong", 5, "others are served")
        assert call_id not in agent.results
    result = await agent.result(call_id)
    assert (result["status"], result["result"]["attempt"]) == ("completed", 1)
    cue(pid).unlink()
    await day.verdict()


async def test_hostshell_stands_still_and_goes_on(bench: Bench) -> None:
    """SIGSTOP and SIGCONT of hostshell: the work goes on behind it, and all of it arrives afterwards, once."""
    day, agent, found = bench.day(), bench.agent, bench.runtime
    await agent.connect()
    call_id = await day._ask("k", "lab.on_cue", text=day.tag)
    await until_async(lambda: _is(agent, call_id, "running"), 20, "the call runs")
    pid, worker = found.service("hostshell"), await lab_worker(bench)
    assert pid is not None
    with stopped(pid):
        cue(worker).touch()
        await until(lambda: found.query("call", call_id=call_id)["status"] == "completed", 10, "the call has ended")
        await agent.send_frame(agent.frame("ping", {}))
        answer = found.action("person.text", day._id("p"), conversation_id=agent.conversation, text=f"from {day.tag}")
        assert answer["accepted"], answer
        assert call_id not in agent.results
    assert (await agent.result(call_id))["status"] == "completed"
    await agent.until(lambda: f"from {day.tag}" in [text["text"] for text in agent.texts], 5, "the person's text")
    await agent.until(lambda: agent.frames[-1]["type"] == "lineup.v1.pong", 5, "and the answer to the ping")
    assert found.service("hostshell") == pid
    cue(worker).unlink()
    await day.verdict()


async def test_a_hung_worker_counts_as_crashed(own: Runtime) -> None:
    """No pongs: it is killed as hung, and its retry_safe call is delivered to the next one."""
    (own.home / "config.toml").write_text("[workers]\nheartbeat_ms = 100\nmissed_heartbeats_max = 3\n")
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("lab.hold", {"text": "x", "until_attempt": 2}, call_id="k")
    await until_async(lambda: _is(agent, "k", "running"), 20, "the call runs")
    pid = own.worker("lab")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert (await agent.result("k"))["result"]["attempt"] == 2
    await settled(own, agent)
    rows = assert_kept(own, agent)
    assert "hung" in [row["detail"].get("reason") for row in rows if row["kind"] == "worker.exited"]
    await agent.leave()
    assert own.stop() == 0
    own.assert_clean()


async def test_the_homes_are_whole_at_the_end(benches: tuple[Bench, Bench]) -> None:
    """After all these deaths: the chain verifies by the command line, a clean stop works, and nothing is left."""
    for each in benches:
        found, agent = each.runtime, each.agent
        await agent.connect()
        await settled(found, agent)
        assert_kept(found, agent)
        verified = await asyncio.to_thread(found.cli, "audit", "verify")
        assert verified.returncode == 0, verified.stderr
        await agent.leave()
        assert await asyncio.to_thread(found.stop) == 0
        await asyncio.to_thread(found.assert_clean)
