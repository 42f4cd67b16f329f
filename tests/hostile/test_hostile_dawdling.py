"""A MiniApp that hangs while it is loaded, asked for in many conversations: it holds up itself and nobody else."""

from __future__ import annotations

import asyncio
import time

from hostile.support.stage import agent_on, started

CONVERSATIONS = 8
WITHIN_S = 5.0  # a start takes half a second where nothing else is done; one that hangs takes twenty
HELD_UP = 2  # half of the starts that may be under way at once


async def test_others_start_beside_one_that_hangs_while_it_is_loaded() -> None:
    with started("S3", "dawdler", "bystander") as made:
        async with agent_on(made, "asks") as asks, agent_on(made, "works") as works:
            for n in range(CONVERSATIONS):
                await asks.begin("dawdler.ask", {}, f"dawdles-{n}")
            for n in range(2):
                began = time.monotonic()
                found = await works.completed("bystander.echo", {"text": "hello"}, f"fresh-{n}")
                assert found["text"] == "hello"
                assert time.monotonic() - began < WITHIN_S, "a process that was not there yet"
            status = await asyncio.to_thread(made.query, "status")
            assert status["workers"]["starting"] == HELD_UP, "the others of its eight wait for these two"
            assert asks.agent.results == {}
