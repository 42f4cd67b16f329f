"""Timers and tasks that go on whatever becomes of one turn, and the host socket's use of the same."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from lineup_supervisor.edges import upkeep
from lineup_supervisor.edges.transport import HostSocket
from lineup_supervisor.edges.upkeep import Recurring, every, told


@pytest.fixture
async def faults(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """What is told to the loop."""
    monkeypatch.setattr(upkeep, "FAULT_PAUSE_S", 0.01)
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    yield said
    asyncio.get_running_loop().set_exception_handler(None)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not come true in time"
        await asyncio.sleep(0.005)


async def test_a_turn_that_raises_is_told_and_the_next_one_comes(faults: list[str]) -> None:
    turns = 0

    def turn() -> float | None:
        nonlocal turns
        turns += 1
        if turns < 3:
            raise OSError(24, "Too many open files")
        return None if turns == 5 else 0.001

    timer = Recurring("the work", turn)
    timer.start(0)
    await until(lambda: turns == 5)
    await asyncio.sleep(0.03)
    assert turns == 5
    assert not timer.is_set
    assert faults == ["the work failed"] * 2


@pytest.mark.parametrize("answer", [0.001, ZeroDivisionError()])
async def test_a_timer_that_is_cancelled_in_its_own_turn_stays_so(faults: list[str], answer: Any) -> None:
    turns = 0

    def turn() -> float | None:
        nonlocal turns
        turns += 1
        timer.cancel()
        if isinstance(answer, Exception):
            raise answer
        return float(answer)

    timer = Recurring("the work", turn)
    timer.start(0)
    await asyncio.sleep(0.05)
    assert turns == 1


async def test_a_start_from_inside_a_turn_stands(faults: list[str]) -> None:
    at: list[float] = []
    loop = asyncio.get_running_loop()

    def turn() -> float | None:
        at.append(loop.time())
        if len(at) == 1:
            timer.start(0.1)
        return 0.001 if len(at) == 1 else None

    timer = Recurring("the work", turn)
    timer.start(0)
    await until(lambda: len(at) == 2)
    assert at[1] - at[0] > 0.09


async def test_a_task_for_ever_outlives_a_turn_that_raises(faults: list[str]) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns < 3:
            raise OSError(24, "Too many open files")

    task = asyncio.create_task(every("the work", 0.001, turn))
    await until(lambda: turns > 5)
    assert not task.done()
    task.cancel()
    assert faults == ["the work failed"] * 2


async def test_what_ends_a_process_is_not_held_back(faults: list[str]) -> None:
    with pytest.raises(asyncio.CancelledError), told("the work"):
        raise asyncio.CancelledError
    assert faults == []


# --- the host socket


class Bench:
    """A host socket with two peers."""

    def __init__(self, folder: Path) -> None:
        self.messages: list[bytes] = []
        self.may_read = True
        self.socket = HostSocket(
            folder / "s", on_message=self._take, on_gone=lambda peer, reason: None, may_read=lambda: self.may_read
        )
        self.socket.open()
        self._context: zmq.Context[Any] = zmq.Context()
        self.peers = [self._context.socket(zmq.DEALER) for _ in range(2)]
        for peer in self.peers:
            peer.setsockopt(zmq.LINGER, 0)
            peer.setsockopt(zmq.SNDHWM, 16)
            peer.connect(f"ipc://{folder / 's'}")

    def _take(self, peer: bytes, data: bytes) -> None:
        if data.startswith(b"pid "):
            self.socket.watch(peer, int(data[4:]))
        if data == b"bug":
            raise ZeroDivisionError
        self.messages.append(data)

    def close(self) -> None:
        self.socket.close()
        for peer in self.peers:
            peer.close()
        self._context.term()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


async def test_a_message_at_which_we_fail_holds_up_no_other_one(bench: Bench, faults: list[str]) -> None:
    bench.may_read = False
    for peer in bench.peers:
        for data in (b"bug", b"after"):
            peer.send(data)
    await asyncio.sleep(0.1)
    bench.may_read = True
    bench.socket.read_on()
    await until(lambda: len(bench.messages) == 2)
    assert faults == ["taking a message of the host link failed"] * 2


@pytest.mark.parametrize("pid", [1 << 31, 1 << 63, 1 << 70, 0, -1])
async def test_a_pid_that_no_process_can_have_is_nobody_s_fault(bench: Bench, faults: list[str], pid: int) -> None:
    bench.peers[0].send(b"pid %d" % pid)
    bench.peers[1].send(b"pid %d" % os.getpid())
    await until(lambda: len(bench.messages) == 2)
    assert faults == []


async def test_while_nobody_is_read_from_who_sends_waits_and_nothing_is_lost(bench: Bench) -> None:
    peer = bench.peers[0]
    bench.may_read = False
    sent = 0
    for _ in range(200):
        try:
            peer.send(b"%06d" % sent + bytes(1 << 20), zmq.DONTWAIT)
            sent += 1
        except zmq.Again:
            await asyncio.sleep(0.005)
    assert bench.messages == []
    assert 100 < sent < 170, "what libzmq keeps at both ends, and no more"
    bench.may_read = True
    bench.socket.read_on()
    await until(lambda: len(bench.messages) == sent)
    assert [int(data[:6]) for data in bench.messages] == list(range(sent))
