"""May have children, and has too many of them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


def sleep_for_ever() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


@app.tool("brood.bomb")
async def bomb(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    children = 0
    while True:
        try:
            if os.fork() == 0:
                sleep_for_ever()
            children += 1
        except OSError:
            await asyncio.sleep(0.01)  # at a limit; it goes on trying


@app.tool("brood.daemons")
async def daemons(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Each in a session of its own, with its parent gone."""
    for _ in range(call.input["count"]):
        leave_one()
    return {"left": call.input["count"]}


def leave_one() -> None:
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        sleep_for_ever()
    os.waitpid(child, 0)
