"""Every way to end (catalogue J1 to J5) leaves the same settled state: nothing alive, nothing open, nothing lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes.support.agent import Agent
from processes.support.judge import assert_kept, settled
from processes.support.runtime import BUNDLES, LAB, STUBBORN, Runtime, runtime
from processes.support.waiting import until, until_async, until_now

GRACE_S = 1.0
CONFIG = "[workers]\nstop_grace_ms = 1000\n"
SLACK_S = 3.0  # a busy machine
SLOW = BUNDLES / "slow"


@pytest.fixture
def own() -> Iterator[Runtime]:
    """A Runtime of this test alone, with a short grace for workers."""
    with runtime(CONFIG) as made:
        yield made


async def _runs(agent: Agent, call_id: str) -> bool:
    return bool((await agent.record(call_id))["status"] == "running")


async def test_j1_idle_it_ends_at_once(own: Runtime) -> None:
    own.start()
    began = time.monotonic()
    assert own.stop() == 0
    assert time.monotonic() - began < 2.0  # two processes, one of them a web server
    own.assert_clean()


async def test_j1_busy_it_ends_within_the_grace_and_the_call_goes_on_after_the_next_start(own: Runtime) -> None:
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("lab.hold", {"text": "x", "until_attempt": 2}, call_id="safe")
    await agent.call("lab.hold_once", {"text": "x", "until_attempt": 2}, call_id="once")
    await until_async(lambda: _runs(agent, "safe"), 20, "the first runs")
    await until_async(lambda: _runs(agent, "once"), 20, "the second runs")
    began = time.monotonic()
    assert own.stop() == 0
    assert time.monotonic() - began < GRACE_S + SLACK_S
    own.assert_clean()
    await until(lambda: agent.closed, 5, "the agent was told")
    assert agent.closed is not None
    assert agent.closed[0] in (1001, 1012)
    own.start()
    await agent.cut()
    await agent.connect()
    assert (await agent.result("safe"))["result"]["attempt"] == 2
    assert (await agent.result("once"))["error"]["code"] == "outcome_unknown"
    await settled(own, agent)
    assert_kept(own, agent)
    await agent.leave()


async def test_j1_a_worker_that_ignores_it_is_killed(own: Runtime) -> None:
    """F2 as well: between the request and SIGKILL nobody starts it again."""
    own.start()
    own.add(STUBBORN)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("stubborn.block", {"text": "x"}, call_id="k")
    await agent.until(lambda: "k" in agent.progress, 20, "it is blocked")
    began = time.monotonic()
    assert own.stop() == 0
    took_s = time.monotonic() - began
    assert GRACE_S * 0.8 < took_s < GRACE_S + SLACK_S
    own.assert_clean()
    await agent.cut()
    own.start("--no-web", "--port", "0")
    rows, _ = own.audit()
    stopping = next(row["seq"] for row in rows if row["kind"] == "runtime.stopping")
    ended = next(row["seq"] for row in rows if row["kind"] == "runtime.stopped")
    between = [row["kind"] for row in rows if stopping < row["seq"] < ended]
    assert "worker.starting" not in between
    assert "worker.exited" in between


async def test_j2_in_the_middle_of_many_slow_starts(own: Runtime) -> None:
    own.start()
    own.add(SLOW)
    agent = Agent(own, "a")
    await agent.connect()
    for number in range(50):
        await agent.call("slow.echo", {"text": "x"}, call_id=f"k-{number}", conversation=f"c-{number}")
    await until(lambda: own.query("status")["workers"]["starting"] == 2, 20, "as many as one MiniApp may have")
    await agent.until(lambda: not agent.has_unanswered, 20, "all are accepted")
    began = time.monotonic()
    assert own.stop() == 0
    assert time.monotonic() - began < GRACE_S + SLACK_S
    own.assert_clean()
    await agent.cut()
    own.start("--no-web", "--port", "0")
    assert own.query("status")["open_calls"] == 50


@pytest.mark.parametrize("signals", [("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT", "SIGTERM")])
async def test_j3_asked_twice_it_hurries(own: Runtime, signals: tuple[str, ...]) -> None:
    patience_s = 30
    (own.home / "config.toml").write_text(f"[workers]\nstop_grace_ms = {patience_s * 1000}\n")
    own.start()
    own.add(STUBBORN)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("stubborn.block", {"text": "x"}, call_id="k")
    await agent.until(lambda: "k" in agent.progress, 20, "it is blocked")
    own.remember_family()
    began = time.monotonic()
    own.send(signal.Signals[signals[0]])
    await until(lambda: not own.facts(), 5, "it is stopping")
    for name in signals[1:]:
        own.send(signal.Signals[name])
    assert own.wait_over() == 0
    assert time.monotonic() - began < patience_s / 2
    own.assert_clean()
    await agent.cut()


def test_j3_a_hangup_or_a_closed_terminal_is_no_reason_to_end(own: Runtime) -> None:
    own.start()
    own.send(signal.SIGHUP)
    until_now(lambda: "SIGHUP ignored" in [row["event"] for row in own.log()], 5, "it was noticed")
    assert own.query("status")["boot_id"]
    assert own.stop() == 0

    # In a terminal of its own, which is then closed: SIGHUP by the kernel, and EIO at every word it prints.
    child, terminal = pty.fork()
    if child == 0:
        argv = own.cli_argv("up", "--no-open", "--port", "0")
        os.execve(argv[0], argv, own.cli_environment())
    try:
        until_now(lambda: own.facts().get("pid") == child, 30, "it is ready")
        os.close(terminal)
        assert own.query("status")["boot_id"]
        family = own.remember_family()
        assert family
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    own.assert_clean()


def test_j3_nobody_reads_what_it_prints(own: Runtime) -> None:
    """stdout and stderr are pipes without a reader: EPIPE at the word of readiness, and it goes on."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(own.home), "--port", "0"]
    process = subprocess.Popen(argv, stdout=writer, stderr=writer)
    os.close(writer)
    try:
        until_now(lambda: own.facts().get("pid") == process.pid, 30, "it is ready")
        assert own.query("status")["boot_id"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    own.assert_clean()


async def test_j4_what_was_not_sent_is_kept_and_holds_nobody_up(own: Runtime) -> None:
    own.start()
    own.add(LAB)
    agent = Agent(own, "a", acks=False)
    await agent.connect()
    big = "x" * 60_000
    for number in range(20):
        await agent.call("lab.echo", {"text": big}, call_id=f"k-{number}")
    await agent.until(lambda: len(agent.results) == 20, 30, "twenty results")
    await agent.cut()
    assert own.action("person.text", "p", conversation_id=agent.conversation, text="are you there?")["accepted"]
    began = time.monotonic()
    assert own.stop() == 0
    assert time.monotonic() - began < GRACE_S + SLACK_S
    own.assert_clean()
    own.start()
    await agent.connect()
    await agent.until(lambda: agent.texts, 10, "the text that waited")
    again = [frame["seq"] for frame in agent.frames if "seq" in frame][20:]
    assert again == list(range(1, 22)), "all of the outbox comes again, in order, the new text last"
    await agent.ack()
    await settled(own, agent)
    assert_kept(own, agent)
    await agent.leave()


async def test_j5_a_fatal_error_is_loud_and_leaves_nothing_behind(own: Runtime, tmp_path: Path) -> None:
    """hostshell cannot start: exit code not 0, one sentence, sockets and lock released; the next start is clean."""
    broken = tmp_path / "lineup_hostshell"
    broken.mkdir()
    (broken / "__init__.py").write_text("")
    (broken / "__main__.py").write_text("raise SystemExit('the web has no room today')\n")
    own.begin(PYTHONPATH=str(tmp_path))
    own.remember_family()
    assert own.wait_over() not in (0, None)
    assert "hostshell could not start" in own.errors()
    assert "the web has no room today" in own.errors()
    assert "Traceback" not in own.errors()
    own.assert_clean()
    own.start()
    assert own.stop() == 0
    own.assert_clean()
