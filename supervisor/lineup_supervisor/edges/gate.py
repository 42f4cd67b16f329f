"""The gate: the only way from one worker into the supervisor.

Owns: one listening unix socket, the one connection that is accepted on it, metering, backpressure in both directions,
and the reasons for which the connection is cut. Must not know: what a message means, or how the process was started.

Laws:
    * Exactly one connection, from the expected process (SO_PEERCRED), is ever accepted; then listener and file go.
    * ``on_cut`` is called at most once, and nothing else after it; ``close()`` by the owner is silent.
    * One ready socket costs one bounded read per turn of the loop; there is no task and no timer per message.
    * What is buffered per worker is bounded: one frame, one read, ``undelivered_*`` in; out ``send_bytes_max``, or what
      is sent at once to a worker that has read everything before: nobody is cut for what was never theirs to read yet.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import zmtp
from lineup_supervisor.edges.file_faults import file_fault
from lineup_supervisor.edges.upkeep import told

SOCKET_PATH_BYTES_MAX = 107  # sun_path holds 108 bytes, one of them the final NUL
READ_BYTES = 65_536
WATCH_AGAIN_S = 0.05  # until a link is watched again, should the kernel have no room for one more watch
_UCRED = struct.Struct("=iII")


@dataclass(frozen=True)
class GateLimits:
    """Bounds of one worker's connection, each with its named cut or pause."""

    wire: zmtp.Limits = field(default_factory=zmtp.Limits)
    handshake_s: float = 2.0  # from the accept to READY; libzmq needs a few milliseconds
    # Handed up and not yet taken; then reading pauses. What of it goes on to the core at a time is its lane's business.
    undelivered_messages_max: int = 64
    undelivered_bytes_max: int = 4 * 1024 * 1024  # and one message more, as it is full only then
    send_bytes_max: int = 32 * 1024 * 1024  # over it the worker does not read: worker_unresponsive
    flood_cut_s: float = 5.0  # of unbroken throttling before the cut
    flood_calm_s: float = 2.0  # this long without throttling ends a flood
    strangers_max: int = 64  # connects from unexpected processes before the gate gives up


