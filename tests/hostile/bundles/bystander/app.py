"""Minds its own business while others misbehave."""

from __future__ import annotations

import asyncio
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
VERSION = 1
told = asyncio.Event()


@app.tool("bystander.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    if call.input.get("tell"):
        told.set()
    return {"text": call.input["text"], "version": VERSION}


@app.tool("bystander.keep")
async def keep(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Makes one of everything that another could reach for."""
    (await sdk.state.save({"kept": call.input["text"]})).raise_if_refused()
    receipt = await sdk.surfaces.request_open("surface/index.html", state={"kept": call.input["text"]})
    receipt.raise_if_refused()
    return {"surface_id": receipt.detail["surface_id"]}


@app.tool("bystander.hold")
async def hold(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    await told.wait()
    return {"text": call.input["text"], "version": VERSION}
