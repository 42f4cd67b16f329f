"""My MiniApp: a counter on a page. The page's state is kept by the Runtime, so nothing here has to remember it."""

from lineup_sdk import SDK, MiniApp, SurfaceEvent, ToolCall

app = MiniApp()


@app.tool("my-miniapp.count")
async def count(call: ToolCall, sdk: SDK) -> None:
    """Show the page. None leaves the call open; ``handed_in`` completes it."""
    for surface in sdk.surfaces.list():
        await sdk.surfaces.update(surface.surface_id, {"count": call.input["start"]})
        return
    await sdk.surfaces.request_open("surface/index.html", title="My MiniApp", state={"count": call.input["start"]})


@app.on_surface_submit
async def handed_in(event: SurfaceEvent, sdk: SDK) -> None:
    """The person is done: every call that waits for the number gets it."""
    for call in sdk.tools.list():
        await sdk.tools.complete(call.call_id, {"count": event.payload["count"]})
    await leave(sdk, "the number was handed in")


@app.on_surface_event
async def told(event: SurfaceEvent, sdk: SDK) -> None:
    """The person wants no more of it: by the page's own button, or by closing the page in the workspace."""
    if event.name in ("close", "lineup.closed"):
        for call in sdk.tools.list():
            await sdk.tools.cancel(call.call_id, "the person closed the counter")
        await leave(sdk, "closed by the person")


async def leave(sdk: SDK, reason: str) -> None:
    """Close the page, then the MiniApp itself: what was on the screen before comes back. The next call opens a new one.

    A MiniApp with something open is not closed, so calls come first; a tool that should stay on the screen leaves
    this out.
    """
    for surface in sdk.surfaces.list():
        await sdk.surfaces.request_close(surface.surface_id)
    await sdk.lifecycle.request_close(reason)
