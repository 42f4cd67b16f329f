"""A day's calls and more in a few minutes: the real core over the store in memory, with retention as it ships.

Ages and counts are those of the policy given; the clock moves so that all calls fill the hours asked for. Nothing here
keeps what it has seen, so that what grows is the Runtime's.
"""

from __future__ import annotations

import time

import psutil

from endurance.verdict import Curve, judge
from lineup_hostshell.cli.audit_chain import ChainCheck
from lineup_supervisor.core import invariants
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import TABLES
from lineup_supervisor.edges.store_memory import MemoryStore
from storage.traffic import Traffic

# The audit leaves in files of ten thousand rows, which are some forty thousand with their index.
PARTS = 40
DAY_MS = 86_400_000
BATCH = 128
CURVES = (Curve("resident memory", "MiB", 0.15, 30), Curve("rows of all tables", "rows", 0.05, 50_000))


def run(calls: int) -> int:
    """Print one line for each part and the verdict; the exit code."""
    policy = Policy(calls_kept_max=max(1_000, calls // 100), audit_rows_max=max(10_000, calls // 25))
    traffic = Traffic(MemoryStore(TABLES), policy)
    traffic.boot()
    each, chain = max(1, calls // PARTS), ChainCheck()
    times, memory, rows = [], [], []
    for part in range(PARTS):
        begin = time.monotonic()
        traffic.calls(part * each, each, ms=max(1, DAY_MS // PARTS * BATCH // each))
        for _ in range(200):
            traffic.pass_time(1_000)
        assert len(traffic.results) == each, f"{each} calls and {len(traffic.results)} results"
        assert all(result["status"] == "completed" for result in traffic.results.values())
        for row in traffic.archive:
            chain.take(row)
        assert chain.broken is None, chain.broken
        traffic.forget()
        times.append(float(part))
        memory.append(psutil.Process().memory_info().rss / 2**20)
        rows.append(float(count(traffic)))
        rate = each / (time.monotonic() - begin)
        print(f"{(part + 1) * each:>9} calls, {rate:5.0f}/s, {memory[-1]:6.0f} MiB, {rows[-1]:9.0f} rows", flush=True)
    with traffic.store.read() as txn:
        faults = invariants.find_faults(txn)
    assert faults == [], faults
    verdicts = [judge(curve, times, values) for curve, values in zip(CURVES, (memory, rows), strict=True)]
    for verdict in verdicts:
        print(verdict.line())
    return 0 if all(verdict.is_flat for verdict in verdicts) else 1


def count(traffic: Traffic) -> int:
    with traffic.store.read() as txn:
        return sum(1 for table in TABLES for _ in txn.scan(table))
