"""Surfaces: one durable state, two sides that patch it, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from core.harness import Core
from lineup_protocol import limits
from lineup_protocol.codec import CAPS, canonical_json, decode_message, encode
from lineup_supervisor.core import instances, invariants, merge_patch, quotas, retention, schema, surfaces
from lineup_supervisor.core.effects import HostDelta
from lineup_supervisor.core.events import HostAction
from lineup_supervisor.core.schema import Instance
from lineup_supervisor.core.tables import InstanceState, SurfaceState, WorkerState

BOARD_SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 20},
        "elements": {"type": "object"},
        "limit": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["title"],
    "additionalProperties": False,
}
BOARD = "surface/board.html"
FREE = "surface/free.html"


@pytest.fixture
def owner(stage: Any, make_manifest: Callable[..., dict[str, Any]]) -> Instance:
    pages = [{"entry": BOARD, "title": "Board", "state_schema": BOARD_SCHEMA}, {"entry": FREE, "title": "Free"}]
    stage.install(make_manifest("whiteboard", surfaces=pages))
    made: Instance = stage.instance("whiteboard")
    return made


def opened(stage: Any, owner: Instance, state: dict[str, Any] | None = None, entry: str = BOARD) -> str:
    body = {"entry": entry, "state": {"title": "one", "elements": {}} if state is None else state}
    receipt = stage.run(lambda ctx: surfaces.open_from_app(ctx, owner, body))
    surface_id: str = receipt["surface_id"]
    return surface_id


def state_of(stage: Any, surface_id: str) -> dict[str, Any]:
    state: dict[str, Any] = stage.look(lambda txn: surfaces.full_state(txn, surface_id))
    return state


def app_patch(owner: Instance, surface_id: str, patch: Any, base: int | None = None) -> Callable[[Any], Any]:
    body = {"surface_id": surface_id, "patch": patch} | ({} if base is None else {"base_revision": base})
    return lambda ctx: surfaces.update_from_app(ctx, owner, body)


def page_patch(surface_id: str, patch: Any, base: int | None = None) -> Callable[[Any], Any]:
    return lambda ctx: surfaces.patch_from_host(ctx, surface_id, base, patch)


# open


@pytest.mark.parametrize("title", ["White\u202eboard", "\x1b[31mred", "two\nlines"])
def test_a_title_looks_like_what_it_is(stage: Any, owner: Instance, title: str) -> None:
    error = stage.refused(lambda ctx: surfaces.open_from_app(ctx, owner, {"entry": BOARD, "title": title}))
    assert (error.code, error.detail["path"]) == ("message_invalid", "/title")


def test_opening_makes_a_record_with_its_state(stage: Any, owner: Instance) -> None:
    receipt = stage.run(lambda ctx: surfaces.open_from_app(ctx, owner, {"entry": BOARD, "state": {"title": "one"}}))
    surface_id = receipt["surface_id"]
    assert receipt == {"surface_id": surface_id, "entry": BOARD, "title": "Board", "revision": 0}
    assert state_of(stage, surface_id) == {"title": "one"}
    row = stage.row(schema.SURFACES, surface_id)
    assert (row.instance_id, row.app_scope, row.state) == (owner.instance_id, "whiteboard", SurfaceState.OPEN)
    assert row.cause == owner.cause
    assert stage.audited("surface.opened")[-1].cause == owner.cause
    assert ("surfaces", (surface_id,), row) in stage.projected
    public = surfaces.public(row)
    assert public["status"] == "open"
    assert "state" not in public
    canonical_json(public)


def test_opening_an_open_entry_again_finds_it_as_it_is(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    stage.run(page_patch(surface_id, {"title": "two"}))
    again = stage.run(lambda ctx: surfaces.open_from_app(ctx, owner, {"entry": BOARD, "state": {"title": "lost"}}))
    assert again == {"surface_id": surface_id, "entry": BOARD, "title": again["title"], "revision": 1}
    assert stage.run(lambda ctx: surfaces.full_state(ctx.txn, surface_id))["title"] == "two"
    assert len(stage.rows(schema.OPEN_SURFACES)) == 1


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"entry": "surface/other.html"}, "message_invalid", "/entry"),
        ({"entry": BOARD, "title": "x" * 1000, "state": {"title": "a"}}, "message_invalid", "/title"),
        ({"entry": BOARD}, "state_invalid", "/title"),
        ({"entry": BOARD, "state": {"title": 1}}, "state_invalid", "/title"),
        ({"entry": BOARD, "state": {"title": "a", "more": 1}}, "state_invalid", "/more"),
        ({"entry": FREE, "state": {"x": b"no JSON"}}, "message_invalid", "/state/x"),
    ],
)
def test_what_cannot_be_opened(stage: Any, owner: Instance, body: dict[str, Any], code: str, path: str) -> None:
    error = stage.refused(lambda ctx: surfaces.open_from_app(ctx, owner, body))
    assert error.code == code
    assert error.detail["path"] == path


def test_a_closed_instance_opens_nothing(stage: Any, owner: Instance) -> None:
    closed = msgspec.structs.replace(owner, state=InstanceState.CLOSED)
    assert stage.refused(lambda ctx: surfaces.open_from_app(ctx, closed, {"entry": FREE})).code == "app_closed"


def test_surfaces_of_one_instance_are_bounded(stage: Any, owner: Instance, small_limits: Any) -> None:
    opened(stage, owner)
    with small_limits(SURFACES_PER_INSTANCE_MAX=1):
        assert stage.refused(lambda ctx: surfaces.open_from_app(ctx, owner, {"entry": FREE})).code == "rate_limited"
    opened(stage, owner, {}, FREE)


# patches


@pytest.mark.conformance("03-9.9")
def test_both_sides_patch_one_state_and_hear_of_each_other(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    stage.give_worker(owner)
    patch = {"elements": {"e1": {"x": 1}}}
    assert stage.run(app_patch(owner, surface_id, patch)) == {"surface_id": surface_id, "revision": 1}
    row = {"surface_id": surface_id, "revision": 1, "patch": patch}
    assert stage.changes == [{"kind": "surface_patch", "id": surface_id, "row": row}]
    assert stage.sent_to_worker() == []  # it made the patch itself

    patch = {"elements": {"e1": None, "e2": {"x": 2}}}
    assert stage.run(page_patch(surface_id, patch, 1), actor="person") == {"surface_id": surface_id, "revision": 2}
    assert stage.changes[0]["row"] == {"surface_id": surface_id, "revision": 2, "patch": patch}
    assert stage.sent_to_worker() == [
        {"type": "surface.changed", "body": {"surface_id": surface_id, "revision": 2, "patch": patch}}
    ]
    assert state_of(stage, surface_id) == {"title": "one", "elements": {"e2": {"x": 2}}}
    assert [row.detail["by"] for row in stage.audited("surface.patched")] == ["app", "person"]
    assert stage.audited("surface.patched")[-1].actor == "person"


def test_a_worker_between_welcome_and_ready_is_told_and_one_before_is_not(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    stage.give_worker(owner, WorkerState.STARTING)
    stage.run(page_patch(surface_id, {"title": "a"}))
    assert stage.sent_to_worker() == []
    worker = msgspec.structs.replace(stage.row(schema.WORKERS, owner.instance_id), welcomed=True)
    stage.run(lambda ctx: ctx.put(schema.WORKERS, (owner.instance_id,), worker))
    stage.run(page_patch(surface_id, {"title": "b"}))
    assert [message["body"]["revision"] for message in stage.sent_to_worker()] == [2]


def test_a_patch_on_an_older_revision_changes_nothing(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    stage.run(app_patch(owner, surface_id, {"title": "two"}))
    for stale in (0, 2):
        for rule in (
            page_patch(surface_id, {"title": "x"}, stale),
            app_patch(owner, surface_id, {"title": "x"}, stale),
        ):
            error = stage.refused(rule)
            assert (error.code, error.detail["revision"]) == ("patch_conflict", 1)
    stage.run(app_patch(owner, surface_id, {"title": "last writer"}))
    assert state_of(stage, surface_id)["title"] == "last writer"


def test_what_no_patch_may_be(stage: Any, owner: Instance, small_limits: Any) -> None:
    surface_id = opened(stage, owner)
    deep: dict[str, Any] = {}
    for _ in range(limits.VALUE_DEPTH_MAX):
        deep = {"elements": deep}
    assert stage.refused(page_patch(surface_id, [])).code == "message_invalid"
    assert stage.refused(page_patch(surface_id, deep)).code == "message_invalid"
    assert stage.refused(page_patch(surface_id, {"title": b"no JSON"})).code == "message_invalid"
    assert stage.refused(page_patch(surface_id, {"title": None})).code == "state_invalid"
    assert stage.refused(page_patch(surface_id, {"limit": 10})).code == "state_invalid"
    with small_limits(SURFACE_PATCH_BYTES_MAX=20):
        assert stage.refused(page_patch(surface_id, {"elements": {"e1": "0123456789"}})).code == "message_too_large"
    with small_limits(SURFACE_STATE_BYTES_MAX=40):
        assert stage.refused(page_patch(surface_id, {"elements": {"e1": "0123456789"}})).code == "state_too_large"
        stage.run(page_patch(surface_id, {"title": "s"}))  # what makes it smaller is always welcome
    with small_limits(SURFACE_STATE_NODES_MAX=8):
        assert stage.refused(page_patch(surface_id, {"elements": {"a": [1, 2, 3]}})).code == "state_too_large"
    assert stage.refused(page_patch("f-none", {})).code == "surface_not_found"


def test_all_surfaces_of_an_instance_share_one_cap(stage: Any, owner: Instance, small_limits: Any) -> None:
    opened(stage, owner, {"title": "x" * 20})
    free = opened(stage, owner, {}, FREE)
    with small_limits(SURFACE_STATE_BYTES_MAX=60):
        stage.run(page_patch(free, {"k": "0123456789"}))
        assert stage.refused(page_patch(free, {"l": "01234567890123"})).code == "state_too_large"


def test_the_largest_states_still_fit_into_one_welcome(stage: Any, owner: Instance) -> None:
    """Everything that the caps let in must be possible to send to the next worker."""
    free = opened(stage, owner, {}, FREE)

    def grow(n: int) -> Callable[[Any], Any]:
        stage.steady_ms += 1_000
        return app_patch(owner, free, {f"k{n}-{i}": [i % 10] * 40 for i in range(350)})

    for n in range(15):
        stage.run(grow(n))
    assert stage.refused(grow(15)).code == "state_too_large"
    found = stage.run(lambda ctx: surfaces.open_surfaces(ctx, owner.instance_id))
    body = {
        "protocol": 1,
        "context": {},
        "entry": "app:app",
        "limits": {},
        "state": {"x": "y" * (limits.STATE_BYTES_MAX - 100)},
        "state_revision": 1,
        "operations": [],
        "interactions": [],
        "calls": [],
        "surfaces": found,
    }
    welcome = encode({"type": "worker.welcome", "body": body}, CAPS["worker", True])
    assert decode_message(welcome, "worker", from_runtime=True)[2] == body


def test_ten_thousand_elements_are_few_rows(stage: Any, owner: Instance) -> None:
    """A full whiteboard: strokes as the page draws them, then as tiny as they can be, up to a refusal by name."""
    free = opened(stage, owner, {"elements": {}}, FREE)

    def draw(first: int, count: int, stroke: dict[str, Any]) -> None:
        stage.steady_ms += 1_000
        named = {f"{first + n:x}": {**stroke, "z": first + n} for n in range(count)}
        stage.run(app_patch(owner, free, {"elements": named}))

    pen = {"type": "pen", "color": "ink", "width": 4, "points": "AAB" * 40}
    for n in range(0, 10_000, 1_000):
        draw(n, 1_000, pen)
    root = stage.look(lambda txn: merge_patch.root_of(txn, free))
    assert root.bytes > 1_800_000
    assert root.rows <= limits.SURFACE_PARTS_MAX // 4
    assert len(state_of(stage, free)["elements"]) == 10_000
    stage.steady_ms += 1_000
    stage.run(app_patch(owner, free, {"elements": None, "tiny": {}}))
    assert len(stage.rows(schema.SURFACE_PARTS)) == 2

    def tiny(first: int) -> Callable[[Any], Any]:
        stage.steady_ms += 1_000
        return app_patch(owner, free, {"tiny": {f"{first + n:x}": {"z": n} for n in range(4_000)}})

    for n in range(0, 56_000, 4_000):
        stage.run(tiny(n))
    assert "may have 230000 values and keys" in stage.refused(tiny(56_000)).message
    assert stage.look(lambda txn: merge_patch.root_of(txn, free)).rows <= limits.SURFACE_PARTS_MAX // 4


def test_parts_are_bounded_for_what_grows(stage: Any, owner: Instance, small_limits: Any) -> None:
    """A state of objects in objects in objects takes more rows than others, and is refused by name."""
    free = opened(stage, owner, {}, FREE)
    nested: dict[str, Any] = {"x": "x" * limits.SURFACE_PART_BYTES}
    for _ in range(6):
        nested = {"in": nested}
    stage.run(app_patch(owner, free, {f"n{i}": nested for i in range(4)}))
    with small_limits(SURFACE_PARTS_MAX=20):  # as if it were from before there was a bound
        refused = stage.refused(app_patch(owner, free, {"more": nested}))
        assert (refused.code, "may have 20 parts" in refused.message) == ("state_too_large", True)
        stage.run(app_patch(owner, free, {"n0": None}))
        stage.run(app_patch(owner, free, {"n1": 1}))
        stage.run(lambda ctx: surfaces.close_from_app(ctx, owner, {"surface_id": free}))


def test_what_people_are_told_names_the_event_that_it_came_from() -> None:
    """So that whoever's message it was pays for the telling."""
    core = Core()
    args = {"app_scope": "lab"}
    event = HostAction(event_id="e-1", actor="operator", action_id="a-1", name="apps.disable", args=args, reply_to="r")
    (told,) = [effect for effect in core.do(event) if isinstance(effect, HostDelta)]
    assert told.event_id == "e-1"


