"""The server half of ZMTP 3.x (NULL mechanism), metered and sans-I/O.

Owns: the greeting, the READY handshake, frame headers, PING/PONG, and the limits on what one untrusted peer may send.
Must not know: sockets, the loop, the clock (``now`` comes in, in seconds), or what a message means.

Laws:
    * A peer can make this object hold at most one frame of ``message_bytes_max`` plus one unparsed read.
    * One message is one frame; a MORE flag ends the connection. So does any byte that ZMTP does not allow here.
    * A size is refused when its header has been read, before any of its body is kept.
    * After a ``Cut`` nothing is parsed and nothing is emitted any more.

Source: https://rfc.zeromq.org/spec/37/ (ZMTP 3.1); 3.0 peers are taken too.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from enum import Enum, auto

from lineup_protocol.limits import (
    WORKER_BYTES_PER_SECOND_MAX,
    WORKER_MESSAGE_BYTES_MAX,
    WORKER_MESSAGES_BURST_MAX,
    WORKER_MESSAGES_PER_SECOND_MAX,
)

GREETING_BYTES = 64
SIGNATURE = b"\xff\0\0\0\0\0\0\0\0\x7f"
_MECHANISM_NULL = b"NULL".ljust(20, b"\0")
GREETING = SIGNATURE + b"\x03\x01" + _MECHANISM_NULL + b"\0" + bytes(31)
assert len(GREETING) == GREETING_BYTES

FLAG_MORE = 0x01
FLAG_LONG = 0x02
FLAG_COMMAND = 0x04
_FLAGS_KNOWN = FLAG_MORE | FLAG_LONG | FLAG_COMMAND

READY_BYTES_MAX = 1_024  # libzmq's READY of a DEALER has about 40 bytes; an identity may add 255
COMMAND_BYTES_MAX = 64  # PING is 23 bytes at most (RFC 37: a context of up to 16)
PING_CONTEXT_BYTES_MAX = 16
_SHORT_BODY_BYTES_MAX = 255


@dataclass(frozen=True)
class Limits:
    """What one peer may send. Rates are token buckets: ``*_per_s`` refills, ``*_burst`` is the bucket's size."""

    message_bytes_max: int = WORKER_MESSAGE_BYTES_MAX
    bytes_per_s: float = WORKER_BYTES_PER_SECOND_MAX
    bytes_burst: float = 2 * WORKER_BYTES_PER_SECOND_MAX
    messages_per_s: float = WORKER_MESSAGES_PER_SECOND_MAX
    messages_burst: float = WORKER_MESSAGES_BURST_MAX
    commands_per_s: float = 10  # PINGs; a ping flood is cut, never answered at full speed
    commands_burst: float = 50


@dataclass(frozen=True)
class Ready:
    """The handshake is done; messages may follow."""


@dataclass(frozen=True)
class MessageReceived:
    payload: bytes


@dataclass(frozen=True)
class Cut:
    """The peer broke a rule or a limit; close the connection. ``reason`` is stable, ``detail`` is for people."""

    reason: str
    detail: str


Event = Ready | MessageReceived | Cut


class _State(Enum):
    GREETING = auto()
    READY = auto()
    TRAFFIC = auto()
    DEAD = auto()


