"""A MiniApp for tests that does not end when it is asked to."""

from __future__ import annotations

import asyncio
import signal
import time

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


@app.tool("stubborn.block")
async def block(call: ToolCall, sdk: SDK) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    await sdk.tools.report_progress(call.call_id, 0.5, "blocked from here on")
    time.sleep(600)  # noqa: ASYNC251 - that is the point


@app.tool("stubborn.sleep")
async def sleep(call: ToolCall, sdk: SDK) -> None:
    await sdk.tools.report_progress(call.call_id, 0.5, "asleep")
    await asyncio.sleep(8)
