"""Questions of an agent in many conversations, answered by a person at once: how many a second, none misrouted."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgpack
import runtime
import zmq
import zmq.asyncio

QUESTIONS = 1_000
CONVERSATIONS = 8
IN_FLIGHT = 128
FORM = {"title": "Who?", "prompt": "Who asks?", "fields": [{"id": "who", "label": "Who", "type": "text"}]}


class Person:
    """Sees what is asked on the Host's link and answers each question with the name of the one who asked it."""

    def __init__(self, at: Path) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"ipc://{at / 'run' / 'host.sock'}")
        self._numbers = itertools.count(1)

    async def answer(self) -> None:
        """Until cancelled. A question is shown as a change, and is answered the moment it is."""
        await self._send("host.hello", {"protocols": [1], "role": "hostshell", "pid": os.getpid()})
        await self._send("host.subscribe", {})
        seen: set[str] = set()
        while True:
            message = msgpack.unpackb(await self._socket.recv())
            if message["type"] == "host.result" and not message["body"]["accepted"]:
                raise RuntimeError(f"an answer was refused: {message['body']}")
            for question in _questions_in(message):
                if question["interaction_id"] not in seen:
                    seen.add(question["interaction_id"])
                    await self._answer(question)

    async def _answer(self, question: dict[str, Any]) -> None:
        id_, result = question["interaction_id"], {"values": {"who": question["owner"]["parent_call_id"]}}
        args = {"interaction_id": id_, "result": result}
        await self._send("host.action", {"action_id": f"answer-{id_}", "name": "interaction.answer", "args": args})

    async def _send(self, type_: str, body: dict[str, Any]) -> None:
        await self._socket.send(msgpack.packb({"type": type_, "id": str(next(self._numbers)), "body": body}))

    def leave(self) -> None:
        self._socket.close()
        self._context.term()


def _questions_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message["type"] != "host.delta":
        return []
    rows = [change["row"] for change in message["body"]["changes"] if change["kind"] == "interaction"]
    return [row for row in rows if row is not None and row["status"] == "pending"]


async def per_s(facts: dict[str, object], at: Path) -> tuple[float, float]:
    """Questions answered, and plain calls of the same Runtime, per second with ``IN_FLIGHT`` at once.

    Raises if an answer came to another call than the one that asked.
    """
    person = Person(at)
    answering = asyncio.create_task(person.answer())
    try:
        async with runtime.agent(facts, at) as agent:

            async def ask(n: int) -> None:
                result = await agent.call("input", FORM, f"bench-{n % CONVERSATIONS}", f"q{n}")
                assert result["result"] == {"values": {"who": f"q{n}"}}, result

            async def echo(n: int) -> None:
                result = await agent.call("bench-echo.echo", {"text": str(n)}, f"bench-{n % CONVERSATIONS}")
                assert result["result"] == {"text": str(n)}, result

            for n in range(CONVERSATIONS):  # both MiniApps are warm in each
                await agent.call("input", FORM, f"bench-{n}")
                await agent.call("bench-echo.echo", {"text": "warm"}, f"bench-{n}")
            calls = await _rate(echo, answering)
            return await _rate(ask, answering), calls
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        person.leave()


async def _rate(once: Callable[[int], Awaitable[None]], answering: asyncio.Task[None]) -> float:
    left = iter(range(QUESTIONS))

    async def lane() -> None:
        for n in left:
            await once(n)

    begin = time.perf_counter()
    lanes = asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    await asyncio.wait((lanes, answering), return_when=asyncio.FIRST_COMPLETED)
    if answering.done():
        await answering
    await lanes
    return QUESTIONS / (time.perf_counter() - begin)
