"""A worker's link from end to end: at its bounds through the real gate and the real channel, and what is paid for."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lineup_protocol import limits
from lineup_protocol.codec import CAPS, encode
from lineup_protocol.errors import LineUpError
from lineup_sdk.channel import Channel, memory_pair
from lineup_sdk.zmq_channel import ZmqChannel
from lineup_supervisor import worker_link
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.edges.gate import Gate, GateLimits
from lineup_supervisor.worker_link import WorkerLink

KEY = ("i-1", 1)


class Process:
    """As ``WorkerProcess``, behind a real gate if there is one."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate
        self.sent: list[bytes] = []
        self.taken_count = 0
        self.killed: list[str] = []

    def send(self, *payloads: bytes) -> None:
        self.sent += payloads
        if self.gate is not None:
            assert self.gate.send(*payloads)

    def taken(self, count: int = 1) -> None:
        self.taken_count += count
        if self.gate is not None:
            self.gate.taken(count)

    def kill(self, reason: str, detail: str) -> None:
        self.killed.append(detail)


class Log:
    def __init__(self) -> None:
        self.errors: list[Any] = []

    def error(self, event: str, **fields: Any) -> None:
        self.errors.append((event, fields))

    def info(self, event: str, **fields: Any) -> None:
        """Nobody reads it."""

    warning = info