class TokenBucket:
    """``rate`` tokens per second up to ``burst``. A single take may overdraw; then nothing more until it is repaid."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at: float | None = None

    def _refill(self, now: float) -> None:
        if self._at is not None and now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now

    def is_open(self, now: float) -> bool:
        self._refill(now)
        return self._tokens > 0

    def take(self, amount: float, now: float) -> None:
        self._refill(now)
        self._tokens -= amount

    def wait_s(self, now: float) -> float:
        """Seconds until a quarter of the bucket is free again: pauses are few and long, not many and short."""
        self._refill(now)
        target = self._burst / 4
        return max(0.0, (target - self._tokens) / self._rate)


@dataclass
class _Buckets:
    volume: TokenBucket
    messages: TokenBucket
    commands: TokenBucket


@dataclass
class ServerConnection:
    """One peer. Feed it bytes, take events; ``outgoing()`` holds what must be written to the peer.

    When a rate is used up, parsing stops: ``paused_until`` is set (seconds, same clock as ``now``) and the caller
    should stop reading until then and call ``resume``. The same when ``room`` messages were given: ``is_full`` is set.
    The rest of the read stays here, so nothing is lost.
    """

    limits: Limits = field(default_factory=Limits)
    socket_type: bytes = b"ROUTER"
    paused_until: float | None = None
    is_full: bool = False

    def __post_init__(self) -> None:
        limits = self.limits
        self._state = _State.GREETING
        self._in = bytearray()
        self._out = bytearray(GREETING)
        self._buckets = _Buckets(
            TokenBucket(limits.bytes_per_s, limits.bytes_burst),
            TokenBucket(limits.messages_per_s, limits.messages_burst),
            TokenBucket(limits.commands_per_s, limits.commands_burst),
        )

    @property
    def is_ready(self) -> bool:
        return self._state is _State.TRAFFIC

    @property
    def is_dead(self) -> bool:
        return self._state is _State.DEAD

    @property
    def buffered_bytes(self) -> int:
        return len(self._in)

    def outgoing(self) -> bytes:
        """Bytes of the handshake and PONGs that are to be written; empties the buffer."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def feed(self, data: bytes | bytearray | memoryview, now: float, room: int = sys.maxsize) -> list[Event]:
        """Take one read; at most ``room`` messages come of it now.

        ``data`` should be small (one socket read): it is what may wait here while paused.
        """
        if self._state is _State.DEAD:
            return []
        self._buckets.volume.take(len(data), now)
        self._in += data
        return self._run(now, room)

    def resume(self, now: float, room: int = sys.maxsize) -> list[Event]:
        """Parse on after a pause, or when there is room again."""
        if self._state is _State.DEAD:
            return []
        return self._run(now, room)

    def _run(self, now: float, room: int) -> list[Event]:
        events: list[Event] = []
        self.paused_until = None
        self.is_full = False
        try:
            self._parse(events, now, room)
        except _Violation as violation:
            self._state = _State.DEAD
            self._in = bytearray()
            self._out.clear()
            events.append(Cut(violation.reason, violation.detail))
        return events

    def _parse(self, events: list[Event], now: float, room: int) -> None:
        if self._state is _State.GREETING and not self._parse_greeting():
            return
        position = 0
        try:
            while (end := self._next_frame(position)) is not None:
                start, stop, is_command = end
                if is_command:
                    self._on_command(bytes(self._in[start:stop]), events, now)
                elif not self._buckets.messages.is_open(now):
                    self._pause(self._buckets.messages, now)
                    return
                elif room <= 0:
                    self.is_full = True
                    return
                else:
                    room -= 1
                    self._buckets.messages.take(1, now)
                    events.append(MessageReceived(bytes(memoryview(self._in)[start:stop])))
                position = stop
        finally:
            if position:
                del self._in[:position]
        if not self._buckets.volume.is_open(now):
            self._pause(self._buckets.volume, now)

    def _pause(self, bucket: TokenBucket, now: float) -> None:
        self.paused_until = now + bucket.wait_s(now)

    def _parse_greeting(self) -> bool:
        """True once the whole greeting was taken. Checked byte by byte as it comes, so a wrong one ends at once."""
        have = self._in
        if have and have[0] != SIGNATURE[0]:
            raise _Violation("greeting", "the first byte is not a ZMTP signature")
        if len(have) >= 10 and not have[9] & 1:
            raise _Violation("greeting", "the signature is not that of ZMTP 3")
        if len(have) >= 11 and have[10] < 3:
            raise _Violation("greeting", f"ZMTP version {have[10]} is too old")
        if len(have) >= 32 and have[12:32] != _MECHANISM_NULL:
            raise _Violation("mechanism", "the security mechanism must be NULL")
        if len(have) < GREETING_BYTES:
            return False
        if have[32] != 0:
            raise _Violation("mechanism", "as-server is not allowed with NULL")
        del self._in[:GREETING_BYTES]
        self._state = _State.READY
        self._out += encode_command(b"READY", encode_property(b"Socket-Type", self.socket_type))
        return True

    def _next_frame(self, position: int) -> tuple[int, int, bool] | None:
        """``(start, stop, is_command)`` of the next complete body at or after ``position``, or None for now.

        The header of an incomplete frame is checked again at the next read; that costs nine bytes.
        """
        have = self._in
        available = len(have) - position
        if available < 1:
            return None
        flags = have[position]
        if flags & ~_FLAGS_KNOWN:
            raise _Violation("frame", f"reserved flag bits are set (0x{flags:02x})")
        if flags & FLAG_MORE:
            raise _Violation("frames_per_message", "a message is one frame; the MORE flag is not allowed")
        header = 9 if flags & FLAG_LONG else 2
        if available < header:
            return None
        if flags & FLAG_LONG:
            (size,) = struct.unpack_from(">Q", have, position + 1)
        else:
            size = have[position + 1]
        is_command = bool(flags & FLAG_COMMAND)
        self._check_size(size, is_command)
        if available < header + size:
            return None
        start = position + header
        return start, start + size, is_command

    def _check_size(self, size: int, is_command: bool) -> None:
        if self._state is _State.READY:
            if not is_command:
                raise _Violation("handshake", "a message came before READY")
            cap, what = READY_BYTES_MAX, "a handshake command"
        elif is_command:
            cap, what = COMMAND_BYTES_MAX, "a command"
        else:
            cap, what = self.limits.message_bytes_max, "a message"
        if size > cap:
            raise _Violation("message_too_large", f"{what} of {size} bytes is over the cap of {cap}")

    def _on_command(self, body: bytes, events: list[Event], now: float) -> None:
        if not body or len(body) < 1 + body[0]:
            raise _Violation("command", "a command without a name")
        name, data = body[1 : 1 + body[0]], body[1 + body[0] :]
        if self._state is _State.READY:
            self._on_ready(name, data)
            self._state = _State.TRAFFIC
            events.append(Ready())
            return
        if not self._buckets.commands.is_open(now):
            raise _Violation("command_flood", "too many commands")
        self._buckets.commands.take(1, now)
        if name == b"PING":
            if not 2 <= len(data) <= 2 + PING_CONTEXT_BYTES_MAX:
                raise _Violation("command", "a malformed PING")
            self._out += encode_command(b"PONG", data[2:])
        elif name != b"PONG":
            raise _Violation("command", f"the command {_printable(name)} is not allowed here")

    def _on_ready(self, name: bytes, data: bytes) -> None:
        if name != b"READY":
            raise _Violation("handshake", f"expected READY, got {_printable(name)}")
        socket_type = _properties(data).get(b"socket-type")
        if socket_type != b"DEALER":
            raise _Violation("socket_type", f"the peer must be a DEALER, not {_printable(socket_type or b'nothing')}")


