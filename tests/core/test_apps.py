"""Installed MiniApps: what may come in, and that each change shows in the inventory and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_supervisor.core import apps, calls, instances, inventory, schema
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.events import Bundle
from lineup_supervisor.core.schema import Call
from lineup_supervisor.core.tables import CallState, InstanceState

Make = Callable[..., dict[str, Any]]


def bundle(manifest: dict[str, Any], digest: str = "") -> Bundle:
    digest = digest or f"{manifest['app_scope']}-{manifest['version']}"
    return Bundle(digest=digest, path=f"/bundles/{digest}", manifest=manifest)


def install(manifest: dict[str, Any], *, trusted: bool = False, digest: str = "") -> Callable[[Any], Any]:
    return lambda ctx: apps.install(ctx, bundle(manifest, digest), trusted=trusted)


def visible(stage: Any) -> list[str]:
    return [tool["id"] for tool in stage.look(inventory.visible_tools)]


def revision(stage: Any) -> str:
    text: str = stage.row(schema.META, "runtime").inventory_revision
    return text


def connect(stage: Any) -> None:
    stage.run(lambda ctx: ctx.put(schema.AGENT_LINKS, ("link-1",), schema.AgentLink(agent_id="agent-1")))


def inventories_sent(stage: Any) -> list[dict[str, Any]]:
    frames = [frame for effect in stage.effects if isinstance(effect, fx.SendAgent) for frame in effect.frames]
    return [frame["payload"] for frame in frames if frame["type"] == "lineup.v1.client.inventory"]


def open_call(stage: Any, instance_id: str, call_id: str = "k-1") -> None:
    """An open call of the instance, queued for its worker."""

    def make(ctx: Any) -> None:
        call = Call(
            agent_id="agent-1",
            call_id=call_id,
            tool_id="notes.open",
            inventory_revision="r",
            app_scope="notes",
            conversation_id="c-1",
            status=CallState.ROUTING,
            input={},
            input_digest="",
            created_ms=ctx.now.wall_ms,
            updated_ms=ctx.now.wall_ms,
            cause=ctx.cause,
            instance_id=instance_id,
            descriptor_digest=inventory.keep_descriptor(ctx, inventory.tool_index(ctx.txn)["notes.open"]),
        )
        calls.queue(ctx, calls.open_(ctx, calls.insert(ctx, call), instance_id))

    stage.run(make)


# install


def test_an_installed_app_shows_in_the_inventory_of_every_link(stage: Any, make_manifest: Make) -> None:
    connect(stage)
    before = revision(stage)
    app = stage.run(install(make_manifest("notes", title="Notes", requested_capabilities=["notification.show"])))
    assert visible(stage) == ["chat.say", "notes.open"]
    assert revision(stage) != before
    (payload,) = inventories_sent(stage)
    assert payload["revision"] == revision(stage)
    public = apps.public(app)
    assert public == {
        "app_scope": "notes",
        "version": "1.0.0",
        "title": "Notes",
        "kind": "installed",
        "enabled": True,
        "quarantined": False,
        "quarantine_reason": "",
        "digest": "notes-1.0.0",
        "tools": ["notes.open"],
        "requested_capabilities": ["notification.show"],
        "min_isolation": "S3",
        "installed_at": "2027-01-15T08:00:00.000Z",
    }
    canonical_json(public)
    assert stage.audited("app.installed")[-1].detail["digest"] == "notes-1.0.0"


def test_the_same_bundle_again_changes_nothing(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    connect(stage)
    before, audited = revision(stage), len(stage.rows(schema.AUDIT))
    stage.wall_ms += 1000
    stage.run(install(make_manifest("notes")))
    assert (revision(stage), len(stage.rows(schema.AUDIT)), inventories_sent(stage)) == (before, audited, [])


def test_an_upgrade_is_for_new_instances(stage: Any, make_manifest: Make, make_tool: Make) -> None:
    stage.run(install(make_manifest("notes")))
    running = stage.instance("notes")
    stage.run(lambda ctx: apps.quarantine(ctx, "notes", "it broke"))
    stage.run(install(make_manifest("notes", version="2.0.0", tools=[make_tool("notes.write")])))
    assert stage.row(schema.INSTANCES, running.instance_id).digest == "notes-1.0.0"
    assert stage.row(schema.BUNDLES, "notes-1.0.0").manifest["version"] == "1.0.0"
    assert stage.instance("notes").digest == "notes-2.0.0"
    assert visible(stage) == ["chat.say", "notes.write"]
    app = stage.row(schema.APPS, "notes")
    assert (app.version, app.quarantined, app.enabled) == ("2.0.0", False, True)
    assert stage.audited("app.upgraded")[-1].detail["was"] == "notes-1.0.0"


def test_an_upgrade_does_not_enable_what_the_operator_disabled(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    stage.run(lambda ctx: apps.disable(ctx, "notes"))
    stage.run(install(make_manifest("notes", version="2.0.0")))
    assert visible(stage) == ["chat.say"]


@pytest.mark.conformance("03-9.3")
def test_calls_settle_under_the_descriptor_that_they_were_made_with(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    running = stage.instance("notes")
    stage.give_worker(running)
    open_call(stage, running.instance_id)
    worker = msgspec.structs.replace(stage.row(schema.WORKERS, running.instance_id), sent_seq=1)
    stage.run(lambda ctx: ctx.put(schema.WORKERS, (running.instance_id,), worker))
    stage.run(install(make_manifest("notes", version="2.0.0", tools=[])))
    assert visible(stage) == ["chat.say"]
    body = {"call_id": "k-1", "result": {"ok": True}}
    stage.run(lambda ctx: calls.complete(ctx, ctx.need(schema.INSTANCES, (running.instance_id,)), body))
    assert stage.row(schema.CALLS, "agent-1", "k-1").status == CallState.COMPLETED


@pytest.mark.conformance("03-9.3")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_tool_id_belongs_to_one_app(stage: Any, make_manifest: Make, make_tool: Make, enabled: bool) -> None:
    stage.run(install(make_manifest("notes")))
    if not enabled:
        stage.run(lambda ctx: apps.disable(ctx, "notes"))
    thief = make_manifest("thief", tools=[make_tool("thief.open"), make_tool("thief.other")])
    thief["tools"][1]["id"] = "notes.open"
    error = stage.refused(install(thief))
    assert error.code == "manifest_invalid"
    assert error.detail == {"faults": [{"path": "/tools/1/id", "rule": "is a tool of notes already"}]}
    twice = make_manifest("twice", tools=[make_tool("twice.a"), make_tool("twice.b")])
    twice["tools"][1]["id"] = "twice.a"
    assert stage.refused(install(twice)).detail["faults"][0]["path"] == "/tools/1/id"


def test_the_distribution_takes_its_tools_back_from_strangers_alone(stage: Any, make_manifest: Make) -> None:
    squatter = make_manifest("squatter")
    squatter["tools"][0]["id"] = "board.open"
    stage.run(install(squatter))
    running = stage.instance("squatter")
    own = make_manifest("board", trusted=True, kind="bundled")
    stage.run(install(own, trusted=True))
    assert stage.row(schema.APPS, "squatter") is None
    assert stage.row(schema.INSTANCES, running.instance_id).state == InstanceState.CLOSED
    assert visible(stage) == ["board.open", "chat.say"]
    rival = make_manifest("rival", trusted=True, kind="bundled")
    rival["tools"][0]["id"] = "board.open"
    assert stage.refused(install(rival, trusted=True)).code == "manifest_invalid"


def test_strangers_take_no_kind_and_no_scope_of_the_distribution(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("board", trusted=True, kind="bundled-reference"), trusted=True))
    assert stage.refused(install(make_manifest("board", version="9.0.0"))).detail["faults"][0]["path"] == "/app_scope"
    for kind in ("system", "bundled", "bundled-reference"):
        stranger = make_manifest("stranger", trusted=True, kind=kind)
        assert stage.refused(install(stranger)).detail["faults"][0]["path"] == "/kind"
    impostor = make_manifest("impostor") | {"app_scope": "chat"}
    assert stage.refused(install(impostor)).detail["faults"][0]["path"] == "/app_scope"


@pytest.mark.parametrize(
    ("needed", "have", "accepted"),
    [
        ("S3", "S3", True),
        ("S3", "S2", False),
        ("S3", "S1", False),
        ("S3", "", False),
        ("S2", "S3", True),
        ("S2", "S2", True),
        ("S2", "S1", False),
        ("S2", "S9", False),
    ],
)
def test_a_bundle_states_its_least_isolation(
    stage: Any, make_manifest: Make, needed: str, have: str, accepted: bool
) -> None:
    stage.run(lambda ctx: ctx.set_meta(isolation=have))
    manifest = make_manifest("notes", min_isolation=needed)
    if accepted:
        stage.run(install(manifest))
        return
    error = stage.refused(install(manifest))
    assert (error.code, error.detail) == ("isolation_insufficient", {"needed": needed, "have": have})
    trusted = make_manifest("board", trusted=True, kind="bundled", min_isolation=needed)
    stage.run(install(trusted, trusted=True))  # known, but not startable: the check comes again with a call
    assert stage.refused(lambda ctx: apps.check_isolation(ctx, trusted)).code == "isolation_insufficient"


def test_there_is_an_end_to_apps_and_to_the_inventory(stage: Any, make_manifest: Make, small_limits: Any) -> None:
    stage.run(install(make_manifest("notes")))
    with small_limits(BUNDLES_MAX=2):
        assert stage.refused(install(make_manifest("more"))).code == "conflict"
        stage.run(install(make_manifest("notes", version="1.1.0")))
    size = len(canonical_json(stage.look(inventory.visible_tools)))
    with small_limits(INVENTORY_BYTES_MAX=size):
        stage.run(install(make_manifest("notes", version="1.2.0")))
        error = stage.refused(install(make_manifest("more")))
    assert (error.code, error.detail["faults"][0]["path"]) == ("manifest_invalid", "/tools")


# enable, disable, quarantine


def test_disable_refuses_what_is_new_and_lets_what_runs_run(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    running = stage.instance("notes")
    open_call(stage, running.instance_id)
    connect(stage)
    stage.run(lambda ctx: apps.disable(ctx, "notes"))
    assert visible(stage) == ["chat.say"]
    assert [payload["revision"] for payload in inventories_sent(stage)] == [revision(stage)]
    assert stage.row(schema.INSTANCES, running.instance_id).state == InstanceState.FOREGROUND
    assert stage.row(schema.CALLS, "agent-1", "k-1").status == CallState.WAITING
    stage.run(lambda ctx: apps.disable(ctx, "notes"))
    assert inventories_sent(stage) == []
    stage.run(lambda ctx: apps.enable(ctx, "notes"))
    assert visible(stage) == ["chat.say", "notes.open"]


def test_the_revision_comes_back_with_the_content(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    before = revision(stage)
    stage.run(lambda ctx: apps.disable(ctx, "notes"))
    assert revision(stage) != before
    stage.run(lambda ctx: apps.enable(ctx, "notes"))
    assert revision(stage) == before


def test_quarantine_is_lifted_by_enable(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    crashed = msgspec.structs.replace(stage.row(schema.APPS, "notes"), crashes=(1, 2, 3))
    stage.run(lambda ctx: ctx.put(schema.APPS, ("notes",), crashed))
    stage.run(lambda ctx: apps.quarantine(ctx, "notes", "x" * 5000))
    app = stage.row(schema.APPS, "notes")
    assert (app.enabled, app.quarantined, len(app.quarantine_reason)) == (True, True, limits.REASON_LENGTH_MAX)
    assert visible(stage) == ["chat.say"]
    stage.run(lambda ctx: apps.quarantine(ctx, "notes", "again"))
    assert len(stage.audited("app.quarantined")) == 1
    stage.run(lambda ctx: apps.enable(ctx, "notes"))
    app = stage.row(schema.APPS, "notes")
    assert (app.quarantined, app.quarantine_reason, app.crashes) == (False, "", ())
    assert visible(stage) == ["chat.say", "notes.open"]


def test_interact_stays(stage: Any) -> None:
    assert stage.refused(lambda ctx: apps.disable(ctx, "chat")).code == "conflict"
    assert stage.refused(lambda ctx: apps.remove(ctx, "chat")).code == "conflict"


def test_nothing_is_done_to_what_is_not_there(stage: Any) -> None:
    for change in (apps.enable, apps.disable, apps.remove):
        assert stage.refused(lambda ctx, change=change: change(ctx, "nobody")).code == "app_not_found"
    stage.run(lambda ctx: apps.quarantine(ctx, "nobody", "gone meanwhile"))
    assert stage.audited("app.quarantined") == []


# remove


def test_remove_settles_everything_and_gives_the_screen_back(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    stage.run(install(make_manifest("board")))
    below = stage.instance("board")
    running = stage.instance("notes")
    open_call(stage, running.instance_id)
    stage.run(lambda ctx: apps.remove(ctx, "notes"))
    assert visible(stage) == ["board.open", "chat.say"]
    assert stage.row(schema.APPS, "notes") is None
    closed = stage.row(schema.INSTANCES, running.instance_id)
    assert (closed.state, closed.close_code) == (InstanceState.CLOSED, "app_removed")
    call = stage.row(schema.CALLS, "agent-1", "k-1")
    assert (call.status, call.error["code"]) == (CallState.CANCELLED, "app_closed")
    conversation = stage.row(schema.CONVERSATIONS, "c-1")
    assert conversation.focus[-1] == below.instance_id
    assert stage.row(schema.INSTANCES, below.instance_id).state == InstanceState.FOREGROUND
    assert stage.row(schema.BUNDLES, running.digest) is not None  # history still says what it was
    stage.run(install(make_manifest("notes")))
    assert visible(stage) == ["board.open", "chat.say", "notes.open"]


def test_what_belongs_to_the_distribution_is_not_removed(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("board", trusted=True, kind="bundled"), trusted=True))
    assert stage.refused(lambda ctx: apps.remove(ctx, "board")).code == "conflict"
    stage.run(lambda ctx: apps.disable(ctx, "board"))
    stage.run(install(make_manifest("board", trusted=True, kind="bundled"), trusted=True))
    assert visible(stage) == ["chat.say"]  # the next start does not enable it


def test_instances_of_every_conversation_close(stage: Any, make_manifest: Make) -> None:
    stage.run(install(make_manifest("notes")))
    here = stage.instance("notes")

    def elsewhere(ctx: Any) -> str:
        conversation = instances.open_conversation(ctx, "c-2", "agent-2", opened_by="agent")
        made = instances.create(ctx, ctx.need(schema.APPS, ("notes",)), conversation)
        return made.instance_id

    there = stage.run(elsewhere)
    stage.run(lambda ctx: apps.remove(ctx, "notes"))
    for instance_id in (here.instance_id, there):
        assert stage.row(schema.INSTANCES, instance_id).state == InstanceState.CLOSED
    assert {row.app_scope for row in stage.rows(schema.INSTANCES) if row.state != InstanceState.CLOSED} == {"chat"}


# the distribution beside a full inventory


def grown(make_manifest: Make, make_tool: Make, length: int) -> dict[str, Any]:
    tool = make_tool("board.open", description="x" * length)
    return make_manifest("board", trusted=True, kind="bundled", version=f"{length}.0.0", tools=[tool])


def test_the_distribution_is_installed_whatever_strangers_have_taken(
    stage: Any, make_manifest: Make, make_tool: Make, small_limits: Any
) -> None:
    """Else a new version of the Runtime would not start on a home with a full inventory."""
    stage.run(lambda ctx: apps.install_own(ctx, [bundle(grown(make_manifest, make_tool, 10))]))
    for name in ("first", "second", "third"):
        stage.wall_ms += 1000
        stage.run(install(make_manifest(name)))
    size = len(canonical_json(stage.look(inventory.visible_tools)))
    with small_limits(INVENTORY_BYTES_MAX=size):
        stage.run(lambda ctx: apps.install_own(ctx, [bundle(grown(make_manifest, make_tool, 20))]))
        assert visible(stage) == ["board.open", "chat.say", "first.open", "second.open"]
        assert stage.row(schema.APPS, "board").version == "20.0.0"
        row = stage.row(schema.APPS, "third")
        assert (row.enabled, row.quarantined) == (True, True)
        assert f"at most {size} are allowed" in row.quarantine_reason
        (audited,) = stage.audited("app.quarantined")
        assert audited.subjects == ("third",)
        stage.run(lambda ctx: apps.install_own(ctx, [bundle(grown(make_manifest, make_tool, 20))]))
        assert len(stage.audited("app.quarantined")) == 1, "the next start changes nothing"

        assert stage.refused(lambda ctx: apps.enable(ctx, "third")).code == "conflict"
        stage.run(lambda ctx: apps.disable(ctx, "second"))
        stage.run(lambda ctx: apps.enable(ctx, "third"))
        assert visible(stage) == ["board.open", "chat.say", "first.open", "third.open"]
        assert stage.refused(lambda ctx: apps.enable(ctx, "second")).code == "conflict"
        stage.run(lambda ctx: apps.remove(ctx, "first"))
        stage.run(lambda ctx: apps.enable(ctx, "second"))


def test_the_distribution_alone_is_not_bounded(
    stage: Any, make_manifest: Make, make_tool: Make, small_limits: Any
) -> None:
    with small_limits(INVENTORY_BYTES_MAX=10):
        stage.run(lambda ctx: apps.install_own(ctx, [bundle(grown(make_manifest, make_tool, 10))]))
    assert visible(stage) == ["board.open", "chat.say"]


def test_a_part_of_the_distribution_that_is_enabled_again_finds_its_room(
    stage: Any, make_manifest: Make, make_tool: Make, small_limits: Any
) -> None:
    stage.run(lambda ctx: apps.install_own(ctx, [bundle(grown(make_manifest, make_tool, 10))]))
    stage.run(lambda ctx: apps.disable(ctx, "board"))
    stage.run(install(make_manifest("notes")))
    size = len(canonical_json(stage.look(inventory.visible_tools)))
    with small_limits(INVENTORY_BYTES_MAX=size):
        stage.run(lambda ctx: apps.enable(ctx, "board"))
    assert visible(stage) == ["board.open", "chat.say"]
    assert stage.row(schema.APPS, "notes").quarantined
