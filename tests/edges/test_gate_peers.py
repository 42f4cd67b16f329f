"""The gate against real libzmq peers and against raw ones that mean harm, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq
import zmq.asyncio

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import zmtp
from lineup_supervisor.edges.gate import Gate, GateLimits

READY = zmtp.encode_command(b"READY", zmtp.encode_property(b"Socket-Type", b"DEALER"))


class Owner:
    """Records what a gate says."""

    def __init__(self, path: Path, limits: GateLimits, *, auto_take: bool = True) -> None:
        self.messages: list[bytes] = []
        self.cuts: list[tuple[str, str]] = []
        self.throttled: list[str] = []
        self.ready = 0
        self.auto_take = auto_take
        self.gate = Gate(
            path,
            limits,
            on_message=self._on_message,
            on_ready=self._on_ready,
            on_cut=lambda reason, detail: self.cuts.append((reason, detail)),
            on_throttled=self.throttled.append,
        )

    def _on_message(self, payload: bytes) -> None:
        if payload == b"bug":
            raise ZeroDivisionError
        self.messages.append(payload)
        if self.auto_take:
            self.gate.taken()

    def _on_ready(self) -> None:
        self.ready += 1

    async def cut(self, seconds: float = 5.0) -> str:
        await until(lambda: bool(self.cuts), seconds)
        return self.cuts[0][0]


def is_there(path: Path) -> bool:
    return path.exists()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition, turn by turn of the loop, with a bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.002)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        yield Path(directory) / "g" / "s"


@pytest.fixture
async def make(place: Path) -> AsyncIterator[Callable[..., Owner]]:
    owners: list[Owner] = []

    def build(*, expect: bool = True, auto_take: bool = True, **limits: object) -> Owner:
        owner = Owner(place, GateLimits(**limits), auto_take=auto_take)  # type: ignore[arg-type]
        owners.append(owner)
        owner.gate.open()
        if expect:
            owner.gate.expect(os.getpid())
        return owner

    yield build
    for owner in owners:
        owner.gate.close()


@pytest.fixture
def dealer() -> Iterator[zmq.asyncio.Socket]:
    with zmq.asyncio.Context() as context:
        peer = context.socket(zmq.DEALER)
        peer.linger = 0
        yield peer
        peer.close()


def raw(path: Path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.connect(str(path))
    except OSError:
        peer.close()
        raise
    return peer


def opened(path: Path) -> socket.socket:
    peer = raw(path)
    peer.sendall(zmtp.GREETING + READY)
    return peer


async def test_a_message_at_which_the_runtime_fails_ends_its_worker(
    make: Callable[..., Owner], place: Path, dealer: zmq.asyncio.Socket
) -> None:
    """Read no more, it would look as if it hung, or be one that nobody hears for ever."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    owner = make()
    dealer.connect(f"ipc://{place}")
    for payload in (b"before", b"bug", b"after"):
        await dealer.send(payload)
    assert await owner.cut() == "internal_error"
    assert owner.messages == [b"before"]
    assert told == ["taking a worker's message failed"]


async def test_libzmq_talks_both_ways(make: Callable[..., Owner], place: Path, dealer: zmq.asyncio.Socket) -> None:
    owner = make()
    dealer.connect(f"ipc://{place}")
    await dealer.send(b"hello")
    await until(lambda: owner.messages == [b"hello"])
    assert owner.ready == 1
    for payload in (b"", b"a" * 255, b"b" * 256, b"c" * 70_000, os.urandom(4 << 20)):
        assert owner.gate.send(payload)
        assert await asyncio.wait_for(dealer.recv(), 5) == payload
        await dealer.send(payload)
        await until(lambda payload=payload: owner.messages[-1] == payload)  # type: ignore[misc]
    assert owner.cuts == []


async def test_libzmq_heartbeats_are_answered(
    make: Callable[..., Owner], place: Path, dealer: zmq.asyncio.Socket
) -> None:
    owner = make()
    dealer.heartbeat_ivl = 30
    dealer.heartbeat_timeout = 90
    dealer.connect(f"ipc://{place}")
    await dealer.send(b"hello")
    await until(lambda: bool(owner.messages))
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 0.4)
    await dealer.send(b"still here")
    await until(lambda: owner.messages == [b"hello", b"still here"])
    assert owner.cuts == []


