"""The story of a call tells what befell its worker too, from the call's making to its end, and nothing of later."""

from __future__ import annotations

from typing import Any

import pytest

from core.harness import Core

RESULT = {"n": 7, "by": "me"}


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


def kinds(core: Core, id_: str) -> list[str]:
    return [entry["kind"] for entry in story(core, id_)]


def story(core: Core, id_: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = core.query("story", id=id_)["entries"]
    assert [entry["seq"] for entry in entries] == sorted({entry["seq"] for entry in entries})
    return entries


@pytest.mark.parametrize("reason", ["killed", "hung", "memory", "exited"])
def test_why_the_worker_ended_stands_before_what_came_of_it(core: Core, reason: str) -> None:
    core.call_accepted("lab.safe")
    worker = core.start("lab")
    worker.take("k1")
    worker.exit(reason)
    core.advance(1)
    again = core.start("lab")
    again.take("k1")
    again.accept("tool.complete", call_id="k1", result=RESULT)
    told = story(core, "k1")
    (ended,) = [entry for entry in told if entry["kind"] == "worker.exited"]
    assert ended["detail"] == {"incarnation": 1, "reason": reason}
    assert worker.instance_id in ended["subjects"]
    names = [entry["kind"] for entry in told]
    assert names.index("call.running") < names.index("worker.exited") < names.index("call.redelivered")
    assert [entry["detail"]["incarnation"] for entry in told if entry["kind"] == "worker.ready"] == [1, 2]


def test_a_crash_that_ends_the_call_is_told_and_a_later_one_is_not(core: Core) -> None:
    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.take("k1")
    worker.exit("killed")
    assert core.result()["error"]["code"] == "outcome_unknown"  # type: ignore[index]
    before = kinds(core, "k1")
    assert before.count("worker.exited") == 1
    core.advance(1)
    core.call_accepted("lab.safe", call_id="k2")
    core.start("lab").exit("killed")
    assert kinds(core, "k1") == before
    assert kinds(core, "k2").count("worker.exited") == 1, "its own crash, not the one before it"


def test_a_call_that_was_refused_has_no_worker_in_its_story(core: Core) -> None:
    core.call("lab.none")
    assert kinds(core, "k1") == ["call.received", "call.rejected"]
