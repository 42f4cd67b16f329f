"""The smallest MiniApp that does something: it returns what it was given."""

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


@app.tool("bench-echo.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, object]:
    return {"text": call.input["text"]}
