"""A worker that takes its link away from ZeroMQ and speaks raw bytes: cut by name, at no cost to anybody else."""

from __future__ import annotations

import asyncio

import pytest

from hostile.support.stage import RSS_GROWTH_BYTES_MAX, Meter, Stage, assert_harmless
from lineup_protocol.limits import WORKER_REFUSALS_PER_MINUTE_MAX

DEPTHS = (33, 511, 1025, 3000, 1_000_000)
BOMBS = (
    "ddffffffff",
    "dfffffffff",
    "c6ffffffff",
    "c9ffffffff01",
    "9ffd74f7dd74fffdbd",
    "82a474797065a178a474797065a179",
)
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


async def cut(stage: Stage, what: str, reason: str, words: str, within_s: float = 40.0) -> str:
    """Let a worker attack; it must end for this reason. The call's id."""
    call_id = await stage.begin("wire.attack", {"what": what})
    error = (await stage.agent.result(call_id, within_s))["error"]
    assert (error["code"], error["detail"]) == ("outcome_unknown", {"reason": reason}), (what, error)
    assert words in error["message"], (what, error)
    return call_id


async def assert_audited(stage: Stage, call_id: str, reason: str) -> None:
    exits = await stage.audited("worker.exited", call_id)
    assert exits[0]["detail"]["reason"] == reason


@pytest.mark.parametrize("what", ["more", "ping flood"])
async def test_endless_frames(on_confined: Stage, what: str) -> None:
    words = {"more": "frames_per_message", "ping flood": "command_flood"}[what]
    call_id = await assert_harmless(on_confined, lambda: cut(on_confined, what, "gate", words))
    await assert_audited(on_confined, call_id, "gate")


async def test_whatever_is_no_message_ends_the_worker(on_sandboxed: Stage) -> None:
    free = asyncio.Semaphore(4)  # starts at once; more would only wait for each other

    async def one(what: str, words: str) -> str:
        async with free:
            return await cut(on_sandboxed, what, "gate", words)

    with Meter(on_sandboxed.runtime.pid) as meter:
        calls = await asyncio.gather(*(one(what, words) for what, words in CUTS.items()))
    assert meter.growth < RSS_GROWTH_BYTES_MAX
    await assert_audited(on_sandboxed, calls[-1], "gate")


async def test_a_message_that_never_ends_keeps_one_message_in_memory(on_sandboxed: Stage) -> None:
    """It is no offence to be slow; the worker that no longer answers pings is ended for that."""
    with Meter(on_sandboxed.runtime.pid) as meter:
        await cut(on_sandboxed, "never finished", "hung", "pings")
    assert meter.growth < RSS_GROWTH_BYTES_MAX


async def flooded(stage: Stage, what: str) -> str:
    """A flood ends at its rate; or, on a machine that takes it more slowly than that, because pings wait behind it."""
    call_id = await stage.begin("wire.attack", {"what": what})
    error = (await stage.agent.result(call_id, 60))["error"]
    assert error["code"] == "outcome_unknown", error
    words = {"gate": "rate_limited", "hung": "pings went unanswered"}[error["detail"]["reason"]]
    assert words in error["message"]
    return call_id


@pytest.mark.parametrize("what", ["flood", "flood of bytes"])
async def test_a_flood_that_is_taken_is_slowed_down_and_then_cut(on_sandboxed: Stage, what: str) -> None:
    """A hundred thousand messages a second, each of them allowed; or as many bytes as the link carries."""
    stage = on_sandboxed
    call_id = await assert_harmless(stage, lambda: flooded(stage, what))
    (row,) = await stage.audited("worker.exited", call_id)
    if row["detail"]["reason"] == "gate":
        throttled = await stage.audited("worker.throttled", call_id)
        assert [row["detail"]["limit"] for row in throttled] == ["messages"]


async def test_a_flood_that_is_refused_ends_as_a_violation(on_sandboxed: Stage) -> None:
    """Every refusal stands in the audit; so there are not endlessly many of them."""
    stage = on_sandboxed
    call_id = await assert_harmless(stage, lambda: cut(stage, "flood of refused", "violation", "rate_limited"))
    refused = await stage.audited("command.refused", call_id)
    assert len(refused) <= WORKER_REFUSALS_PER_MINUTE_MAX + 1
    (row,) = await stage.audited("worker.violation", call_id)
    assert row["detail"]["code"] == "rate_limited"
