"""The command of ``scripts/mutate``."""

from __future__ import annotations

import argparse
import sys

from simulation.mutations import MUTATIONS, caught_by


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mutate", description="Show that the checkers catch deliberate bugs of the core."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations (default: all)")
    parser.add_argument("--seeds", type=int, default=1500, help="seeds to try for each (default: 1500)")
    parser.add_argument("--steps", type=int, default=300, help="steps of each seed (default: 300)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in MUTATIONS]:
        parser.error(f"no mutation {unknown[0]}; there are {', '.join(MUTATIONS)}")
    missed = 0
    for name in args.names or MUTATIONS:
        found = caught_by(name, seeds=args.seeds, steps=args.steps)
        missed += found is None
        how = "NOT CAUGHT" if found is None else f"caught by {found[0]} at seed {found[1]}"
        print(f"{name:<26} {how:<36} {MUTATIONS[name][0]}", flush=True)
    print(f"{len(args.names or MUTATIONS) - missed} caught, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