class Link:
    """A ``WorkerLink`` with one worker that is ready."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.log = Log()
        self.events: list[ev.AnyEvent] = []
        self.link = WorkerLink(
            self,  # type: ignore[arg-type]
            Path("/"),
            "S3",
            submit=self.events.append,
            new_event_id=lambda: f"e{len(self.events)}",
            missed_max=3,
            memory_bytes_max=1 << 40,
            allow_bare_system_apps=False,
            log=self.log,
        )
        start = fx.StartWorker(
            instance_id=KEY[0],
            incarnation=KEY[1],
            app_scope="lab",
            bundle_path="/b",
            kind="bundled",
            min_isolation="S3",
            limits={},
        )
        self.link.start(start)
        self.link._workers[KEY].is_ready = True
        self.lane = self.link._lane(self.link._workers[KEY])

    def start_worker(self, *args: Any, on_message: Any, **more: Any) -> Process:
        self.hear = on_message
        return self.process

    @property
    def frames(self) -> list[Any]:
        return [event.frame for event in self.events if isinstance(event, ev.WorkerFrame)]

    def has_to_pay(self) -> bool:
        return self.lane._paid_at > 0

    def commit(self, cost_s: float = 0.0) -> None:
        events, self.events[:] = list(self.events), []
        for event in events:
            assert isinstance(event, ev.WorkerFrame)
            self.link.committed(event, cost_s)

    def send(self, *messages: dict[str, Any]) -> None:
        self.link.send(fx.SendWorker(instance_id=KEY[0], incarnation=KEY[1], messages=messages))


@pytest.fixture
async def link() -> Link:
    return Link(Process())


# at the bounds


def texts_of(size: int) -> list[str]:
    """Strings that take so many bytes as a list."""
    texts = ["x" * min(size // 20, limits.STRING_BYTES_MAX)] * 19
    return [*texts, "x" * (size - len(msgpack.packb([*texts, ""])) - 4)]


def filled(message: dict[str, Any], place: str, caps: Any, bound: str, more: int = 0) -> dict[str, Any]:
    """The message with a value at ``body[place]`` that brings it to its bound, or beyond."""
    whole = {**message, "body": {**message["body"], place: {"v": None}}}
    value: Any = None
    if bound == "bytes":
        value = texts_of(caps.bytes_max - len(msgpack.packb(whole)) + 1 + more)
    elif bound == "depth":
        for _ in range(caps.depth_max - 3 + more):
            value = [] if value is None else [value]
    else:
        left = caps.nodes_max - nodes_of(whole) + more
        value = []
        while left > 0:
            value.append([0] * min(left - 1, 60_000))
            left -= len(value[-1]) + 1
    whole["body"][place]["v"] = value
    return whole


def nodes_of(value: Any) -> int:
    """As the walk counts."""
    if isinstance(value, dict):
        return 1 + sum(1 + nodes_of(item) for item in value.values())
    return 1 + (sum(map(nodes_of, value)) if isinstance(value, list) else 0)


RESULT = {"type": "tool.complete", "id": "w1", "body": {"call_id": "k"}}
WELCOME = {"type": "worker.welcome", "body": {"surfaces": []}}
CASES = [
    pytest.param(message, place, from_runtime, bound, id=f"{'down' if from_runtime else 'up'}-{bound}")
    for message, place, from_runtime in ((RESULT, "result", False), (WELCOME, "state", True))
    for bound in ("bytes", "nodes", "depth")
]


class Pair:
    """The worker's channel and the Runtime's end of it."""

    def __init__(self, worker: Channel, link: Link) -> None:
        self.worker = worker
        self.link = link


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    ready = asyncio.Event()
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        gate = Gate(
            Path(directory) / "g" / "s",
            GateLimits(),
            on_message=lambda payload: link.hear(payload),
            on_ready=ready.set,
            on_cut=lambda reason, detail: cuts.append(f"{reason}: {detail}"),
        )
        cuts: list[str] = []
        link = Link(Process(gate))
        gate.open()
        gate.expect(os.getpid())
        channel = ZmqChannel(f"ipc://{gate.path}")
        await asyncio.wait_for(ready.wait(), 10)
        yield Pair(channel, link)
        channel.close()
        gate.close()
        assert cuts == []


@pytest.mark.parametrize(("message", "place", "from_runtime", "bound"), CASES)
async def test_what_one_side_may_send_the_other_takes(
    pair: Pair, message: Any, place: str, from_runtime: bool, bound: str
) -> None:
    most = filled(message, place, CAPS["worker", from_runtime], bound)
    async with asyncio.timeout(60):
        if from_runtime:
            pair.link.send(most, {"type": "worker.stop", "body": {"reason": "x", "grace_ms": 1}})
            heard: list[Any] = []
            while len(heard) < 2:
                heard += await pair.worker.receive()
        else:
            pair.worker.send(most)
            while not pair.link.frames:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            heard = pair.link.frames
    assert heard[0] == most
    assert pair.link.process.killed == []
    with pytest.raises(LineUpError, match=r"message_too_large|message_invalid"):
        encode(filled(message, place, CAPS["worker", from_runtime], bound, 1), CAPS["worker", from_runtime])


@pytest.mark.parametrize(("message", "place", "from_runtime", "bound"), CASES)
async def test_the_pair_in_memory_has_the_same_bounds(message: Any, place: str, from_runtime: bool, bound: str) -> None:
    worker, runtime = memory_pair()
    sender, receiver = (runtime, worker) if from_runtime else (worker, runtime)
    full_body = {"call_id": "k"} if not from_runtime else WELCOME["body"]
    most = filled({**message, "body": full_body}, place, CAPS["worker", from_runtime], bound)
    sender.send(most)
    assert await receiver.receive() == [most]
    with pytest.raises(LineUpError, match=r"message_too_large|message_invalid"):
        sender.send(filled({**message, "body": full_body}, place, CAPS["worker", from_runtime], bound, 1))


async def test_more_than_the_gate_keeps_goes_to_a_worker_that_reads(pair: Pair) -> None:
    """Sent at once, it is nothing that the worker has left unread."""
    state = {"type": "surface.changed", "body": {"surface_id": "f", "revision": 1, "patch": {"a": "x" * (3 << 20)}}}
    pair.link.send(*[state] * 14)
    heard: list[Any] = []
    async with asyncio.timeout(60):
        while len(heard) < 14:
            heard += await pair.worker.receive()
    assert heard == [state] * 14


# what is paid for


def pong(nonce: int, **more: Any) -> bytes:
    return encode({"type": "worker.pong", "body": {"nonce": nonce, **more}}, CAPS["worker", False])


DEAR = {"x": [{"": 0}] * 4_040}


async def test_the_answer_to_a_ping_passes_what_waits(link: Link) -> None:
    link.link.beat()
    link.lane.charge(10.0)
    link.hear(pong(1))
    assert (link.process.taken_count, link.events, link.lane.waiting) == (1, [], 0)
    assert link.link._workers[KEY].answered


@pytest.mark.parametrize(
    "data", [pong(2), pong(1, **DEAR), pong(0), b"\xc1", b"\x81" * 60], ids=["early", "more", "late", "none", "deep"]
)
async def test_whatever_is_not_that_answer_waits_its_turn(link: Link, data: bytes) -> None:
    link.link.beat()
    link.lane.charge(10.0)
    link.hear(data)
    assert (link.process.taken_count, link.lane.waiting) == (0, 1)
    assert not link.link._workers[KEY].answered


async def test_a_second_answer_is_a_message_like_any_other(link: Link) -> None:
    link.link.beat()
    link.hear(pong(1))
    link.hear(pong(1))
    assert link.process.taken_count == 1
    assert link.frames == [{"type": "worker.pong", "body": {"nonce": 1}}]


async def test_dear_pongs_are_paid_by_waiting(link: Link) -> None:
    """Sixteen of them come in one read; the first is read, and the rest wait until it is paid for."""
    for _ in range(16):
        link.hear(pong(1, **DEAR))
    assert len(link.frames) == 1
    assert link.lane.waiting == 15
    assert link.has_to_pay()


async def test_what_a_welcome_costs_to_write_is_its_miniapps(link: Link) -> None:
    link.send({"type": "worker.ping", "body": {"nonce": 1}})
    assert not link.has_to_pay(), "what is cheap costs nothing"
    link.send(filled(WELCOME, "state", CAPS["worker", True], "nodes"))
    assert link.has_to_pay()


async def test_what_telling_people_of_a_message_costs_is_its_miniapps(link: Link) -> None:
    link.hear(pong(7))
    link.link.charge("of nobody here", 1.0)
    assert not link.has_to_pay()
    link.link.charge(link.events[0].event_id, 1.0)
    assert link.has_to_pay()


async def test_reading_and_deciding_are_counted_together(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two alone would be too cheap to be paid for."""
    clock = iter(range(1_000))
    monkeypatch.setattr(worker_link.time, "thread_time", functools.partial(next, clock))
    monkeypatch.setattr(worker_link, "CHEAP_S", 1.0)
    monkeypatch.setattr("lineup_supervisor.app_lane.CHEAP_S", 1.0)
    link.hear(pong(7))
    assert not link.has_to_pay(), "one second was for nothing"
    link.commit(0.5)
    assert link.has_to_pay()


async def test_who_is_not_read_from_while_the_store_is_full_is_not_hung(pair: Pair) -> None:
    """As many of its messages as it has credit for wait for room in the store, so that its answers cannot be read."""
    for n in range(64):
        pair.worker.send({"type": "tool.progress", "id": f"p{n}", "body": {"call_id": f"c{n}", "progress": 0.5}})
    async with asyncio.timeout(10):
        while len(pair.link.frames) < 64:  # noqa: ASYNC110 - they come through a real gate
            await asyncio.sleep(0.01)
    for _ in range(5):
        pair.link.link.beat()
    assert pair.link.process.killed == []
    pair.link.commit()
    for _ in range(4):
        pair.link.link.beat()
    assert pair.link.process.killed == ["3 pings went unanswered"], "now it is read from, and it is silent"
