"""Who comes first, 500 times for each pair, in the core itself: random order, random moment, random death."""

from __future__ import annotations

import pytest

from operations.races import AFTER, BEFORE, Race

RUNS = 500
CHUNKS = 10  # so that one failing seed does not hide the rest, and each test has its own bound in time


@pytest.fixture(params=range(CHUNKS), ids=lambda n: f"seeds {n * RUNS // CHUNKS}-{(n + 1) * RUNS // CHUNKS - 1}")
def seeds(request: pytest.FixtureRequest) -> range:
    first = request.param * RUNS // CHUNKS
    return range(first, first + RUNS // CHUNKS)


def judged(race: Race) -> Race:
    race.settle()
    try:
        race.check()
    except AssertionError as error:
        raise AssertionError(f"seed {race.seed}: {error}") from error
    return race


@pytest.mark.conformance("04-4.5.2")
@pytest.mark.conformance("04-4.5.3")
@pytest.mark.conformance("04-6.5")
def test_due_and_interrupt(seeds: range) -> None:
    states = set()
    for seed in seeds:
        race = Race(seed)
        race.run(race.due(), race.interrupt("k-stop"))
        judged(race)
        states.add(race.core.operation().state)
        assert race.core.operation().state == {"interrupted": "interrupted"}.get(
            race.record("k-stop").result["status"], "completed"
        )
    assert states == {"completed", "interrupted"}, "both orders were met"


@pytest.mark.conformance("04-4.5.5")
@pytest.mark.conformance("04-6.5")
def test_due_and_close(seeds: range) -> None:
    states = set()
    for seed in seeds:
        race = Race(seed)
        race.run(race.due(), race.leave())
        states.add(judged(race).core.operation().state)
    assert states == {"completed", "interrupted"}


@pytest.mark.conformance("04-4.5.2")
@pytest.mark.conformance("04-6.7")
def test_start_and_start(seeds: range) -> None:
    winners = set()
    for seed in seeds:
        race = Race(seed, running=False)
        race.run(race.start("k-a"), race.start("k-b"))
        judged(race)
        by_status = {race.record(call_id).status: call_id for call_id in ("k-a", "k-b")}
        assert set(by_status) == {"completed", "rejected"}
        assert race.record(by_status["rejected"]).error["code"] == "active_focusing_operation"
        winners.add(by_status["completed"])
    assert winners == {"k-a", "k-b"}


@pytest.mark.conformance("04-4.5.2")
def test_start_and_interrupt(seeds: range) -> None:
    receipts = set()
    for seed in seeds:
        race = Race(seed, running=False)
        race.run(race.start("k-a"), race.interrupt("k-stop"))
        judged(race)
        receipt = race.record("k-stop").result["status"]
        assert race.core.operation().state == ("interrupted" if receipt == "interrupted" else "completed")
        receipts.add(receipt)
    assert receipts == {"interrupted", "no_active_focusing_operation"}


@pytest.mark.conformance("04-4.5.4")
def test_a_crash_at_the_firing_instant(seeds: range) -> None:
    for seed in seeds:
        race = Race(seed, fates=(BEFORE, AFTER))
        race.core.wall_ms = race.core.operation().ends_ms
        race.run(race.due(), race.worker_dies())
        judged(race)
        assert race.core.outcome("k-first") == ("completed", None)


def test_everybody_at_once(seeds: range) -> None:
    for seed in seeds[:10]:
        race = Race(seed, running=seed % 2 == 0)
        deeds = [race.start("k-a"), race.start("k-b"), race.interrupt("k-stop"), race.interrupt("k-stop2"), race.due()]
        if seed % 2 == 0:
            deeds += [race.leave(), race.worker_dies()]
        race.run(*deeds)
        judged(race)
