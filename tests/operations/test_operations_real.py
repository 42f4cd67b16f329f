"""A focus session over real processes: a clock that is moved, what dies and what does not, what is left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.times import from_rfc3339
from operations.room import Room, Wall, until_closed, wall_ms
from processes.support.agent import Frame
from processes.support.judge import in_thread
from processes.support.runtime import Runtime, runtime
from processes.support.waiting import until

DAY_S = 86_400
RECHECK_S = 30  # the longest that a daemon goes without a look at the wall clock
START_S = 30


async def started(room: Room, seconds: int, **more: Any) -> Frame:
    """One session in the room's first conversation, with its page open; the operation."""
    (call_id,) = await room.start(1, seconds, **more)
    await until(lambda: _page(room) is not None, START_S, "the page is open and the snapshot saved")
    found = await room.operations([call_id])
    return found[call_id]


def _page(room: Room) -> Frame | None:
    snapshot = room.runtime.query("snapshot")
    mine = [row for row in snapshot["surfaces"] if row["conversation_id"] == room.conversation(0)]
    return mine[0] if mine and snapshot["snapshots"] else None


def front(runtime: Runtime, conversation: str) -> str:
    snapshot = runtime.query("snapshot")
    (focus,) = [row["focus"] for row in snapshot["conversations"] if row["conversation_id"] == conversation]
    return next(row["app_scope"] for row in snapshot["instances"] if row["instance_id"] == focus[-1])


@pytest.mark.conformance("04-4.5.1")
@pytest.mark.conformance("04-6.1")
@pytest.mark.conformance("04-6.2")
@pytest.mark.conformance("04-6.5")
async def test_a_session_from_the_agents_call_to_its_folded_history(own: Runtime) -> None:
    await own.start_async()
    room = Room(own, "whole")
    await room.agent.connect()
    operation = await started(room, 5, activity="冥想")
    assert front(own, room.conversation(0)) == "pomodoro"
    saved = own.query("snapshot")["snapshots"][0]["state"]
    assert saved == {
        "operation_id": operation["operation_id"],
        "activity": "冥想",
        "started_at": operation["started_at"],
        "ends_at": operation["ends_at"],
        "display_state": "focusing",
    }
    result = (await room.agent.result("k-whole-0"))["result"]
    late_ms = wall_ms() - from_rfc3339(operation["ends_at"])
    assert 0 <= late_ms < 1000
    assert (result["state"], result["ends_at"]) == ("completed", operation["ends_at"])
    assert result["ended_at"] >= result["ends_at"]
    await until_closed(own, room.conversation(0))
    assert front(own, room.conversation(0)) == "chat"
    (session_id,) = [
        entry["ref"]
        for entry in own.query("timeline", conversation_id=room.conversation(0))["entries"]
        if entry["kind"] == "session"
    ]
    history = own.query("session", session_id=session_id)
    assert (history["session"]["state"], history["session"]["title"]) == ("read_only", "冥想")
    assert [(e["kind"], e.get("format")) for e in history["entries"]] == [("call", "asked"), ("call", "result")]
    assert history["snapshot"]["read_only"] is True
    assert history["operations"][0]["state"] == "completed"
    await room.rest()
    await room.judge(["k-whole-0"], [])
    await room.agent.leave()
    assert own.stop() == 0
    own.assert_clean()


@pytest.mark.conformance("04-4.5.3")
@pytest.mark.conformance("04-6.3")
async def test_neither_a_killed_worker_nor_a_killed_hostshell_ends_it(own: Runtime) -> None:
    await own.start_async()
    room = Room(own, "dead")
    await room.agent.connect()
    operation = await started(room, 12)
    worker = own.worker("pomodoro", room.conversation(0))
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    again = await until(
        lambda: own.worker("pomodoro", room.conversation(0)) not in (None, worker), START_S, "another worker has begun"
    )
    assert again
    hostshell, url = own.service("hostshell"), own.facts()["agent_url"]
    assert hostshell is not None
    os.kill(hostshell, signal.SIGKILL)
    await until(lambda: room.agent.closed is not None, 10, "the link is cut")
    await until(lambda: own.service("hostshell") not in (None, hostshell), START_S, "another hostshell has begun")
    await room.agent.cut()
    await until(lambda: own.facts().get("agent_url"), START_S, "it says where it listens")
    await _connect_again(room)
    assert url.split(":")[0] == own.facts()["agent_url"].split(":")[0]
    found = await room.operations(["k-dead-0"])
    assert found["k-dead-0"]["ends_at"] == operation["ends_at"]
    result = await room.agent.result("k-dead-0", 30)
    assert result["result"]["state"] == "completed"
    await room.rest()
    await room.judge(["k-dead-0"], [])
    await room.agent.leave()


async def _connect_again(room: Room) -> None:
    """The new hostshell may not listen yet at the place that the old one said."""
    from processes.support.agent import Cut

    give_up_at = time.monotonic() + START_S
    while True:
        try:
            await room.agent.connect(acked_seq=room.agent.taken_seq)
            return
        except Cut:
            assert time.monotonic() < give_up_at, "hostshell does not listen again"


@pytest.mark.conformance("04-4.5.2")
async def test_interrupt_is_answered_while_the_worker_is_frozen(own: Runtime) -> None:
    await own.start_async()
    room = Room(own, "frozen")
    await room.agent.connect()
    operation = await started(room, 600)
    worker = own.worker("pomodoro", room.conversation(0))
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    await room.agent.call("pomodoro.interrupt", {}, call_id="k-stop", conversation=room.conversation(0))
    receipt = (await room.agent.result("k-stop", 5))["result"]
    assert receipt == {"status": "interrupted", "operation_id": operation["operation_id"]}
    assert (await room.agent.result("k-frozen-0", 5))["result"]["interruption_reason"] == "interrupted_by_agent"
    assert time.monotonic() - began < 5, "nobody waited for the worker"
    assert front(own, room.conversation(0)) == "chat"
    await room.rest()
    await room.judge(["k-frozen-0"], ["k-stop"])
    await room.agent.leave()
    assert own.stop() == 0
    own.assert_clean()


