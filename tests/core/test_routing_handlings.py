"""Where calls go: each handling, with and without a live instance, and what that does to the screen."""

from __future__ import annotations

import pytest

from core.harness import CONFIRM, Core
from lineup_supervisor.core import inventory, routing
from lineup_supervisor.core.schema import CALLS, INSTANCES
from simulation.bundles import TOOLS


@pytest.fixture
def core() -> Core:
    core = Core()
    core.connect("a1")
    return core


@pytest.mark.parametrize(
    ("tool_id", "creates", "takes_screen"),
    [
        ("lab.direct", True, False),
        ("lab.launch", True, True),
        ("lab.front", True, True),
        ("lab.poke", False, False),
        ("timer.start", True, True),
        ("confirm", True, False),
    ],
)
def test_what_a_descriptor_means(tool_id: str, creates: bool, takes_screen: bool) -> None:
    assert routing.creates_instance(TOOLS[tool_id]) == creates
    assert inventory.takes_screen(TOOLS[tool_id]) == takes_screen


@pytest.mark.parametrize(
    ("tool_id", "top"), [("lab.direct", "chat"), ("lab.launch", "lab"), ("lab.front", "lab"), ("timer.start", "timer")]
)
def test_a_call_with_no_instance_makes_one(core: Core, tool_id: str, top: str) -> None:
    core.call_accepted(tool_id, {"duration_seconds": 9} if tool_id == "timer.start" else None)
    instance = core.row(INSTANCES, core.row(CALLS, "a1", "k1").instance_id)
    assert instance.app_scope == tool_id.split(".")[0]
    assert instance.session_id, "it has a session of its own"
    focus = core.query("snapshot")["conversations"][0]["focus"]
    assert core.row(INSTANCES, focus[-1]).app_scope == top


@pytest.mark.parametrize("tool_id", ["lab.direct", "lab.launch", "lab.front", "lab.poke"])
def test_a_call_with_a_live_instance_goes_there(core: Core, tool_id: str) -> None:
    core.call_accepted("lab.direct", call_id="k0")
    instance_id = core.instance("lab").instance_id
    core.call_accepted(tool_id, call_id="k1")
    assert core.row(CALLS, "a1", "k1").instance_id == instance_id
    worker = core.start("lab")
    assert [d["body"]["call_id"] for d in worker.deliveries("tool.call")] == ["k0", "k1"]


def test_instances_of_two_conversations_are_apart(core: Core) -> None:
    core.call_accepted("lab.launch", call_id="k1", conversation="c1")
    core.call_accepted("lab.launch", call_id="k2", conversation="c2")
    first, second = (core.row(CALLS, "a1", call_id).instance_id for call_id in ("k1", "k2"))
    assert first != second
    assert len(core.query("snapshot")["instances"]) == 4


def test_interactive_calls_need_no_process_and_no_instance_of_their_own(core: Core) -> None:
    core.call_accepted("confirm", CONFIRM)
    call = core.row(CALLS, "a1", "k1")
    assert call.instance_id == core.instance("chat").instance_id
    assert call.interaction_id == core.questions()[0]["interaction_id"]
    assert core.unstarted == []


def test_a_delivery_says_what_an_app_needs(core: Core) -> None:
    core.call_accepted("lab.safe", {"n": 3})
    body = core.start("lab").deliveries("tool.call")[0]["body"]
    assert body == {
        "call_id": "k1",
        "tool_id": "lab.safe",
        "input": {"n": 3},
        "attempt": 1,
        "retry_safe": True,
        "inventory_revision": core.revision,
        "conversation_id": "c1",
        "created_at": body["created_at"],
    }


def test_open_calls_settle_under_the_descriptor_that_they_were_made_under(core: Core) -> None:
    """A new version of a bundle comes while a call is open: the call ends by the old schema."""
    from simulation.bundles import bundle, lab

    core.call_accepted("lab.direct")
    worker = core.start("lab")
    worker.take("k1")
    old_revision = core.revision
    manifest = lab(version="2.0.0")
    manifest["tools"] = [tool for tool in manifest["tools"] if tool["id"] != "lab.direct"]
    core.bundles = (*[b for b in core.bundles if b.manifest["app_scope"] != "lab"], bundle(manifest))
    with core.store.write() as txn:
        from lineup_supervisor.core import apps
        from lineup_supervisor.core.ctx import META_KEY, Ctx
        from lineup_supervisor.core.events import Wake
        from lineup_supervisor.core.schema import META

        ctx = Ctx(txn, Wake(event_id=core.new_id()), core.now)
        apps.install(ctx, core.bundles[-1], trusted=True)
        txn.put(META, META_KEY, ctx.meta)
    assert core.revision != old_revision
    worker.accept("tool.complete", call_id="k1", result={"n": 1})
    assert core.result()["status"] == "completed"  # type: ignore[index]
    assert core.call("lab.direct", call_id="k2")["code"] == "tool_not_advertised"
    assert core.call("lab.poke", call_id="k3", inventory_revision=old_revision)["code"] == "inventory_revision_mismatch"
    core.call_accepted("lab.poke", call_id="k4")
    assert core.row(CALLS, "a1", "k4").instance_id == worker.instance_id
