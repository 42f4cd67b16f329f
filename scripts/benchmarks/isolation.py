"""What isolation costs: the start of one worker, from the decision to its first word, in a sandbox and without one."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import runtime

from lineup_supervisor.edges.logs import LogDirectory
from lineup_supervisor.edges.sandbox_policy import Level
from lineup_supervisor.edges.spawner import Spawner
from lineup_supervisor.edges.workers import HostSettings, WorkerHost

ROUNDS = 25
FIRST_WORD_S_MAX = 30


async def start_s(host: WorkerHost, level: Level) -> float:
    """Seconds until the worker has said hello over its link; then it is ended."""
    loop = asyncio.get_running_loop()
    said: asyncio.Future[float] = loop.create_future()
    over: asyncio.Future[None] = loop.create_future()
    begin = time.perf_counter()

    def on_message(payload: bytes) -> None:
        if not said.done():
            said.set_result(time.perf_counter() - begin)

    worker = host.start_worker(
        "bench",
        1,
        app_scope="bench-echo",
        bundle_path=str(runtime.HERE / "echo"),
        limits={},
        level=level,
        on_started=lambda pid, level: None,
        on_message=on_message,
        on_exited=lambda reason, detail, code: over.set_result(None),
    )
    took = await asyncio.wait_for(said, FIRST_WORD_S_MAX)
    worker.kill("stopped", "measured")
    await over
    return took


async def starts() -> tuple[float, float]:
    """Medians of starts at S3 and at S1, taken in turn so that both meet the same machine."""
    with tempfile.TemporaryDirectory(prefix="lub-") as folder:
        logs = LogDirectory(Path(folder, "logs"))
        host = WorkerHost(HostSettings(Path(folder, "run"), logs, ("S3", "S1")), Spawner())
        found: dict[Level, list[float]] = {"S3": [], "S1": []}
        for _ in range(ROUNDS + 2):
            for level, times in found.items():
                times.append(await start_s(host, level))
        logs.close()
    return statistics.median(found["S3"][2:]), statistics.median(found["S1"][2:])
