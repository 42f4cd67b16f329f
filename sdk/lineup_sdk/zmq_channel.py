"""The worker's channel over ZeroMQ: one DEALER socket, one frame per message, watched without asyncio's zmq layer.

libzmq's descriptor is edge-triggered and says only "look again", so after every wake, and after every send, the socket
is drained until it has nothing more. A second socket, libzmq's monitor, tells when the supervisor is gone; the socket
never reconnects, because a worker does not outlive the supervisor that started it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import zmq
from zmq.utils.monitor import parse_monitor_message

from lineup_protocol import codec
from lineup_protocol.errors import LineUpError
from lineup_sdk.channel import ChannelClosed, Message

LINGER_MS = 1_000  # how long the last messages may take to leave at the end
HIGH_WATER_MESSAGES = 1_000  # in libzmq's queue, each way; what does not fit waits in ``_unsent``
UNSENT_MESSAGES_MAX = 10_000  # the Runtime has not read for a long time: it is as good as gone
_FROM_RUNTIME = codec.CAPS["worker", True]
_ENDS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


def _events(socket: zmq.Socket[bytes]) -> int:
    """What the socket is ready for. The option costs half of the attribute and a tenth of a poll."""
    return cast(int, socket.getsockopt(zmq.EVENTS))


class ZmqChannel:
    """Connects at once; must be made within a running event loop."""

    def __init__(self, endpoint: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.SNDHWM, HIGH_WATER_MESSAGES),
            (zmq.RCVHWM, HIGH_WATER_MESSAGES),
            (zmq.MAXMSGSIZE, _FROM_RUNTIME.bytes_max),
            (zmq.RECONNECT_IVL, -1),
        ):
            self._socket.setsockopt(option, value)
        self._monitor = self._socket.get_monitor_socket(_ENDS)
        self._arrived: deque[Message] = deque()
        self._unsent: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._fault: Exception | None = None
        self._closed = False
        self._descriptors = (self._socket.FD, self._monitor.FD)
        self._loop.add_reader(self._descriptors[0], self._drain)
        self._loop.add_reader(self._descriptors[1], self._watch)
        self._socket.connect(endpoint)
        # Whoever has never looked at a socket's state is not woken: look once at each.
        self._drain()
        self._watch()

    def send(self, message: Message) -> None:
        if self._closed or self._fault is not None:
            raise ChannelClosed("the Runtime is gone")
        data = codec.encode_message(
            message["type"], message["body"], link="worker", from_runtime=False, message_id=message.get("id")
        )
        if len(self._unsent) >= UNSENT_MESSAGES_MAX:
            self._end(ChannelClosed(f"the Runtime has not read {UNSENT_MESSAGES_MAX} messages"))
            raise ChannelClosed(str(self._fault))
        self._unsent.append(data)
        self._drain()

    async def receive(self) -> list[Message]:
        while not self._arrived:
            if self._fault is not None:
                raise self._fault
            self._wake.clear()
            await self._wake.wait()
        messages = list(self._arrived)
        self._arrived.clear()
        return messages

    def close(self) -> None:
        """What libzmq has taken may still leave for ``LINGER_MS``; then the context is gone."""
        if self._closed:
            return
        self._closed = True
        self._end(ChannelClosed("closed"))
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        self._context.term()

    def _drain(self) -> None:
        """Send and take what the socket allows, until its state has nothing more to say."""
        while not self._closed:
            state = _events(self._socket)
            if state & zmq.POLLIN and self._fault is None:
                self._take()
            elif state & zmq.POLLOUT and self._unsent:
                self._socket.send(self._unsent[0], zmq.NOBLOCK)
                self._unsent.popleft()
            else:
                return

    def _take(self) -> None:
        frames = self._socket.recv_multipart(zmq.NOBLOCK)
        try:
            if len(frames) != 1:
                raise LineUpError("message_invalid", f"a message of {len(frames)} frames; every message is one frame")
            self._arrived.append(cast(Message, codec.decode(frames[0], _FROM_RUNTIME)))
        except LineUpError as fault:
            self._end(fault)
        self._wake.set()

    def _watch(self) -> None:
        """The monitor has something: the connection has ended (or never came to be). Take what arrived before."""
        while not self._closed and _events(self._monitor) & zmq.POLLIN:
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            self._drain()
            self._end(ChannelClosed(f"the connection ended ({zmq.Event(event['event']).name})"))

    def _end(self, fault: Exception) -> None:
        if self._fault is None:
            self._fault = fault
        self._wake.set()
