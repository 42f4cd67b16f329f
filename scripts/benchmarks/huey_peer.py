"""What a user would take instead for durable calls: huey on SQLite with fsync, one consumer thread."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONSUMER_POLL_S = 0.002
CALLER_POLL_S = 0.001
CONSUMER_OPTIONS = ["-w", "1", "-k", "thread", "-d", str(CONSUMER_POLL_S), "-m", str(CONSUMER_POLL_S), "-s", "1", "-q"]

if os.environ.get("BENCH_HUEY_FILE"):
    from huey import SqliteHuey

    H = SqliteHuey("bench", filename=os.environ["BENCH_HUEY_FILE"], fsync=True, timeout=60)

    @H.task()
    def echo(value: int) -> int:
        return value


def calls_per_s(calls: int = 1500, in_flight: int = 64) -> float:
    """Throughput of ``calls`` durable calls with ``in_flight`` open at once."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        env = {**os.environ, "BENCH_HUEY_FILE": f"{folder}/huey.db", "PYTHONPATH": str(HERE)}
        consumer = subprocess.Popen(
            [sys.executable, "-m", "huey.bin.huey_consumer", "huey_peer.H", *CONSUMER_OPTIONS],
            env=env,
            cwd=HERE,
        )
        try:
            # Imported by name on both sides: huey finds a task by its module.
            drive = f"import huey_peer; print(huey_peer.drive({calls}, {in_flight}))"
            caller = [sys.executable, "-c", drive]
            return float(
                subprocess.run(caller, env=env, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True).stdout
            )
        finally:
            consumer.terminate()
            consumer.wait(10)


def _result(pending: object) -> None:
    give_up = time.time() + 60
    while pending.get() is None:  # type: ignore[attr-defined]
        if time.time() > give_up:
            raise TimeoutError("huey gave no result in 60 s")
        time.sleep(CALLER_POLL_S)


def drive(calls: int, in_flight: int) -> float:
    _result(echo(1))
    window: list[object] = []
    begin = time.perf_counter()
    for n in range(calls):
        if len(window) == in_flight:
            _result(window.pop(0))
        window.append(echo(n + 1))
    for pending in window:
        _result(pending)
    return calls / (time.perf_counter() - begin)
