"""Pomodoro: the quiet face of one focus session.

The Runtime keeps the deadline, decides how the session ended, gives both tools their results and closes this instance
afterwards. What is left to do here: show the page, and note what it shows in the instance's snapshot, so that a page
after a crash and the history after the end find it. No timer, no button, no question.
"""

from __future__ import annotations

import sys
from typing import Any

from lineup_sdk import SDK, CommandReceipt, MiniApp, Operation, ToolCall

app = MiniApp()

PAGE = "surface/index.html"


@app.on_start
async def start(sdk: SDK) -> None:
    """Show the page at once; after a crash the session is under way already and is noted again if it has to be."""
    note_refusal("the page", await sdk.surfaces.request_open(PAGE))
    for operation in sdk.operations.list():
        await keep(operation, sdk)


@app.tool("pomodoro.start")
async def focus(call: ToolCall, sdk: SDK) -> None:
    """The session has begun; the Runtime ends the call with it. ``pomodoro.interrupt`` never comes here."""
    operation = sdk.operations.get(call.operation_id or "")
    if operation is not None:
        await keep(operation, sdk)


async def keep(operation: Operation, sdk: SDK) -> None:
    """Save what the page shows, unless it is saved already."""
    async with sdk.state.lock:
        state = shown(operation)
        if state != sdk.state.get():
            note_refusal("the snapshot", await sdk.state.save(state))


def shown(operation: Operation) -> dict[str, Any]:
    """The snapshot of one session. The time left is no part of it: it follows from ``ends_at``."""
    state = {
        "operation_id": operation.operation_id,
        "activity": operation.activity,
        "started_at": operation.started_at,
        "ends_at": operation.ends_at,
        "ended_at": operation.ended_at,
        "display_state": operation.state,
        "interruption_reason": operation.interruption_reason,
    }
    return {name: value for name, value in state.items() if value is not None}


def note_refusal(what: str, receipt: CommandReceipt) -> None:
    """A refusal is no reason to end the session with this worker: it may have been decided a moment ago."""
    if not receipt.accepted:
        print(f"{what} was refused: {receipt.code}: {receipt.message}", file=sys.stderr)
