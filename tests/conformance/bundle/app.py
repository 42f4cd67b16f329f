"""A MiniApp whose conduct a scenario decides: it echoes, waits, asks, or says what it is told to say to the Runtime.

Every call that reaches it is noted in its state, so that a scenario can see what did not.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from lineup_sdk import SDK, Action, Choice, Confirm, Input, InputField, MiniApp, Notice, ToolCall

app = MiniApp()
KINDS: dict[str, Any] = {"notice": Notice, "choice": Choice, "confirm": Confirm, "input": Input}


async def note(call: ToolCall, sdk: SDK) -> None:
    async with sdk.state.lock:
        seen = [*(sdk.state.get() or {}).get("seen", []), f"{call.call_id} {call.attempt}"]
        (await sdk.state.save({"seen": seen})).raise_if_refused()


@app.tool("probe.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    await note(call, sdk)
    (await sdk.tools.report_progress(call.call_id, 0.5, "half way")).raise_if_refused()
    return {"text": call.input["text"], "attempt": call.attempt}


@app.tool("probe.wrong")
async def wrong(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    await note(call, sdk)
    return {"text": 7}


@app.tool("probe.hold")
@app.tool("probe.once")
async def hold(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    await note(call, sdk)
    if call.attempt < call.input["until_attempt"]:
        await asyncio.Event().wait()
    return {"attempt": call.attempt}


@app.tool("probe.brief")
@app.tool("probe.open")
async def leave_open(call: ToolCall, sdk: SDK) -> None:
    await note(call, sdk)


@app.tool("probe.patient")
@app.tool("probe.ask")
async def ask(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Ask the person what the input says and return what came of it."""
    await note(call, sdk)
    fields = dict(call.input["request"])
    kind = KINDS[fields.pop("kind")]
    if "actions" in fields:
        fields["actions"] = [Action(**action) for action in fields["actions"]]
    if "fields" in fields:
        fields["fields"] = [InputField(**field) for field in fields["fields"]]
    expires_at = None
    if seconds := call.input.get("expires_in_s"):
        at = datetime.fromisoformat(call.input["now"]).astimezone(UTC) + timedelta(seconds=seconds)
        expires_at = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    settled = await sdk.ui.ask(kind(**fields), expires_at=expires_at)
    # An answer that came while no handler waited was taken over already: it is "completed", which says the same here.
    return {"status": "submitted" if settled.answered else settled.status, "result": dict(settled.result or {})}


@app.tool("probe.say")
async def say(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Send one message of the worker link as it is and return its receipt: what a forger would do."""
    receipt = await sdk.ui._link.command(call.input["type"], dict(call.input["body"]))
    told: dict[str, Any] = {"accepted": receipt.accepted}
    return told | ({} if receipt.accepted else {"code": receipt.code})


@app.tool("probe.seen")
async def seen(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Which calls have reached this instance, and at which attempt, in order."""
    return {"seen": list((sdk.state.get() or {}).get("seen", []))}
