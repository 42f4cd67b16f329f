"""Registration: a mistake is told when the module is loaded, in words that say what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from lineup_sdk import CommandReceipt, Interaction, MiniApp, RegistrationError, RequestRefused, ToolCall, ToolError

HOOKS = {
    "on_start": ("sdk",),
    "on_stop": ("sdk",),
    "on_message": ("message", "sdk"),
    "on_cancel": ("call", "reason", "sdk"),
    "on_interaction": ("interaction", "sdk"),
    "on_surface_event": ("event", "sdk"),
    "on_surface_submit": ("event", "sdk"),
    "on_capability": ("result", "sdk"),
    "on_close_request": ("reason", "sdk"),
}


async def any_handler(*args: Any) -> None: ...


async def no_arguments() -> None: ...


def test_a_tool_has_one_handler() -> None:
    app = MiniApp()
    assert app.tool("probe.do")(any_handler) is any_handler
    with pytest.raises(RegistrationError, match="registered twice"):
        app.tool("probe.do")(any_handler)


@pytest.mark.parametrize("tool_id", ["", "with space", "x" * 129, 7])
def test_a_tool_id_is_an_id(tool_id: Any) -> None:
    with pytest.raises(RegistrationError, match="is not a tool id"):
        MiniApp().tool(tool_id)


def test_a_tool_needs_its_id() -> None:
    with pytest.raises(RegistrationError, match="needs the tool's id"):
        MiniApp().tool(any_handler)  # type: ignore[arg-type]


def test_a_handler_is_a_coroutine_function() -> None:
    with pytest.raises(RegistrationError, match=r"needs a coroutine function: async def handler\(call, sdk\)"):
        MiniApp().tool("probe.do")(lambda call, sdk: None)


def test_a_handler_takes_its_arguments() -> None:
    with pytest.raises(RegistrationError, match=r"async def handler\(call, sdk\): too many positional"):
        MiniApp().tool("probe.do")(no_arguments)  # type: ignore[type-var]


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_are_checked_and_registered_once(hook: str) -> None:
    app = MiniApp()
    with pytest.raises(RegistrationError, match=", ".join(HOOKS[hook])):
        getattr(app, hook)(no_arguments)
    assert getattr(app, hook)(any_handler) is any_handler
    with pytest.raises(RegistrationError, match="registered twice"):
        getattr(app, hook)(any_handler)


def test_a_tool_error_needs_a_code() -> None:
    with pytest.raises(ValueError, match="needs a code"):
        ToolError("", "nothing")


def test_values_are_immutable_and_compare_by_value() -> None:
    call = ToolCall("k-1", "probe.do", {"x": 1}, attempt=2)
    assert call == ToolCall(call_id="k-1", tool_id="probe.do", input={"x": 1}, attempt=2)
    assert call != call.replace(attempt=3)
    with pytest.raises(AttributeError, match="immutable"):
        call.attempt = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="needs 'tool_id'"):
        ToolCall("k-1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected or repeated argument 'nope'"):
        ToolCall("k-1", "probe.do", {}, nope=1)  # type: ignore[call-arg]


def test_a_refusal_can_be_raised() -> None:
    CommandReceipt(True).raise_if_refused()
    with pytest.raises(RequestRefused, match="state_too_large: over 4096 bytes") as refusal:
        CommandReceipt(False, "state_too_large", "over 4096 bytes").raise_if_refused()
    assert refusal.value.code == "state_too_large"


@pytest.mark.parametrize("status", ["pending", "cancelled", "expired", "failed"])
def test_an_interaction_that_is_not_answered_has_no_answer(status: str) -> None:
    record = {"interaction_id": "q-1", "status": status, "request": {"kind": "confirm"}, "result": {"approved": True}}
    interaction = Interaction.from_body(record)
    assert interaction.kind == "confirm"
    assert (interaction.approved, interaction.values, interaction.action_ids) == (False, {}, [])
