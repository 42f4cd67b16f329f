"""Whiteboard: a board that a person draws on and hands in.

The drawing is the surface's state, kept by the Runtime and patched by the page, so nothing here has to remember it.
``open`` shows the board and stays open until it is handed in: by the person's own button, or by the agent with
``submit``. What was handed in becomes artifacts; after that, and after a cancel, the board closes and the person is
back where they were.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import drawing

from lineup_sdk import SDK, Confirm, MiniApp, Surface, SurfaceEvent, ToolCall, ToolError

app = MiniApp()

PAGE = "surface/index.html"
OPEN = "whiteboard.open"
ASK_S_MAX = 4.0  # how long a page may take to hand in the picture that the agent asked for; then it is made here

Payload = dict[str, Any]
Result = dict[str, Any]

asked: dict[str, asyncio.Future[Payload]] = {}  # pictures that a handler waits for, by the ask's id


@app.on_start
async def start(sdk: SDK) -> None:
    """Have the page there early; after a crash it is there already, with everything that was drawn."""
    await page(sdk)


@app.tool(OPEN)
async def open_board(call: ToolCall, sdk: SDK) -> None:
    """Show the board; the call stays open until it is handed in. A board that is there is left as it is."""
    board_id, title = call.input["board_id"], call.input["title"]
    elements = call.input.get("elements") or {}
    try:
        drawing.check(elements)
    except drawing.ElementFault as fault:
        raise ToolError("elements_invalid", str(fault)) from None
    async with sdk.state.lock:
        surface = await page(sdk)
        if surface.state.get("board_id") != board_id:
            refuse_second_board(call, surface, sdk)
            await keep_drawing(surface, sdk)
            if old := dict.fromkeys(surface.state["elements"]):  # as a merge patch: all of them away
                (await sdk.surfaces.update(surface.surface_id, {"elements": old})).raise_if_refused()
            patch = {"board_id": board_id, "title": title, "elements": elements, "ask": None, "trouble": None}
            (await sdk.surfaces.update(surface.surface_id, patch)).raise_if_refused()
        elif call.attempt > 1 and (ended := ending(sdk)) is not None:  # before an earlier worker could say so
            await finish(*ended, sdk)
            return
        await note(sdk, board_id=board_id, title=title, status="drawing")


@app.tool("whiteboard.submit")
async def submit(call: ToolCall, sdk: SDK) -> None:
    """The agent looks at the board, or hands it in; with ``confirm`` the person has the last word."""
    surface = await page(sdk)
    if surface.state.get("board_id") != call.input["board_id"]:
        raise ToolError("board_not_found", f"no board {call.input['board_id']} is open; open it first")
    status, found = await decide(call, surface, sdk)
    if status == "completed":
        await note(sdk, status=status, **found)  # first: after a crash ``open_board`` still knows how it ended
    summary = drawing.summary(drawing.read_all(surface.state["elements"]))
    await sdk.tools.complete(call.call_id, {"status": status, **found, "summary": summary})
    if status == "completed":
        await finish(status, found, sdk)
    elif ending(sdk) is not None:  # the person ended it while they were asked
        await sdk.lifecycle.request_close("the board has ended")


async def decide(call: ToolCall, surface: Surface, sdk: SDK) -> tuple[str, Result]:
    """How ``submit`` ends, and with which artifacts."""
    if call.input.get("confirm") and not await may_submit(surface, sdk):
        ended = ending(sdk)
        return ended if ended is not None and ended[0] == "completed" else ("declined", {})
    if call.input.get("request") == "summary":
        return "open", {}
    return "completed", await hand_in(surface, await ask_page(call, surface, sdk), sdk)


@app.on_surface_submit
async def handed_in(event: SurfaceEvent, sdk: SDK) -> None:
    """The page hands in the picture: because the agent asked for it, or because the person is done."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    if "ask" in payload:
        waiting = asked.get(str(payload["ask"]))
        if waiting is not None and not waiting.done():
            waiting.set_result(payload)
        return
    surface = sdk.surfaces.get(event.surface_id)
    if surface is None:
        return
    try:
        found = await hand_in(surface, payload, sdk)
    except ToolError as refusal:
        trouble = {"code": refusal.code, "message": refusal.message}
        await sdk.surfaces.update(surface.surface_id, {"trouble": trouble})
        return
    await finish("completed", found, sdk)


@app.on_surface_event
async def page_event(event: SurfaceEvent, sdk: SDK) -> None:
    """Without its page there is no board: the person has thrown it away."""
    if event.name == "lineup.closed":
        await finish("cancelled", {}, sdk)


@app.on_cancel
async def cancelled(call: ToolCall, reason: str | None, sdk: SDK) -> None:
    """The agent wants the board no more. What the person has drawn is kept for them."""
    await sdk.tools.cancel(call.call_id, reason)
    if call.tool_id == OPEN and not open_calls(sdk):
        for surface in sdk.surfaces.list():
            await keep_drawing(surface, sdk)
        await finish("cancelled", {}, sdk)


@app.on_close_request
async def close_board(reason: str, sdk: SDK) -> None:
    """The person closes the board; if something is drawn on it only after they have confirmed it."""
    surface = await page(sdk)
    drawn = drawing.read_all(surface.state["elements"])
    question = Confirm(
        title="Close without handing in?",
        prompt=f"What is drawn on “{title_of(surface)}” will be thrown away, and the agent is told that there is none.",
        approve_label="Throw away",
        cancel_label="Keep drawing",
    )
    if not drawn or (await sdk.ui.ask(question, presentation="modal")).approved:
        await finish("cancelled", {}, sdk)


