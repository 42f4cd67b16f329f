"""The ZMTP codec alone: bytes in, events out, every violation named."""

from __future__ import annotations

import random
import struct

import pytest

from lineup_supervisor.edges import zmtp

GREETING = zmtp.GREETING
READY = zmtp.encode_command(b"READY", zmtp.encode_property(b"Socket-Type", b"DEALER"))


def connection(**limits: float) -> zmtp.ServerConnection:
    return zmtp.ServerConnection(zmtp.Limits(**limits))  # type: ignore[arg-type]


def opened(**limits: float) -> zmtp.ServerConnection:
    wire = connection(**limits)
    assert wire.feed(GREETING + READY, 0.0) == [zmtp.Ready()]
    wire.outgoing()
    return wire


def message(payload: bytes) -> bytes:
    return zmtp.message_header(len(payload)) + payload


def cut_reason(events: list[zmtp.Event]) -> str:
    assert events, "nothing happened"
    assert isinstance(events[-1], zmtp.Cut)
    return events[-1].reason


def test_handshake_answers_with_greeting_and_ready() -> None:
    wire = connection()
    assert wire.outgoing() == GREETING
    assert wire.feed(GREETING, 0.0) == []
    assert wire.outgoing() == zmtp.encode_command(b"READY", zmtp.encode_property(b"Socket-Type", b"ROUTER"))
    assert wire.feed(READY, 0.0) == [zmtp.Ready()]
    assert wire.is_ready


def test_every_split_of_the_stream_gives_the_same_events() -> None:
    payloads = [b"", b"x", b"y" * 255, b"z" * 256, b"w" * 70_000]
    stream = GREETING + READY + b"".join(map(message, payloads))
    expected: list[zmtp.Event] = [zmtp.Ready(), *map(zmtp.MessageReceived, payloads)]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(20):
        wire, events, position = connection(), [], 0
        while position < len(stream):
            step = rng.choice((1, 2, 9, 10, 11, 63, 64, 1000, 65_536))
            events += wire.feed(stream[position : position + step], 0.0)
            position += step
        assert events == expected


def test_a_greeting_byte_by_byte() -> None:
    wire = connection()
    for byte in GREETING + READY[:-1]:
        assert wire.feed(bytes([byte]), 0.0) == []
    assert wire.feed(READY[-1:], 0.0) == [zmtp.Ready()]


@pytest.mark.parametrize("minor", [0, 1, 7])
def test_any_minor_version_of_3_is_taken(minor: int) -> None:
    greeting = GREETING[:11] + bytes([minor]) + GREETING[12:]
    assert connection().feed(greeting + READY, 0.0) == [zmtp.Ready()]


def ready_of(*properties: bytes) -> bytes:
    return GREETING + zmtp.encode_command(b"READY", b"".join(properties))


TYPE = zmtp.encode_property(b"Socket-Type", b"DEALER")


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "greeting"),
        (b"\xff\0\0\0\0\0\0\0\0\x7e", "greeting"),
        (GREETING[:10] + b"\x02", "greeting"),
        (GREETING[:12] + b"PLAIN".ljust(20, b"\0"), "mechanism"),
        (GREETING[:12] + b"CURVE".ljust(20, b"\0"), "mechanism"),
        (GREETING[:32] + b"\x01" + bytes(31), "mechanism"),
        (GREETING + b"\x00\x01x", "handshake"),
        (GREETING + zmtp.encode_command(b"PING", b"\0\0"), "handshake"),
        (GREETING + b"\x06" + struct.pack(">Q", 1 << 63), "message_too_large"),
        (GREETING + b"\x06" + struct.pack(">Q", zmtp.READY_BYTES_MAX + 1), "message_too_large"),
        (GREETING + b"\x04\x00", "command"),
        (GREETING + b"\x04\x02\x05R", "command"),
        (ready_of(zmtp.encode_property(b"Socket-Type", b"ROUTER")), "socket_type"),
        (ready_of(zmtp.encode_property(b"Socket-Type", b"PUB")), "socket_type"),
        (ready_of(), "socket_type"),
        (ready_of(TYPE, TYPE), "handshake"),
        (ready_of(b"\x00\0\0\0\0"), "handshake"),
        (ready_of(b"\x05ab"), "handshake"),
        (ready_of(b"\x02ab" + struct.pack(">I", 0xFFFFFFFF)), "handshake"),
        (GREETING + b"\x05\x05", "frames_per_message"),
        (GREETING + b"\x80\x05", "frame"),
    ],
)
def test_a_bad_handshake_is_cut_with_its_name(stream: bytes, reason: str) -> None:
    wire = connection()
    assert cut_reason(wire.feed(stream, 0.0)) == reason
    assert wire.is_dead
    assert wire.feed(GREETING + READY, 0.0) == [], "nothing is parsed after a cut"
    assert wire.outgoing() == b""


