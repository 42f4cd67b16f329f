"""A MiniApp for tests whose start takes longer than anybody waits."""

from __future__ import annotations

import time

from lineup_sdk import SDK, MiniApp, ToolCall

time.sleep(600)

app = MiniApp()


@app.tool("slow.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, object]:
    return {"text": call.input["text"], "proof": "", "attempt": call.attempt}
