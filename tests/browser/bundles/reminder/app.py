"""Reminds a person of something, if they let it."""

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


@app.tool("reminder.remind")
async def remind(call: ToolCall, sdk: SDK) -> dict[str, object]:
    reason = "You asked the agent for a reminder; it is shown when the time has come."
    arguments = {"title": call.input["what"], "body": "Now would be a good time."}
    receipt = await sdk.capabilities.request("notification.show", reason, arguments)
    return {"shown": (await receipt.result()).granted}