async def test_many_messages_keep_their_order(
    make: Callable[..., Owner], place: Path, dealer: zmq.asyncio.Socket
) -> None:
    owner = make(wire=zmtp.Limits(messages_per_s=1e6, messages_burst=1e6))
    dealer.connect(f"ipc://{place}")
    expected = [b"%d" % i for i in range(5_000)]
    for payload in expected:
        await dealer.send(payload)
    await until(lambda: len(owner.messages) == 5_000, 20)
    assert owner.messages == expected


async def test_after_the_accept_nobody_else_gets_in(
    make: Callable[..., Owner], place: Path, dealer: zmq.asyncio.Socket
) -> None:
    owner = make()
    dealer.connect(f"ipc://{place}")
    await dealer.send(b"x")
    await until(lambda: bool(owner.messages))
    assert not is_there(place)
    with pytest.raises(FileNotFoundError):
        raw(place)


async def test_a_reconnect_is_refused(make: Callable[..., Owner], place: Path) -> None:
    owner = make()
    first = opened(place)
    await until(lambda: owner.ready == 1)
    first.close()
    assert await owner.cut() == "disconnected"
    with pytest.raises(FileNotFoundError):
        raw(place)
    assert len(owner.cuts) == 1


async def test_nobody_is_accepted_before_expect(
    make: Callable[..., Owner], place: Path, dealer: zmq.asyncio.Socket
) -> None:
    owner = make(expect=False)
    dealer.connect(f"ipc://{place}")
    await dealer.send(b"early")
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 0.1)
    assert owner.ready == 0
    owner.gate.expect(os.getpid())
    await until(lambda: owner.messages == [b"early"])


async def test_an_unexpected_process_is_closed_at_once(make: Callable[..., Owner], place: Path) -> None:
    owner = make(expect=False, strangers_max=5)
    owner.gate.expect(os.getpid() + 1)
    peers = []
    for count in range(1, 5):
        peer = raw(place)
        peers.append(peer)
        await until(lambda count=count: owner.gate.strangers == count)  # type: ignore[misc]
        peer.settimeout(5)
        assert peer.recv(1) == b"", "closed without a greeting"
    assert owner.cuts == []
    peers.append(raw(place))
    assert await owner.cut() == "strangers"
    for peer in peers:
        peer.close()


async def test_two_hundred_silent_connects_cost_one_descriptor(make: Callable[..., Owner], place: Path) -> None:
    me = psutil.Process()
    owner = make(handshake_s=0.3)
    before = me.num_fds()
    peers = []
    for _ in range(200):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.setblocking(False)
        try:
            peer.connect(str(place))
        except OSError:
            peer.close()
            continue
        peers.append(peer)
        await asyncio.sleep(0)
    assert len(peers) <= 10, "one is accepted, the backlog holds a few, the rest is refused"
    assert me.num_fds() - before - len(peers) <= 1
    assert await owner.cut() == "handshake_timeout"
    assert me.num_fds() - before - len(peers) <= 0
    for peer in peers:
        peer.close()


@pytest.mark.parametrize(
    "said", [b"", zmtp.GREETING[:10], zmtp.GREETING[:40], zmtp.GREETING, zmtp.GREETING + READY[:5]]
)
async def test_half_a_handshake_is_cut_in_time(make: Callable[..., Owner], place: Path, said: bytes) -> None:
    owner = make(handshake_s=0.2)
    peer = raw(place)
    peer.sendall(said)
    assert await owner.cut() == "handshake_timeout"
    peer.close()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\x01\x01x" * 1_000, "frames_per_message"),
        (b"\x02" + struct.pack(">Q", 1 << 40), "message_too_large"),
        (b"\x04\xff", "message_too_large"),
        (b"\x40\x00", "frame"),
    ],
)
async def test_harmful_frames_are_cut_within_a_second(
    make: Callable[..., Owner], place: Path, said: bytes, reason: str
) -> None:
    owner = make()
    peer = opened(place)
    peer.sendall(said)
    assert await owner.cut(1.0) == reason
    assert owner.messages == []
    peer.settimeout(5)
    try:
        while peer.recv(65_536):
            pass
    except ConnectionResetError:
        pass  # as good as an orderly end
    peer.close()


async def test_endless_more_frames_do_not_grow_the_supervisor(make: Callable[..., Owner], place: Path) -> None:
    owner = make()
    me = psutil.Process()
    before = me.memory_info().rss
    peer = opened(place)
    frame, loop = b"\x01\xff" + bytes(255), asyncio.get_running_loop()
    try:
        for _ in range(1_000_000):
            await loop.run_in_executor(None, peer.sendall, frame)
    except (BrokenPipeError, ConnectionResetError):
        pass
    await until(lambda: bool(owner.cuts))
    assert owner.cuts[0][0] == "frames_per_message"
    assert me.memory_info().rss - before < 64 << 20
    peer.close()


