"""Every scenario on every Runtime: the test kit's, the core in memory and the daemon give the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.support.patterns import difference
from conformance.support.player import Player
from conformance.support.stages import DaemonStage, MemoryStage, StubStage

FIXTURES = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "fixtures").glob("*.json")}
STAGES = ("stub", "memory", "daemon")
COVERED = {
    "legal", "duplicate", "stale_revision", "bad_schema", "wrong_scope", "repeated_terminal", "legacy_mapping",
    "notice", "owner_injection", "cancel", "timeout", "restart",
}  # fmt: skip


@pytest.mark.conformance("03-9.4")
@pytest.mark.conformance("03-9.5")
@pytest.mark.conformance("03-9.6")
@pytest.mark.conformance("03-9.7")
@pytest.mark.conformance("03-9.8")
@pytest.mark.conformance("03-9.10")
@pytest.mark.conformance("03-9.11")
@pytest.mark.parametrize("stage_name", STAGES)
@pytest.mark.parametrize("name", sorted(FIXTURES))
async def test_a_scenario(name: str, stage_name: str, request: pytest.FixtureRequest) -> None:
    stage: Any = {"stub": StubStage, "memory": MemoryStage}.get(stage_name, DaemonStage)
    stage = stage(request.getfixturevalue("daemon")) if stage_name == "daemon" else stage()
    tag = name.replace("_", "-")
    await stage.open(f"agent-{tag}")
    try:
        await Player(stage, tag).play(FIXTURES[name])
    finally:
        await stage.close()


def test_every_kind_of_conduct_has_a_scenario() -> None:
    assert set(FIXTURES) >= COVERED


@pytest.mark.parametrize(
    ("expected", "came", "exact"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": True}, {"a": 1}, False),
        ([1], [1, 2], False),
        ("<time>", "today", False),
        ({"a": "$x", "b": "$x"}, {"a": 1, "b": 2}, False),
    ],
)
def test_a_difference_is_seen(expected: Any, came: Any, exact: bool) -> None:
    assert difference(expected, came, {}, exact=exact) is not None


async def test_a_frame_too_many_and_a_frame_too_few_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.support.player.COMES_S", 0.2)
    call = {"agent": "tool.call", "payload": {"call_id": "@k", "tool_id": "probe.none", "input": {}}}
    receipt = {"hears": "receipt", "payload": "<any>"}
    for steps in ([call, receipt], [call, receipt, receipt], [{"hears": "pong", "payload": {}}]):
        stage = StubStage()
        await stage.open("agent")
        with pytest.raises(AssertionError):
            await Player(stage, "x").play({"steps": steps})
        await stage.close()
