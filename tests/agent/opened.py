"""An open ``AgentLink`` with the scripted Runtime at its other end, and waits that have a bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from lineup_agent import AgentLink

WAIT_S = 5.0


@contextlib.asynccontextmanager
async def opened(scripted: Any, token: str, **settings: Any) -> AsyncIterator[tuple[AgentLink, Any]]:
    """An open link and the Runtime's side of it."""
    link = AgentLink(scripted.url, token, "a-1", **settings)
    entering = asyncio.create_task(link.__aenter__())
    wire = await scripted.connection()
    await wire.welcome()
    async with asyncio.timeout(WAIT_S):
        await entering
    try:
        yield link, wire
    finally:
        await link.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def soon(awaitable: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> Any:
    async with asyncio.timeout(WAIT_S):
        return await awaitable


def calling(link: AgentLink, tool_id: str = "x.do", input_: Any = None, **more: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(link.call(tool_id, input_, conversation_id="c-1", **more))
