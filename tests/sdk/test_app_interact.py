"""Interact, as the bundle stands in the wheel, against a scripted Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.manifest import parse_manifest
from lineup_protocol.schema import first_fault

BUNDLE = Path(__file__).parents[2] / "workers" / "lineup_workers" / "interact"
MANIFEST = json.loads((BUNDLE / "miniapp.json").read_text())
TOOLS = {tool["id"]: tool for tool in MANIFEST["tools"]}

INPUTS: dict[str, dict[str, Any]] = {
    "notice": {"title": "Done", "message": "The report is ready.", "acknowledge_label": "OK"},
    "choice": {
        "title": "Colour",
        "prompt": "Which one?",
        "mode": "multi-choice",
        "actions": [{"id": "r", "label": "Red"}, {"id": "b", "label": "Blue", "description": "As the sky"}],
    },
    "confirm": {"title": "Delete?", "prompt": "This cannot be undone.", "expires_at": "2026-11-30T09:00:00Z"},
    "input": {
        "title": "Who?",
        "prompt": "Tell me about yourself.",
        "fields": [
            {"id": "name", "label": "Name", "type": "text", "required": True, "max_length": 80},
            {"id": "age", "label": "Age", "type": "number", "minimum": 0, "maximum": 150.5},
        ],
        "presentation": "inline",
    },
}
RESULTS: dict[str, dict[str, Any]] = {
    "notice": {"acknowledged": True},
    "choice": {"action_ids": ["b", "r"]},
    "confirm": {"approved": False},
    "input": {"values": {"name": "Ada", "age": 36}},
}


def record(kind: str, status: str, **changes: Any) -> dict[str, Any]:
    owner = {"app_scope": "chat", "instance_id": "i-1", "conversation_id": "c-1"}
    base = {
        "interaction_id": "q-1",
        "kind": kind,
        "request": {"kind": kind, **INPUTS[kind]},
        "status": status,
        "owner": owner | {"source": "agent_tool", "parent_call_id": "k-1"},
    }
    return base | changes


def test_the_manifest_is_valid_and_has_the_four_primitives() -> None:
    manifest = parse_manifest(MANIFEST, trusted=True)
    assert (manifest.app_scope, manifest.kind) == ("chat", "system")
    assert list(TOOLS) == ["notice", "choice", "confirm", "input"]
    assert {tool["handling"] for tool in TOOLS.values()} == {"interactive"}


@pytest.mark.parametrize("kind", INPUTS)
def test_the_schemas_take_what_the_primitives_are(kind: str) -> None:
    assert first_fault(TOOLS[kind]["input_schema"], INPUTS[kind]) is None
    assert first_fault(TOOLS[kind]["output_schema"], RESULTS[kind]) is None


@pytest.mark.conformance("03-9.6")
@pytest.mark.parametrize("kind", INPUTS)
async def test_an_answer_becomes_the_result_of_the_agents_call(start_run: Any, bundle_app: Any, kind: str) -> None:
    run = await start_run(bundle_app("interact"))
    answered = record(kind, "submitted", result=RESULTS[kind])
    run.runtime.deliver("interaction.result", {"interaction": answered})
    assert await run.runtime.expect("tool.complete") == {"call_id": "k-1", "result": RESULTS[kind]}
    await run.runtime.expect("inbox.ack")
    order = [type_ for type_, _ in run.runtime.heard if type_ in ("tool.complete", "inbox.ack")]
    assert order == ["tool.complete", "inbox.ack"], "acknowledged only once the result is committed"


@pytest.mark.parametrize(
    ("status", "reason", "command", "body"),
    [
        ("cancelled", None, "tool.cancel", {"call_id": "k-1", "reason": "cancelled by the person"}),
        ("cancelled", "not now", "tool.cancel", {"call_id": "k-1", "reason": "not now"}),
        (
            "expired",
            None,
            "tool.fail",
            {"call_id": "k-1", "code": "interaction_expired", "message": "nobody answered in time"},
        ),
        (
            "failed",
            "no renderer",
            "tool.fail",
            {"call_id": "k-1", "code": "interaction_failed", "message": "no renderer"},
        ),
    ],
)
async def test_a_question_without_an_answer_ends_the_call_otherwise(
    start_run: Any, bundle_app: Any, status: str, reason: str | None, command: str, body: dict[str, Any]
) -> None:
    run = await start_run(bundle_app("interact"))
    ended = record("confirm", status) | ({"reason": reason} if reason else {})
    run.runtime.deliver("interaction.result", {"interaction": ended})
    assert await run.runtime.expect(command) == body
    await run.runtime.expect("inbox.ack")


async def test_an_answer_again_after_a_crash_is_taken_over_quietly(start_run: Any, bundle_app: Any) -> None:
    run = await start_run(bundle_app("interact"))
    run.runtime.refusals["tool.complete"] = {"accepted": False, "code": "call_already_final", "message": "completed"}
    run.runtime.deliver(
        "interaction.result", {"interaction": record("confirm", "submitted", result={"approved": True})}
    )
    await run.runtime.expect("inbox.ack")
    assert run.runtime.said("tool.fail") == []


async def test_questions_that_are_not_the_agents_are_left_alone(start_run: Any, bundle_app: Any) -> None:
    run = await start_run(bundle_app("interact"))
    consent = record("confirm", "submitted", result={"approved": True}, owner={"source": "runtime_policy"})
    run.runtime.deliver("interaction.result", {"interaction": consent})
    await run.runtime.expect("inbox.ack")
    assert run.runtime.said("tool.complete") == []


async def test_texts_are_taken_over(start_run: Any, bundle_app: Any) -> None:
    run = await start_run(bundle_app("interact"))
    for n in range(20):
        body = {"text": f"text {n}", "format": "markdown", "at": "2026-11-30T08:00:00Z", "from": "person"}
        run.runtime.deliver("message.text", body)
    await run.runtime.expect("inbox.ack", 20)
    assert [body["seq"] for body in run.runtime.said("inbox.ack")] == list(range(1, 21))


@pytest.mark.parametrize("kind", INPUTS)
async def test_a_delivered_call_waits_for_its_answer(start_run: Any, bundle_app: Any, kind: str) -> None:
    run = await start_run(bundle_app("interact"))
    run.runtime.call(kind, INPUTS[kind])
    await run.runtime.expect("inbox.ack")
    await run.runtime.until(lambda: run.runner.idle, "the handler has ended")
    assert run.runner.sdk.tools.get("k-1") is not None
    run.runtime.deliver("interaction.result", {"interaction": record(kind, "submitted", result=RESULTS[kind])})
    await run.runtime.expect("tool.complete")


@pytest.mark.parametrize("mode", ["audio", "video", "telepathy"])
async def test_modes_without_media_are_refused(
    start_run: Any, bundle_app: Any, welcome: Any, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = welcome()
    body["context"] = body["context"] | {"mode": mode}
    run = await start_run(bundle_app("interact"), body, ready=False)
    failed = await run.runtime.expect("worker.failed")
    assert failed["message"] == f"ModeNotAvailable: Interact has no {mode} mode here; available: im"
    capsys.readouterr()


async def test_the_im_mode_is_the_one_that_works(start_run: Any, bundle_app: Any, welcome: Any) -> None:
    body = welcome()
    body["context"] = body["context"] | {"mode": "im"}
    run = await start_run(bundle_app("interact"), body)
    assert run.runner.sdk.context.mode == "im"
