"""What a person has drawn outlives every process that holds it, however much it is."""

from __future__ import annotations

import os
import signal
from typing import Any

from processes.support.agent import Agent
from processes.support.runtime import Runtime
from processes.support.waiting import until_async

STROKES, POINTS = 170, 100


def stroke(number: int) -> dict[str, Any]:
    points = [coordinate for n in range(POINTS) for coordinate in (n + 0.5, number + 0.25)]
    return {"type": "rect", "x": number, "y": 0, "w": 10, "h": 10, "points": points}


async def _summary(agent: Agent, call_id: str) -> dict[str, Any]:
    await agent.call("whiteboard.submit", {"board_id": "b", "request": "summary"}, call_id=call_id)
    result = (await agent.result(call_id))["result"]
    assert result["status"] == "open", result
    summary: dict[str, Any] = result["summary"]
    return summary


async def test_a_full_board_survives_its_workers_kill(own: Runtime) -> None:
    """More values than a worker itself may say at once: they come to the next one in its welcome."""
    own.start()
    agent = Agent(own, "drawer")
    await agent.connect()
    await agent.call("whiteboard.open", {"board_id": "b", "title": "Board"}, call_id="open")

    async def board() -> Any:
        rows = own.query("snapshot")["surfaces"]
        return [row for row in rows if row["app_scope"] == "whiteboard" and own.worker("whiteboard")]

    (surface,) = await until_async(board, 20, "the board is there")
    with own.operator() as person:
        for n in range(STROKES):
            args = {"surface_id": surface["surface_id"], "patch": {"elements": {f"s{n}": stroke(n)}}}

            async def drawn(n: int = n, args: Any = args) -> bool:
                answer = person.action("surface.patch", f"stroke-{n}", **args)
                assert answer["accepted"] or answer["code"] == "rate_limited", answer
                return bool(answer["accepted"])

            await until_async(drawn, 10, f"stroke {n} is drawn")
        before = await _summary(agent, "before")
        assert before["by_type"] == {"rect": STROKES}
        pid = own.worker("whiteboard")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        async def another() -> bool:
            return own.worker("whiteboard") not in (None, pid)

        await until_async(another, 20, "another worker is there")
        assert await _summary(agent, "after") == before
        kept = person.query("surface", surface_id=surface["surface_id"])["state"]["elements"]
        assert kept == {f"s{n}": stroke(n) for n in range(STROKES)}
    await agent.leave()
    assert own.stop() == 0, own.errors()