def test_a_large_patch_counts_as_several(stage: Any, owner: Instance, small_limits: Any) -> None:
    """What a patch costs goes by its values, whoever makes it; a refused one has been counted and not been copied."""
    with small_limits(SURFACE_PATCHES_PER_SECOND_MAX=10, SURFACE_NODES_PER_PATCH=8, SURFACE_MESSAGE_NODES_MAX=80):
        free = opened(stage, owner, {}, FREE)
        for patch in (app_patch(owner, free, {"a": [0] * 61}), page_patch(free, {"b": [0] * 61})):  # 64 values and keys
            stage.run(patch)
            refusal = stage.refused(patch)
            assert (refusal.code, "counts as 8" in refusal.message) == ("rate_limited", True)
        stage.run(app_patch(owner, free, {"a": None}))
        stage.run(lambda ctx: surfaces.event_from_host(ctx, free, "tap", [0] * 15))
        assert stage.refused(lambda ctx: surfaces.submit_from_host(ctx, free, None)).code == "rate_limited"
        stage.steady_ms += 800
        stage.run(app_patch(owner, free, {"a": [0] * 61}))
        too_large = stage.refused(app_patch(owner, free, {"a": [0] * 80}))
        assert (too_large.code, too_large.detail["path"]) == ("message_invalid", "/patch")