class Gate:
    """One worker's gate. Use from the loop's thread only.

    ``on_message(payload)``, ``on_ready()``, ``on_cut(reason, detail)`` and ``on_throttled(detail)`` (once per flood)
    are called from the loop. For every message the owner calls ``taken()`` when it has dealt with it.
    """

    def __init__(
        self,
        path: str | Path,
        limits: GateLimits,
        *,
        on_message: Callable[[bytes], None],
        on_ready: Callable[[], None],
        on_cut: Callable[[str, str], None],
        on_throttled: Callable[[str], None] | None = None,
    ) -> None:
        self.path = str(path)
        self.limits = limits
        self.strangers = 0
        self._on_message = on_message
        self._on_ready = on_ready
        self._on_cut = on_cut
        self._on_throttled = on_throttled
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._is_expected: Callable[[int], bool] | None = None
        self._peer: socket.socket | None = None
        self._wire = zmtp.ServerConnection(limits.wire)
        self._timer: asyncio.TimerHandle | None = None
        self._reading = False
        self._writing = False
        self._is_going_on = False
        self._undelivered: deque[int] = deque()
        self._undelivered_bytes = 0
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._flood_since: float | None = None
        self._flood_until = 0.0
        self._closed = False
        self._silent = False

    # ---- life cycle

    def open(self) -> None:
        """Make the directory (0700) and the socket, and listen. Nobody is let in before ``expect``.

        Raises:
            LineUpError: ``home_unusable`` if the path is too long or cannot be used, ``storage_full``.
        """
        check_socket_path(self.path)
        self._loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            listener.bind(self.path)
            os.chmod(self.path, 0o600)
            listener.listen(8)
        except OSError as error:
            listener.close()
            raise file_fault(OSError(error.errno, error.strerror), self.path) from error
        self._listener = listener
        self._inode = _inode_of(self.path)

    def expect(self, peer: int | Callable[[int], bool]) -> None:
        """Let the process with this pid in (or one for which ``peer(pid)`` is true). Connects until now have waited."""
        assert self._is_expected is None, "expect() is called once"
        if self._closed or self._listener is None:
            return
        self._is_expected = peer if callable(peer) else peer.__eq__
        try:
            self._running_loop.add_reader(self._listener.fileno(), self._on_connectable)
        except OSError as error:  # no room for one more watch
            self._cut("accept_failed", f"cannot wait for the worker's connection: {error.strerror}")

    def close(self) -> None:
        """Let go of everything. No callback comes after it."""
        self._silent = True
        self._release()

    def _release(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._close_listener()
        if self._peer is not None:
            self._set_reading(False)
            self._set_writing(False)
            self._peer.close()
        self._out.clear()
        self._undelivered.clear()

    @property
    def is_ready(self) -> bool:
        return self._wire.is_ready and not self._closed

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "open() comes first"
        return self._loop

    def _close_listener(self) -> None:
        if self._listener is None:
            return
        if self._is_expected is not None:
            self._running_loop.remove_reader(self._listener.fileno())
        self._listener.close()
        self._listener = None
        if _inode_of(self.path) == self._inode:
            os.unlink(self.path)

    def _cut(self, reason: str, detail: str) -> None:
        """Close now, report on the loop's next turn: the owner is never called back from inside its own call."""
        if self._closed:
            return
        self._release()
        self._running_loop.call_soon(self._report_cut, reason, detail)

    def _report_cut(self, reason: str, detail: str) -> None:
        if not self._silent:
            self._silent = True
            self._on_cut(reason, detail)

    # ---- accepting

    def _on_connectable(self) -> None:
        assert self._listener is not None
        assert self._is_expected is not None
        try:
            peer, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:  # out of descriptors, say: the worker's start fails, the daemon does not
            self._cut("accept_failed", f"cannot accept the worker's connection: {error.strerror}")
            return
        peer.setblocking(False)
        pid = _peer_pid(peer)
        if not self._is_expected(pid):
            peer.close()
            self.strangers += 1
            if self.strangers >= self.limits.strangers_max:
                self._cut("strangers", f"{self.strangers} connects came from unexpected processes")
            return
        if _inode_of(self.path) != self._inode:
            peer.close()
            self._cut("socket_replaced", "the worker's socket was removed or replaced by another one")
            return
        self._peer = peer
        self._close_listener()
        self._timer = self._running_loop.call_later(self.limits.handshake_s, self._on_handshake_deadline)
        self._set_reading(True)
        self._flush_handshake()

    def _on_handshake_deadline(self) -> None:
        self._timer = None
        self._cut("handshake_timeout", f"no ZMTP handshake within {self.limits.handshake_s:g} s")

    # ---- reading

    def _on_readable(self) -> None:
        assert self._peer is not None
        try:
            data = self._peer.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._cut("disconnected", f"the worker's connection broke: {error.strerror}")
            return
        if not data:
            self._cut("disconnected", "the worker closed its connection")
            return
        self._handle(self._wire.feed(data, self._running_loop.time(), self._room))

    def _on_pause_over(self) -> None:
        self._timer = None
        self._read_on()

    def _read_on(self) -> None:
        """Go on with what was read and not yet parsed, then with reading."""
        self._handle(self._wire.resume(self._running_loop.time(), self._room))

    @property
    def _room(self) -> int:
        return max(0, self.limits.undelivered_messages_max - len(self._undelivered))

    def _handle(self, events: list[zmtp.Event]) -> None:
        """Pass events up, then decide whether to read on. A callback may close this gate at any point."""
        cut: zmtp.Cut | None = None
        for event in events:
            if self._closed:
                return
            match event:
                case zmtp.MessageReceived(payload):
                    self._undelivered.append(len(payload))
                    self._undelivered_bytes += len(payload)
                    is_taken = False
                    with told("taking a worker's message"):
                        self._on_message(payload)
                        is_taken = True
                    if not is_taken:  # nobody would say ``taken()``, and a worker that is read no more looks hung
                        self._cut("internal_error", "a fault of the Runtime at one of its messages")
                        return
                case zmtp.Ready():
                    if self._timer is not None:
                        self._timer.cancel()
                        self._timer = None
                    self._on_ready()
                case zmtp.Cut():
                    cut = event
        if self._closed:
            return
        if cut is not None:
            self._cut(cut.reason, cut.detail)
            return
        self._flush_handshake()
        self._throttle()
        self._set_reading(not self._closed and self._may_read())
        self._go_on_if_room()

    def _throttle(self) -> None:
        """Arm the end of a rate pause; a peer that has to be paused for too long on end is cut."""
        until = self._wire.paused_until
        if until is None or self._closed or not self._wire.is_ready:
            return
        now = self._running_loop.time()
        if self._flood_since is None or now - self._flood_until > self.limits.flood_calm_s:
            self._flood_since = now
            if self._on_throttled is not None:
                self._on_throttled("the worker sends more than its rate allows; reading from it pauses")
        self._flood_until = until
        if now - self._flood_since >= self.limits.flood_cut_s:
            self._cut("rate_limited", f"the worker kept flooding for {self.limits.flood_cut_s:g} s")
        elif not self._closed and self._timer is None:
            self._timer = self._running_loop.call_later(max(0.0, until - now), self._on_pause_over)

    def _may_read(self) -> bool:
        return (
            self._wire.paused_until is None
            and not self._wire.is_full
            and len(self._undelivered) < self.limits.undelivered_messages_max
            and self._undelivered_bytes < self.limits.undelivered_bytes_max
        )

    def taken(self, count: int = 1) -> None:
        """The owner has dealt with ``count`` more messages; reading goes on once half of the room is free again."""
        for _ in range(min(count, len(self._undelivered))):
            self._undelivered_bytes -= self._undelivered.popleft()
        self._go_on_if_room()

    def _go_on_if_room(self) -> None:
        if (
            not self._reading
            and not self._closed
            and self._peer is not None
            and self._wire.paused_until is None
            and len(self._undelivered) <= self.limits.undelivered_messages_max // 2
            and self._undelivered_bytes <= self.limits.undelivered_bytes_max // 2
        ):
            if not self._wire.is_full:
                self._set_reading(True)
            elif not self._is_going_on:  # on the loop's next turn: the owner is not called from inside its own call
                self._is_going_on = True
                self._running_loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if self._wire.is_full and not self._closed:
            self._read_on()

    def _set_reading(self, wanted: bool) -> None:
        if wanted == self._reading or self._peer is None:
            return
        self._reading = wanted
        if not wanted:
            self._running_loop.remove_reader(self._peer.fileno())
            return
        try:
            self._running_loop.add_reader(self._peer.fileno(), self._on_readable)
        except OSError as error:  # no room for one more watch
            self._reading = False
            if self._wire.is_ready:
                self._running_loop.call_later(WATCH_AGAIN_S, self._try_again_to_read)
            else:
                self._cut("accept_failed", f"cannot read from the worker: {error.strerror}")

    def _try_again_to_read(self) -> None:
        if not self._closed and self._may_read():
            self._set_reading(True)

    # ---- writing

    def send(self, *payloads: bytes) -> bool:
        """Send messages. False if the gate is closed, not ready, or was cut because the worker does not read."""
        if not self.is_ready:
            return False
        parts: list[bytes] = []
        for payload in payloads:
            header = zmtp.message_header(len(payload))
            parts += [header + payload] if len(payload) <= READ_BYTES else [header, payload]  # not worth a copy
        self._write(*parts)
        return not self._closed

    def _flush_handshake(self) -> None:
        if not self._closed and (data := self._wire.outgoing()):
            self._write(data)

    def _write(self, *parts: bytes) -> None:
        if self._out_bytes and self._out_bytes + sum(map(len, parts)) > self.limits.send_bytes_max:
            self._cut("worker_unresponsive", f"the worker left {self._out_bytes} bytes unread")
            return
        for part in parts:
            self._out.append(memoryview(part))
            self._out_bytes += len(part)
        if not self._writing:
            self._on_writable()

    def _on_writable(self) -> None:
        assert self._peer is not None
        while self._out:
            # Small messages go out together; 16 keeps the vector and one turn of the loop short.
            try:
                sent = self._peer.sendmsg(
                    [self._out[i] for i in range(min(16, len(self._out)))], (), socket.MSG_NOSIGNAL
                )
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._cut("disconnected", f"the worker's connection broke: {error.strerror}")
                return
            self._out_bytes -= sent
            while self._out and sent >= len(self._out[0]):
                sent -= len(self._out.popleft())
            if sent:
                self._out[0] = self._out[0][sent:]
        self._set_writing(bool(self._out))

    def _set_writing(self, wanted: bool) -> None:
        if wanted == self._writing or self._peer is None:
            return
        self._writing = wanted
        if not wanted:
            self._running_loop.remove_writer(self._peer.fileno())
            return
        try:
            self._running_loop.add_writer(self._peer.fileno(), self._on_writable)
        except OSError:  # no room for one more watch
            self._running_loop.call_later(WATCH_AGAIN_S, self._try_again_to_write)

    def _try_again_to_write(self) -> None:
        self._writing = False
        if not self._closed:
            self._on_writable()


def check_socket_path(path: str) -> None:
    """Raises LineUpError ``home_unusable`` if ``path`` does not fit into a unix socket address."""
    size = len(os.fsencode(path))
    if size > SOCKET_PATH_BYTES_MAX:
        raise LineUpError(
            "home_unusable",
            f"the socket path {path} has {size} bytes, the system allows {SOCKET_PATH_BYTES_MAX}; "
            "choose a home directory with a shorter path (--home)",
        )


def _inode_of(path: str) -> tuple[int, int] | None:
    """Device and inode of the socket file at ``path``, or None if there is no socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


def _peer_pid(peer: socket.socket) -> int:
    pid, _uid, _gid = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid)
