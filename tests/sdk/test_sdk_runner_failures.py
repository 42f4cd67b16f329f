"""However a handler fails, its own call ends, and no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lineup_sdk import SDK, MiniApp, ToolCall, ToolError


def app_with(handler: Any) -> MiniApp:
    app = MiniApp()
    app.tool("probe.do")(handler)
    return app


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot even be printed")


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("it cannot be read")


async def cancelled_from_within() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (ValueError("a lone \ud800"), "ValueError: a lone ?"),
        (Unspeakable(), "Unspeakable"),
        (None, "CancelledError"),
        (ToolError("not a code at all \ud800", "m"), "what it said of it cannot be sent"),
        (ToolError("mine", "m", {"x": b"bytes"}), "m"),
    ],
)
async def test_however_a_handler_fails_its_call_ends(start_run: Any, fault: Any, says: str) -> None:
    async def do(call: ToolCall, sdk: SDK) -> None:
        if fault is None:
            await cancelled_from_within()
        raise fault

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    assert says in (await run.runtime.expect("tool.fail"))["message"]


@pytest.mark.parametrize("result", [{"x": b"bytes"}, {"x": [b""]}, {"x": Unreadable(a=1)}, {"x": object()}])
async def test_a_result_that_cannot_be_sent_fails_its_own_call_alone(start_run: Any, result: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        return {"fine": True} if call.call_id == "k-2" else result

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    assert (await run.runtime.expect("tool.fail"))["call_id"] == "k-1"
    run.runtime.call("probe.do", {}, call_id="k-2")
    assert await run.runtime.expect("tool.complete") == {"call_id": "k-2", "result": {"fine": True}}
