"""An action that is sent again under its id has no second effect and the same answer, however frequent its kind is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.harness import Core, Worker
from lineup_supervisor.core import actions
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import ACTION_RESULTS, SAID


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


@pytest.fixture
def worker(core: Core) -> Worker:
    core.call_accepted("lab.front", call_id="k1")
    worker = core.start("lab")
    worker.take("k1")
    worker.accept("surface.open", entry="surface/index.html")
    return worker


def surface(core: Core) -> dict[str, Any]:
    (row,) = core.query("snapshot")["surfaces"]
    return dict(row)


def state(core: Core) -> Any:
    return core.query("surface", surface_id=surface(core)["surface_id"])["state"]


def act(core: Core, action: str, action_id: str, /, **args: Any) -> fx.ReplyHost:
    """One action of a person; its answer, whatever it is an answer to."""
    event = ev.HostAction(
        event_id=core.new_id(), reply_to=core.new_id(), action_id=action_id, actor="person", name=action, args=args
    )
    core.do(event)
    return msgspec.structs.replace(core.replies[event.reply_to], reply_to="r")


@pytest.mark.parametrize(("name", "more"), [("surface.event", {"name": "tap"}), ("surface.submit", {})])
def test_what_a_page_says_is_delivered_once(core: Core, worker: Worker, name: str, more: dict[str, Any]) -> None:
    answers = [act(core, name, "x-1", surface_id=surface(core)["surface_id"], payload=1, **more) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].accepted
    assert len(worker.deliveries(name)) == 1


@pytest.mark.parametrize("guarded", [False, True])
def test_an_older_patch_is_not_laid_over_a_newer_one(core: Core, worker: Worker, guarded: bool) -> None:
    surface_id = surface(core)["surface_id"]
    args: dict[str, Any] = {"surface_id": surface_id, "patch": {"colour": "red"}}
    args |= {"base_revision": surface(core)["revision"]} if guarded else {}
    first = act(core, "surface.patch", "x-1", **args)
    worker.accept("surface.update", surface_id=surface_id, patch={"colour": "blue"})
    assert act(core, "surface.patch", "x-1", **args) == first
    assert first.detail == {"surface_id": surface_id, "revision": 1}
    assert (state(core), surface(core)["revision"]) == ({"colour": "blue"}, 2)


def test_a_refused_patch_is_judged_anew(core: Core, worker: Worker) -> None:
    surface_id = surface(core)["surface_id"]
    args: dict[str, Any] = {"surface_id": surface_id, "patch": {"a": 1}, "base_revision": 1}
    assert act(core, "surface.patch", "x-1", **args).code == "patch_conflict"
    worker.accept("surface.update", surface_id=surface_id, patch={"b": 1})
    assert act(core, "surface.patch", "x-1", **args).detail["revision"] == 2


def test_an_older_draft_does_not_replace_a_newer_one(core: Core, worker: Worker) -> None:
    worker.accept(
        "ui.request",
        request={
            "kind": "input",
            "title": "T",
            "prompt": "Name?",
            "fields": [{"id": "n", "type": "text", "label": "N"}],
        },
    )
    (question,) = core.questions()
    id_ = question["interaction_id"]
    for action_id, text in (("x-1", "old"), ("x-2", "new"), ("x-1", "old")):
        act(core, "interaction.draft", action_id, interaction_id=id_, draft={"values": {"n": text}})
    assert core.questions()[0]["draft"] == {"values": {"n": "new"}}


def test_what_is_remembered_is_bounded_and_goes_with_its_subject(
    core: Core, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "SAID_MAX", 3)
    surface_id = surface(core)["surface_id"]
    for n in range(5):
        act(core, "surface.event", f"x-{n}", surface_id=surface_id, name="tap", payload=n)
    ((_, said),) = core.scan(SAID)
    assert list(said.revisions) == ["x-2", "x-3", "x-4"]
    assert not [key for key, _ in core.scan(ACTION_RESULTS)], "a busy page leaves nothing for a day"
