"""``scripts/fuzz``: fuzz for a while, or replay one input."""

from __future__ import annotations

import argparse
import random

from hostile.fuzz.run import Fuzzer, keep_corpus
from hostile.fuzz.scene import LINKS, Scene


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Fuzz decode, check and route on all three links.")
    parser.add_argument("--seconds", type=float, default=600, help="how long (default: 600)")
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, which is printed")
    parser.add_argument("--keep", action="store_true", help="write what reached new lines to tests/hostile/corpus")
    parser.add_argument("--replay", nargs=2, metavar=("LINK", "HEX"), help=f"one input; links: {', '.join(LINKS)}")
    options = parser.parse_args()
    if options.replay:
        link, data = options.replay
        print(Scene().feed(link, bytes.fromhex(data)))
        return 0
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    fuzzer = Fuzzer(seed)
    report = fuzzer.run(options.seconds)
    for finding in report.findings:
        print(finding)
    print(report)
    if options.keep:
        keep_corpus(fuzzer.corpus)
    return 1 if report.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