def test_messages_of_each_side_are_limited_by_time(stage: Any, owner: Instance, small_limits: Any) -> None:
    with small_limits(SURFACE_PATCHES_PER_SECOND_MAX=2):
        surface_id = opened(stage, owner)
        for n in range(2):
            stage.run(app_patch(owner, surface_id, {"title": str(n)}))
        assert stage.refused(app_patch(owner, surface_id, {"title": "x"})).code == "rate_limited"
        stage.run(page_patch(surface_id, {"title": "the person has a share of their own"[:20]}))
        stage.run(lambda ctx: surfaces.event_from_host(ctx, surface_id, "tap", None))
        assert stage.refused(page_patch(surface_id, {"title": "x"})).code == "rate_limited"
        assert stage.refused(lambda ctx: surfaces.submit_from_host(ctx, surface_id, {})).code == "rate_limited"
        stage.wall_ms += 3_600_000  # the wall clock has no say
        assert stage.refused(app_patch(owner, surface_id, {"title": "x"})).code == "rate_limited"
        stage.steady_ms += 500
        stage.run(app_patch(owner, surface_id, {"title": "y"}))
        assert stage.refused(app_patch(owner, surface_id, {"title": "x"})).code == "rate_limited"
        stage.steady_ms += 60_000
        for n in range(2):
            stage.run(app_patch(owner, surface_id, {"title": str(n)}))
        assert stage.refused(app_patch(owner, surface_id, {"title": "x"})).code == "rate_limited"


