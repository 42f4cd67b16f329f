"""The socket to hostshell and the command line: a libzmq ROUTER on ``run/host.sock``, driven by the loop.

This file owns carrying bytes to and from peers by their routing id, with bounds, and noticing that a peer's process has
ended. It must not know messages (see ``edges.host_link``). Trust is the run directory (0700) and our own uid: no
worker can reach this socket.

libzmq's descriptor is edge-triggered and shared by both directions: after every receive *and* every send its events
must be looked at again, else a message may lie there for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

import zmq

from lineup_protocol.limits import HOST_MESSAGE_BYTES_MAX
from lineup_supervisor.edges.file_faults import file_fault
from lineup_supervisor.edges.upkeep import Recurring, told

LINGER_MS = 500  # what was said last may still leave; nothing waits longer for a peer that does not read
SEND_QUEUE_MESSAGES_MAX = 4096  # libzmq's own queue, per peer
RECEIVE_QUEUE_MESSAGES_MAX = 128  # the same for what is not read yet: of an agent's largest frames, 128 MiB
BACKLOG_BYTES_MAX = (
    64 << 20
)  # for a peer whose queue is full: two of the largest messages; beyond it the peer is let go
DRAIN_MESSAGES_MAX = 256  # per turn of the loop, so that one busy peer does not starve the workers
RETRY_S = 0.01  # libzmq does not say when a peer's queue has room again
PEERS_MAX = 256  # one hostshell and people at command lines; beyond it the longest silent one is let go


def _events(socket: zmq.Socket[bytes]) -> int:
    """What the socket is ready for. The option costs half of the attribute and a tenth of a poll."""
    return cast(int, socket.getsockopt(zmq.EVENTS))


class _Peer:
    __slots__ = ("backlog", "backlog_bytes", "pidfd", "pinned")

    def __init__(self) -> None:
        self.backlog: deque[bytes] = deque()
        self.backlog_bytes = 0
        self.pidfd = -1
        self.pinned = False


class HostSocket:
    """See the module. Use from the loop's thread only.

    ``on_message(peer, data)`` for every message; ``on_gone(peer, reason)`` once when a known peer is gone or let go.
    While ``may_read()`` says no, nobody is read from, and who sends on waits; whoever changes that calls ``read_on``.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_message: Callable[[bytes, bytes], None],
        on_gone: Callable[[bytes, str], None],
        may_read: Callable[[], bool] = lambda: True,
    ) -> None:
        self._path = path
        self._on_message = on_message
        self._on_gone = on_gone
        self._may_read = may_read
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._fd = -1
        self._peers: dict[bytes, _Peer] = {}  # the longest silent one first
        self._scheduled = False
        self._is_held = False
        self._retry: Recurring | None = None

    def open(self) -> None:
        """Bind. Raises LineUpError ``home_unusable`` or ``storage_full``."""
        self._loop = asyncio.get_running_loop()
        self._retry = Recurring("sending on to who has fallen behind", self._send_backlogs)
        self._context = zmq.Context(1)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.SNDHWM, SEND_QUEUE_MESSAGES_MAX)
        self._socket.setsockopt(zmq.RCVHWM, RECEIVE_QUEUE_MESSAGES_MAX)
        self._socket.setsockopt(zmq.MAXMSGSIZE, HOST_MESSAGE_BYTES_MAX)
        before = os.umask(0o077)
        try:
            self._socket.bind(f"ipc://{self._path}")
        except zmq.ZMQError as error:
            self.close()
            raise file_fault(OSError(error.errno, error.strerror), self._path) from error
        finally:
            os.umask(before)
        self._fd = self._socket.FD
        self._loop.add_reader(self._fd, self._drain)
        self._drain_soon()

    def watch(self, peer: bytes, pid: int) -> None:
        """Report the peer as gone when this process has ended."""
        state = self._peers.get(peer)
        if state is None or state.pidfd >= 0:
            return
        try:
            state.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._loop.call_soon(self.let_go, peer, "its process has ended")
            return
        except (OSError, OverflowError):
            return  # no such pid in our namespace, or anywhere, or no descriptors left: then a failed send tells
        with contextlib.suppress(OSError):  # no room for one more watch: likewise
            self._loop.add_reader(state.pidfd, self.let_go, peer, "its process has ended")

    def pin(self, peer: bytes) -> None:
        """Never let this one go only because many are connected."""
        if (state := self._peers.get(peer)) is not None:
            state.pinned = True

    def send(self, peer: bytes, data: bytes) -> bool:
        """Hand over, or keep for a peer whose queue is full. False if the peer is unknown, gone, or too far behind."""
        state = self._peers.get(peer)
        if state is None:
            return False
        if not state.backlog and self._try_send(peer, data):
            return True
        if peer not in self._peers:
            return False
        state.backlog.append(data)
        state.backlog_bytes += len(data)
        if state.backlog_bytes > BACKLOG_BYTES_MAX:
            self.let_go(peer, "it does not read")
            return False
        assert self._retry is not None
        if not self._retry.is_set:
            self._retry.start(RETRY_S)
        return True

    def read_on(self) -> None:
        """There may be room again for what was held back."""
        if self._is_held and self._may_read():
            self._is_held = False
            self._drain_soon()

    def let_go(self, peer: bytes, reason: str) -> None:
        """Forget a peer; it hears nothing any more until it sends again."""
        state = self._peers.pop(peer, None)
        if state is None:
            return
        if state.pidfd >= 0:
            self._loop.remove_reader(state.pidfd)
            os.close(state.pidfd)
        self._on_gone(peer, reason)

    def close(self) -> None:
        """Close, waiting at most ``LINGER_MS`` for what was sent. Nothing is called back any more."""
        for state in self._peers.values():
            if state.pidfd >= 0:
                self._loop.remove_reader(state.pidfd)
                os.close(state.pidfd)
        self._peers.clear()
        if self._retry is not None:
            self._retry.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._context is not None:
            self._context.term()
            self._context = None

    def _try_send(self, peer: bytes, data: bytes) -> bool:
        assert self._socket is not None
        try:
            self._socket.send_multipart((peer, data), zmq.DONTWAIT, copy=len(data) < 65_536)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.let_go(peer, "its connection is gone")
            return False
        finally:
            self._drain_soon()
        return True

    def _send_backlogs(self) -> float | None:
        behind = False
        for peer, state in list(self._peers.items()):
            while state.backlog and self._try_send(peer, state.backlog[0]):
                state.backlog_bytes -= len(state.backlog.popleft())
            behind = behind or (bool(state.backlog) and peer in self._peers)
        return RETRY_S if behind else None

    def _drain_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._drain_scheduled)

    def _drain_scheduled(self) -> None:
        self._scheduled = False
        self._drain()

    def _drain(self) -> None:
        for _ in range(DRAIN_MESSAGES_MAX):
            if self._socket is None or not _events(self._socket) & zmq.POLLIN:
                return
            if not self._may_read():
                self._is_held = True
                return
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            if len(frames) == 2:
                self._take(frames[0], frames[1])
        self._drain_soon()

    def _take(self, peer: bytes, data: bytes) -> None:
        state = self._peers.pop(peer, None) or _Peer()
        self._peers[peer] = state
        if len(self._peers) > PEERS_MAX:
            longest_silent = next(each for each, state in self._peers.items() if not state.pinned)
            self.let_go(longest_silent, "too many are connected")
        with told("taking a message of the host link"):  # else those of all others would wait for the next event
            self._on_message(peer, data)
