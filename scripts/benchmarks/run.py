"""Runs the benchmarks: every figure is a ratio against a floor or a peer measured in this very run."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import floors
import huey_peer
import interactions
import psutil
import runtime

SEQUENTIAL_CALLS = 400
LOADED_CALLS = 3000
IN_FLIGHT = 64
RSS_MIB_MAX = 80
INSTANCES = 10


@dataclass(frozen=True)
class Figure:
    """One line of the report. ``budget`` bounds ``ratio`` from above, or from below if ``at_least``."""

    name: str
    ratio: float
    budget: float
    of: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.ratio >= self.budget if self.at_least else self.ratio <= self.budget

    def line(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{'ok ' if self.holds else 'OVER'}  {self.name}: {self.ratio:.2f} {sign} {self.budget:g} × {self.of}"


def round_trip_and_throughput() -> list[Figure]:
    """One fsynced call at a time, then 64 in flight, over the real link, sandbox and store."""
    floor = 2 * floors.durable_commit_s() + 2 * floors.zmq_round_trip_s()
    peer = huey_peer.calls_per_s()

    async def drive(facts: dict[str, object], at: runtime.Path) -> tuple[float, float]:
        async with runtime.agent(facts, at) as agent:
            times = []
            for n in range(SEQUENTIAL_CALLS + 50):
                begin = time.perf_counter()
                result = await agent.call("bench-echo.echo", {"text": str(n)}, "bench")
                times.append(time.perf_counter() - begin)
                assert result["status"] == "completed", result
            left = iter(range(LOADED_CALLS))

            async def lane() -> None:
                for n in left:
                    result = await agent.call("bench-echo.echo", {"text": str(n)}, "bench")
                    assert result["result"] == {"text": str(n)}, result

            begin = time.perf_counter()
            await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
            return statistics.median(times[50:]), LOADED_CALLS / (time.perf_counter() - begin)

    with runtime.home() as at, runtime.running(at) as facts:
        runtime.cli(at, "apps", "add", str(runtime.HERE / "echo"))
        median, rate = asyncio.run(drive(facts, at))
    return [
        Figure("durable call round trip, p50", median / floor, 6, "(2 LMDB commits + 2 ZeroMQ round trips)"),
        Figure(f"calls per second, {IN_FLIGHT} in flight", rate / peer, 1, "huey on SQLite", at_least=True),
    ]


def memory() -> list[Figure]:
    """Resident memory of the supervisor with ten instances that have a worker each."""

    async def open_instances(facts: dict[str, object], at: runtime.Path) -> None:
        async with runtime.agent(facts, at) as agent:
            calls = [agent.call("bench-echo.echo", {"text": "x"}, f"c{n}") for n in range(INSTANCES)]
            for result in await asyncio.gather(*calls):
                assert result["status"] == "completed", result

    with runtime.home() as at, runtime.running(at) as facts:
        runtime.cli(at, "apps", "add", str(runtime.HERE / "echo"))
        asyncio.run(open_instances(facts, at))
        status = json.loads(runtime.cli(at, "status", "--json"))
        workers = sum(1 for row in status["instances"] if row["worker_pid"])
        assert workers >= INSTANCES, f"only {workers} workers"
        resident = psutil.Process(facts["pid"]).memory_info().rss / 2**20
    return [Figure(f"supervisor resident, {INSTANCES} instances", resident, RSS_MIB_MAX, "1 MiB")]


def start() -> list[Figure]:
    """Start of the daemon on a store with 100,000 finished and 1,000 open calls against an empty one."""
    import fill

    def once(prepare: Callable[[runtime.Path], None]) -> float:
        times = []
        with runtime.home() as at:
            with runtime.running(at, "--no-web"):
                pass
            prepare(at)
            for _ in range(3):
                begin = time.perf_counter()
                with runtime.running(at, "--no-web"):
                    times.append(time.perf_counter() - begin)
        return min(times)

    empty = once(lambda at: None)
    full = once(lambda at: fill.fill(at, finished=100_000, open_=1_000))
    return [
        Figure("start with 100,000 finished and 1,000 open calls", full / empty, 2, "the start with an empty store")
    ]


def operations() -> list[Figure]:
    """What pending deadlines cost, and how late they are under a load of calls."""
    import operations as deadlines

    cost, accuracy = deadlines.cost(), deadlines.accuracy()
    many = f"{deadlines.PENDING:,} pending operations"
    load = f"{deadlines.SPREAD:,} operations over {deadlines.SPREAD_S} s under {deadlines.CALLS_PER_S} calls/s"
    return [
        Figure(f"start with {many}", cost.start_ratio, 1.25, "the start with an empty store"),
        Figure(f"idle with {many}", cost.idle_percent, 1, "1 % of a core"),
        Figure(f"{load}, decided late, p99", accuracy.decided_ms, 20, "1 ms"),
        Figure(f"{load}, result at the agent, p99", accuracy.heard_ms, 60, "1 ms"),
        Figure(f"{load}, decided or heard early", accuracy.early, 0, "one operation"),
    ]


def questions() -> list[Figure]:
    """A thousand questions of an agent, each answered by a person, over real links, workers and store."""
    commits_per_s = 1 / floors.durable_commit_s()
    with runtime.home() as at, runtime.running(at) as facts:
        runtime.cli(at, "apps", "add", str(runtime.HERE / "echo"))
        answered, calls = asyncio.run(interactions.per_s(facts, at))
    name = f"{interactions.QUESTIONS} interactions in {interactions.CONVERSATIONS} conversations, answered per second"
    return [
        Figure(name, answered / commits_per_s, 0.05, "LMDB commits per second", at_least=True),
        Figure(name, answered / calls, 0.3, "plain calls per second", at_least=True),
    ]


def isolation() -> list[Figure]:
    """Start of a worker in its sandbox against the same worker with resource limits alone."""
    import isolation

    sandboxed, bare = asyncio.run(isolation.starts())
    return [Figure("start of a sandboxed worker (S3)", sandboxed / bare, 1.35, "the same worker unsandboxed (S1)")]


def workspace() -> list[Figure]:
    """What a person at the workspace waits for, in a real Chromium."""
    import workspace as page

    load, scroll, drawing = page.measure()
    history = f"{page.MESSAGES:,} messages scrolled from end to end"
    return [
        Figure("workspace, warm load: first paint", load.painted_ms, 500, "1 ms"),
        Figure("workspace, warm load: the conversation can be used", load.usable_ms, 1_000, "1 ms"),
        Figure("workspace, first load: files, packed", load.gzip_kib, 300, "1 KiB"),
        Figure(f"{history}: frames", scroll.frames_per_s / scroll.floor_per_s, 0.9, "an empty page's", at_least=True),
        Figure(f"{history}: main thread in a frame", scroll.work_ms, 12, "1 ms"),
        Figure(f"{history}: longest task", scroll.longest_task_ms, 100, "1 ms"),
        Figure(f"{page.STROKES:,} strokes drawn: input to frame, p99", drawing.lag_p99_ms, 50, "1 ms"),
    ]


BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "calls": round_trip_and_throughput,
    "interactions": questions,
    "memory": memory,
    "start": start,
    "isolation": isolation,
    "operations": operations,
    "workspace": workspace,
}


def main(names: list[str]) -> int:
    if "--list" in names:
        print("\n".join(BENCHMARKS))
        return 0
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    held = True
    for name in names or BENCHMARKS:
        for figure in BENCHMARKS[name]():
            print(figure.line(), flush=True)
            held &= figure.holds
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