class _Violation(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def _properties(data: bytes) -> dict[bytes, bytes]:
    """The metadata of READY, names in lower case. An Identity is read and ignored: it is never an identity here."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        name_end = position + 1 + data[position]
        if data[position] == 0 or name_end + 4 > len(data):
            raise _Violation("handshake", "malformed READY metadata")
        name = data[position + 1 : name_end].lower()
        (size,) = struct.unpack_from(">I", data, name_end)
        if name_end + 4 + size > len(data):
            raise _Violation("handshake", "malformed READY metadata")
        if name in found:
            raise _Violation("handshake", f"READY names {_printable(name)} twice")
        found[name] = data[name_end + 4 : name_end + 4 + size]
        position = name_end + 4 + size
    return found


def _printable(raw: bytes) -> str:
    return ascii(raw[:32].decode("latin-1"))


def encode_property(name: bytes, value: bytes) -> bytes:
    """One name/value pair of a READY command's metadata."""
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def encode_command(name: bytes, data: bytes) -> bytes:
    """One command frame."""
    body = bytes([len(name)]) + name + data
    return _header(FLAG_COMMAND, len(body)) + body


def message_header(size: int) -> bytes:
    """The header of a one-frame message of ``size`` bytes; the body follows as it is."""
    return _header(0, size)


def _header(flags: int, size: int) -> bytes:
    if size > _SHORT_BODY_BYTES_MAX:
        return bytes([flags | FLAG_LONG]) + struct.pack(">Q", size)
    return bytes([flags, size])
