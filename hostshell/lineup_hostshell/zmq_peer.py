"""One DEALER socket to the Runtime that knows when its peer is gone. Owns ZeroMQ's options, no meaning of any message.

A lost connection is final (no automatic reconnect): whoever speaks to a Runtime speaks to that one boot of it.
"""

from __future__ import annotations

import itertools
from typing import cast

import zmq
from zmq.utils.monitor import recv_monitor_message

SEND_QUEUE_MESSAGES_MAX = 64  # of 1 MiB at most; beyond it the sender waits: a slow Runtime slows its agents, not us
RECEIVE_QUEUE_MESSAGES_MAX = 1024
LINGER_MS = 500  # what was sent just before closing may still leave
# An hour, and the first loss ends everything long before. "Never" (-1) would be the word, but then libzmq throws away
# what the Runtime said last and nobody has read yet.
RECONNECT_MS = 3_600_000

_names = itertools.count(1)
_GONE = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_GONE |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_CONNECT_RETRIED


def _events(socket: zmq.Socket[bytes]) -> int:
    """What the socket is ready for. The option costs half of the attribute and a tenth of a poll."""
    return cast(int, socket.getsockopt(zmq.EVENTS))


class ZmqPeer:
    """The socket, and beside it the monitor that reports the end of the connection."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.SNDHWM, SEND_QUEUE_MESSAGES_MAX)
        self.socket.setsockopt(zmq.RCVHWM, RECEIVE_QUEUE_MESSAGES_MAX)
        monitor_address = f"inproc://lineup-peer-{next(_names)}"
        self.socket.monitor(monitor_address, _GONE)
        self.monitor = self._context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.LINGER, 0)
        self.monitor.connect(monitor_address)
        self._gone = False
        self.socket.connect(address)

    def try_send(self, data: bytes) -> bool:
        """False if the queue is full or the peer is gone."""
        try:
            self.socket.send(data, zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def try_receive(self) -> bytes | None:
        if not _events(self.socket) & zmq.POLLIN:
            return None
        try:
            return self.socket.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None

    def may_send(self) -> bool:
        return bool(_events(self.socket) & zmq.POLLOUT)

    def is_gone(self) -> bool:
        """True once the monitor has reported the end of the connection."""
        while _events(self.monitor) & zmq.POLLIN:
            event = recv_monitor_message(self.monitor, zmq.DONTWAIT)
            self._gone = self._gone or bool(event["event"] & _GONE)
        return self._gone

    def close(self) -> None:
        """Closing waits at most ``LINGER_MS`` for what was sent, and not at all for a peer that is gone."""
        if self.is_gone():
            self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()
        self._context.term()