def test_a_victims_routing_id_is_ignored() -> None:
    identity = zmtp.encode_property(b"Identity", b"victim")
    assert connection().feed(ready_of(TYPE, identity), 0.0) == [zmtp.Ready()]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x01\x01x", "frames_per_message"),
        (b"\x03" + struct.pack(">Q", 5), "frames_per_message"),
        (b"\x08\x01x", "frame"),
        (b"\x02" + struct.pack(">Q", 1_001), "message_too_large"),
        (b"\x02" + struct.pack(">Q", (1 << 64) - 1), "message_too_large"),
        (b"\x06" + struct.pack(">Q", zmtp.COMMAND_BYTES_MAX + 1), "message_too_large"),
        (zmtp.encode_command(b"READY", TYPE), "command"),
        (zmtp.encode_command(b"SUBSCRIBE", b"x"), "command"),
        (zmtp.encode_command(b"ERROR", b"\x01x"), "command"),
        (zmtp.encode_command(b"PING", b"\0"), "command"),
        (zmtp.encode_command(b"PING", b"\0\0" + b"c" * 17), "command"),
    ],
)
def test_bad_traffic_is_cut_with_its_name(stream: bytes, reason: str) -> None:
    wire = opened(message_bytes_max=1_000)
    assert cut_reason(wire.feed(stream, 0.0)) == reason


def test_messages_before_the_violation_still_come_out() -> None:
    wire = opened()
    events = wire.feed(message(b"good") + b"\x01\x01x", 0.0)
    assert events[0] == zmtp.MessageReceived(b"good")
    assert cut_reason(events) == "frames_per_message"


def test_ping_is_answered_and_a_ping_flood_is_cut() -> None:
    wire = opened(commands_per_s=1, commands_burst=3)
    ping = zmtp.encode_command(b"PING", b"\0\x0actx")
    assert wire.feed(ping, 0.0) == []
    assert wire.outgoing() == zmtp.encode_command(b"PONG", b"ctx")
    assert wire.feed(zmtp.encode_command(b"PONG", b""), 0.0) == []
    assert cut_reason(wire.feed(ping * 5, 0.0)) == "command_flood"


def test_message_rate_pauses_and_resumes_without_loss() -> None:
    wire = opened(messages_per_s=10, messages_burst=20)
    events = wire.feed(b"".join(message(b"%d" % i) for i in range(100)), 0.0)
    now, passes = 0.0, 0
    assert len(events) == 20
    while wire.paused_until is not None:
        assert wire.paused_until > now
        now = wire.paused_until
        events += wire.resume(now)
        passes += 1
        assert passes < 100
    assert events == [zmtp.MessageReceived(b"%d" % i) for i in range(100)]
    assert now == pytest.approx(8.0, abs=0.6), "100 messages, 20 at once, then 10 a second"


def test_byte_rate_pauses() -> None:
    wire = opened(bytes_per_s=1_000, bytes_burst=2_000)
    assert wire.feed(message(b"x" * 1_500), 0.0) == [zmtp.MessageReceived(b"x" * 1_500)]
    assert wire.paused_until is None
    assert wire.feed(message(b"x" * 1_500), 0.0) == [zmtp.MessageReceived(b"x" * 1_500)]
    assert wire.paused_until == pytest.approx(1.6, abs=0.2), "1,100 overdrawn and a quarter of the bucket"
    assert wire.paused_until is not None
    assert wire.resume(wire.paused_until) == []
    assert wire.paused_until is None


def test_what_one_peer_makes_us_hold_is_bounded() -> None:
    wire = opened(message_bytes_max=1 << 20)
    chunk = b"\x02" + struct.pack(">Q", 1 << 20) + bytes(65_536 - 9)
    wire.feed(chunk, 0.0)
    for _ in range(14):
        wire.feed(bytes(65_536), 0.0)
        assert wire.buffered_bytes <= (1 << 20) + 65_536
    assert wire.feed(bytes(65_536), 0.0) == []
    events = wire.feed(bytes(9), 0.0)
    assert [type(e) for e in events] == [zmtp.MessageReceived]
    assert wire.buffered_bytes == 0


def test_random_bytes_only_ever_cut() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(3_000):
        wire = opened(message_bytes_max=4_096) if rng.random() < 0.5 else connection()
        blob = rng.randbytes(rng.randrange(1, 300))
        for event in wire.feed(blob, 0.0):
            assert isinstance(event, zmtp.MessageReceived | zmtp.Cut | zmtp.Ready)
