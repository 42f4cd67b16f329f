"""Thirty random kill cycles (catalogue A2); ``scripts/soak`` runs a thousand. A failure prints how to try it again."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from processes.support.runtime import runtime
from processes.support.soak import FAULTS, plan_of, soak

CYCLES = 30


@pytest.mark.timeout(300)
async def test_thirty_cycles() -> None:
    """On two homes at a time, for two cores."""
    seed = int(os.environ.get("LINEUP_SEED", "0")) or random.randrange(1, 1 << 30)
    half = CYCLES // 2
    with runtime() as one, runtime() as two:
        failed = await asyncio.gather(
            soak(one, seed, range(1, half + 1), print), soak(two, seed, range(half + 1, CYCLES + 1), print)
        )
    assert failed == [0, 0]


def test_a_plan_comes_from_its_seed_alone() -> None:
    assert [plan_of(7, n) for n in range(50)] == [plan_of(7, n) for n in range(50)]
    assert {plan_of(7, n).fault for n in range(100)} == set(FAULTS)
