"""Constant load on one real Runtime: calls at a steady rate, questions to a person, workers and hostshell that die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lineup_agent import AgentLink
from lineup_hostshell.cli.link import open_link
from lineup_hostshell.runtime_link import RuntimeClient

ECHO = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks" / "echo"
READY_S = 60.0
ENDS_WITHIN_S = 180.0
QUESTION_EVERY_S = 1.0
WORKER_DIES_EVERY_S = 20.0
HOSTSHELL_DIES_EVERY_S = 300.0
CONVERSATIONS = 8
OPEN_MAX = 500  # well below what an agent may have open
# Bounds that a run of some minutes reaches, so that it shows what a year shows with those of a person.
CONFIG = """\
[retention]
calls_max = 2000
interactions_max = 1000
sessions_max = 100
audit_rows_max = 10000
"""


class Load:
    """See the module. ``latencies`` has the seconds of each call since it was last emptied."""

    def __init__(self, home: Path, rate: float) -> None:
        self.home = home
        self.rate = rate
        self.latencies: list[float] = []
        self.calls = self.questions = self.unknown = self.kills = self.skipped = 0
        self.failures: list[str] = []
        self._rng = random.Random(1)
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Everything at once, until the time is over and nothing is open any more."""
        agent = AgentLink.from_home(self.home, agent_id="endurance", take_texts=False)
        with open_link(self.home) as person, open_link(self.home) as operator:
            async with agent as link:
                ends_at = time.monotonic() + seconds
                lanes = [
                    self._calls(link, ends_at),
                    self._questions(link, person, ends_at),
                    self._deaths(operator, ends_at),
                ]
                await asyncio.gather(*lanes)
                await self._end_of_all()

    async def _calls(self, link: AgentLink, ends_at: float) -> None:
        begin = time.monotonic()
        number = 0
        while (now := time.monotonic()) < ends_at:
            while number < (now - begin) * self.rate:
                number += 1
                if len(self._running) >= OPEN_MAX:  # the machine is too slow for this rate just now
                    self.skipped += 1
                    continue
                task = asyncio.create_task(self._call(link, number))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            await asyncio.sleep(0.5 / self.rate)

    async def _call(self, link: AgentLink, number: int) -> None:
        begin = time.perf_counter()
        text = f"call {number}"
        result = await link.call("bench-echo.echo", {"text": text}, conversation_id=f"c{number % CONVERSATIONS}")
        self.latencies.append(time.perf_counter() - begin)
        self.calls += 1
        if result.error_code == "outcome_unknown":  # its worker was killed by us while it ran
            self.unknown += 1
        elif not result.completed or result.result != {"text": text}:
            self.failures.append(f"{text}: {result}")

    async def _end_of_all(self) -> None:
        """Every call has to come to its end, however slow the machine."""
        if not self._running:
            return
        ended, open_ = await asyncio.wait(self._running, timeout=ENDS_WITHIN_S)
        for task in ended:
            task.result()
        if open_:
            self.failures.append(f"{len(open_)} calls have no result after {ENDS_WITHIN_S:g} s more")

    async def _questions(self, link: AgentLink, person: RuntimeClient, ends_at: float) -> None:
        while time.monotonic() < ends_at:
            await asyncio.sleep(QUESTION_EVERY_S)
            handle = await link.start_call(
                "confirm", {"title": "Sure?", "prompt": f"Question {self.questions}"}, conversation_id="questions"
            )
            await handle.accepted()
            await asyncio.to_thread(self._answer, person)
            result = await handle.result(ENDS_WITHIN_S)
            self.questions += 1
            if result.result != {"approved": True}:
                self.failures.append(f"question {self.questions}: {result}")

    def _answer(self, person: RuntimeClient) -> None:
        for row in person.query("interactions")["interactions"]:
            answer = {"interaction_id": row["interaction_id"], "result": {"approved": True}}
            person.action("interaction.answer", answer)

    async def _deaths(self, operator: RuntimeClient, ends_at: float) -> None:
        begin = time.monotonic()
        hostshell_at = begin + HOSTSHELL_DIES_EVERY_S
        while time.monotonic() + WORKER_DIES_EVERY_S < ends_at:
            await asyncio.sleep(WORKER_DIES_EVERY_S)
            status = await asyncio.to_thread(operator.query, "status")
            pids = [row["worker_pid"] for row in status["instances"] if row["worker_pid"]]
            if pids:
                self._kill(self._rng.choice(pids))
            if time.monotonic() > hostshell_at:
                hostshell_at += HOSTSHELL_DIES_EVERY_S
                self._kill(status["services"][0]["pid"])

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1


@contextlib.contextmanager
def running(home: Path) -> Iterator[int]:
    """A Runtime in ``home`` with the echoing MiniApp; its pid. It must end cleanly."""
    (home / "config.toml").write_text(CONFIG)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(home), "--port", "0"],
        stdout=subprocess.DEVNULL,
    )
    try:
        give_up = time.monotonic() + READY_S
        while not (home / "run" / "runtime.json").exists():
            if daemon.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"the Runtime did not start ({daemon.poll()})")
            time.sleep(0.05)
        cli(home, "apps", "add", str(ECHO))
        yield daemon.pid
    finally:
        if daemon.poll() is None:
            daemon.terminate()
        if daemon.wait(60) != 0:
            raise RuntimeError(f"the Runtime ended with {daemon.returncode}")


def cli(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "lineup_hostshell.cli.main", *arguments]
    environment: dict[str, Any] = {**os.environ, "LINEUP_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"lineup {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
