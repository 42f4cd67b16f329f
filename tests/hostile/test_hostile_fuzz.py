"""The fuzzer for half a minute, and what it once found interesting, every time. ``scripts/fuzz`` goes on for longer."""

from __future__ import annotations

import os
import random

from hostile.fuzz.run import Fuzzer, read_corpus
from hostile.fuzz.scene import LINKS

SECONDS = float(os.environ.get("LINEUP_FUZZ_SECONDS", "30"))


def test_only_typed_errors_leave() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    report = Fuzzer(seed).run(SECONDS)
    print(report)
    assert report.findings == [], "\n".join(map(str, report.findings))
    assert report.stepped > report.executed / 20, "most inputs end at the edge; those that go deeper are the point"


def test_the_corpus_is_there_and_small() -> None:
    for link in LINKS:
        inputs = read_corpus(link)
        assert 20 <= len(inputs) <= 150, link
        assert max(map(len, inputs)) <= 1_024
