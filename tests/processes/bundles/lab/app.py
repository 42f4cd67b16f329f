"""A MiniApp for tests: every way in which a call can go. Its answers carry a proof that only this code can make."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall, ToolError

app = MiniApp()

SALT = "only the lab knows"
CUE = Path("/tmp/cue")  # a test puts it into the sandbox from outside
CUE_POLL_S = 0.005


def proven(call: ToolCall) -> dict[str, Any]:
    proof = hashlib.sha256(f"{SALT}|{call.call_id}|{call.input['text']}".encode()).hexdigest()
    return {"text": call.input["text"], "proof": proof, "attempt": call.attempt}


@app.tool("lab.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    return proven(call)


@app.tool("lab.once")
async def once(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    await remember(call, sdk)
    return proven(call)


@app.tool("lab.slowly")
async def slowly(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    for step in (0.25, 0.5, 0.75):
        await sdk.tools.report_progress(call.call_id, step, f"at {step}")
    return proven(call)


@app.tool("lab.hold")
@app.tool("lab.hold_once")
async def hold(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    if call.attempt < call.input["until_attempt"]:
        await asyncio.Event().wait()
    return proven(call)


@app.tool("lab.on_cue")
@app.tool("lab.on_cue_once")
async def on_cue(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    while not await asyncio.to_thread(CUE.exists):  # noqa: ASYNC110 - a file cannot be awaited
        await asyncio.sleep(CUE_POLL_S)
    return proven(call)


@app.tool("lab.brief")
async def brief(call: ToolCall, sdk: SDK) -> None:
    await asyncio.Event().wait()


@app.tool("lab.deaf")
async def deaf(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Its time runs out; what it says long after that must not count."""
    waiting = asyncio.Event()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting.wait()
    return proven(call)


@app.tool("lab.wrong")
async def wrong(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    return {"text": 7}


@app.tool("lab.boom")
async def boom(call: ToolCall, sdk: SDK) -> None:
    raise RuntimeError("the lab exploded")


@app.tool("lab.die")
async def die(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    if call.attempt < call.input["until_attempt"]:
        os._exit(int(signal.SIGKILL))
    return proven(call)


@app.tool("lab.keep")
@app.tool("lab.keep_once")
async def keep(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    receipt = await sdk.artifacts.submit("A note", "text/plain", call.input["text"].encode())
    receipt.raise_if_refused()
    arguments = {"artifact_id": receipt.detail["artifact_id"]}
    asked = await sdk.capabilities.request("artifact.export", "to look at it", arguments)
    asked.raise_if_refused()
    if not (await asked.result()).granted:
        raise ToolError("not_granted", "the person does not want it saved")
    return proven(call)


@app.tool("lab.finish")
async def finish(call: ToolCall, sdk: SDK) -> None:
    await sdk.tools.complete(call.call_id, proven(call))
    await sdk.lifecycle.request_close("the lab is done")


@app.tool("lab.tally")
async def tally(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    return {"texts": (sdk.state.get() or {}).get("texts", [])}


async def remember(call: ToolCall, sdk: SDK) -> None:
    async with sdk.state.lock:
        texts = [*(sdk.state.get() or {}).get("texts", []), call.input["text"]]
        (await sdk.state.save({"texts": texts})).raise_if_refused()
