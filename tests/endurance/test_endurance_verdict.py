"""The verdict of ``scripts/endurance`` tells a leak from noise."""

from __future__ import annotations

import random

import pytest

from endurance.verdict import Curve, judge, slope

CURVE = Curve("memory", "MiB", share=0.1, slack=4)
TIMES = [n * 5.0 for n in range(200)]


def noise(seed: int, sigma: float = 1.0) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, sigma) for _ in TIMES]


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_flat_and_a_leak_under_the_same_noise_is_not(seed: int) -> None:
    flat = [80 + n for n in noise(seed)]
    leak = [80 + n + at * 0.02 for n, at in zip(noise(seed), TIMES, strict=True)]
    assert judge(CURVE, TIMES, flat).is_flat
    assert not judge(CURVE, TIMES, leak).is_flat


def test_a_warm_up_and_some_wild_samples_decide_nothing() -> None:
    values = [min(80.0, 40 + at) + n for n, at in zip(noise(1), TIMES, strict=True)]
    for at in range(60, 200, 10):
        values[at] = 500.0
    assert judge(CURVE, TIMES, values).is_flat


def test_what_sinks_is_flat_and_the_sentence_says_what_was_found() -> None:
    verdict = judge(CURVE, TIMES, [100 - at * 0.05 for at in TIMES])
    assert verdict.is_flat
    assert verdict.line().startswith("flat  memory:")
    assert slope(TIMES, [at * 2 for at in TIMES]) == pytest.approx(2)


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge(CURVE, TIMES[:9], TIMES[:9])
