"""The same races over real processes: one daemon, fifty conversations for each pair, and a daemon that is killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from lineup_protocol.times import from_rfc3339
from operations.room import Room, moment
from processes.support.judge import in_thread
from processes.support.runtime import Runtime, runtime

RUNS = 50
FEW_WORKERS = "[workers]\nmax = 4\n"  # most sessions run without a process: no rule here may need one
ROUNDS = 5
FIRINGS = 200


@pytest.fixture(scope="module")
def busy() -> Iterator[Runtime]:
    with runtime(FEW_WORKERS) as made:
        made.start()
        yield made
        assert made.stop() == 0, made.errors()
        made.assert_clean()


def moments(ends: list[int], seed: int) -> list[tuple[int, int]]:
    """``(when, n)`` in order: around each end, mostly close to it, and early often enough to be first."""
    rng = random.Random(seed)
    return sorted((at + rng.choice((-400, -150, -20, -5, -2, 0, 0, 2, 20)), n) for n, at in enumerate(ends))


async def ends_of(room: Room, calls: list[str]) -> list[int]:
    found = await room.operations(calls)
    return [from_rfc3339(found[call_id]["ends_at"]) for call_id in calls]


@pytest.mark.conformance("04-4.5.2")
async def test_due_and_interrupt_50_times(busy: Runtime) -> None:
    room = Room(busy, "di")
    await room.agent.connect()
    starts = await room.start(RUNS, 3)
    stops = [f"s-di-{n}" for n in range(RUNS)]
    for when, n in moments(await ends_of(room, starts), seed=1):
        await moment(when)
        await room.agent.call("pomodoro.interrupt", {}, call_id=stops[n], conversation=room.conversation(n))
    await room.rest()
    operations = await room.judge(starts, stops)
    assert {operation["state"] for operation in operations.values()} == {"completed", "interrupted"}
    for start, stop in zip(starts, stops, strict=True):
        expected = "interrupted" if operations[start]["state"] == "interrupted" else "operation_already_final"
        assert room.agent.results[stop]["result"] == {
            "status": expected,
            "operation_id": operations[start]["operation_id"],
        }
    await room.agent.leave()


@pytest.mark.conformance("04-4.5.5")
async def test_due_and_close_50_times(busy: Runtime) -> None:
    room = Room(busy, "dc")
    await room.agent.connect()
    starts = await room.start(RUNS, 3)
    found = await room.operations(starts)
    instances = [found[call_id]["instance_id"] for call_id in starts]

    async def close_all() -> None:
        with busy.operator() as operator:
            for when, n in moments([from_rfc3339(found[call_id]["ends_at"]) for call_id in starts], seed=2):
                await moment(when)
                action = ("instance.close", {"instance_id": instances[n]})
                if n % 3 == 0:
                    action = ("conversation.home", {"conversation_id": room.conversation(n)})
                answer = await in_thread(lambda a=action, n=n: operator.action(a[0], f"x-dc-{n}", **a[1]))
                assert answer["accepted"] or answer["code"] == "app_closed"

    await close_all()
    await room.rest()
    operations = await room.judge(starts, [])
    assert {operation["state"] for operation in operations.values()} == {"completed", "interrupted"}
    await room.agent.leave()


@pytest.mark.conformance("04-6.7")
async def test_start_and_start_50_times(busy: Runtime) -> None:
    """The agent and the operator at the same time, in the same conversation."""
    room = Room(busy, "ss")
    await room.agent.connect()
    await room.open_conversations(RUNS)
    mine, theirs = ([f"{who}-ss-{n}" for n in range(RUNS)] for who in ("k", "o"))

    def operator_starts() -> list[str]:
        ended = []
        with busy.operator() as operator:
            for n in range(RUNS):
                args = {"tool_id": "pomodoro.start", "input": {"duration_seconds": 600}, "call_id": theirs[n]}
                answer = operator.action("call.start", f"x-ss-{n}", conversation_id=room.conversation(n), **args)
                ended.append(answer["detail"]["record"]["status"])
        return ended

    race = asyncio.create_task(in_thread(operator_starts))
    said = [
        await room.agent.call(
            "pomodoro.start", {"duration_seconds": 600}, call_id=mine[n], conversation=room.conversation(n)
        )
        for n in range(RUNS)
    ]
    receipts = [await room.agent.receipt(message_id) for message_id in said]
    for receipt, status in zip(receipts, await race, strict=True):
        assert receipt["accepted"] == (status == "rejected"), "one of the two, and only one"
        assert receipt["accepted"] or receipt["code"] == "active_focusing_operation"
    stops = [f"s-ss-{n}" for n in range(RUNS)]
    for n, call_id in enumerate(stops):
        await room.agent.call("pomodoro.interrupt", {}, call_id=call_id, conversation=room.conversation(n))
    await room.rest()
    assert all(room.agent.results[call_id]["result"]["status"] == "interrupted" for call_id in stops)
    found = await room.operations([*mine, *theirs])
    assert len(found) == RUNS
    assert {operation["state"] for operation in found.values()} == {"interrupted"}
    await room.agent.leave()


async def test_start_and_interrupt_50_times(busy: Runtime) -> None:
    """Back to back on one link, and an interrupt of the operator's from the side."""
    room = Room(busy, "si")
    await room.agent.connect()
    await room.open_conversations(RUNS)
    starts, stops = ([f"{what}-si-{n}" for n in range(RUNS)] for what in ("k", "s"))

    def operator_interrupts() -> list[dict[str, str]]:
        with busy.operator() as operator:
            return [
                operator.action(
                    "call.start",
                    f"x-si-{n}",
                    conversation_id=room.conversation(n),
                    tool_id="pomodoro.interrupt",
                    input={},
                    call_id=f"o-si-{n}",
                )["detail"]["record"]["result"]
                for n in range(RUNS)
            ]

    race = asyncio.create_task(in_thread(operator_interrupts))
    for n in range(RUNS):
        pair = [("pomodoro.start", {"duration_seconds": 600}, starts[n]), ("pomodoro.interrupt", {}, stops[n])]
        for tool_id, input_, call_id in pair if n % 2 else reversed(pair):
            await room.agent.call(tool_id, input_, call_id=call_id, conversation=room.conversation(n))
    theirs = await race
    await room.agent.until(lambda: not room.agent.has_unanswered, 20, "every message is answered")
    last = [f"z-si-{n}" for n in range(RUNS)]
    for n, call_id in enumerate(last):
        await room.agent.call("pomodoro.interrupt", {}, call_id=call_id, conversation=room.conversation(n))
    await room.rest()
    operations = await room.judge(starts, [*stops, *last])
    assert {operation["state"] for operation in operations.values()} == {"interrupted"}
    for n, start in enumerate(starts):
        receipts = [room.agent.results[call_id]["result"] for call_id in (stops[n], last[n])] + [theirs[n]]
        done = [r for r in receipts if r["status"] == "interrupted"]
        assert done == [{"status": "interrupted", "operation_id": operations[start]["operation_id"]}], (
            "exactly one did it"
        )
    await room.agent.leave()


@pytest.mark.conformance("04-4.5.4")
async def test_killed_at_the_firing_instant_200_times() -> None:
    """Forty sessions end within some milliseconds, and the daemon is killed among them; five times."""
    rng = random.Random(3)
    with runtime(FEW_WORKERS) as made:
        room = Room(made, "crash")
        calls: list[str] = []
        await made.start_async()
        await room.agent.connect()
        for number in range(ROUNDS):
            batch = Room(made, f"crash{number}")
            batch.agent = room.agent
            mine = await batch.start(FIRINGS // ROUNDS, 3)
            calls += mine
            ends = await ends_of(batch, mine)
            await moment(rng.choice(ends) + rng.choice((-2, 0, 1, 2, 4, 8)))
            await in_thread(made.kill)
            await room.agent.cut()
            assert await made.start_async()
            await room.agent.connect(acked_seq=room.agent.taken_seq)
        await room.rest()
        operations = await room.judge(calls, [])
        assert {operation["state"] for operation in operations.values()} == {"completed"}
        await room.agent.leave()
        assert made.stop() == 0, made.errors()
