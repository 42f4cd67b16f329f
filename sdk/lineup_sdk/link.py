"""What the parts of the SDK object share: a way to send commands, the projection, and listeners.

Owns nothing durable. ``runner`` implements it over a session and a channel.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from lineup_sdk.projection import Projection
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import CapabilityResult, Interaction, ToolCall

T = TypeVar("T")
Unsubscribe = Callable[[], None]


class Scope:
    """One run of one handler: of a call, or (``call`` None) of a message."""

    def __init__(self, subject_id: str, call: ToolCall | None = None) -> None:
        self.call = call
        self._subject_id = subject_id
        self._asked: dict[str, int] = {}

    def question_key(self, request: dict[str, Any]) -> str:
        """A key for the n-th time that this run asks this question: the same when the call or message comes again."""
        asked = json.dumps([self._subject_id, request], sort_keys=True)
        digest = hashlib.sha256(asked.encode()).hexdigest()[:40]
        nth = self._asked[digest] = self._asked.get(digest, 0) + 1
        return f"ask-{digest}-{nth}"


# The handler that is running in this task; questions asked in it belong to it.
current_scope: ContextVar[Scope | None] = ContextVar("lineup_current_scope", default=None)


class Listeners(Generic[T]):
    """Plain functions that hear of something. One that raises is reported and does not disturb the others."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[T], None]] = []

    def subscribe(self, listener: Callable[[T], None]) -> Unsubscribe:
        """Add a listener; the returned function removes it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def tell(self, value: T) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(value)
            except Exception:
                print(f"a listener for {type(value).__name__} raised:", file=sys.stderr)
                traceback.print_exc()

    def __bool__(self) -> bool:
        return bool(self._listeners)


class Turn:
    """A handler's turn in its lane. The next message waits until the handler has ended, or waits for a person: an
    answer must never be stuck behind the messages that the handler holds up."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    def end(self) -> None:
        self._over.set()

    async def wait(self) -> None:
        await self._over.wait()


current_turn: ContextVar[Turn | None] = ContextVar("lineup_current_turn", default=None)


class Awaited(Generic[T]):
    """Answers by id that somebody in this worker waits for."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[T]] = {}
        self._waiters: dict[str, int] = {}

    async def wait(self, id_: str) -> T:
        """The answer; as many may wait for one id as like to."""
        turn = current_turn.get()
        if turn is not None:
            turn.end()
        future = self._futures.get(id_)
        if future is None:
            future = self._futures[id_] = asyncio.get_running_loop().create_future()
        self._waiters[id_] = self._waiters.get(id_, 0) + 1
        try:
            return await asyncio.shield(future)
        finally:
            self._waiters[id_] -= 1
            if not self._waiters[id_]:
                del self._waiters[id_], self._futures[id_]
                if not future.done():
                    future.cancel()

    def settle(self, id_: str, value: T) -> bool:
        """Give the answer; True if anybody waits for it."""
        future = self._futures.get(id_)
        if future is None:
            return False
        if not future.done():
            future.set_result(value)
        return True


class Link(Protocol):
    """What the API objects use of the runner."""

    projection: Projection
    interactions_awaited: Awaited[Interaction]
    capabilities_awaited: Awaited[CapabilityResult]

    async def command(self, type_: str, body: dict[str, Any]) -> CommandReceipt:
        """Send one command and wait for its receipt; every refusal, a local one too, comes as a receipt."""
        ...

    def acknowledge(self, seq: int) -> None: ...


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value: an optional field that is None is left out."""
    return {name: value for name, value in fields.items() if value is not None}