# -- the board ------------------------------------------------------------------------------------------------------


async def page(sdk: SDK) -> Surface:
    """The board's page, opened if it is not there."""
    for surface in sdk.surfaces.list():
        return surface
    receipt = await sdk.surfaces.request_open(PAGE, state={"elements": {}})
    receipt.raise_if_refused()
    opened = sdk.surfaces.get(receipt.detail["surface_id"])
    assert opened is not None, "an accepted surface is in the projection"
    return opened


def title_of(surface: Surface) -> str:
    """One printable line, as an artifact's title has to be."""
    line = "".join(char if char.isprintable() else " " for char in str(surface.state.get("title") or ""))
    return line.strip() or "Whiteboard"


def open_calls(sdk: SDK) -> list[ToolCall]:
    return [call for call in sdk.tools.list() if call.tool_id == OPEN]


def refuse_second_board(call: ToolCall, surface: Surface, sdk: SDK) -> None:
    """A person's board is not taken away from under their pen."""
    if any(other.call_id != call.call_id for other in open_calls(sdk)):
        name = surface.state.get("board_id", "")
        raise ToolError("board_open", f"board {name} is open already; hand it in or cancel it first")


def ending(sdk: SDK) -> tuple[str, Result] | None:
    """How the board ended and what came of it, or None while it is drawn on."""
    state = sdk.state.get() or {}
    if state.get("status") not in ("completed", "cancelled"):
        return None
    return state["status"], {name: state[name] for name in ("artifact_id", "svg_artifact_id") if name in state}


async def note(sdk: SDK, **changes: Any) -> None:
    """Keep the board's few facts for its history."""
    before = sdk.state.get() or {}
    if before.get("board_id") != changes.get("board_id", before.get("board_id")):
        before = {}
    if (state := before | changes) != before and "board_id" in state:
        receipt = await sdk.state.save(state)
        if not receipt.accepted:
            print(f"the snapshot was refused: {receipt.code}: {receipt.message}", file=sys.stderr)


async def keep_drawing(surface: Surface, sdk: SDK) -> None:
    """Nothing that a person drew is lost without their word: it becomes a picture before it goes."""
    elements = drawing.read_all(surface.state["elements"])
    if elements:
        title = f"{title_of(surface)} (not handed in)"
        await sdk.artifacts.submit(title, "image/svg+xml", drawing.svg(elements, title))


# -- handing in -----------------------------------------------------------------------------------------------------


async def may_submit(surface: Surface, sdk: SDK) -> bool:
    question = Confirm(
        title="Hand in the board?",
        prompt=f"The agent would like to have “{title_of(surface)}” as it is now.",
        approve_label="Hand in",
        cancel_label="Not yet",
    )
    return (await sdk.ui.ask(question, presentation="modal")).approved


@contextmanager
def waiting_for(ask_id: str) -> Iterator[asyncio.Future[Payload]]:
    asked[ask_id] = asyncio.get_running_loop().create_future()
    try:
        yield asked[ask_id]
    finally:
        del asked[ask_id]


async def ask_page(call: ToolCall, surface: Surface, sdk: SDK) -> Payload:
    """The picture from a page, if one is there: only a page can make a PNG. Else nothing."""
    ask_id = f"{call.call_id}.{call.attempt}"
    with waiting_for(ask_id) as picture:
        await sdk.surfaces.update(surface.surface_id, {"ask": {"id": ask_id}})
        try:
            async with asyncio.timeout(ASK_S_MAX):
                return await picture
        except TimeoutError:
            return {}
        finally:
            await sdk.surfaces.update(surface.surface_id, {"ask": None})


async def hand_in(surface: Surface, payload: Payload, sdk: SDK) -> Result:
    """Make artifacts of the picture; of the drawing itself if there is none. Gives ``{artifact_id, svg_artifact_id?}``.

    Raises:
        ToolError: the picture is no picture, or it was refused.
    """
    title = title_of(surface)
    png, svg = payload.get("png"), payload.get("svg")
    if png is None:
        picture = drawing.svg(drawing.read_all(surface.state["elements"]), title)
        svg_id = await keep(title, "image/svg+xml", picture, sdk)
        return {"artifact_id": svg_id, "svg_artifact_id": svg_id}
    try:
        content = base64.b64decode(png, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ToolError("artifact_invalid", "the page's PNG is not base64") from None
    found = {"artifact_id": await keep(title, "image/png", content, sdk)}
    if isinstance(svg, str):  # left out by the page when it would be too large
        found["svg_artifact_id"] = await keep(title, "image/svg+xml", svg.encode(errors="replace"), sdk)
    return found


async def keep(title: str, media_type: str, content: bytes, sdk: SDK) -> str:
    receipt = await sdk.artifacts.submit(title, media_type, content)
    if not receipt.accepted:
        raise ToolError(receipt.code or "artifact_invalid", receipt.message or "the picture was refused")
    return str(receipt.detail["artifact_id"])


async def finish(status: str, found: Result, sdk: SDK) -> None:
    """Every call that waits for the board gets its result, and the person gets back to where they were. Again after a
    crash: whatever is done already is refused, which is as good."""
    elements = next((len(drawing.read_all(surface.state["elements"])) for surface in sdk.surfaces.list()), 0)
    await note(sdk, status=status, elements=elements, **found)
    for call in open_calls(sdk):
        await sdk.tools.complete(call.call_id, {"status": status, **found})
    for question in sdk.ui.list():
        await sdk.ui.cancel(question.interaction_id, "the board was closed")
    await sdk.lifecycle.request_close(f"the board is {status}")
