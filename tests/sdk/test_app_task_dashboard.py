"""Task Dashboard, as the bundle stands in the wheel, against a scripted Runtime that can crash its worker."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.manifest import parse_manifest
from lineup_protocol.schema import first_fault

WORKERS = Path(__file__).parents[2] / "workers" / "lineup_workers"
MANIFEST = json.loads((WORKERS / "task_dashboard" / "miniapp.json").read_text())
TOOLS = {tool["id"]: tool for tool in MANIFEST["tools"]}
STATE_SCHEMA = MANIFEST["instance_state"]["state_schema"]

OPEN, UPDATE = "task-dashboard.open", "task-dashboard.update"
REPORT = {"task_id": "t1", "title": "Write report"}


class Board:
    """One run of the app, checked against its manifest at every step."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.runtime = run.runtime
        self._calls = 0

    async def open(self, input_: dict[str, Any] | None = None, call_id: str = "k-open", **changes: Any) -> None:
        assert first_fault(TOOLS[OPEN]["input_schema"], input_ or REPORT) is None
        self.runtime.call(OPEN, input_ or REPORT, call_id, **changes)
        await self.settled()

    async def update(self, call_id: str = "", **input_: Any) -> str:
        self._calls += 1
        call_id = call_id or f"u-{self._calls}"
        body = {"task_id": "t1", **input_}
        assert first_fault(TOOLS[UPDATE]["input_schema"], body) is None
        self.runtime.call(UPDATE, body, call_id)
        await self.settled()
        return call_id

    async def settled(self) -> None:
        """Everything delivered so far has been handled, as far as it can be."""
        nonce = len(self.runtime.said("worker.ping")) + len(self.runtime.heard)
        self.runtime.say("worker.ping", nonce=nonce)
        await self.runtime.until(
            lambda: {"nonce": nonce} in self.runtime.said("worker.pong") and self.run.runner.idle, "the app is idle"
        )
        if self.runtime.state is not None:
            assert first_fault(STATE_SCHEMA, self.runtime.state) is None
            assert len(json.dumps(self.runtime.state)) <= MANIFEST["instance_state"]["max_bytes"]

    def result(self, call_id: str) -> dict[str, Any] | None:
        """The call's one result."""
        found = [body["result"] for body in self.runtime.said("tool.complete") if body["call_id"] == call_id]
        assert len(found) <= 1, f"{call_id} was completed twice"
        if found:
            tool = OPEN if call_id.startswith("k-") else UPDATE
            assert first_fault(TOOLS[tool]["output_schema"], found[0]) is None
        return found[0] if found else None

    def failure(self, call_id: str) -> str | None:
        return next((body["code"] for body in self.runtime.said("tool.fail") if body["call_id"] == call_id), None)

    def progress(self, call_id: str = "k-open") -> list[tuple[float, str]]:
        said = self.runtime.said("tool.progress")
        return [(body["progress"], body["message"]) for body in said if body["call_id"] == call_id]


@pytest.fixture
def start_board(start_run: Any, bundle_app: Any, welcome: Any) -> Any:
    async def start(state: Any = None, revision: int = 0) -> Board:
        return Board(await start_run(bundle_app("task_dashboard"), welcome(state=state, state_revision=revision)))

    return start


def test_the_manifest_is_valid() -> None:
    manifest = parse_manifest(MANIFEST, trusted=True)
    assert (manifest.app_scope, manifest.kind) == ("task-dashboard", "bundled-reference")
    open_, update = manifest.tools
    assert (open_.handling, open_.target.requires_foreground, open_.target.restore_previous_focus) == (
        "launch",
        True,
        True,
    )
    assert (update.handling, open_.retry_safe, update.retry_safe) == ("operation", True, True)


