"""How a worker's run begins and ends, over an in-memory channel with a scripted Runtime."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lineup_sdk import (
    SDK,
    MiniApp,
    TextMessage,
    ToolCall,
)

TEXT = {"text": "hello", "format": "markdown", "at": "2026-11-30T08:00:00Z", "from": "agent"}


def app_with(handler: Any, tool_id: str = "probe.do") -> MiniApp:
    app = MiniApp()
    app.tool(tool_id)(handler)
    return app


class Gate:
    """Lets a test see where a handler is, and let it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def pass_(self) -> None:
        self.reached.set()
        await self.open.wait()


async def within(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()


# -- start and end ----------------------------------------------------------------------------------------------------


async def test_on_start_may_command_and_everything_delivered_waits_for_its_end(start_run: Any, welcome: Any) -> None:
    gate, order = Gate(), []
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        assert [call.call_id for call in sdk.tools.list()] == ["k-0"]
        assert (await sdk.state.save({"n": 2})).accepted
        await gate.pass_()
        order.append("start")

    @app.tool("probe.do")
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        order.append("call")
        return sdk.state.get() or {}

    @app.on_message
    async def text(message: TextMessage, sdk: SDK) -> None:
        order.append("text")

    calls = [{"call_id": "k-0", "tool_id": "probe.do", "input": {}}]
    run = await start_run(app, welcome(state={"n": 1}, state_revision=1, calls=calls))
    assert [type_ for type_, _ in run.runtime.heard][:2] == ["worker.hello", "worker.ready"]
    await within(gate.reached)
    run.runtime.call("probe.do", {})
    run.runtime.deliver("message.text", TEXT)
    run.runtime.deliver("tool.cancel", {"call_id": "k-0"})
    run.runtime.say("worker.ping", nonce=1)
    await run.runtime.expect("worker.pong")
    assert order == run.runtime.said("tool.cancel") == []
    gate.open.set()
    assert (await run.runtime.expect("tool.complete"))["result"] == {"n": 2}
    await run.runtime.expect("tool.cancel")
    assert order == ["start", "call", "text"]


async def test_an_on_start_that_hangs_is_a_failed_start(
    start_run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lineup_sdk.runner.START_S_MAX", 0.05)
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        await asyncio.Event().wait()

    run = await start_run(app)
    reason = "TimeoutError: on_start did not end within 0.05 s"
    assert await run.runtime.expect("worker.failed") == {"code": "app_start_failed", "message": reason}
    assert (await run.ended()).reason == "load_failed"
    capsys.readouterr()


@pytest.mark.parametrize("where", ["load", "on_start"])
async def test_an_app_that_cannot_start_says_why(
    start_run: Any, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        raise ImportError("no module named numpy")

    def load(entry: str) -> MiniApp:
        if where == "load":
            raise ImportError("no module named numpy")
        return app

    run = await start_run(load, ready=False)
    failed = {"code": "app_start_failed", "message": "ImportError: no module named numpy"}
    assert await run.runtime.expect("worker.failed") == failed
    assert (await run.ended()).reason == "load_failed"
    assert "Traceback" in capsys.readouterr().err


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it cannot even be printed")


async def cancelled_from_within() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (ValueError("a lone \udc80"), "ValueError: a lone ?"),
        (Unspeakable(), "Unspeakable"),
        (None, "CancelledError"),
    ],
)
async def test_however_an_app_fails_to_start_it_says_so(
    start_run: Any, fault: Exception | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        if fault is None:
            await cancelled_from_within()
        else:
            raise fault

    run = await start_run(app)
    assert await run.runtime.expect("worker.failed") == {"code": "app_start_failed", "message": says}
    assert (await run.ended()).reason == "load_failed"
    capsys.readouterr()


async def test_a_message_without_an_id_that_cannot_be_sent_is_said_and_passed_over(
    start_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await start_run(MiniApp())
    run.runner.session.notify("worker.failed", {"code": "app_start_failed", "message": "a lone \udc80"})
    assert (await run.runner.sdk.lifecycle.request_foreground()).accepted
    assert "worker.failed cannot be sent: " in capsys.readouterr().err


async def test_hooks_that_await_something_cancelled_hold_nothing_up(
    start_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def leave_open(call: ToolCall, sdk: SDK) -> None:
        pass

    app = app_with(leave_open)

    @app.on_cancel
    async def cancelled(call: ToolCall, reason: str | None, sdk: SDK) -> None:
        await cancelled_from_within()

    @app.on_stop
    async def stop(sdk: SDK) -> None:
        await cancelled_from_within()

    run = await start_run(app)
    seq = run.runtime.call("probe.do", {})
    await run.runtime.until(lambda: {"seq": seq} in run.runtime.said("inbox.ack"), "the call is taken")
    await run.runtime.until(lambda: not run.runner._handlers, "the handler has left the call open")
    run.runtime.deliver("tool.cancel", {"call_id": "k-1", "reason": "enough"})
    assert await run.runtime.expect("tool.cancel") == {"call_id": "k-1", "reason": "enough"}
    run.runtime.say("worker.stop", reason="idle", grace_ms=60_000)
    assert (await run.ended()).reason == "stopped"
    said = capsys.readouterr().err
    assert "on_cancel awaited something that was cancelled" in said
    assert "on_stop awaited something that was cancelled" in said


async def test_a_stop_cancels_handlers_without_ending_their_calls_and_runs_the_hook(start_run: Any) -> None:
    gate, order = Gate(), []
    app = MiniApp()

    @app.tool("probe.do")
    async def do(call: ToolCall, sdk: SDK) -> None:
        try:
            await gate.pass_()
        finally:
            order.append("handler")

    @app.on_stop
    async def stop(sdk: SDK) -> None:
        assert (await sdk.state.save({"n": 1})).accepted
        order.append("hook")

    run = await start_run(app)
    run.runtime.call("probe.do", {})
    await within(gate.reached)
    run.runtime.say("worker.stop", reason="idle", grace_ms=5_000)
    ended = await run.ended()
    assert (ended.reason, ended.message, order) == ("stopped", "idle", ["handler", "hook"])
    assert [type_ for type_, _ in run.runtime.heard if type_.startswith("tool.")] == []


async def test_a_stop_ends_within_its_grace_whatever_the_app_does(start_run: Any) -> None:
    app = MiniApp()

    @app.on_stop
    async def stop(sdk: SDK) -> None:
        await asyncio.Event().wait()

    run = await start_run(app)
    run.runtime.say("worker.stop", reason="idle", grace_ms=50)
    assert (await run.ended()).reason == "stopped"


async def test_a_runtime_that_is_gone_ends_the_run_and_answers_what_waits(start_run: Any) -> None:
    receipts = []

    async def do(call: ToolCall, sdk: SDK) -> None:
        receipts.append(await sdk.tools.report_progress(call.call_id, 0.1))
        receipts.append(await sdk.tools.report_progress(call.call_id, 0.2))

    run = await start_run(app_with(do))
    run.runtime.held.add("tool.progress")
    run.runtime.call("probe.do", {})
    await run.runtime.expect("tool.progress")
    run.runtime.channel.close()
    assert (await run.ended()).reason == "runtime_gone"
    assert (await run.runner.sdk.lifecycle.request_foreground()).code == "runtime_stopping"
    assert {receipt.code for receipt in receipts} <= {"runtime_stopping"}


async def test_a_violation_ends_the_run(start_run: Any) -> None:
    run = await start_run(MiniApp())
    run.runtime.say("receipt", re="77", accepted=True)
    ended = await run.ended()
    assert (ended.reason, ended.message) == ("protocol", "a receipt for '77', which waits for none")


async def test_a_refused_worker_ends(start_run: Any) -> None:
    run = await start_run(MiniApp())
    run.runtime.say("worker.refuse", code="app_disabled", message="switched off")
    assert (await run.ended()).message == "app_disabled: switched off"


async def test_what_was_sent_stands_whatever_the_app_does_with_its_objects(start_run: Any) -> None:
    """Until the receipt, and after it."""
    run = await start_run(MiniApp())
    sdk = run.runner.sdk
    first, patch, saved = {"shapes": [1], "by": {"name": "a"}}, {"shapes": [1, 2], "by": {"n": 1}}, {"tasks": [1]}
    run.runtime.held = {"surface.open", "state.save"}

    async def hold(command: Any) -> asyncio.Task[Any]:
        count = len(run.runtime.unanswered)
        task = asyncio.create_task(command)
        await run.runtime.until(lambda: len(run.runtime.unanswered) > count, "it is sent")
        return task

    opening = await hold(sdk.surfaces.request_open("surface/index.html", state=first))
    first["shapes"].append("later")
    first["by"]["name"] = "later"
    saving = await hold(sdk.state.save(saved))
    saved["tasks"].append("later")
    run.runtime.release()
    assert (await opening).accepted
    assert (await saving).accepted
    assert sdk.surfaces.get("s-1").state == {"shapes": [1], "by": {"name": "a"}}
    assert sdk.state.get() == {"tasks": [1]}
    run.runtime.held = {"surface.update"}
    updating = await hold(sdk.surfaces.update("s-1", patch))
    patch["shapes"].append("later")
    run.runtime.release()
    assert (await updating).accepted
    patch["by"]["n"] = "later"
    assert sdk.surfaces.get("s-1").state == {"shapes": [1, 2], "by": {"name": "a", "n": 1}}
