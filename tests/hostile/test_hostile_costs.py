"""MiniApps whose messages are short to say and long to judge: whoever costs much waits, and nobody else does."""

from __future__ import annotations

import asyncio
import json

import pytest

from hostile.bundles.costly import app as costly
from hostile.support.stage import Stage, assert_harmless

SECONDS = 1.5
ROUNDS = 6  # workers that compute at full speed are already a load for a machine of two processors
INSTANCES = 2  # of one MiniApp: together they may take no more than one


@pytest.mark.parametrize("what", sorted(costly.MESSAGES))
async def test_messages_that_are_long_to_judge(on_sandboxed: Stage, what: str) -> None:
    stage = on_sandboxed
    wanted = {"what": what, "seconds": SECONDS}

    async def attack() -> list[tuple[str, dict[str, dict[str, int]]]]:
        return await asyncio.gather(*(stage.tried("costly.send", wanted) for _ in range(INSTANCES)))

    for _, found in await assert_harmless(stage, attack, ROUNDS):
        assert sum(found["answers"].values()) >= costly.DEAREST.get(what, costly.AT_ONCE), "it was answered, if late"
        assert not {"internal_error", "worker_unresponsive"} & set(found["answers"]), json.dumps(found)


async def test_results_of_which_every_value_is_looked_for(on_confined: Stage) -> None:
    stage = on_confined
    _, found = await assert_harmless(stage, lambda: stage.tried("costly.choose", {"seconds": SECONDS}), ROUNDS)
    assert len(found["a"]) == 7_500, "the one that holds was taken, all others were refused by name"