@pytest.mark.conformance("04-4.5.4")
@pytest.mark.conformance("04-6.8")
async def test_what_ended_while_down_is_settled_once_after_ready(own: Runtime) -> None:
    await own.start_async()
    room = Room(own, "down")
    await room.agent.connect()
    (call_id,) = await room.start(1, 2)
    operation = (await room.operations([call_id]))[call_id]
    await in_thread(own.kill)
    await room.agent.cut()
    ends_ms = from_rfc3339(operation["ends_at"])
    await until(lambda: wall_ms() > ends_ms + 200, 10, "its time has passed")
    for _ in range(2):
        await own.start_async()
        found = (await room.operations([call_id]))[call_id]
        assert (found["state"], found["ends_at"]) == ("completed", operation["ends_at"])
        assert found["late_ms"] == from_rfc3339(found["ended_at"]) - ends_ms > 0
        await in_thread(own.kill)
    await own.start_async()
    await room.agent.connect()
    result = await room.agent.result(call_id)
    assert result["result"]["state"] == "completed"
    await room.rest()
    await room.judge([call_id], [])
    await room.agent.leave()


@pytest.mark.conformance("04-6.8")
async def test_a_wall_clock_that_is_moved_under_a_running_daemon(tmp_path: Path) -> None:
    """Asleep for 8 of 10 minutes; an hour back and forth; sixty days ahead, noticed without any event within 30 s."""
    wall = Wall(tmp_path)
    with runtime() as own:
        await own.start_async(**wall.environment)
        room = Room(own, "wall")
        await room.agent.connect()
        nap, long, hour = (Room(own, f"wall-{name}") for name in ("nap", "long", "hour"))
        for each in (nap, long, hour):
            each.agent = room.agent
        (napping,), (waiting,), (jumping,) = (
            await nap.start(1, 600),
            await long.start(1, 60 * DAY_S),
            await hour.start(1, 1800),
        )
        before = await room.operations([napping, waiting, jumping])
        wall.set(480)
        assert await room.operations([napping, waiting, jumping]) == before
        wall.set(-3600)
        assert await room.operations([napping, waiting, jumping]) == before
        wall.set(601)
        own.query("status")  # any event makes the daemon look
        first = (await room.agent.result(napping, RECHECK_S + 5))["result"]
        assert (first["state"], first["ends_at"]) == ("completed", before[napping]["ends_at"])
        assert {napping} == set(room.agent.results)
        await until(lambda: own.query("status")["outbox"] == 0 and _workers_at_rest(own), START_S, "nothing goes on")
        wall.set(60 * DAY_S + 1)
        began = time.monotonic()
        for call_id in (jumping, waiting):  # nobody asks for anything: the daemon looks by itself
            assert (await room.agent.result(call_id, RECHECK_S + 5))["result"]["state"] == "completed"
        assert time.monotonic() - began < RECHECK_S + 1
        late = (await room.operations([jumping]))[jumping]["late_ms"]
        assert late == pytest.approx((60 * DAY_S - 1800) * 1000, abs=120_000)
        wall.set(0)
        await room.rest()
        assert len(room.agent.results) == 3
        await room.agent.leave()
        assert own.stop() == 0, own.errors()


IMPOSSIBLE = ("NaN", "Infinity", "1e400", "1e18", "0", "-1", "1.5", '"60"', "true", "null", "[]")


@pytest.mark.conformance("04-4.5.2")
async def test_on_the_wire_an_impossible_duration_is_refused_with_its_path(own: Runtime) -> None:
    """As text in a frame, so that what no JSON library would write is tried too."""
    await own.start_async()
    room = Room(own, "wire")
    await room.agent.connect()
    for n, text in enumerate(IMPOSSIBLE):
        payload = {"call_id": f"k-{n}", "tool_id": "pomodoro.start", "inventory_revision": room.agent.revision}
        frame = room.agent.frame("tool.call", payload | {"input": {"duration_seconds": 424242}}, "c-wire")
        known = len(room.agent.errors)
        await room.agent.send_raw(json.dumps(frame).replace("424242", text))
        answer = await _answer(room, frame["message_id"], known)
        assert answer["code"] in ("tool_input_invalid", "message_invalid"), text
        assert "duration_seconds" in answer["message"], answer
        assert room.agent.closed is None, text
    snapshot = own.query("snapshot")
    assert (snapshot["operations"], snapshot["instances"], snapshot["conversations"]) == ([], [], [])
    await room.agent.leave()


async def _answer(room: Room, message_id: str, errors: int) -> Frame:
    """A receipt, or an error for a frame that could not even be read."""
    found = lambda: [*filter(None, [room.agent.receipts.get(message_id)]), *room.agent.errors[errors:]]  # noqa: E731
    await room.agent.until(found, 10, f"{message_id} is answered")
    first: Frame = found()[0]
    return first


def _workers_at_rest(own: Runtime) -> bool:
    snapshot = own.query("snapshot")
    return len(snapshot["surfaces"]) == 2 and {row["state"] for row in snapshot["workers"]} == {"ready"}


@pytest.fixture
def own() -> Any:
    """A Runtime of this test alone, not started yet."""
    with runtime() as made:
        yield made