async def flood(peer: socket.socket, seconds: float) -> int:
    """Write two-byte messages as fast as they are taken; the number of bytes written until the end or the cut."""
    peer.setblocking(False)
    blob, total, deadline = b"\0\0" * 32_768, 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            total += peer.send(blob)
        except BlockingIOError:
            await asyncio.sleep(0.005)
        except OSError:
            break
    return total


async def test_a_flood_is_paused_first_then_cut(make: Callable[..., Owner], place: Path) -> None:
    owner = make(wire=zmtp.Limits(messages_per_s=1_000, messages_burst=200), flood_cut_s=1.0)
    peer = opened(place)
    began = time.monotonic()
    await flood(peer, 5)
    assert await owner.cut() == "rate_limited"
    assert 0.9 < time.monotonic() - began < 3
    assert len(owner.throttled) == 1, "one notice for one flood"
    assert len(owner.messages) < 200 + 1_000 * 3
    peer.close()


async def test_a_burst_is_paused_and_not_cut(make: Callable[..., Owner], place: Path) -> None:
    owner = make(wire=zmtp.Limits(messages_per_s=2_000, messages_burst=100))
    peer = opened(place)
    peer.sendall(b"\0\x01x" * 1_000)
    await until(lambda: len(owner.messages) == 1_000, 10)
    assert owner.cuts == []
    assert len(owner.throttled) == 1
    peer.close()


async def test_reading_pauses_while_the_owner_does_not_take(make: Callable[..., Owner], place: Path) -> None:
    owner = make(auto_take=False, undelivered_messages_max=10, wire=zmtp.Limits(messages_per_s=1e6, messages_burst=1e6))
    peer = opened(place)
    peer.setblocking(False)
    blob, queued = (b"\0\xff" + bytes(255)) * 100, 0
    began = time.monotonic()
    while time.monotonic() - began < 0.3:
        try:
            queued += peer.send(blob)
        except BlockingIOError:
            await asyncio.sleep(0.01)
    held = len(owner.messages)
    assert held == 10, "never over the mark"
    owner.auto_take = True
    owner.gate.taken(held)
    await until(lambda: len(owner.messages) == queued // 257)
    assert owner.cuts == []
    peer.close()


async def test_a_worker_that_does_not_read_is_cut(make: Callable[..., Owner], place: Path) -> None:
    owner = make(send_bytes_max=1 << 20)
    peer = opened(place)
    await until(lambda: owner.ready == 1)
    sent = 0
    while owner.gate.send(bytes(10_000)):
        sent += 1
        assert sent < 1_000
    assert owner.cuts == [], "never reported from inside send()"
    assert await owner.cut() == "worker_unresponsive"
    assert owner.gate.send(b"x") is False
    peer.close()


async def test_a_replaced_socket_is_noticed(make: Callable[..., Owner], place: Path) -> None:
    owner = make(expect=False)
    peer = raw(place)
    os.unlink(place)
    impostor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    impostor.bind(str(place))
    owner.gate.expect(os.getpid())
    assert await owner.cut() == "socket_replaced"
    assert is_there(place), "what is not ours is not removed"
    impostor.close()
    peer.close()


async def test_close_is_silent_and_leaves_nothing(make: Callable[..., Owner], place: Path) -> None:
    owner = make()
    peer = opened(place)
    await until(lambda: owner.ready == 1)
    owner.gate.close()
    peer.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert owner.cuts == []
    assert not is_there(place)


async def test_a_path_too_long_is_a_clear_error(tmp_path: Path) -> None:
    owner = Owner(tmp_path / ("x" * 120) / "s", GateLimits())
    with pytest.raises(LineUpError, match="107") as caught:
        owner.gate.open()
    assert caught.value.code == "home_unusable"


async def test_a_file_in_the_folders_place_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("")
    owner = Owner(tmp_path / "w" / "s", GateLimits())
    with pytest.raises(LineUpError, match="choose another home with --home DIR") as caught:
        owner.gate.open()
    assert caught.value.code == "home_unusable"
    assert caught.value.detail == {"path": str(tmp_path / "w" / "s")}


async def test_the_directory_is_private(make: Callable[..., Owner], place: Path) -> None:
    make(expect=False)
    assert os.stat(place.parent).st_mode & 0o777 == 0o700
    assert os.stat(place).st_mode & 0o777 == 0o600