def test_state_counts_against_the_quota_of_the_manifest(stage: Any, owner: Instance, small_limits: Any) -> None:
    surface_id = opened(stage, owner)

    def used() -> int:
        size: int = stage.look(lambda txn: quotas.used(txn, "whiteboard", quotas.STATE))
        return size

    assert used() == len(canonical_json({"title": "one", "elements": {}}))
    stage.run(app_patch(owner, surface_id, {"title": "longer"}))
    assert used() == len(canonical_json({"title": "longer", "elements": {}}))
    with small_limits(MIB=1):  # the manifest's megabytes become bytes
        error = stage.refused(app_patch(owner, surface_id, {"title": "longer still"}))
    assert (error.code, error.detail["used"]) == ("state_too_large", used())
    stage.run(lambda ctx: surfaces.close_from_app(ctx, owner, {"surface_id": surface_id}))
    assert used() == 0


# other people's surfaces


def test_a_surface_belongs_to_its_instance(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    other = stage.instance("whiteboard")
    for rule in (
        app_patch(other, surface_id, {"title": "mine"}),
        lambda ctx: surfaces.close_from_app(ctx, other, {"surface_id": surface_id}),
    ):
        assert stage.refused(rule).code == "app_scope_mismatch"


@pytest.mark.conformance("03-9.1")
def test_what_a_payload_claims_is_content_and_nothing_else(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    other = stage.instance("whiteboard")
    claim = {"surface_id": "f-other", "instance_id": other.instance_id, "app_scope": "chat", "name": "lineup.closed"}
    stage.run(lambda ctx: surfaces.event_from_host(ctx, surface_id, "tap", claim))
    stage.run(lambda ctx: surfaces.submit_from_host(ctx, surface_id, claim))
    assert not [name for name, _, _ in stage.projected if name == "surfaces"]
    assert stage.inbox(owner.instance_id) == [
        ("surface.event", {"surface_id": surface_id, "name": "tap", "payload": claim}),
        ("surface.submit", {"surface_id": surface_id, "payload": claim}),
    ]
    assert stage.inbox(other.instance_id) == []


@pytest.mark.parametrize("name", ["", "x" * 129, "lineup.closed", "lineup.anything", None, 7])
def test_names_that_no_event_may_have(stage: Any, owner: Instance, name: Any) -> None:
    surface_id = opened(stage, owner)
    error = stage.refused(lambda ctx: surfaces.event_from_host(ctx, surface_id, name, {}))
    assert (error.code, error.detail["path"]) == ("message_invalid", "/name")


def test_payloads_and_waiting_messages_are_bounded(stage: Any, owner: Instance, small_limits: Any) -> None:
    surface_id = opened(stage, owner)
    with small_limits(SURFACE_PAYLOAD_BYTES_MAX=10):
        error = stage.refused(lambda ctx: surfaces.submit_from_host(ctx, surface_id, "0123456789"))
    assert error.code == "message_too_large"
    deep: Any = 1
    for _ in range(limits.VALUE_DEPTH_MAX + 1):
        deep = [deep]
    assert stage.refused(lambda ctx: surfaces.submit_from_host(ctx, surface_id, deep)).code == "message_invalid"
    with small_limits(INBOX_MESSAGES_PER_INSTANCE_MAX=2):
        for _ in range(2):
            stage.run(lambda ctx: surfaces.event_from_host(ctx, surface_id, "tap", 1))
        error = stage.refused(lambda ctx: surfaces.event_from_host(ctx, surface_id, "tap", 1))
    assert error.code == "rate_limited"


# the end


def test_closing_takes_everything_away(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    stage.run(lambda ctx: surfaces.close_from_app(ctx, owner, {"surface_id": surface_id}))
    assert stage.rows(schema.SURFACE_PARTS) == []
    assert stage.rows(schema.OPEN_SURFACES) == []
    row = stage.row(schema.SURFACES, surface_id)
    assert (row.state, row.closed_ms, surfaces.public(row)["status"]) == (SurfaceState.CLOSED, stage.wall_ms, "closed")
    for rule in (
        app_patch(owner, surface_id, {}),
        page_patch(surface_id, {}),
        lambda ctx: surfaces.event_from_host(ctx, surface_id, "tap", 1),
        lambda ctx: surfaces.submit_from_host(ctx, surface_id, 1),
        lambda ctx: surfaces.close_from_app(ctx, owner, {"surface_id": surface_id}),
        lambda ctx: surfaces.close_from_host(ctx, surface_id),
        lambda ctx: surfaces.full_state(ctx.txn, surface_id),
    ):
        assert stage.refused(rule).code == "surface_not_found"
    assert opened(stage, owner) != surface_id  # the entry is free again


def test_a_large_state_goes_in_slices(stage: Any, owner: Instance) -> None:
    """No event deletes many rows, however many surfaces end in it, and nothing is left in the end."""
    others = [owner, *(stage.instance("whiteboard") for _ in range(3))]
    for each in others:
        surface_id = opened(stage, each, {}, FREE)
        for n in range(4):
            stage.steady_ms += 1_000
            stage.run(app_patch(each, surface_id, {f"k{n}-{i}": "x" * 480 for i in range(1_000)}))
    all_rows = len(stage.rows(schema.SURFACE_PARTS))
    assert all_rows > 1_600

    def close_all(ctx: Any) -> None:
        for each in others:
            instances.close(ctx, each.instance_id, "closed_by_person", "done")

    stage.run(close_all)
    left = len(stage.rows(schema.SURFACE_PARTS))
    assert all_rows - left == len(others) * surfaces.ROWS_AT_ONCE
    assert stage.look(lambda txn: quotas.used(txn, "whiteboard", quotas.STATE)) == 0
    for _ in range(10):
        due = stage.row(schema.TIMER_DUE, "sweep")
        if not left:
            break
        assert due.due_ms <= stage.steady_ms + retention.SWEEP_AGAIN_MS
        stage.steady_ms = due.due_ms
        stage.run(retention.sweep)
        before, left = left, len(stage.rows(schema.SURFACE_PARTS))
        assert 0 < before - left <= retention.SWEEP_ROWS_MAX
        assert [fault for fault in stage.look(invariants.find_faults) if "state" in fault] == []
    assert left == 0
    assert stage.rows(schema.RETIRED, "state") == []


def test_a_person_who_closes_the_page_is_heard(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    stage.run(lambda ctx: surfaces.close_from_host(ctx, surface_id), actor="person")
    assert stage.inbox(owner.instance_id) == [
        ("surface.event", {"surface_id": surface_id, "name": "lineup.closed", "payload": None})
    ]
    assert stage.row(schema.SURFACES, surface_id).state == SurfaceState.CLOSED


def test_a_closed_instance_leaves_no_surface(stage: Any, owner: Instance) -> None:
    mine = [opened(stage, owner), opened(stage, owner, {}, FREE)]
    other = stage.instance("whiteboard")
    kept = opened(stage, other)
    stage.run(lambda ctx: instances.close(ctx, owner.instance_id, "closed_by_person", "done"))
    assert {stage.row(schema.SURFACES, s).state for s in mine} == {SurfaceState.CLOSED}
    assert state_of(stage, kept) == {"title": "one", "elements": {}}
    assert {key[0] for key, _ in stage.look(lambda txn: list(txn.scan(schema.SURFACE_PARTS)))} == {kept}


@pytest.mark.conformance("03-9.13")
def test_a_state_outlives_workers_at_the_revision_where_it_was(stage: Any, owner: Instance) -> None:
    surface_id = opened(stage, owner)
    elements = {f"e{n}": {"x": n, "label": "x" * 20} for n in range(500)}
    stage.run(app_patch(owner, surface_id, {"elements": elements}))
    stage.run(page_patch(surface_id, {"elements": {"e7": None}}))
    del elements["e7"]
    (found,) = stage.run(lambda ctx: surfaces.open_surfaces(ctx, owner.instance_id))
    assert found == {
        "surface_id": surface_id,
        "entry": BOARD,
        "title": "Board",
        "revision": 2,
        "state": {"title": "one", "elements": elements},
    }
    root = stage.look(lambda txn: merge_patch.root_of(txn, surface_id))
    assert stage.row(schema.SURFACES, surface_id).bytes == root.bytes == len(canonical_json(found["state"]))
