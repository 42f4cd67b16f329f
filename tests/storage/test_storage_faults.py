"""The disk refuses the n-th write or sync, once or for a while: nothing is half accepted, nothing is lost (H4).

The real core and engine over the real store; one call of LMDB to the kernel fails with EIO or ENOSPC, for every n.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import AUDIT, CALLS
from lineup_supervisor.edges.store_file import DATA_NAME
from storage.file_calls import FileCalls
from storage.homes import dump, faults_of, open_store
from storage.traffic import Traffic

CODES = (errno.EIO, errno.ENOSPC)
CALLS_MADE = 4
ENDINGS = ("inbox.ack", "tool.complete")


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the Runtime ran once."""
    home: Path = tmp_path_factory.mktemp("booted") / "data"
    home.mkdir()
    store = open_store(home)
    Traffic(store, Policy()).boot()
    store.close()
    return home


def work(traffic: Traffic) -> list[ev.AgentFrame]:
    """Some calls, one after the other; the frames that were sent."""
    frames = [traffic.call(f"k{n}", "lab.direct") for n in range(CALLS_MADE)]
    for frame in frames:
        traffic.run(frame)
    return frames


def send_again(traffic: Traffic, frames: list[ev.AgentFrame]) -> None:
    """What was refused for want of room, as its ``retry: same`` says: the same message again."""
    for frame in frames:
        receipt = traffic.receipts[frame.frame["message_id"]]
        if not receipt["accepted"]:
            assert receipt["code"] == "storage_full"
            traffic.run(ev.AgentFrame(event_id=traffic.event_id(), link_id="link", frame=frame.frame))


def times_received(traffic: Traffic, call_id: str) -> int:
    with traffic.store.read() as txn:
        return sum(row.kind == "call.received" and call_id in row.subjects for _, row in txn.scan(AUDIT))


def count_of_calls(booted: Path, tmp_path: Path, file_calls: FileCalls) -> int:
    """How many writes and syncs the work takes."""
    home = shutil.copytree(booted, tmp_path / "counted")
    store = open_store(home)
    traffic = Traffic(store, Policy())
    with file_calls.failing(10**9, errno.EIO):
        traffic.boot()
        work(traffic)
        count = file_calls.calls
    store.close()
    return count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "done-but-reported"])
