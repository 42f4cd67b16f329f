"""Never comes back from being loaded."""

from __future__ import annotations

import time

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
time.sleep(1000)


@app.tool("dawdler.ask")
async def ask(call: ToolCall, sdk: SDK) -> dict[str, bool]:
    return {"answered": True}
