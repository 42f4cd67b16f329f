"""My MiniApp: one tool that greets."""

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


@app.tool("my-miniapp.greet")
async def greet(call: ToolCall, sdk: SDK) -> dict[str, str]:
    """A returned dict completes the call; it must satisfy the tool's output_schema."""
    await sdk.tools.report_progress(call.call_id, 0.5, "finding the words")
    return {"greeting": f"Hello, {call.input['name']}!"}
