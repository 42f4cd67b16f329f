"""Task Dashboard: what the agent is working on, how far it is, and how it ended.

``open`` shows a task and stays open until the task ends; ``update`` moves it. The tasks live in the instance's
snapshot, which is saved before anything is reported: a worker that dies between the two finds the task where it was
when the call is delivered again, and reports what is still missing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lineup_sdk import SDK, Confirm, MiniApp, ToolCall, ToolError

app = MiniApp()

TASKS_MAX = 32  # on one board; the oldest ended task makes room
HISTORY_MAX = 24  # updates kept per task
ENDED = ("completed", "failed", "cancelled")

Task = dict[str, Any]
Board = list[Task]


@app.on_start
async def start(sdk: SDK) -> None:
    """Calls that were open when an earlier worker died are delivered again; only a board that is done needs a hand."""
    if load(sdk):
        await close_when_done(sdk)


@app.tool("task-dashboard.open")
async def open_task(call: ToolCall, sdk: SDK) -> None:
    """Put the task on the board; the call stays open until the task ends."""

    def put(board: Board) -> Task:
        task = find(board, call.input["task_id"])
        if task is None or (task["status"] in ENDED and task["call_id"] != call.call_id):
            return add(board, new_task(call), replacing=task)
        if task["call_id"] != call.call_id:
            raise ToolError("task_exists", f"task {task['task_id']} is open already; update it, or end it first")
        return task  # this call again, after a crash

    task = await change_board(sdk, put)
    if task["status"] in ENDED:  # it ended before an earlier worker could say so
        await report_end(task, sdk)
    else:
        await report_progress(task, sdk)


@app.tool("task-dashboard.update")
async def update_task(call: ToolCall, sdk: SDK) -> None:
    """Move one task; answers with its summary."""

    def move(board: Board) -> Task:
        task = find(board, call.input["task_id"])
        if task is None:
            raise ToolError("task_not_found", f"no task {call.input['task_id']} on this board; open it first")
        if any(entry["call_id"] == call.call_id for entry in task["history"]):
            return task  # this call again, after a crash
        if task["status"] in ENDED:
            raise ToolError("task_ended", f"task {task['task_id']} is {task['status']} and takes no more updates")
        update(task, call)
        return task

    try:
        task = await change_board(sdk, move)
    except ToolError as refusal:
        await sdk.tools.fail(call.call_id, refusal.code, refusal.message)
        await close_when_done(sdk)
        return
    if task["status"] not in ENDED:
        await report_progress(task, sdk)
    await sdk.tools.complete(call.call_id, {name: task[name] for name in ("task_id", "title", "status", "progress")})
    if task["status"] in ENDED:
        await report_end(task, sdk)


@app.on_cancel
async def cancelled(call: ToolCall, reason: str | None, sdk: SDK) -> None:
    """The agent takes an open task back."""

    def cancel(board: Board) -> None:
        task = next((task for task in board if task["call_id"] == call.call_id), None)
        if task is not None and task["status"] not in ENDED:
            step(task, call.call_id, now(), "cancelled", reason or "cancelled by the agent")

    await change_board(sdk, cancel)
    await sdk.tools.cancel(call.call_id, reason)
    await close_when_done(sdk)


@app.on_close_request
async def close_board(reason: str, sdk: SDK) -> None:
    """The person closes the board; while a task is unfinished only after they have confirmed it."""
    unfinished = [task for task in load(sdk) if task["status"] not in ENDED]
    if unfinished and not await may_close(unfinished, sdk):
        return

    def cancel_all(board: Board) -> Board:
        for task in board:
            if task["status"] not in ENDED:
                step(task, task["call_id"], now(), "cancelled", reason or "closed by the person")
        return board

    for task in await change_board(sdk, cancel_all):
        if sdk.tools.get(task["call_id"]) is not None:
            await sdk.tools.complete(task["call_id"], {"status": task["status"]})
    await close_when_done(sdk)


async def may_close(unfinished: Board, sdk: SDK) -> bool:
    titles = ", ".join(f"“{task['title']}”" for task in unfinished[:3])
    more = f" and {len(unfinished) - 3} more" if len(unfinished) > 3 else ""
    question = Confirm(
        title="Close with unfinished work?",
        prompt=f"Not finished: {titles}{more}. The agent will be told that this was cancelled.",
        approve_label="Close",
        cancel_label="Keep open",
    )
    return (await sdk.ui.ask(question, presentation="modal")).approved


# -- the board ------------------------------------------------------------------------------------------------------


def load(sdk: SDK) -> Board:
    """A copy of the board as it was saved last."""
    return list((sdk.state.get() or {}).get("tasks", ()))


async def change_board(sdk: SDK, change: Callable[[Board], Any]) -> Any:
    """Change the board and make it durable, one handler after the other; gives what ``change`` returned."""
    async with sdk.state.lock:
        board = load(sdk)
        outcome = change(board)
        if board != load(sdk):
            (await sdk.state.save({"tasks": board})).raise_if_refused()
        return outcome


def find(board: Board, task_id: object) -> Task | None:
    return next((task for task in board if task["task_id"] == task_id), None)


def new_task(call: ToolCall) -> Task:
    return {
        "task_id": call.input["task_id"],
        "title": call.input["title"],
        "status": call.input.get("status", "running"),
        "progress": 0,
        "call_id": call.call_id,
        "history": [],
    }


def add(board: Board, task: Task, *, replacing: Task | None) -> Task:
    """Put a task on the board: in the place of an ended one with its id, else at the end."""
    if replacing is not None:
        board[board.index(replacing)] = task
        return task
    if len(board) >= TASKS_MAX:
        ended = next((old for old in board if old["status"] in ENDED), None)
        if ended is None:
            raise ToolError("board_full", f"{TASKS_MAX} tasks are open already; end one first")
        board.remove(ended)
    board.append(task)
    return task


def update(task: Task, call: ToolCall) -> None:
    """Apply one update. A completed task is at 100 %; progress alone starts a queued one."""
    status = call.input.get("status") or ("running" if "progress" in call.input else task["status"])
    task["progress"] = 1 if status == "completed" else call.input.get("progress", task["progress"])
    step(task, call.call_id, call.created_at, status, call.input.get("note"))


def step(task: Task, call_id: str, at: str, status: str, note: str | None) -> None:
    """Set the status and remember the step."""
    task["status"] = status
    entry = {"call_id": call_id, "at": at, "status": status, "progress": task["progress"]}
    if note is not None:
        task["note"] = entry["note"] = note
    task["history"] = [*task["history"], entry][-HISTORY_MAX:]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- what the agent hears ---------------------------------------------------------------------------------------------


async def report_progress(task: Task, sdk: SDK) -> None:
    await sdk.tools.report_progress(task["call_id"], task["progress"], task.get("note") or task["status"])


async def report_end(task: Task, sdk: SDK) -> None:
    """The open call gets its result. Refused if it has one already, or (after a crash) is about to be delivered again:
    then ``open_task`` says it."""
    await sdk.tools.complete(task["call_id"], {"status": task["status"]})
    await close_when_done(sdk)


async def close_when_done(sdk: SDK) -> None:
    """After the last task the person gets back to where they were. Denied while a call is open: it then asks again."""
    if all(task["status"] in ENDED for task in load(sdk)):
        await sdk.lifecycle.request_close("every task has ended")
