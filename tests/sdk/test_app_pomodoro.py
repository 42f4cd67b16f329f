"""Pomodoro, as the bundle stands in the wheel, over the real core."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.bundle import read_bundle
from lineup_testkit import StubRuntime

BUNDLE = Path(__file__).parents[2] / "workers" / "lineup_workers" / "pomodoro"
MANIFEST = json.loads((BUNDLE / "miniapp.json").read_text())
START, INTERRUPT = "pomodoro.start", "pomodoro.interrupt"
HALF_HOUR = {"duration_seconds": 1800, "activity": "Reading"}

# The frozen contract, word for word.
START_INPUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["duration_seconds"],
    "properties": {
        "duration_seconds": {"type": "integer", "minimum": 1},
        "activity": {"type": "string", "maxLength": 256},
    },
}
START_RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["state", "operation_id", "started_at", "ends_at", "ended_at"],
    "properties": {
        "state": {"enum": ["completed", "interrupted"]},
        "operation_id": {"type": "string"},
        "started_at": {"type": "string"},
        "ends_at": {"type": "string"},
        "ended_at": {"type": "string"},
        "interruption_reason": {"type": "string"},
    },
}
INTERRUPT_RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["status"],
    "properties": {
        "status": {"enum": ["interrupted", "no_active_focusing_operation", "operation_already_final"]},
        "operation_id": {"type": "string"},
    },
}
INSTANCE_STATE = {
    "state_schema_version": 1,
    "state_schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["operation_id", "started_at", "ends_at", "display_state"],
        "properties": {
            "operation_id": {"type": "string"},
            "activity": {"type": "string"},
            "started_at": {"type": "string"},
            "ends_at": {"type": "string"},
            "ended_at": {"type": "string"},
            "display_state": {"enum": ["focusing", "completed", "interrupted"]},
            "interruption_reason": {"type": "string"},
        },
    },
    "max_bytes": 4096,
    "retention": "retain_readonly",
}


@pytest.fixture
async def rt() -> AsyncIterator[StubRuntime]:
    async with StubRuntime.from_bundle(BUNDLE) as runtime:
        yield runtime


def test_the_manifest_is_the_frozen_contract() -> None:
    manifest, _, _ = read_bundle(BUNDLE, trusted=True)
    assert (manifest.app_scope, manifest.kind, manifest.features) == ("pomodoro", "bundled", ["app.instance-state.v1"])
    start, interrupt = MANIFEST["tools"]
    assert (start["input_schema"], start["output_schema"]) == (START_INPUT, START_RESULT)
    assert interrupt["input_schema"] == {"type": "object", "additionalProperties": False}
    assert interrupt["output_schema"] == INTERRUPT_RESULT
    assert MANIFEST["instance_state"] == INSTANCE_STATE
    assert (start["handling"], interrupt["handling"]) == ("operation", "operation")
    assert start["target"]["requires_foreground"]
    assert start["target"]["restore_previous_focus"]
    assert not interrupt["target"]["requires_foreground"]
    assert start["deadline"] == {"role": "start", "duration_field": "duration_seconds", "label_field": "activity"}
    assert interrupt["deadline"] == {"role": "interrupt"}
    assert "timeout_ms" not in start


def test_the_app_imports_the_sdk_alone_and_has_no_timer_and_no_question() -> None:
    source = (BUNDLE / "app.py").read_text()
    tree = ast.parse(source)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"lineup_sdk"}
    assert not names & {"asyncio", "time", "threading"}
    assert "sdk.ui" not in source


def test_the_page_has_no_business_buttons_and_nothing_from_outside() -> None:
    page = (BUNDLE / "surface" / "index.html").read_text()
    assert "<button" not in page
    assert "<form" not in page
    for path in sorted((BUNDLE / "surface").iterdir()):
        text = path.read_text()
        assert "http" not in text, path.name
        found = [word for word in ("eval(", "onclick", ".submit(", ".event(", "lineup.update") if word in text]
        assert found == [], path.name


async def test_a_session_from_start_to_its_end(rt: StubRuntime) -> None:
    call = await rt.call(START, HALF_HOUR)
    assert call.receipt["accepted"]
    assert rt.focus() == ["chat", "pomodoro"]
    surface = rt.surface()
    assert (surface["entry"], surface["state"]) == ("surface/index.html", {})
    state = rt.saved_state("pomodoro")
    assert state is not None
    assert (state["display_state"], state["activity"]) == ("focusing", "Reading")
    await rt.advance(1799)
    assert call.is_open
    await rt.advance(1)
    result = call.result
    assert (result["state"], result["operation_id"]) == ("completed", state["operation_id"])
    assert result["ended_at"] == result["ends_at"] == state["ends_at"]
    assert rt.focus() == ["chat"]
    assert "pomodoro" not in rt.workers()


async def test_the_snapshot_stays_as_history_and_cannot_be_revived(rt: StubRuntime) -> None:
    first = await rt.call(START, {"duration_seconds": 60})
    instance_id, session_id = (rt.instance("pomodoro")[name] for name in ("instance_id", "session_id"))
    await rt.advance(60)
    assert first.result["state"] == "completed"
    history = rt.query("session", session_id=session_id)
    assert history["snapshot"]["read_only"]
    assert history["snapshot"]["state"]["operation_id"] == first.result["operation_id"]
    second = await rt.call(START, {"duration_seconds": 60})
    assert rt.instance("pomodoro")["instance_id"] != instance_id
    assert rt.query("session", session_id=session_id)["snapshot"] == history["snapshot"]
    assert second.is_open


async def test_interrupting_works_without_the_worker_and_without_the_page(rt: StubRuntime) -> None:
    call = await rt.call(START, HALF_HOUR)
    await rt.act("surface.torn", surface_id=rt.surface()["surface_id"])
    await rt.advance(10)
    interrupt = await rt.call(INTERRUPT)
    operation_id = call.result["operation_id"]
    assert interrupt.result == {"status": "interrupted", "operation_id": operation_id}
    assert (call.result["state"], rt.focus()) == ("interrupted", ["chat"])
    again = await rt.call(INTERRUPT)
    assert again.result == {"status": "operation_already_final", "operation_id": operation_id}


async def test_there_is_nothing_to_interrupt_in_a_new_conversation(rt: StubRuntime) -> None:
    assert (await rt.call(INTERRUPT)).result == {"status": "no_active_focusing_operation"}
    assert "pomodoro" not in rt.workers()


async def test_a_second_start_is_refused_and_leaves_the_first_alone(rt: StubRuntime) -> None:
    first = await rt.call(START, HALF_HOUR)
    before = (rt.focus(), rt.saved_state("pomodoro"), rt.surface())
    second = await rt.call(START, {"duration_seconds": 60})
    assert second.receipt["code"] == "active_focusing_operation"
    assert (rt.focus(), rt.saved_state("pomodoro"), rt.surface()) == before
    assert first.is_open


@pytest.mark.parametrize("seconds", [0, -1, 1.5, "60", 1e18])
async def test_durations_that_are_none_are_refused_with_their_path(rt: StubRuntime, seconds: Any) -> None:
    call = await rt.call(START, {"duration_seconds": seconds})
    assert (call.receipt["code"], call.receipt["detail"]["path"]) == ("tool_input_invalid", "/duration_seconds")
    assert "pomodoro" not in rt.workers()


async def test_a_crash_of_the_worker_changes_nothing(rt: StubRuntime) -> None:
    call = await rt.call(START, HALF_HOUR)
    before, surface_id = rt.saved_state("pomodoro"), rt.surface()["surface_id"]
    await rt.advance(600)
    await rt.crash_worker("pomodoro")
    await rt.advance(5)
    assert "pomodoro" in rt.workers()
    assert (rt.saved_state("pomodoro"), rt.surface()["surface_id"]) == (before, surface_id)
    await rt.advance(1195)
    assert call.result["state"] == "completed"


async def test_the_next_worker_makes_what_a_dead_one_did_not(start_run: Any, bundle_app: Any, welcome: Any) -> None:
    operation = {
        "operation_id": "op-1",
        "state": "focusing",
        "started_at": "2026-11-30T08:00:00.000Z",
        "ends_at": "2026-11-30T08:30:00.000Z",
        "activity": "Reading",
    }
    run = await start_run(bundle_app("pomodoro"), welcome(operations=[operation]))
    assert (await run.runtime.expect("surface.open"))["entry"] == "surface/index.html"
    saved = (await run.runtime.expect("state.save"))["state"]
    assert saved == {name: operation[name] for name in ("operation_id", "started_at", "ends_at", "activity")} | {
        "display_state": "focusing"
    }
    again = await start_run(bundle_app("pomodoro"), welcome(operations=[operation], state=saved, state_revision=1))
    await again.runtime.until(lambda: again.runner.idle, "the app is idle")
    assert again.runtime.said("state.save") == [], "what is saved already is not saved again"


async def test_a_refusal_does_not_end_the_worker(start_run: Any, bundle_app: Any, welcome: Any) -> None:
    refused = {"accepted": False, "code": "app_closed", "message": "too late"}
    run = await start_run(bundle_app("pomodoro"), welcome(), ready=False)
    run.runtime.refusals |= {"surface.open": refused, "state.save": refused}
    await run.runtime.expect("worker.ready")
    await run.runtime.until(lambda: run.runner.idle, "the app is idle")
    assert not run.task.done()


async def test_a_restart_of_everything_goes_on_from_ends_at(rt: StubRuntime) -> None:
    call = await rt.call(START, HALF_HOUR)
    before = rt.saved_state("pomodoro")
    await rt.advance(900)
    await rt.restart()
    assert rt.saved_state("pomodoro") == before
    assert rt.focus() == ["chat", "pomodoro"]
    await rt.advance(900)
    assert call.result["state"] == "completed"


@pytest.mark.parametrize("leave", ["home", "close"])
async def test_leaving_interrupts_without_a_question(rt: StubRuntime, leave: str) -> None:
    call = await rt.call(START, HALF_HOUR)
    await (rt.go_home() if leave == "home" else rt.close_app("pomodoro"))
    assert call.result["state"] == "interrupted"
    assert rt.questions() == []
    assert rt.focus() == ["chat"]


async def test_continuing_an_ended_session_shows_a_page_without_a_countdown(rt: StubRuntime) -> None:
    await rt.call(START, {"duration_seconds": 1})
    session_id = rt.instance("pomodoro")["session_id"]
    await rt.advance(1)
    assert (await rt.act("session.continue", session_id=session_id))["accepted"]
    assert rt.focus() == ["chat", "pomodoro"]
    assert rt.surface()["entry"] == "surface/index.html"
    assert rt.saved_state("pomodoro") is None
