"""How many messages are under way without a receipt: never more than the Runtime would know again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.opened import opened, soon, until
from core.harness import Core
from lineup_agent import AgentLink, MessageRefused
from lineup_agent.session import UNDER_WAY_MAX, AgentSession
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import TIMELINE

BOUND = 3


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lineup_agent.session.UNDER_WAY_MAX", BOUND)


def test_the_bound_is_well_below_what_the_runtime_remembers() -> None:
    assert Policy().receipts_kept >= 4 * UNDER_WAY_MAX


def test_however_many_wait_when_the_link_is_lost_none_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that was sent is taken, and not one receipt is read before the link is cut."""
    core = Core()
    core.connect("a1")
    monkeypatch.setattr(core, "check", lambda: None)  # which looks at all rows each time
    session = AgentSession("a1")
    number = Policy().receipts_kept + 100
    frames = {}
    for n in range(number):
        frame = session.make("message.text", {"text": f"t{n}", "format": "plain"}, "c1")
        frames[frame["message_id"]] = frame
        session.expect_receipt(frame, lambda answer: None)
    for _ in range(2):
        session.welcomed(0)
        while waiting := session.next_due():
            core.send_raw(frames[waiting.message_id])
        assert len(session.waiting) == number
    texts = [row.text for _, row in core.scan(TIMELINE, "c1") if row.kind == "text"]
    assert texts == [f"t{n}" for n in range(UNDER_WAY_MAX)]


def saying(link: AgentLink, first: int, end: int) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(link.send_text("c-1", f"t{n}")) for n in range(first, end)]


async def heard(wire: Any, *wanted: int) -> list[dict[str, Any]]:
    frames = [await wire.expect("message.text") for _ in wanted]
    assert [frame["payload"]["text"] for frame in frames] == [f"t{n}" for n in wanted]
    return frames


async def test_more_is_sent_as_receipts_come_in_the_order_of_sending(scripted: Any, token: str, bound: None) -> None:
    async with opened(scripted, token) as (link, wire):
        tasks = saying(link, 0, 6)
        frames = await heard(wire, 0, 1, 2)
        await wire.silent()
        await wire.accept(frames[1])
        await heard(wire, 3)
        await wire.silent()
        await wire.refuse(frames[0], "rate_limited")
        with pytest.raises(MessageRefused):
            await soon(tasks[0])
        await heard(wire, 4)
        await wire.say("error", {"reply_to": frames[2]["message_id"], "code": "storage_full", "message": "full"})
        await heard(wire, 5)
        with pytest.raises(MessageRefused):
            await soon(tasks[2])
        assert len(link._session._under_way) == BOUND


async def test_after_a_cut_the_same_ones_are_sent_again_and_then_the_others(
    scripted: Any, token: str, bound: None
) -> None:
    async with opened(scripted, token) as (link, wire):
        tasks = saying(link, 0, 5)
        first = await heard(wire, 0, 1, 2)
        await wire.cut()
        wire = await scripted.connection()
        tasks += saying(link, 5, 7)
        await wire.welcome()
        again = await heard(wire, 0, 1, 2)
        assert [frame["message_id"] for frame in again] == [frame["message_id"] for frame in first]
        await wire.silent()
        for n in range(7):
            await wire.accept(again[n])
            again += await heard(wire, 3 + n) if n < 4 else []
        await soon(asyncio.gather(*tasks))


async def test_what_a_stopping_runtime_has_refused_goes_to_the_next_one(scripted: Any, token: str, bound: None) -> None:
    async with opened(scripted, token) as (link, wire):
        tasks = saying(link, 0, 4)
        for frame in await heard(wire, 0, 1, 2):
            await wire.refuse(frame, "runtime_stopping")
        await wire.silent()
        await wire.close(1012)
        wire = await scripted.connection()
        await wire.welcome(boot_id="b-2")
        frames = await heard(wire, 0, 1, 2)
        for frame in frames:
            await wire.accept(frame)
        await wire.accept((await heard(wire, 3))[0])
        await soon(asyncio.gather(*tasks))


async def test_waits_that_are_cancelled_take_no_place_for_ever(scripted: Any, token: str, bound: None) -> None:
    async with opened(scripted, token) as (link, wire):
        tasks = saying(link, 0, 5)
        frames = await heard(wire, 0, 1, 2)
        for task in tasks[:4]:  # under way, and one that waits for its turn
            task.cancel()
        await asyncio.wait(tasks[:4])
        await wire.silent()
        for frame in frames:
            await wire.accept(frame)
        for frame in await heard(wire, 3, 4):
            await wire.accept(frame)
        await soon(tasks[4])
        await until(lambda: not link._session.waiting)


async def test_a_call_is_held_up_until_it_leaves_or_the_link_is_lost(scripted: Any, token: str, bound: None) -> None:
    async with opened(scripted, token) as (link, wire):
        starting = [asyncio.create_task(link.start_call("x.do", conversation_id="c-1")) for _ in range(BOUND + 2)]
        calls = [await wire.expect("tool.call") for _ in range(BOUND)]
        await soon(asyncio.wait(starting[:BOUND]))
        await wire.silent()
        assert [task.done() for task in starting] == [True] * BOUND + [False] * 2
        await wire.accept(calls[0])
        await wire.expect("tool.call")
        await soon(starting[BOUND])
        assert not starting[-1].done()
        await wire.cut()
        await soon(starting[-1])
        wire = await scripted.connection()
        await wire.welcome()
        for n in range(BOUND + 1):
            call = await wire.expect("tool.call")
            await wire.accept(call, detail={"call_id": call["payload"]["call_id"], "status": "running"})
            await wire.result(n + 1, call["payload"]["call_id"])
        for task in starting[1:]:
            assert (await (await task).result(5)).completed


async def test_closing_lets_go_of_a_call_that_has_not_left(scripted: Any, token: str, bound: None) -> None:
    async with opened(scripted, token) as (link, wire):
        starting = [asyncio.create_task(link.start_call("x.do", conversation_id="c-1")) for _ in range(BOUND + 1)]
        for _ in range(BOUND):
            await wire.expect("tool.call")
        await link.close()
        await soon(asyncio.wait(starting))


async def test_who_does_not_read_holds_up_no_receipt(scripted: Any, token: str) -> None:
    """The Runtime sends before it reads, more than the buffers between take; so does the agent."""
    async with opened(scripted, token) as (link, wire):
        size = 900_000
        tasks = [asyncio.create_task(link.send_text("c-1", "x" * size)) for _ in range(24)]
        await until(lambda: bool(link._session._under_way))
        for n in range(24):
            await wire.text(n + 1, "y" * size)
        for _ in tasks:
            await wire.accept(await wire.expect("message.text"))
        await soon(asyncio.gather(*tasks))


@pytest.mark.parametrize("what", ["deep", "wide", "long"])
async def test_what_could_not_be_refused_by_its_name_is_not_sent(scripted: Any, token: str, what: str) -> None:
    value: Any = {"wide": [0] * 60_000, "long": 1 << 60, "deep": 0}[what]
    for _ in range(40 if what == "deep" else 0):
        value = [value]
    async with opened(scripted, token) as (link, wire):
        with pytest.raises(MessageRefused):
            await soon(link.start_call("x.do", {"v": value}, conversation_id="c-1"))
        assert not link._session.waiting
        await wire.silent()
