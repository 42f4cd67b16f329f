"""Sends what is short to say and long to judge, as fast as it is answered, within every limit or just beyond one."""

from __future__ import annotations

import asyncio
import collections
import itertools
import time
from collections.abc import Callable
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
PAGE = "surface/index.html"
AT_ONCE = 32
DEAREST = dict.fromkeys(
    ("touched_in_many", "scattered"), 8
)  # fewer of these: each of them waits for what the one before has cost
WIDE = 8_000  # members of one object in one message: about as many as may be said at once
DENSE: dict[str, Any] = {f"k{n}": [0] * 1_000 for n in range(30)}  # about the most values of a message
DRAWN: dict[str, Any] = {f"k{n}": [0] * 1_000 for n in range(16)}  # about the most of one to a surface
Message = tuple[str, dict[str, Any]]


@app.tool("costly.send")
async def send(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """For ``seconds``; how many messages had which answer."""
    link = sdk.surfaces._link
    answers: collections.Counter[str] = collections.Counter()
    message = await MESSAGES[call.input["what"]](call, sdk)
    until = time.monotonic() + call.input["seconds"]

    async def lane() -> None:
        while time.monotonic() < until:
            receipt = await link.command(*message())
            answers[receipt.code or "accepted"] += 1

    await asyncio.gather(*(lane() for _ in range(DEAREST.get(call.input["what"], AT_ONCE))))
    for surface in sdk.surfaces.list():  # the next attack has room again
        await sdk.surfaces.request_close(surface.surface_id)
    return {"answers": dict(answers)}


@app.tool("costly.choose")
async def choose(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Results of which every value has to be looked for among hundreds, and the last one is not found."""
    until = time.monotonic() + call.input["seconds"]
    link = sdk.surfaces._link
    answers: collections.Counter[str] = collections.Counter()
    refused = {name: [7] * 7_500 for name in "abcd"} | {"d": [7] * 7_500 + [8]}
    while time.monotonic() < until:
        receipts = [link.command("tool.complete", {"call_id": call.call_id, "result": refused}) for _ in range(8)]
        for receipt in await asyncio.gather(*receipts):
            answers[receipt.code or "accepted"] += 1
    return {"a": [7] * 7_500, "b": [], "c": [], "d": []} if set(answers) == {"tool_output_invalid"} else {}


async def patches(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    surface_id = await opened(sdk, {})
    return lambda: ("surface.update", {"surface_id": surface_id, "patch": DRAWN})


async def small_patches(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    surface_id = await opened(sdk, {})
    numbers = itertools.count()
    return lambda: ("surface.update", {"surface_id": surface_id, "patch": {"n": [next(numbers)] * 500}})


async def wide_patches(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    surface_id = await opened(sdk, {})
    numbers = itertools.count(step=WIDE)
    return lambda: ("surface.update", {"surface_id": surface_id, "patch": {"a": members(next(numbers) % 60_000)}})


async def emptied(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    """The shortest way to let go of the most: it has to be gathered first."""
    surface_id = await full(sdk)
    patches = itertools.cycle([{"a": None, "b": None}, {"a": {"x": 1}}])
    return lambda: ("surface.update", {"surface_id": surface_id, "patch": next(patches)})


async def touched_in_many(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    """A member in each of as many rows of a full state as one patch may change."""
    surface_id = await full(sdk)
    a, b = ({f"{n:x}": [0] for n in range(*some, 60)} for some in ((0, 45_000), (60_000, 61_000)))
    return lambda: ("surface.update", {"surface_id": surface_id, "patch": {"a": a, "b": b}})


async def scattered(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    """Many members in every row of one object, and numbers, of which each has to be looked at for its form."""
    surface_id = await opened(sdk, {})
    numbers = itertools.count()

    def message() -> Message:
        number = next(numbers)
        forms = (number, 1.0 * number, 0.5 * number, 1e30 * number)
        spread = {f"{n:x}": forms[n // 4 % 4] for n in range(number % 4, 28_000, 4)}
        return "surface.update", {"surface_id": surface_id, "patch": {"a": spread}}

    return message


async def closed(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    await full(sdk)

    def message() -> Message:
        for surface in sdk.surfaces.list():
            return "surface.close", {"surface_id": surface.surface_id}
        return "surface.open", {"entry": PAGE, "state": members(0)}

    return message


async def unknown_surface(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    return lambda: ("surface.update", {"surface_id": "nobodys", "patch": DENSE})


async def reopened(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    await opened(sdk, DRAWN)
    return lambda: ("surface.open", {"entry": PAGE})


async def opened_and_closed(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    return lambda: ("surface.open", {"entry": f"{PAGE}?", "state": DRAWN})


async def saves(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    state = {f"k{n}": [0] * 1_000 for n in range(19)}
    return lambda: ("state.save", {"state": state})


async def oversized_saves(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    return lambda: ("state.save", {"state": DENSE})


async def oversized_results(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    result = {**DENSE, "z": "x" * 600_000}
    return lambda: ("tool.complete", {"call_id": call.call_id, "result": result})


async def results_of_nothing(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    return lambda: ("tool.complete", {"call_id": "nobodys", "result": DENSE})


async def artifacts(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    """Of so many values that only the last one shows that it is no JSON."""
    content = b"[" + b"[]," * 690_000 + b"}"
    body = {"call_id": call.call_id, "title": "t", "media_type": "application/json", "content": content}
    return lambda: ("artifact.submit", body)


async def questions(call: ToolCall, sdk: SDK) -> Callable[[], Message]:
    fields = [{"name": f"f{n}", "type": "text", "label": "x" * 60, "required": False} for n in range(400)]
    return lambda: ("ui.request", {"request": {"kind": "input", "title": "t", "fields": fields}})


async def full(sdk: SDK) -> str:
    """A surface of about as many values as there may be, each member as small as can be."""
    surface_id = await opened(sdk, {})
    for n in range(0, 105_000, WIDE):
        patch = {"ab"[n >= 60_000]: members(n)}
        while not (receipt := await sdk.surfaces.update(surface_id, patch)).accepted:
            assert receipt.code == "rate_limited", receipt
            await asyncio.sleep(0.2)
    return surface_id


def members(first: int) -> dict[str, Any]:
    return {f"{first + n:x}": {} for n in range(WIDE)}


async def opened(sdk: SDK, state: dict[str, Any]) -> str:
    receipt = await sdk.surfaces.request_open(PAGE, state=state)
    receipt.raise_if_refused()
    surface_id: str = receipt.detail["surface_id"]
    return surface_id


MESSAGES = {
    made.__name__: made
    for made in (
        patches,
        small_patches,
        wide_patches,
        emptied,
        touched_in_many,
        scattered,
        closed,
        unknown_surface,
        reopened,
        opened_and_closed,
        saves,
        oversized_saves,
        oversized_results,
        results_of_nothing,
        artifacts,
        questions,
    )
}