@pytest.mark.parametrize("times", [1, 7], ids=["once", "for-a-while"])
def test_any_write_may_fail(
    booted: Path, tmp_path: Path, file_calls: FileCalls, code: int, is_done: bool, times: int
) -> None:
    total = count_of_calls(booted, tmp_path, file_calls)
    assert total > 30
    refused = 0
    for nth in range(1, total + 1, 1 if code == errno.EIO and times == 1 else 5):
        home = shutil.copytree(booted, tmp_path / f"fault-{nth}")
        store = open_store(home)
        traffic = Traffic(store, Policy())
        with file_calls.failing(nth, code, times=times, is_done=is_done):
            traffic.boot()
            frames = work(traffic)
        refused += sum(not receipt["accepted"] for receipt in traffic.receipts.values())
        if traffic.revision == "":  # even the hello was refused
            traffic.run(traffic.frame("hello", {"agent_id": "a", "protocol": 1}))
            frames = work(traffic)
        send_again(traffic, frames)
        traffic.run()
        assert sorted(traffic.results) == [f"k{n}" for n in range(CALLS_MADE)], f"fault at call {nth}"
        assert [times_received(traffic, call_id) for call_id in traffic.results] == [1] * CALLS_MADE
        assert faults_of(store) == []
        before = dump(store)
        store.close()
        store = open_store(home)
        assert dump(store) == before
        store.close()
        shutil.rmtree(home)
    assert refused > 0, "no request ever met the fault"


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_what_was_kept_while_the_disk_was_full_is_done_in_order(
    booted: Path, tmp_path: Path, file_calls: FileCalls, code: int
) -> None:
    """Workers' messages are not refused: they wait, and go before what comes later."""
    store = open_store(shutil.copytree(booted, tmp_path / "home"))
    traffic = Traffic(store, Policy())
    traffic.boot()
    heard: list[ev.AnyEvent] = []
    deliver = traffic._react

    def hold_back(effect: Any) -> list[ev.AnyEvent]:
        events = deliver(effect)
        held = [
            e for e in events if isinstance(e, ev.WorkerFrame) and e.frame["type"] in ("inbox.ack", "tool.complete")
        ]
        heard.extend(held)
        return [e for e in events if e not in held]

    traffic._react = hold_back  # type: ignore[method-assign]
    work(traffic)
    assert len(heard) == 2 * CALLS_MADE
    traffic._react = deliver  # type: ignore[method-assign]
    with file_calls.failing(1, code, times=4):
        traffic.run(heard[0])  # comes back when the store has taken it
        assert file_calls.calls >= 4
    with file_calls.failing(1, code, times=10**6):
        now = traffic.now
        for event in heard[1:]:
            traffic.engine.run([event], now)
        assert traffic.engine.kept == 2 * CALLS_MADE - 1
        assert traffic.results == {}
    traffic.steady_ms += 60_000
    traffic.run(ev.Wake(event_id=traffic.event_id()))
    assert [result["call_id"] for result in traffic.results.values()] == [f"k{n}" for n in range(CALLS_MADE)]
    assert [result["status"] for result in traffic.results.values()] == ["completed"] * CALLS_MADE
    assert faults_of(store) == []
    store.close()


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_questions_are_answered_while_nothing_can_be_written(
    booted: Path, tmp_path: Path, file_calls: FileCalls, code: int
) -> None:
    store = open_store(shutil.copytree(booted, tmp_path / "home"))
    traffic = Traffic(store, Policy())
    traffic.boot()
    work(traffic)
    before = dump(store)
    with file_calls.failing(1, code, times=10**6):
        assert traffic.query("status").detail["open_calls"] == 0
        assert traffic.query("calls").detail["calls"][0]["status"] == "completed"
        frame = traffic.call("later", "lab.direct")
        outcome = traffic.engine.run([frame], traffic.now)
        (refusal,) = [f for e in outcome.effects for f in getattr(e, "frames", ())]
        assert refusal["payload"]["code"] == "storage_full"
        assert dump(store) == before
    with store.read() as txn:
        assert txn.get(CALLS, ("a", "later")) is None
    store.close()


def opening(home: Path) -> str | None:
    """Open and close; the code of the refusal."""
    try:
        open_store(home).close()
    except LineUpError as error:
        return error.code
    return None


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_disk_that_fails_at_the_start_is_one_typed_error_and_the_next_start_is_whole(
    tmp_path: Path, file_calls: FileCalls, code: int
) -> None:
    """A new store and one that exists, for every write of their opening."""
    for nth in range(1, 40):
        home = tmp_path / f"new-{nth}"
        home.mkdir()
        with file_calls.failing(nth, code):
            code_of_start = opening(home)
            failed = code_of_start is not None or file_calls.calls >= nth
        assert code_of_start in (None, "storage_full")
        store = open_store(home)
        assert faults_of(store) == []
        Traffic(store, Policy()).boot()
        store.close()
        if not failed:
            assert nth > 4
            return
    raise AssertionError("opening never got through")


def test_a_file_that_a_fault_has_left_is_never_taken_for_a_new_one(
    booted: Path, tmp_path: Path, file_calls: FileCalls
) -> None:
    home = shutil.copytree(booted, tmp_path / "home")
    size = (home / DATA_NAME).stat().st_size
    with file_calls.failing(1, errno.EIO, times=10**6):
        store = open_store(home)
        with pytest.raises(LineUpError, match="storage_full"):
            store.transact(lambda txn: txn.delete(AUDIT, (1,)))
        store.close()
    store = open_store(home)
    assert (home / DATA_NAME).stat().st_size == size
    assert faults_of(store) == []
    assert dump(store)["audit"]
    store.close()
