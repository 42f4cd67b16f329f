"""``StubRuntime`` itself: apps given as objects, questions, time, crashes, and the refusals of the real core."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lineup_protocol.errors import LineUpError
from lineup_sdk import SDK, Confirm, MiniApp, ToolCall, ToolError
from lineup_testkit import CallNotCompleted, StubRuntime

ANY = {"type": "object"}


def manifest(*tools: str, **fields: Any) -> dict[str, Any]:
    def tool(name: str) -> dict[str, Any]:
        front = name in ("open",)
        return {
            "id": f"probe.{name}",
            "version": 1,
            "title": name,
            "description": name,
            "handling": "launch" if front else "direct",
            "target": {"app_scope": "probe", "requires_foreground": front, "restore_previous_focus": front},
            "input_schema": ANY,
            "output_schema": ANY,
            "retry_safe": name == "again",
            "timeout_ms": 5_000 if name == "slow" else None,
        }

    return {
        "app_scope": "probe",
        "version": "1.0.0",
        "kind": "installed",
        "entry": "app:app",
        "tools": [{k: v for k, v in tool(name).items() if v is not None} for name in tools],
        "host": {"min_version": "1.0", "surface_required": False},
        **fields,
    }


async def test_a_handler_completes_fails_and_raises() -> None:
    app = MiniApp()

    @app.tool("probe.hello")
    async def hello(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        if call.input.get("bad") == 1:
            raise ToolError("no_luck", "Not today.")
        if call.input.get("bad") == 2:
            raise ZeroDivisionError("oops")
        return {"scope": sdk.context.app_scope}

    async with StubRuntime.from_app(app, manifest("hello")) as rt:
        assert await (await rt.call("probe.hello")).wait() == {"scope": "probe"}
        failed = await rt.call("probe.hello", {"bad": 1})
        assert failed.error == {"code": "no_luck", "message": "Not today."}
        with pytest.raises(CallNotCompleted, match="no_luck"):
            await failed.wait()
        assert (await rt.call("probe.hello", {"bad": 2})).error["code"] == "tool_failed"


async def test_a_question_its_answer_and_its_clock() -> None:
    app = MiniApp()

    @app.tool("probe.slow")
    async def slow(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        answer = await sdk.ui.ask(Confirm("Sure?", "Shall we?"), parent_call_id=call.call_id)
        return {"approved": answer.approved}

    async with StubRuntime.from_app(app, manifest("slow")) as rt:
        call = await rt.call("probe.slow")
        await rt.advance(3600)
        assert call.is_open, "a person's time does not count"
        assert rt.question()["owner"]["parent_call_id"] == call.call_id
        assert (await rt.answer({"approved": "yes"}))["code"] == "interaction_invalid"
        assert (await rt.answer({"approved": True}))["accepted"]
        assert call.result == {"approved": True}
        other = await rt.call("probe.slow")
        await rt.dismiss()
        assert other.result == {"approved": False}


async def test_a_timeout_cancels_the_handler() -> None:
    app, seen = MiniApp(), []

    @app.tool("probe.slow")
    async def slow(call: ToolCall, sdk: SDK) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(call.call_id)
            raise

    async with StubRuntime.from_app(app, manifest("slow")) as rt:
        call = await rt.call("probe.slow")
        await rt.advance(6)
        assert call.error["code"] == "tool_timeout"
        assert seen == [call.call_id]


@pytest.mark.parametrize(("tool", "outcome"), [("again", "completed"), ("once", "failed")])
async def test_a_crash_is_what_it_would_be(tool: str, outcome: str) -> None:
    app, attempts = MiniApp(), []

    @app.tool(f"probe.{tool}")
    async def work(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        attempts.append(call.attempt)
        if call.attempt == 1:
            await asyncio.Event().wait()
        return {}

    async with StubRuntime.from_app(app, manifest(tool)) as rt:
        call = await rt.call(f"probe.{tool}")
        await rt.wait(lambda: call.status == "running", "the claim")
        await rt.crash_worker()
        await rt.advance(1)
        assert call.outcome is not None
        assert call.outcome["status"] == outcome
        if outcome == "failed":
            assert call.error["code"] == "outcome_unknown"
        assert attempts == ([1, 2] if tool == "again" else [1])


async def test_an_app_that_cannot_start() -> None:
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        raise RuntimeError("no paint left")

    async with StubRuntime.from_app(app, manifest("open")) as rt:
        call = await rt.call("probe.open")
        assert call.error["code"] == "app_start_failed"
        assert "no paint left" in call.error["message"]
        assert rt.focus() == ["chat"]


async def test_texts_go_both_ways() -> None:
    async with StubRuntime.from_app(MiniApp(), manifest("open")) as rt:
        assert (await rt.agent_says("hello"))["accepted"]
        assert (await rt.say("hi there"))["accepted"]
        assert rt.texts == ["hi there"]
        await rt.restart()
        assert rt.texts == ["hi there"], "taken over once, never again"


async def test_an_idle_worker_goes_and_comes_back() -> None:
    app = MiniApp()

    @app.tool("probe.hello")
    async def hello(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        return {"state": sdk.context.state}

    async with StubRuntime.from_app(app, manifest("hello")) as rt:
        await rt.call("probe.hello")
        assert rt.workers() == ["probe"]
        await rt.advance(61)
        assert (rt.workers(), rt.instance("probe")["state"]) == ([], "suspended")
        assert (await rt.call("probe.hello")).result
        assert rt.instance("probe")["incarnation"] == 2


async def test_an_app_with_real_work_is_waited_for() -> None:
    app = MiniApp()

    @app.tool("probe.hello")
    async def hello(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        return {"sum": await asyncio.to_thread(sum, range(1000))}

    async with StubRuntime.from_app(app, manifest("hello")) as rt:
        assert await (await rt.call("probe.hello")).wait() == {"sum": 499500}


async def test_looking_for_what_is_not_there_says_so() -> None:
    async with StubRuntime.from_app(MiniApp(), manifest("open")) as rt:
        with pytest.raises(LookupError, match="0 interactions"):
            rt.question()
        with pytest.raises(LookupError, match="not open"):
            rt.instance("probe")
        with pytest.raises(LookupError, match="0 workers"):
            await rt.crash_worker()
        with pytest.raises(LookupError, match="0 surfaces"):
            rt.surface()
        with pytest.raises(LineUpError, match="no call"):
            rt.query("call", call_id="k-none")


def test_a_manifest_with_faults_is_refused() -> None:
    with pytest.raises(LineUpError, match="manifest_invalid"):
        StubRuntime.from_app(MiniApp(), manifest("open") | {"kind": "system"} | {"tools": 7})
