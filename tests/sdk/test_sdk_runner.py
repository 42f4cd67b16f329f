"""The runner over a channel in memory: what becomes of a handler's end, of messages, of a stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lineup_sdk import (
    SDK,
    CapabilityResult,
    Confirm,
    Interaction,
    MiniApp,
    Notice,
    RequestRefused,
    SurfaceEvent,
    TextMessage,
    ToolCall,
    ToolError,
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


# -- how a handler ends -----------------------------------------------------------------------------------------------


async def test_a_returned_dict_completes_the_call(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        return {"echo": call.input["x"], "who": sdk.context.instance_id}

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {"x": 1})
    assert await run.runtime.expect("tool.complete") == {"call_id": "k-1", "result": {"echo": 1, "who": "i-1"}}
    assert run.runtime.said("inbox.ack") == [{"seq": 1}]


async def test_none_leaves_the_call_open_for_later(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> None:
        assert (await sdk.tools.report_progress(call.call_id, 0.5, "half")).accepted

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    await run.runtime.expect("tool.progress")
    await run.runtime.until(lambda: run.runner.idle, "the handler has ended")
    assert run.runtime.said("tool.complete") == []
    (open_call,) = run.runner.sdk.tools.list()
    assert (await run.runner.sdk.tools.complete(open_call.call_id, {})).accepted
    assert run.runner.sdk.tools.get("k-1") is None


async def test_a_tool_error_fails_the_call_with_the_apps_code(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> None:
        raise ToolError("out_of_milk", "There is no milk.", {"litres": 0})

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    expected = {"call_id": "k-1", "code": "out_of_milk", "message": "There is no milk.", "detail": {"litres": 0}}
    assert await run.runtime.expect("tool.fail") == expected


async def test_an_exception_fails_the_call_and_its_traceback_goes_to_stderr(
    start_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def do(call: ToolCall, sdk: SDK) -> None:
        raise RuntimeError("boom")

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    fail = await run.runtime.expect("tool.fail")
    assert fail == {"call_id": "k-1", "code": "tool_failed", "message": "RuntimeError: boom"}
    assert 'raise RuntimeError("boom")' in capsys.readouterr().err


@pytest.mark.parametrize("returned", [7, "text", ["list"], True])
async def test_anything_but_a_dict_or_none_fails_the_call(start_run: Any, returned: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> Any:
        return returned

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    fail = await run.runtime.expect("tool.fail")
    assert fail["code"] == "tool_failed"
    assert "must return a dict or None" in fail["message"]


@pytest.mark.parametrize(
    ("result", "code", "path"),
    [
        ({"x": {1, 2}}, "message_invalid", "/result"),
        ({"x": [float("nan")]}, "message_invalid", "/result/x/0"),
        ({1: "one"}, "message_invalid", "/result"),
        ({"x": 2**60}, "message_invalid", "/result/x"),
        ({"x": "\ud800"}, "message_invalid", "/result"),
        ({"x": "x" * 5_000_000}, "message_too_large", "/result"),
        ({"x": ["x" * 3_200_000]}, "message_invalid", "/result/x/0"),
    ],
)
async def test_a_result_that_cannot_be_sent_fails_the_call(start_run: Any, result: Any, code: str, path: str) -> None:
    """And its author reads where in the result it is wrong, not where in a message that the SDK has made of it."""

    async def do(call: ToolCall, sdk: SDK) -> Any:
        return result

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    fail = await run.runtime.expect("tool.fail")
    assert (fail["code"], fail["detail"]["path"]) == (code, path)
    assert fail["message"].startswith(f"{path}: ")
    assert run.runtime.said("tool.complete") == []


async def test_a_result_that_the_runtime_refuses_fails_the_call(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        return {"wrong": 1}

    run = await start_run(app_with(do))
    refusal = {
        "accepted": False,
        "code": "tool_output_invalid",
        "message": "/wrong: unknown",
        "detail": {"path": "/wrong"},
    }
    run.runtime.refusals["tool.complete"] = refusal
    run.runtime.call("probe.do", {})
    fail = await run.runtime.expect("tool.fail")
    assert (fail["code"], fail["detail"]) == ("tool_output_invalid", {"path": "/wrong"})


async def test_a_result_that_comes_too_late_is_left_alone(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        return {}

    run = await start_run(app_with(do))
    run.runtime.refusals["tool.complete"] = {"accepted": False, "code": "call_already_final", "message": "expired"}
    run.runtime.call("probe.do", {})
    await run.runtime.expect("tool.complete")
    await run.runtime.until(lambda: run.runner.idle, "the handler has ended")
    assert run.runtime.said("tool.fail") == []
    assert run.runner.sdk.tools.list() == []


async def test_a_tool_without_a_handler_fails(start_run: Any) -> None:
    run = await start_run(MiniApp())
    run.runtime.call("probe.other", {})
    assert "no handler for probe.other" in (await run.runtime.expect("tool.fail"))["message"]


async def test_a_call_that_must_not_run_twice_waits_for_its_acknowledgement(start_run: Any) -> None:
    ran = []

    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        ran.append(call.call_id)
        return {}

    run = await start_run(app_with(do))
    run.runtime.held.add("inbox.ack")
    run.runtime.call("probe.do", {}, retry_safe=False)
    await run.runtime.until(lambda: bool(run.runtime.unanswered), "the acknowledgement")
    assert ran == []
    run.runtime.release()
    await run.runtime.expect("tool.complete")
    assert ran == ["k-1"]


async def test_handlers_run_side_by_side_and_pings_are_answered_meanwhile(start_run: Any) -> None:
    gates = {"k-1": Gate(), "k-2": Gate()}

    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        await gates[call.call_id].pass_()
        return {}

    run = await start_run(app_with(do))
    for call_id in gates:
        run.runtime.call("probe.do", {}, call_id)
    for gate in gates.values():
        await within(gate.reached)
    run.runtime.say("worker.ping", nonce=3)
    assert await run.runtime.expect("worker.pong") == {"nonce": 3}
    gates["k-2"].open.set()
    assert (await run.runtime.expect("tool.complete"))["call_id"] == "k-2"
    gates["k-1"].open.set()
    assert (await run.runtime.expect("tool.complete", 2))["call_id"] == "k-1"


# -- cancelling -------------------------------------------------------------------------------------------------------


async def test_a_cancel_interrupts_the_handler_and_is_confirmed(start_run: Any) -> None:
    gate, cleaned = Gate(), asyncio.Event()

    async def do(call: ToolCall, sdk: SDK) -> None:
        try:
            await gate.pass_()
        finally:
            cleaned.set()

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    await within(gate.reached)
    seq = run.runtime.deliver("tool.cancel", {"call_id": "k-1", "reason": "enough"})
    assert await run.runtime.expect("tool.cancel") == {"call_id": "k-1", "reason": "enough"}
    await run.runtime.until(lambda: {"seq": seq} in run.runtime.said("inbox.ack"), "the cancel is acknowledged")
    assert cleaned.is_set()


async def test_a_cancel_right_behind_the_call_is_confirmed_too(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        raise AssertionError("it was cancelled before its first step")

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    run.runtime.deliver("tool.cancel", {"call_id": "k-1"})
    assert await run.runtime.expect("tool.cancel") == {"call_id": "k-1"}
    assert run.runtime.said("tool.fail") == []


async def test_a_handler_may_finish_instead_of_being_cancelled(start_run: Any) -> None:
    gate = Gate()

    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        try:
            await gate.pass_()
        except asyncio.CancelledError:
            return {"partial": True}
        return {}

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    await within(gate.reached)
    seq = run.runtime.deliver("tool.cancel", {"call_id": "k-1"})
    assert (await run.runtime.expect("tool.complete"))["result"] == {"partial": True}
    await run.runtime.until(lambda: {"seq": seq} in run.runtime.said("inbox.ack"), "the cancel is acknowledged")
    assert run.runtime.said("tool.cancel") == []


@pytest.mark.parametrize("hook", [False, True])
async def test_an_open_call_is_cancelled_through_the_hook(start_run: Any, hook: bool) -> None:
    seen = []
    app = MiniApp()

    @app.tool("probe.do")
    async def do(call: ToolCall, sdk: SDK) -> None: ...

    if hook:

        @app.on_cancel
        async def cancelled(call: ToolCall, reason: str | None, sdk: SDK) -> None:
            seen.append((call.call_id, reason))

    run = await start_run(app)
    run.runtime.call("probe.do", {})
    await run.runtime.expect("inbox.ack")
    await run.runtime.until(lambda: run.runner.idle, "the handler has ended")
    run.runtime.deliver("tool.cancel", {"call_id": "k-1", "reason": "enough"})
    await run.runtime.expect("tool.cancel")
    assert seen == ([("k-1", "enough")] if hook else [])


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_texts_are_handled_one_after_the_other_then_acknowledged(start_run: Any) -> None:
    gate, seen = Gate(), []
    app = MiniApp()

    @app.on_message
    async def text(message: TextMessage, sdk: SDK) -> None:
        seen.append((message.text, message.sender, message.format))
        await gate.pass_()

    run = await start_run(app)
    run.runtime.deliver("message.text", TEXT)
    run.runtime.deliver("message.text", TEXT | {"text": "again"})
    await within(gate.reached)
    assert [message.message_id for message in run.runner.sdk.inbox.list()] == ["m-1", "m-2"]
    assert [message.message_id for message in run.runner.sdk.inbox.list("m-1")] == ["m-2"]
    assert (len(seen), run.runtime.said("inbox.ack")) == (1, [])
    gate.open.set()
    await run.runtime.expect("inbox.ack", 2)
    assert seen == [("hello", "agent", "markdown"), ("again", "agent", "markdown")]
    assert run.runner.sdk.inbox.list() == []


async def test_a_message_whose_handler_raises_does_not_stop_the_inbox(
    start_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    app = MiniApp()

    @app.on_message
    async def text(message: TextMessage, sdk: SDK) -> None:
        raise RuntimeError("poison")

    run = await start_run(app)
    run.runtime.deliver("message.text", TEXT)
    assert await run.runtime.expect("inbox.ack") == {"seq": 1}
    assert "RuntimeError: poison" in capsys.readouterr().err


async def test_without_a_handler_the_subscriber_acknowledges(start_run: Any) -> None:
    seen = []
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        sdk.inbox.subscribe(seen.append)

    run = await start_run(app)
    run.runtime.deliver("message.text", TEXT)
    run.runtime.say("worker.ping", nonce=1)
    await run.runtime.expect("worker.pong")
    assert [message.message_id for message in seen] == ["m-1"]
    assert run.runtime.said("inbox.ack") == []
    assert (await run.runner.sdk.inbox.acknowledge("m-1")).accepted
    assert (await run.runner.sdk.inbox.acknowledge("m-1")).code == "not_found"
    assert run.runtime.said("inbox.ack") == [{"seq": 1}]


async def test_what_nobody_wants_is_acknowledged(start_run: Any) -> None:
    run = await start_run(MiniApp())
    run.runtime.deliver("message.text", TEXT)
    assert await run.runtime.expect("inbox.ack") == {"seq": 1}


async def test_surface_events_and_submissions(start_run: Any) -> None:
    seen: list[tuple[str, SurfaceEvent]] = []
    app = MiniApp()

    @app.on_surface_event
    async def event(event: SurfaceEvent, sdk: SDK) -> None:
        seen.append(("event", event))

    @app.on_surface_submit
    async def submit(event: SurfaceEvent, sdk: SDK) -> None:
        seen.append(("submit", event))

    run = await start_run(app)
    run.runtime.deliver("surface.event", {"surface_id": "s-1", "name": "tap", "payload": [1]})
    run.runtime.deliver("surface.submit", {"surface_id": "s-1", "payload": {"done": True}})
    await run.runtime.expect("inbox.ack", 2)
    assert ("event", SurfaceEvent("s-1", "tap", [1])) in seen
    assert ("submit", SurfaceEvent("s-1", None, {"done": True})) in seen


# -- questions --------------------------------------------------------------------------------------------------------


async def test_ask_waits_for_the_person_and_belongs_to_the_call(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        answer = await sdk.ui.ask(Confirm("Sure?", "Really?", approve_label="Yes"))
        return {"approved": answer.approved, "answered": answer.answered}

    run = await start_run(app_with(do))
    run.runtime.call("probe.do", {})
    asked = await run.runtime.expect("ui.request")
    request = {"kind": "confirm", "title": "Sure?", "prompt": "Really?", "approve_label": "Yes"}
    assert (asked["request"], asked["parent_call_id"]) == (request, "k-1")
    run.runtime.settle("q-1", result={"approved": True})
    assert (await run.runtime.expect("tool.complete"))["result"] == {"approved": True, "answered": True}
    assert {"seq": 2} in run.runtime.said("inbox.ack")


async def test_a_question_is_found_again_by_the_next_attempt_of_its_call(start_run: Any, welcome: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        first = await sdk.ui.ask(Notice("One", "same"))
        second = await sdk.ui.ask(Notice("One", "same"))
        return {"ids": [first.interaction_id, second.interaction_id]}

    first_run = await start_run(app_with(do))
    first_run.runtime.call("probe.do", {})
    await first_run.runtime.expect("ui.request")
    first_run.runtime.settle("q-1", "completed", {"acknowledged": True})
    keys = [(await first_run.runtime.expect("ui.request", n))["key"] for n in (1, 2)]
    assert keys[0] != keys[1]

    second_run = await start_run(app_with(do))
    second_run.runtime.asked, second_run.runtime.records = first_run.runtime.asked, first_run.runtime.records
    second_run.runtime.call("probe.do", {}, attempt=2)
    await second_run.runtime.expect("ui.request", 2)
    second_run.runtime.settle("q-2", "completed", {"acknowledged": True})
    assert (await second_run.runtime.expect("tool.complete"))["result"] == {"ids": ["q-1", "q-2"]}
    assert [body["key"] for body in second_run.runtime.said("ui.request")] == keys


async def test_a_refused_question_raises_in_the_handler(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        try:
            await sdk.ui.ask(Notice("", "no title"))
        except RequestRefused as refusal:
            return {"code": refusal.code}
        return {}

    run = await start_run(app_with(do))
    run.runtime.refusals["ui.request"] = {"accepted": False, "code": "interaction_invalid", "message": "/title"}
    run.runtime.call("probe.do", {})
    assert (await run.runtime.expect("tool.complete"))["result"] == {"code": "interaction_invalid"}


async def test_an_answer_is_not_stuck_behind_messages_that_wait_for_it(start_run: Any) -> None:
    seen = []
    app = MiniApp()

    @app.on_message
    async def text(message: TextMessage, sdk: SDK) -> None:
        if message.text == "hello":
            await sdk.ui.ask(Notice("Stop", "first"))
        seen.append(message.text)

    run = await start_run(app)
    run.runtime.deliver("message.text", TEXT)
    await run.runtime.expect("ui.request")
    run.runtime.deliver("message.text", TEXT | {"text": "second"})
    await run.runtime.until(lambda: {"seq": 2} in run.runtime.said("inbox.ack"), "the second text is taken")
    run.runtime.settle("q-1", "cancelled")
    await run.runtime.until(lambda: {"seq": 1} in run.runtime.said("inbox.ack"), "the first text is taken")
    assert seen == ["second", "hello"]


async def test_results_that_nobody_waits_for_go_to_the_hook(start_run: Any) -> None:
    seen: list[Interaction] = []
    changes: list[str] = []
    app = MiniApp()

    @app.on_start
    async def start(sdk: SDK) -> None:
        sdk.ui.subscribe(lambda interaction: changes.append(interaction.status))

    @app.on_interaction
    async def settled(interaction: Interaction, sdk: SDK) -> None:
        seen.append(interaction)

    run = await start_run(app)
    receipt = await run.runner.sdk.ui.request(Notice("Hi", "there"))
    assert [one.interaction_id for one in run.runner.sdk.ui.list()] == [receipt.interaction_id] == ["q-1"]
    run.runtime.settle("q-1", result={"acknowledged": True})
    await run.runtime.expect("inbox.ack")
    assert seen[0].acknowledged
    assert (await receipt.result()).acknowledged
    assert (changes, run.runner.sdk.ui.list()) == (["submitted"], [])


async def test_capabilities_are_decided_later(start_run: Any) -> None:
    seen: list[CapabilityResult] = []
    app = MiniApp()

    @app.on_capability
    async def decided(result: CapabilityResult, sdk: SDK) -> None:
        seen.append(result)

    run = await start_run(app)
    receipt = await run.runner.sdk.capabilities.request("notification.show", "to tell you", {"title": "x"})
    waiting = asyncio.create_task(receipt.result())
    await asyncio.sleep(0)  # it waits now
    decision = {"request_id": "r-1", "capability": "notification.show", "granted": False, "code": "capability_denied"}
    run.runtime.deliver("capability.result", decision | {"message": "no"})
    result = await waiting
    assert (result.granted, result.code, result.detail) == (False, "capability_denied", {"message": "no"})
    run.runtime.deliver("capability.result", decision)
    await run.runtime.expect("inbox.ack", 2)
    assert len(seen) == 1


async def test_a_capability_may_be_decided_before_anybody_waits(start_run: Any) -> None:
    async def do(call: ToolCall, sdk: SDK) -> dict[str, Any]:
        receipt = await sdk.capabilities.request("artifact.export", "to keep it")
        return {"granted": (await receipt.result()).granted}

    run = await start_run(app_with(do))
    run.runtime.held.add("capability.request")
    run.runtime.call("probe.do", {})
    await run.runtime.until(lambda: bool(run.runtime.unanswered), "the request")
    run.runtime.release()
    run.runtime.deliver("capability.result", {"request_id": "r-1", "capability": "artifact.export", "granted": True})
    assert (await run.runtime.expect("tool.complete"))["result"] == {"granted": True}


# -- the rest of the API ----------------------------------------------------------------------------------------------


async def test_every_write_is_a_command_with_a_receipt(start_run: Any) -> None:
    run = await start_run(MiniApp())
    sdk = run.runner.sdk
    writes = {
        "lifecycle.foreground": sdk.lifecycle.request_foreground(),
        "lifecycle.background": sdk.lifecycle.request_background(),
        "lifecycle.close": sdk.lifecycle.request_close("done"),
        "surface.open": sdk.surfaces.request_open("surface/index.html", title="Board", state={"n": 1}),
        "surface.update": sdk.surfaces.update("s-1", {"n": 2}, base_revision=0),
        "state.save": sdk.state.save({"n": 1}),
        "artifact.submit": sdk.artifacts.submit("Picture", "image/png", b"\x89PNG"),
        "conversation.send_text": sdk.conversation.send_text("hi", key="t-1"),
        "ui.cancel": sdk.ui.cancel("q-9", "never mind"),
        "tool.cancel": sdk.tools.cancel("k-9"),
        "surface.close": sdk.surfaces.request_close("s-1"),
    }
    for type_, write in writes.items():
        assert (await write).accepted, type_
        if type_ == "surface.update":
            assert sdk.surfaces.get("s-1").state == {"n": 2}
    assert [type_ for type_, _ in run.runtime.heard[2:]] == list(writes)
    assert run.runtime.said("artifact.submit")[0]["content"] == b"\x89PNG"
    assert (sdk.state.get(), sdk.state.revision, sdk.surfaces.list()) == ({"n": 1}, 1, [])


async def test_the_saved_state_cannot_be_changed_by_mistake(start_run: Any) -> None:
    run = await start_run(MiniApp())
    state = {"tasks": [1]}
    await run.runner.sdk.state.save(state)
    state["tasks"].append(2)
    run.runner.sdk.state.get()["tasks"].append(3)
    assert run.runner.sdk.state.get() == {"tasks": [1]}


async def test_local_mistakes_come_back_as_refusals(start_run: Any) -> None:
    run = await start_run(MiniApp())
    sdk = run.runner.sdk
    assert (await sdk.tools.report_progress("k-1", float("inf"))).code == "message_invalid"
    assert (await sdk.tools.complete("not an id!", {})).code == "message_invalid"
    assert (await sdk.artifacts.submit("Big", "text/plain", b"x" * 5_000_000)).code == "message_too_large"
    assert (await sdk.lifecycle.request_foreground()).accepted


async def test_subscribers_hear_of_changes_and_may_fail_alone(
    start_run: Any, welcome: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    surface = {"surface_id": "s-1", "entry": "surface/index.html", "state": {}, "revision": 1}
    run = await start_run(MiniApp(), welcome(surfaces=[surface]))
    sdk, heard = run.runner.sdk, []

    def broken(_: Any) -> None:
        raise ValueError("broken listener")

    sdk.lifecycle.subscribe(broken)
    leave = sdk.lifecycle.subscribe(lambda context: heard.append(context.state))
    sdk.operations.subscribe(lambda operation: heard.append(operation.state))
    sdk.surfaces.subscribe(lambda surface: heard.append(surface.revision))
    run.runtime.say("context.changed", state="foreground")
    run.runtime.say("operation.changed", operation={"operation_id": "o-1", "state": "completed", "ended_at": "x"})
    run.runtime.say("surface.changed", surface_id="s-1", revision=2, patch={"a": 1})
    run.runtime.say("worker.ping", nonce=1)
    await run.runtime.expect("worker.pong")
    leave()
    run.runtime.say("context.changed", state="background")
    run.runtime.say("worker.ping", nonce=2)
    await run.runtime.expect("worker.pong", 2)
    assert heard == ["foreground", "completed", 2]
    assert sdk.context.state == "background"
    assert sdk.operations.get("o-1").ended_at == "x"
    assert [one.operation_id for one in sdk.operations.list()] == ["o-1"]
    assert "broken listener" in capsys.readouterr().err
