"""The command of ``scripts/simulate``."""

from __future__ import annotations

import argparse
import sys
import time

from simulation.run import Verdict, run, shrink, transcript


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _explain(failed: Verdict, *, shorter: bool) -> None:
    """The failing run again, as short as it gets, as its participants saw it."""
    shown = failed
    if shorter:
        kept = set(shrink(failed.seed, failed.steps))
        shown = run(failed.seed, failed.steps, keep=kept.__contains__)
        print(f"--- seed {failed.seed} fails with {len(kept)} of its {failed.steps} steps: {sorted(kept)}")
    for line in transcript(shown.history):
        print(line)
    for fault in shown.faults:
        print(f"--- {fault}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Run the Runtime in a simulated world and judge it.")
    parser.add_argument("seed", nargs="*", type=int, help="seeds to run")
    parser.add_argument("--seeds", type=_seeds, default=[], metavar="A-B", help="a range of seeds")
    parser.add_argument("--steps", type=int, default=300, help="steps of each seed (default: 300)")
    parser.add_argument("--quiet", action="store_true", help="only failing seeds and the sum")
    parser.add_argument("--no-shrink", action="store_true", help="print a failing run whole")
    args = parser.parse_args()
    seeds = [*args.seed, *args.seeds]
    if not seeds:
        parser.error("name a seed, or a range with --seeds A-B")
    began, steps, failed = time.monotonic(), 0, []
    for seed in seeds:
        verdict = run(seed, args.steps)
        steps += args.steps
        if not verdict.passed:
            failed.append(verdict)
        if not verdict.passed or not args.quiet:
            print(verdict.line(), flush=True)
    if failed:
        _explain(failed[0], shorter=not args.no_shrink)
    took = time.monotonic() - began
    print(f"{len(seeds)} seeds, {len(failed)} failed, {steps} steps in {took:.1f} s, {steps / took:.0f} steps/s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
