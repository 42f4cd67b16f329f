"""The whole of Task Dashboard with no daemon: what a MiniApp's author can run on a laptop in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineup_testkit import StubRuntime

WORKERS = Path(__file__).parents[2] / "workers" / "lineup_workers"
pytestmark = pytest.mark.lineup_bundle(WORKERS / "task_dashboard")
T1 = {"task_id": "t1", "title": "Write report"}


@pytest.mark.conformance("03-9.8")
async def test_open_stays_live_until_an_update_ends_the_task(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    assert opened.receipt["accepted"]
    assert (opened.is_open, rt.focus()) == (True, ["chat", "task-dashboard"])
    half = await rt.call("task-dashboard.update", {"task_id": "t1", "progress": 0.5, "note": "half way"})
    assert half.result == {"task_id": "t1", "title": "Write report", "status": "running", "progress": 0.5}
    assert opened.progress[-1]["progress"] == 0.5
    assert opened.progress[-1]["message"] == "half way"
    done = await rt.call("task-dashboard.update", {"task_id": "t1", "status": "completed"})
    assert done.result["progress"] == 1
    assert await opened.wait() == {"status": "completed"}
    assert (rt.focus(), rt.is_open("task-dashboard")) == (["chat"], False), "after the last task Interact is back"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_task_may_end_in_other_ways(stub_runtime: StubRuntime, status: str) -> None:
    opened = await stub_runtime.call("task-dashboard.open", T1)
    await stub_runtime.call("task-dashboard.update", {"task_id": "t1", "status": status})
    assert await opened.wait() == {"status": status}


async def test_an_update_without_a_board_or_a_task_is_refused_by_name(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    early = await rt.call("task-dashboard.update", {"task_id": "t1"})
    assert early.error["code"] == "app_instance_not_found"
    await rt.call("task-dashboard.open", T1)
    unknown = await rt.call("task-dashboard.update", {"task_id": "t2"})
    assert unknown.error["code"] == "task_not_found"
    again = await rt.call("task-dashboard.open", T1)
    assert again.error["code"] == "task_exists"


@pytest.mark.parametrize(
    "input_", [{}, {"task_id": "t1"}, {"task_id": "", "title": "x"}, T1 | {"more": 1}, T1 | {"status": "done"}]
)
async def test_input_is_checked_before_the_app_hears_of_it(
    stub_runtime: StubRuntime, input_: dict[str, object]
) -> None:
    call = await stub_runtime.call("task-dashboard.open", input_)
    assert (call.receipt["code"], call.status) == ("tool_input_invalid", "rejected")
    assert stub_runtime.workers() == []


async def test_nothing_is_lost_when_the_worker_is_killed(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    await rt.call("task-dashboard.update", {"task_id": "t1", "progress": 0.4})
    await rt.crash_worker("task-dashboard")
    assert opened.is_open
    await rt.advance(1)
    assert rt.workers() == ["task-dashboard"], "another worker has taken its place"
    assert rt.saved_state("task-dashboard")["tasks"][0]["progress"] == 0.4  # type: ignore[index]
    await rt.call("task-dashboard.update", {"task_id": "t1", "status": "completed"})
    assert await opened.wait() == {"status": "completed"}
    assert opened.record["attempt"] >= 1


async def test_nothing_is_lost_when_the_runtime_is_killed(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    await rt.restart()
    assert rt.focus() == ["chat", "task-dashboard"]
    await rt.call("task-dashboard.update", {"task_id": "t1", "status": "completed"})
    assert await opened.wait() == {"status": "completed"}


@pytest.mark.conformance("03-9.8")
async def test_a_worker_that_keeps_dying_ends_the_call_and_gives_the_screen_back(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    for _ in range(6):
        await rt.crash_worker("task-dashboard")
        await rt.advance(5)
    assert opened.error["code"] == "app_crashed"
    assert rt.focus() == ["chat"]


@pytest.mark.conformance("03-9.8")
async def test_closing_an_unfinished_task_asks_the_person_in_its_own_place(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    await rt.close_app("task-dashboard")
    question = rt.question()
    assert (question["kind"], question["owner"]["app_scope"]) == ("confirm", "task-dashboard")
    assert rt.focus() == ["chat", "task-dashboard"], "no switch for the question"
    await rt.answer({"approved": False})
    assert (opened.is_open, rt.is_open("task-dashboard")) == (True, True)
    await rt.close_app("task-dashboard")
    await rt.answer({"approved": True})
    assert opened.result == {"status": "cancelled"}
    assert (rt.focus(), rt.is_open("task-dashboard")) == (["chat"], False)


async def test_the_agent_takes_a_task_back(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    assert (await opened.cancel("not needed"))["accepted"]
    assert opened.outcome is not None
    assert opened.outcome["status"] == "cancelled"
    assert rt.focus() == ["chat"]


async def test_an_identical_resend_gets_the_record_and_a_conflict_is_a_conflict(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    await rt.call("task-dashboard.open", T1, call_id="k-1")
    again = await rt.call("task-dashboard.open", T1, call_id="k-1")
    assert again.receipt["detail"]["call_id"] == "k-1"
    other = await rt.call("task-dashboard.open", T1 | {"title": "Other"}, call_id="k-1")
    assert other.receipt["code"] == "call_id_conflict"
    stale = await rt.call("task-dashboard.open", T1, inventory_revision="r-0")
    assert stale.error["code"] == "inventory_revision_mismatch"


async def test_the_story_of_a_call_reads_from_its_receipt_to_its_result(stub_runtime: StubRuntime) -> None:
    rt = stub_runtime
    opened = await rt.call("task-dashboard.open", T1)
    await rt.call("task-dashboard.update", {"task_id": "t1", "status": "completed"})
    kinds = [entry["kind"] for entry in rt.story(opened.call_id)]
    assert kinds[0] == "call.received"
    assert "call.running" in kinds
    assert "call.completed" in kinds
