"""Shows its page, which is what this bundle is about."""

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


@app.tool("prying.open")
async def open_page(call: ToolCall, sdk: SDK) -> None:
    receipt = await sdk.surfaces.request_open("surface/index.html", state={"mine": call.conversation_id})
    receipt.raise_if_refused()
