"""Calls that were taken before, by an earlier run of agent or Runtime: nobody waits for what will not come."""

from __future__ import annotations

from typing import Any

import pytest

from agent.opened import calling, opened, soon, until
from lineup_agent import MessageRefused


async def resent(scripted: Any, wire: Any, **again: Any) -> Any:
    """The connection is lost before the receipt of a call; the next one has the receipt of before."""
    await wire.expect("tool.call")
    await wire.cut()
    wire = await scripted.connection()
    await wire.welcome(**again)
    await wire.accept(await wire.expect("tool.call"))
    return wire


async def look_up(wire: Any, call_id: str, status: str, **more: Any) -> None:
    asked = await wire.expect("tool.get")
    assert asked["payload"] == {"call_id": call_id}
    await wire.accept(asked)
    record = {"call_id": call_id, "status": status, **more}
    await wire.say("tool.state", {"call_id": call_id, "record": record})


async def not_found(wire: Any) -> None:
    await wire.refuse(await wire.expect("tool.get"), "call_not_found")


async def test_a_call_of_before_that_is_over_ends_though_its_receipt_came_bare(scripted: Any, token: str) -> None:
    """Its result was taken over by an earlier run of this agent, so nothing else would bring it."""
    async with opened(scripted, token) as (link, wire):
        task = calling(link, call_id="k-1")
        wire = await resent(scripted, wire)
        await look_up(wire, "k-1", "completed", result={"n": 1}, updated_at="t")
        assert (await soon(task)).unwrap() == {"n": 1}
        task = calling(link, call_id="k-2")
        await wire.accept(await wire.expect("tool.call"))
        await wire.silent()


async def test_a_call_that_is_open_yet_is_asked_for_once_and_waited_for(
    scripted: Any, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineup_agent.link.RETRY_S_MAX", 0.01)
    async with opened(scripted, token) as (link, wire):
        task = calling(link, call_id="k-1")
        wire = await resent(scripted, wire)
        await wire.refuse(await wire.expect("tool.get"), "storage_full")
        await look_up(wire, "k-1", "running")
        await wire.silent()
        await wire.result(1, "k-1", result={"n": 1})
        assert (await soon(task)).unwrap() == {"n": 1}


async def test_a_call_that_nobody_knows_any_more_is_not_waited_for(scripted: Any, token: str) -> None:
    async with opened(scripted, token) as (link, wire):
        task = calling(link, call_id="k-1")
        wire = await resent(scripted, wire)
        await not_found(wire)
        with pytest.raises(MessageRefused, match="call_not_found"):
            await soon(task)


async def test_another_run_of_the_runtime_is_asked_for_the_calls_that_it_had_taken(scripted: Any, token: str) -> None:
    """Its home may have been restored from a backup that is older than the call."""
    async with opened(scripted, token) as (link, wire):
        tasks = {}
        for call_id in ("lost", "over", "open"):
            tasks[call_id] = calling(link, call_id=call_id)
            await wire.accept(await wire.expect("tool.call"))
        await until(lambda: len(link._calls.accepted()) == 3)
        tasks["late"] = calling(link, call_id="late")
        late = await wire.expect("tool.call")
        await wire.cut()
        wire = await scripted.connection()
        await wire.welcome(boot_id="b-2")
        assert (await wire.expect("tool.call"))["payload"] == late["payload"]
        await not_found(wire)
        await look_up(wire, "over", "failed", error={"code": "tool_failed", "message": "no"})
        await look_up(wire, "open", "running")
        with pytest.raises(MessageRefused, match="call_not_found"):
            await soon(tasks["lost"])
        assert (await soon(tasks["over"])).error_code == "tool_failed"
        await wire.accept(late, detail={"call_id": "late", "status": "running"})
        for n, call_id in enumerate(("open", "late"), start=1):
            await wire.result(n, call_id)
            assert (await soon(tasks[call_id])).completed
