"""``scripts/endurance``: an hour of constant load with a picture and a verdict, or many calls compressed."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from endurance import compressed
from endurance.load import Load, cli, running
from endurance.samples import CURVES, Samples, draw, measure
from endurance.verdict import judge
from lineup_hostshell.cli.link import open_link
from lineup_hostshell.runtime_link import RuntimeClient

SAMPLES_WANTED = 240
SAMPLE_S_MIN, SAMPLE_S_MAX = 2.0, 15.0


def main() -> int:
    parser = argparse.ArgumentParser("endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run (default 60)")
    parser.add_argument("--rate", type=float, default=20.0, help="calls per second (default 20)")
    parser.add_argument("--into", type=Path, default=Path("endurance"), help="folder for samples.csv and plot.png")
    parser.add_argument("--calls", type=int, default=0, help="instead: so many calls through the core, in memory")
    options = parser.parse_args()
    if options.calls:
        return compressed.run(options.calls)
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix="lineup-endurance-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        return asyncio.run(endure(home, options.minutes * 60, options.rate, options.into))


async def endure(home: Path, seconds: float, rate: float, into: Path) -> int:
    samples = Samples(into / "samples.csv")
    with running(home) as pid:
        load = Load(home, rate)
        work = asyncio.create_task(load.run(seconds))
        with open_link(home) as operator:
            await sample(operator, pid, load, samples, work, seconds)
        await work
        print(cli(home, "audit", "verify").strip())
    samples.close()
    done = f"{load.calls} calls, {load.skipped} skipped, {load.questions} questions, {load.kills} kills"
    title = f"{seconds / 60:.3g} minutes at {rate:g} calls/s: {done}"
    print(title)
    if draw(samples, title, into / "plot.png"):
        print(f"drawn in {into / 'plot.png'}")
    for failure in load.failures[:10]:
        print(f"FAILED {failure}")
    return verdicts(samples) or bool(load.failures)


async def sample(
    operator: RuntimeClient, pid: int, load: Load, samples: Samples, work: asyncio.Task[None], seconds: float
) -> None:
    """A row every few seconds until the load is over."""
    every = min(max(seconds / SAMPLES_WANTED, SAMPLE_S_MIN), SAMPLE_S_MAX)
    begin = last = time.monotonic()
    while not work.done():
        await asyncio.wait({work}, timeout=every)
        if work.done():
            return
        status = await asyncio.to_thread(operator.query, "status")
        audit = await asyncio.to_thread(operator.query, "audit.page", {"limit": 1})
        now, latencies, load.latencies = time.monotonic(), load.latencies, []
        row = measure(pid, status, audit, latencies)
        row |= {"at_s": now - begin, "calls": load.calls, "rate_per_s": len(latencies) / (now - last)}
        samples.add(row)
        last = now


def verdicts(samples: Samples) -> int:
    """Print a line for each curve; 1 if one of them grows."""
    grows = 0
    archived = [row["audit_in_store"] < row["audit_rows"] for row in samples.rows]
    first = archived.index(True) if True in archived else len(archived)
    for curve in CURVES:
        skip = first if curve.name == "store_mib" else 0
        try:
            verdict = judge(curve, samples.column("at_s")[skip:], samples.column(curve.name)[skip:])
        except ValueError as error:
            why = "its bounds were not reached" if skip == len(archived) else f"{error}"
            print(f"?     {curve.name}: no verdict, {why}; let it run longer")
            continue
        print(verdict.line())
        grows |= not verdict.is_flat
    return int(grows)


if __name__ == "__main__":
    raise SystemExit(main())
