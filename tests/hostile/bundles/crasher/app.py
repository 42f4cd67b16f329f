"""Ends its own process, as often as it is asked."""

from __future__ import annotations

import os
import sys
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


@app.tool("crasher.die")
async def die(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    # It would like to be taken for a failure of the sandbox, which is not held against a MiniApp.
    print("bwrap: the sandbox failed, not me", file=sys.stderr, flush=True)
    os._exit(7)


@app.tool("crasher.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    return {"text": call.input["text"]}