@pytest.mark.conformance("03-9.2")
@pytest.mark.parametrize("bundle", ["interact", "task_dashboard"])
def test_apps_import_the_sdk_alone(bundle: str) -> None:
    import sys

    tree = ast.parse((WORKERS / bundle / "app.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"lineup_sdk"}


@pytest.mark.conformance("03-9.13")
async def test_a_task_from_open_to_its_end(start_board: Any) -> None:
    board = await start_board()
    await board.open()
    assert board.result("k-open") is None
    half = await board.update(progress=0.5, note="outline written")
    assert board.result(half) == {"task_id": "t1", "title": "Write report", "status": "running", "progress": 0.5}
    done = await board.update(status="completed")
    assert board.result(done) == {"task_id": "t1", "title": "Write report", "status": "completed", "progress": 1}
    assert board.result("k-open") == {"status": "completed"}
    assert board.progress() == [(0, "running"), (0.5, "outline written")]
    closes = [type_ for type_, _ in board.runtime.heard]
    assert closes.index("lifecycle.close") > closes.index("tool.complete"), "its own result comes first"
    assert board.runtime.said("lifecycle.close") == [{"reason": "every task has ended"}]
    (task,) = board.runtime.state["tasks"]
    assert [entry["status"] for entry in task["history"]] == ["running", "completed"]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_every_end_is_told_as_the_status_of_the_open_call(start_board: Any, status: str) -> None:
    board = await start_board()
    await board.open()
    await board.update(progress=0.25)
    await board.update(status=status)
    assert board.result("k-open") == {"status": status}
    assert board.runtime.state["tasks"][0]["progress"] == (1 if status == "completed" else 0.25)


async def test_an_unknown_task_fails_the_update_alone(start_board: Any) -> None:
    board = await start_board()
    await board.open()
    other = await board.update(task_id="t9", progress=0.1)
    assert (board.failure(other), board.result("k-open")) == ("task_not_found", None)
    assert board.runtime.said("lifecycle.close") == []


async def test_several_tasks_close_the_board_only_when_all_have_ended(start_board: Any) -> None:
    board = await start_board()
    await board.open()
    await board.open({"task_id": "t2", "title": "Proofread", "status": "queued"}, "k-two")
    assert [task["status"] for task in board.runtime.state["tasks"]] == ["running", "queued"]
    await board.update(status="failed", note="no source")
    assert (board.result("k-open"), board.result("k-two")) == ({"status": "failed"}, None)
    assert board.runtime.said("lifecycle.close") == []
    await board.update(task_id="t2", progress=0.1)
    assert board.runtime.state["tasks"][1]["status"] == "running"
    await board.update(task_id="t2", status="completed")
    assert board.result("k-two") == {"status": "completed"}
    assert len(board.runtime.said("lifecycle.close")) == 1


async def test_a_second_open_of_a_running_task_is_refused_and_one_of_an_ended_task_starts_anew(
    start_board: Any,
) -> None:
    board = await start_board()
    await board.open()
    await board.open(REPORT, "k-again")
    assert (board.failure("k-again"), board.result("k-open")) == ("task_exists", None)
    await board.update(status="failed")
    late = await board.update(progress=0.9)
    assert board.failure(late) == "task_ended"
    await board.open({"task_id": "t1", "title": "Second try"}, "k-new")
    (task,) = board.runtime.state["tasks"]
    assert (task["title"], task["status"], task["call_id"], task["history"]) == ("Second try", "running", "k-new", [])


async def test_updates_at_once_lose_nothing(start_board: Any) -> None:
    board = await start_board()
    for n in range(30):
        board.runtime.call(OPEN, {"task_id": f"t{n}", "title": f"Task {n}"}, f"k-{n}")
    for n in range(30):
        board.runtime.call(UPDATE, {"task_id": f"t{n}", "progress": n / 30}, f"u-{n}")
    await board.settled()
    tasks = {task["task_id"]: task for task in board.runtime.state["tasks"]}
    assert {task_id: task["progress"] for task_id, task in tasks.items()} == {f"t{n}": n / 30 for n in range(30)}
    assert all(board.result(f"u-{n}") for n in range(30))


async def test_a_full_board_refuses_and_an_ended_task_makes_room(start_board: Any) -> None:
    board = await start_board()
    for n in range(32):
        await board.open({"task_id": f"t{n}", "title": "x"}, f"k-{n}")
    await board.open({"task_id": "more", "title": "x"}, "k-more")
    assert board.failure("k-more") == "board_full"
    await board.update(task_id="t5", status="completed")
    await board.open({"task_id": "more", "title": "x"}, "k-more-2")
    assert board.failure("k-more-2") is None
    assert "t5" not in [task["task_id"] for task in board.runtime.state["tasks"]]


async def test_the_longest_notes_stay_within_the_snapshot(start_board: Any) -> None:
    board = await start_board()
    for n in range(32):
        await board.open({"task_id": f"t{n}", "title": "題" * 256}, f"k-{n}")
    for _ in range(30):
        await board.update(note="注" * 200)
    assert len(board.runtime.state["tasks"][1]["history"]) == 24


# -- crashes ---------------------------------------------------------------------------------------------------------


async def test_after_a_crash_the_open_call_goes_on_where_the_task_was(start_board: Any) -> None:
    first = await start_board()
    await first.open()
    await first.update(progress=0.5, note="half")
    second = await start_board(first.runtime.state, first.runtime.state_revision)
    await second.open(attempt=2)
    assert second.progress() == [(0.5, "half")]
    await second.update("u-after", status="completed")
    assert second.result("k-open") == {"status": "completed"}


async def test_a_crash_between_the_end_and_its_report_loses_nothing(start_board: Any) -> None:
    first = await start_board()
    await first.open()
    first.runtime.held.add("tool.progress")
    first.runtime.held.add("tool.complete")  # the worker dies before any report is committed
    first.runtime.call(UPDATE, {"task_id": "t1", "status": "completed"}, "u-1")
    await first.runtime.until(lambda: first.runtime.state_revision == 2, "the end is saved")

    second = await start_board(first.runtime.state, first.runtime.state_revision)
    second.runtime.refusals["lifecycle.close"] = {"accepted": False, "code": "lifecycle_denied", "message": "busy"}
    await second.update("u-1", status="completed")
    assert second.result("u-1")["status"] == "completed"
    second.runtime.refusals.clear()
    await second.open(attempt=2)
    results = [body for body in second.runtime.said("tool.complete") if body["call_id"] == "k-open"]
    assert {body["result"]["status"] for body in results} == {"completed"}
    assert second.runtime.state_revision == first.runtime.state_revision, "nothing is applied twice"
    assert second.runtime.said("lifecycle.close")


async def test_a_crash_before_the_board_was_saved_starts_the_task(start_board: Any) -> None:
    board = await start_board()
    await board.open(attempt=2)
    assert board.runtime.state["tasks"][0]["status"] == "running"


async def test_a_board_that_was_done_when_its_worker_died_closes(start_board: Any) -> None:
    first = await start_board()
    await first.open()
    await first.update(status="completed")
    second = await start_board(first.runtime.state, first.runtime.state_revision)
    assert second.runtime.said("lifecycle.close")


# -- the agent and the person ------------------------------------------------------------------------------------------


async def test_the_agents_cancel_ends_the_task(start_board: Any) -> None:
    board = await start_board()
    await board.open()
    board.runtime.deliver("tool.cancel", {"call_id": "k-open", "reason": "changed my mind"})
    await board.settled()
    assert board.runtime.said("tool.cancel") == [{"call_id": "k-open", "reason": "changed my mind"}]
    assert board.runtime.state["tasks"][0]["status"] == "cancelled"
    assert board.runtime.said("lifecycle.close")


@pytest.mark.parametrize("approved", [True, False])
async def test_closing_the_board_with_unfinished_tasks_asks_first(start_board: Any, approved: bool) -> None:
    board = await start_board()
    await board.open()
    await board.open({"task_id": "t2", "title": "Proofread"}, "k-two")
    await board.update(task_id="t2", status="completed")
    request = board.runtime.deliver("close.request", {"reason": "closed by the person"})
    asked = await board.runtime.expect("ui.request")
    assert (asked["request"]["kind"], asked["presentation"]) == ("confirm", "modal")
    assert "“Write report”" in asked["request"]["prompt"]
    assert "Proofread" not in asked["request"]["prompt"]
    assert {"seq": request} not in board.runtime.said("inbox.ack"), "a crash now brings the request again"
    board.runtime.settle("q-1", result={"approved": approved})
    await board.settled()
    assert {"seq": request} in board.runtime.said("inbox.ack")
    assert board.runtime.said("lifecycle.foreground") == []
    assert board.result("k-open") == ({"status": "cancelled"} if approved else None)
    assert len(board.runtime.said("lifecycle.close")) == approved


async def test_a_crash_while_the_person_is_asked_does_not_ask_twice(start_board: Any) -> None:
    first = await start_board()
    await first.open()
    first.runtime.deliver("close.request", {"reason": "closed by the person"})
    key = (await first.runtime.expect("ui.request"))["key"]
    second = await start_board(first.runtime.state, first.runtime.state_revision)
    second.runtime.asked, second.runtime.records = first.runtime.asked, first.runtime.records
    second.runtime._seq = 1  # the same delivery again
    second.runtime.deliver("close.request", {"reason": "closed by the person"})
    assert (await second.runtime.expect("ui.request"))["key"] == key
    assert list(second.runtime.records) == ["q-1"]


async def test_closing_a_board_that_is_done_asks_nothing(start_board: Any) -> None:
    board = await start_board()
    await board.open()
    board.runtime.refusals["lifecycle.close"] = {"accepted": False, "code": "lifecycle_denied", "message": "busy"}
    await board.update(status="completed")
    board.runtime.deliver("close.request", {"reason": "closed by the person"})
    await board.settled()
    assert board.runtime.said("ui.request") == []
    assert len(board.runtime.said("lifecycle.close")) == 2
