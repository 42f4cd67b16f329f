"""Simulated runs, judged by the checkers; each seed replays exactly."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from checkers.verdict import judge
from simulation.mix import _LOUDEST, Mix, draw
from simulation.run import Verdict, run, shrink, small_files, small_inboxes, transcript
from simulation.world import World

SEEDS, STEPS = 200, 300


@pytest.mark.parametrize("block", range(10))
def test_seeds(block: int) -> None:
    size = SEEDS // 10
    failed = [v for v in (run(seed, STEPS) for seed in range(block * size, (block + 1) * size)) if not v.passed]
    assert not failed, "\n".join(f"{v.line()}; replay: ./scripts/simulate {v.seed} --steps {v.steps}" for v in failed)


def _all_that_happened(verdict: Verdict) -> str:
    return json.dumps([*transcript(verdict.history), *verdict.history.audit], sort_keys=True, default=str)


@pytest.mark.parametrize("seed", [3, 17, 42])
def test_a_seed_replays_exactly(seed: int) -> None:
    assert _all_that_happened(run(seed, STEPS)) == _all_that_happened(run(seed, STEPS))


def test_seeds_differ() -> None:
    assert len({run(seed, 100).line().partition(":")[2] for seed in range(8)}) > 4


def test_a_run_says_what_it_did() -> None:
    line = run(0, 50).line()
    assert line.startswith("seed 0: ok (50 steps, ")
    assert "\n" not in line


def test_a_failing_run_is_made_shorter() -> None:
    from simulation.mutations import applied

    with applied("leak-focus"):
        seed = next(seed for seed in range(20) if not run(seed, 150).passed)
        kept = shrink(seed, 150)
        again = run(seed, 150, keep=set(kept).__contains__)
    assert len(kept) < 75
    assert not again.passed
    assert any("person" in line for line in transcript(again.history))


def test_everything_comes_to_rest_after_the_worst() -> None:
    """Every fault at its loudest, all at once; those of clock, disk, Host and archive happened, and rows were swept."""
    happened: Counter[str] = Counter()
    worst = Mix(
        **_LOUDEST,
        agents=3,
        workers_max=2,
        starting_max=1,
        restarts_max=2,
        kept_max=2,
        audit_rows_max=10,
        inbox_max=3,
        inbox_bytes_max=3_000,
    )
    with small_files(), small_inboxes(worst):
        for seed in range(10):
            world = World(seed, mix=replace(worst))
            for index in range(400):
                world.step(index)
                if index % 100 == 99:
                    world.operator.look()
            world.rest()
            assert judge(world.history) == [], f"seed {seed}"
            happened += world.happened
            happened["write_failure"] += world.store.failures
            happened.update(row["kind"] for row in world.history.audit)
            swept = [row["detail"]["gone"] for row in world.history.audit if row["kind"] == "retention.swept"]
            for kind in ("states", "backlogs"):
                happened[kind] += sum(gone.get(kind, 0) for gone in swept)
    faults = {"freeze", "replace_host", "suspend", "strobe", "write_failure", "torn_effects"}
    faults |= {"crash_before_commit", "crash_after_commit", "archive_loss", "archive_failure", "archive_late"}
    assert {fault for fault in faults if not happened[fault]} == set()
    kinds = ("retention.swept", "audit.archived", "states", "backlogs")
    assert {kind for kind in kinds if not happened[kind]} == set()


def test_a_crowded_house_and_full_inboxes_are_reached() -> None:
    """Two places for four MiniApps, inboxes of three items, and a person who looks at this and that."""
    crowded = Mix(
        agents=3,
        workers_max=2,
        inbox_max=3,
        inbox_bytes_max=3_000,
        ask=0.3,
        leave_open=0.2,
        slow=0.5,
        look=0.2,
        eager=0.5,
        ponder=0.3,
    )
    happened: Counter[str] = Counter()
    with small_files(), small_inboxes(crowded):
        for seed in range(6):
            world = World(seed, mix=replace(crowded))
            for index in range(500):
                world.step(index)
            world.rest()
            assert judge(world.history) == [], f"seed {seed}"
            happened["somebody waited for a place"] += bool(world.history.waits.waiting)
            for row in world.history.audit:
                happened[f"{row['kind']} {row['detail'].get('code') or row['detail'].get('reason')}"] += 1
    full = {f"{kind}.refused rate_limited" for kind in ("action", "message")}
    wanted = full | {"worker.stopping reclaimed", "somebody waited for a place"}
    assert {what for what in wanted if not happened[what]} == set(), happened


def test_each_fault_is_in_some_mixes_and_not_in_others() -> None:
    mixes = [draw(random.Random(seed)) for seed in range(200)]
    for name in _LOUDEST:
        drawn = sum(getattr(mix, name) > 0 for mix in mixes)
        assert 40 < drawn < 160, name
