"""How a worker's messages travel, as an interface: the process uses ZeroMQ, the test kit a pair in memory.

A message is the plain map ``{"type", "id"?, "body"}`` of ``lineup_protocol.messages``. Order is kept in each direction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol, cast

from lineup_protocol import codec

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone for good."""


class Channel(Protocol):
    """One side of a worker link."""

    def send(self, message: Message) -> None:
        """Queue one message; never waits.

        Raises:
            LineUpError: ``message_invalid`` or ``message_too_large``, nothing was queued.
            ChannelClosed: the other side is gone.
        """
        ...

    async def receive(self) -> list[Message]:
        """The next messages, at least one, in order.

        Raises:
            LineUpError: what arrived is not a message; the channel is of no more use.
            ChannelClosed: the other side is gone and everything it sent has been received.
        """
        ...

    def close(self) -> None:
        """Let go of it; what was queued is still given a bounded chance to leave."""
        ...


class MemoryChannel:
    """One side of a pair in one process. Messages are encoded and decoded on the way, so that both sides see
    exactly what they would see over a socket and never share a value."""

    def __init__(self, *, from_runtime: bool) -> None:
        """``from_runtime``: this is the Runtime's side, so that it may send what the Runtime may."""
        self._from_runtime = from_runtime
        self.peer: MemoryChannel | None = None
        self._arrived: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def send(self, message: Message) -> None:
        peer = self.peer
        if self._closed or peer is None or peer._closed:
            raise ChannelClosed("the other side is closed")
        data = codec.encode_message(
            message["type"],
            message["body"],
            link="worker",
            from_runtime=self._from_runtime,
            message_id=message.get("id"),
        )
        caps = codec.CAPS["worker", self._from_runtime]
        peer._arrived.append(cast(Message, codec.decode(data, caps, allow_bytes=True)))
        peer._wake.set()

    async def receive(self) -> list[Message]:
        while not self._arrived:
            if self._closed or (self.peer is not None and self.peer._closed):
                raise ChannelClosed("the other side is closed")
            self._wake.clear()
            await self._wake.wait()
        messages = list(self._arrived)
        self._arrived.clear()
        return messages

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self.peer is not None:
            self.peer._wake.set()


def memory_pair() -> tuple[MemoryChannel, MemoryChannel]:
    """Two connected channels: one for the worker, one for whoever plays the Runtime."""
    one, other = MemoryChannel(from_runtime=False), MemoryChannel(from_runtime=True)
    one.peer, other.peer = other, one
    return one, other
