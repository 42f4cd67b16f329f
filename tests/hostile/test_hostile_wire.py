"""A worker that takes its link away from ZeroMQ and speaks raw bytes: cut by name, at no cost to anybody else."""

from __future__ import annotations

import time

import pytest
from hostile.support.stage import Stage, assert_harmless

DEPTHS = (33, 511, 1025, 3000, 1_000_000)
BOMBS = ("ddffffffff", "dfffffffff", "c6ffffffff", "c9ffffffff01", "9ffd74f7dd74fffdbd", "82a474797065a178a474797065a179")
BOMBS += ("d7ff" + "ff" * 8,)
CUTS = {
    "more, empty": "frames_per_message",
    "frames": "frames_per_message",
    "size": "message_too_large",
    "over the cap": "message_too_large",
    "reserved flags": "frame",
    "a victim's routing id": "command",
    "another greeting": "frame",
    "huge ping": "message_too_large",
    "subscribe": "command",
    "no message": "/: is empty",
    "garbage": "/",
    **{f"depth {depth}": "" for depth in DEPTHS},
    **{f"bomb {bomb}": "" for bomb in BOMBS},
}


async def cut(stage: Stage, what: str, reason: str, words: str, within_s: float = 20.0) -> float:
    """Let a worker attack; it must end for this reason. Seconds that it took from the call on."""
    began = time.monotonic()
    call_id = await stage.begin("wire.attack", {"what": what})
    error = (await stage.agent.result(call_id, within_s))["error"]
    took = time.monotonic() - began
    assert (error["code"], error["detail"]) == ("outcome_unknown", {"reason": reason}), (what, error)
    assert words in error["message"], (what, error)
    exits = await stage.audited("worker.exited", call_id)
    assert exits[0]["detail"]["reason"] == reason
    return took


@pytest.mark.parametrize("what", ["more", "ping flood"])
async def test_endless_frames(on_confined: Stage, what: str) -> None:
    words = {"more": "frames_per_message", "ping flood": "command_flood"}[what]
    await assert_harmless(on_confined, lambda: cut(on_confined, what, "gate", words))


async def test_whatever_is_no_message_ends_the_worker(on_sandboxed: Stage) -> None:
    async def all_of_them() -> None:
        for what, words in CUTS.items():
            await cut(on_sandboxed, what, "gate", words)

    await assert_harmless(on_sandboxed, all_of_them)


async def test_a_message_that_never_ends_keeps_one_message_in_memory(on_sandboxed: Stage) -> None:
    """It is no offence to be slow; the worker that no longer answers pings is ended for that."""
    await assert_harmless(on_sandboxed, lambda: cut(on_sandboxed, "never finished", "hung", "pings"))


@pytest.mark.parametrize("what", ["flood", "flood of bytes"])
async def test_a_flood_of_messages_is_slowed_down_and_then_cut(on_sandboxed: Stage, what: str) -> None:
    """A hundred thousand messages a second, or as many bytes as fit, of what the Runtime has to refuse."""
    stage = on_sandboxed
    calls: list[str] = []

    async def attack() -> None:
        calls.append(await stage.begin("wire.attack", {"what": what}))
        await stage.agent.result(calls[-1], 60)

    await assert_harmless(stage, attack)
    error = stage.agent.results[calls[-1]]["error"]
    assert error["detail"]["reason"] in ("gate", "violation", "hung"), error
    throttled = await stage.audited("worker.throttled", calls[-1])
    assert [row["detail"]["limit"] for row in throttled] == ["messages"]
