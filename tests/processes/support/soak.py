"""A soak of kill cycles from a seed: each is one day of work under a fault, then the verdict over the whole history.

``python -m processes.support.soak --cycles N --seed S``; ``scripts/soak`` calls it. The plan (which fault, where, when)
comes from the seed alone, so that a failing cycle is tried again with ``--seed S --from CYCLE``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from lineup_supervisor.crash_points import CRASH_POINTS
from processes.support.agent import Agent
from processes.support.runtime import LAB, Runtime, runtime
from processes.support.scenario import Day, is_over

# How often a day passes a point, about; one that is not passed so often lets the day end in peace.
PASSINGS = {"commit": 24, "send-worker": 10, "send-agent": 16}
LATEST_S = 0.5
POINTS = tuple(name for name in CRASH_POINTS if not name.startswith("stop-"))


@dataclass(frozen=True)
class Plan:
    """What happens in one cycle. ``point`` is of the form ``name:N``; ``at_s`` counts from the day's beginning."""

    cycle: int
    fault: str
    point: str = ""
    at_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.fault} {self.point}" if self.point else f"{self.fault} at {self.at_s * 1000:.0f} ms"


def plan_of(seed: int, cycle: int) -> Plan:
    rng = random.Random(f"{seed}/{cycle}")
    fault = rng.choice(tuple(FAULTS))
    if fault == "point":
        name = rng.choice(POINTS)
        passings = next(
            (most for part, most in PASSINGS.items() if name.endswith(part)), 1 if name.startswith("boot-") else 2
        )
        return Plan(cycle, fault, point=f"{name}:{rng.randint(1, passings)}")
    return Plan(cycle, fault, at_s=rng.uniform(0.0, LATEST_S))


def _supervisor(found: Runtime) -> None:
    found.send(signal.SIGKILL)


def _workers(found: Runtime) -> None:
    for pid in _worker_pids(found):
        _kill(pid)


def _everybody(found: Runtime) -> None:
    pids = _worker_pids(found)
    found.send(signal.SIGKILL)
    for pid in pids:
        _kill(pid)


def _hostshell(found: Runtime) -> None:
    pid = found.service("hostshell")
    if pid is not None:
        _kill(pid)


def _term(found: Runtime) -> None:
    found.send(signal.SIGTERM)


def _worker_pids(found: Runtime) -> list[int]:
    return [int(row["worker_pid"]) for row in found.query("status")["instances"] if row["worker_pid"]]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it went by itself


FAULTS: dict[str, Callable[[Runtime], None] | None] = {
    "point": None,
    "supervisor": _supervisor,
    "workers": _workers,
    "hostshell": _hostshell,
    "everybody": _everybody,
    "stop": _term,
    "link": None,
}


class Soak:
    """One Runtime and one agent over many cycles."""

    def __init__(self, found: Runtime, seed: int) -> None:
        self.runtime = found
        self.seed = seed
        self.agent = Agent(found, "soak")
        self.faults = 0  # done to it so far

    async def begin(self) -> None:
        assert await self.runtime.start_async(), self.runtime.errors()
        self.runtime.add(LAB)
        await self.agent.connect()
        day = Day(self.runtime, self.agent, "first")
        await day.consent()
        await day.run(self.bring_back)

    async def bring_back(self) -> None:
        """A new run; one that the cycle's own fault hits while it starts is followed by another."""
        while True:
            await is_over(self.runtime)
            await asyncio.to_thread(self.runtime.assert_nobody)
            before = self.faults
            if await self.runtime.start_async():
                return
            assert self.faults > before, f"it did not start: {self.runtime.errors()}"

    async def cycle(self, plan: Plan) -> int:
        """One day under a fault; how often the supervisor died. Raises AssertionError for a broken promise."""
        day = Day(self.runtime, self.agent, f"s{plan.cycle}")
        self.runtime.remember_family()
        if plan.fault == "point":
            await asyncio.to_thread(self.runtime.kill)
            if not await self.runtime.start_async(crash_at=plan.point):
                await self.bring_back()
                day.deaths += 1
        trouble = asyncio.create_task(self._trouble(plan))
        try:
            await day.run(self.bring_back)
            await trouble
            await day.survive(day.verdict, self.bring_back)
        finally:
            trouble.cancel()
        return day.deaths

    async def _trouble(self, plan: Plan) -> None:
        if plan.fault == "point":
            return
        await asyncio.sleep(plan.at_s)  # the moment is what varies; nothing is waited for here
        action = FAULTS[plan.fault]
        if action is None:
            await self.agent.cut()
        elif self.runtime.is_up:
            self.faults += 1
            action(self.runtime)

    async def end(self) -> None:
        await self.agent.leave()
        if self.runtime.is_up:
            assert await asyncio.to_thread(self.runtime.stop) == 0
            await asyncio.to_thread(self.runtime.assert_clean)


async def soak(found: Runtime, seed: int, cycles: range, say: Callable[[str], None]) -> int:
    """Run the cycles and print a verdict for each; the number of those that failed (it stops at the first)."""
    one = Soak(found, seed)
    await one.begin()
    for number in cycles:
        plan, began = plan_of(seed, number), time.monotonic()
        try:
            deaths = await one.cycle(plan)
        except (AssertionError, TimeoutError) as fault:
            say(f"cycle {number} seed {seed}: {plan}: FAILED: {fault}")
            say(traceback.format_exc())
            say(f"again: scripts/soak --seed {seed} --from {number} --cycles 1")
            return 1
        say(f"cycle {number} seed {seed}: {plan}: kept, {deaths} deaths, {time.monotonic() - began:.1f} s")
    await one.end()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first cycle's number")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    with runtime() as found:
        cycles = range(options.first, options.first + options.cycles)
        return asyncio.run(soak(found, seed, cycles, lambda line: print(line, flush=True)))


if __name__ == "__main__":
    sys.exit(main())
