"""State snapshots: what the manifest promises is kept to, and a closed instance is history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_supervisor.core import instances, quotas, schema, snapshots
from lineup_supervisor.core.schema import Instance

SCHEMA = {
    "type": "object",
    "properties": {"activity": {"type": "string"}, "left": {"type": "integer", "minimum": 0}},
    "required": ["left"],
    "additionalProperties": False,
}


@pytest.fixture
def declare(stage: Any, make_manifest: Callable[..., dict[str, Any]]) -> Callable[..., Instance]:
    """An instance of a MiniApp that declares the feature."""

    def made(scope: str = "timer", **changes: Any) -> Instance:
        state = {
            "state_schema_version": 3,
            "state_schema": SCHEMA,
            "max_bytes": 60,
            "retention": "retain_readonly",
            **changes,
        }
        stage.install(make_manifest(scope, features=["app.instance-state.v1"], instance_state=state))
        instance: Instance = stage.instance(scope)
        return instance

    return made


def save(instance: Instance, state: Any, base: int | None = None) -> Callable[[Any], Any]:
    body = {"state": state} | ({} if base is None else {"base_revision": base})
    return lambda ctx: snapshots.save(ctx, instance, body)


def test_saves_count_revisions_and_the_last_one_stays(stage: Any, declare: Callable[..., Instance]) -> None:
    timer = declare()
    assert stage.look(lambda txn: snapshots.current(txn, timer.instance_id)) is None
    assert stage.run(save(timer, {"left": 5}, 0)) == {"revision": 1}
    assert stage.run(save(timer, {"left": 4, "activity": "read"})) == {"revision": 2}
    row = stage.row(schema.SNAPSHOTS, timer.instance_id)
    assert (row.state, row.revision, row.schema_version) == ({"left": 4, "activity": "read"}, 2, 3)
    assert row.bytes == len(canonical_json(row.state))
    assert stage.audited("state.saved")[-1].cause == timer.cause
    assert ("snapshots", (timer.instance_id,), row) in stage.projected
    assert snapshots.public(row)["revision"] == 2


def test_a_save_from_an_older_revision_is_refused(stage: Any, declare: Callable[..., Instance]) -> None:
    timer = declare()
    stage.run(save(timer, {"left": 5}))
    for stale in (0, 2):
        error = stage.refused(save(timer, {"left": 4}, stale))
        assert (error.code, error.detail) == ("state_conflict", {"revision": 1})


@pytest.mark.parametrize(
    ("state", "code", "path"),
    [
        ({}, "state_invalid", "/left"),
        ({"left": -1}, "state_invalid", "/left"),
        ({"left": 1.5}, "state_invalid", "/left"),
        ({"left": True}, "state_invalid", "/left"),
        ({"left": float("nan")}, "state_invalid", "/left"),
        ({"left": 1, "more": 1}, "state_invalid", "/more"),
        ([], "state_invalid", "/"),
        ({"left": 1, "activity": "x" * 60}, "state_too_large", None),
    ],
)
def test_what_breaks_the_schema_or_the_size_is_not_taken(
    stage: Any, declare: Callable[..., Instance], state: Any, code: str, path: str | None
) -> None:
    timer = declare()
    stage.run(save(timer, {"left": 9}))
    error = stage.refused(save(timer, state))
    assert error.code == code
    assert error.detail.get("path") == path


def test_exactly_max_bytes_fit(stage: Any, declare: Callable[..., Instance]) -> None:
    timer = declare()
    state = {"left": 1, "activity": ""}
    state["activity"] = "x" * (60 - len(canonical_json(state)))
    stage.run(save(timer, state))
    state["activity"] = str(state["activity"]) + "x"
    assert stage.refused(save(timer, state)).code == "state_too_large"


def test_shapes_that_no_message_could_carry_are_refused(stage: Any, declare: Callable[..., Instance]) -> None:
    free = declare("free", state_schema={"type": "object"}, max_bytes=limits.STATE_BYTES_MAX)
    deep: Any = {}
    for _ in range(limits.VALUE_DEPTH_MAX):
        deep = {"x": deep}
    assert stage.refused(save(free, deep)).code == "state_invalid"
    assert stage.refused(save(free, {"x": [0] * limits.STATE_NODES_MAX})).code == "state_too_large"
    stage.run(save(free, deep["x"]))


def test_without_the_feature_there_is_no_snapshot(stage: Any, make_manifest: Callable[..., dict[str, Any]]) -> None:
    stage.install(make_manifest("plain"))
    plain = stage.instance("plain")
    error = stage.refused(save(plain, {}))
    assert error.code == "state_invalid"
    assert "app.instance-state.v1" in error.message


def test_after_the_end_it_is_read_only_history(stage: Any, declare: Callable[..., Instance]) -> None:
    timer = declare()
    stage.run(save(timer, {"left": 5}))
    stage.run(lambda ctx: instances.close(ctx, timer.instance_id, "closed_by_person", ""))
    closed = stage.row(schema.INSTANCES, timer.instance_id)
    row = stage.row(schema.SNAPSHOTS, timer.instance_id)
    assert (row.state, row.read_only) == ({"left": 5}, True)
    # Neither the closed instance nor whoever still believes it open can write.
    for instance in (closed, timer):
        assert stage.refused(save(instance, {"left": 4})).code == "app_closed"
    # A new instance starts from nothing.
    again = stage.instance("timer")
    assert stage.look(lambda txn: snapshots.current(txn, again.instance_id)) is None
    assert stage.run(save(again, {"left": 1})) == {"revision": 1}
    assert stage.row(schema.SNAPSHOTS, timer.instance_id) == row


def test_what_is_not_to_be_retained_goes_with_its_instance(stage: Any, declare: Callable[..., Instance]) -> None:
    timer = declare(retention="delete")
    stage.run(save(timer, {"left": 5}))
    stage.run(lambda ctx: instances.close(ctx, timer.instance_id, "closed_by_person", ""))
    assert stage.row(schema.SNAPSHOTS, timer.instance_id) is None
    closed = stage.row(schema.INSTANCES, timer.instance_id)
    assert stage.refused(save(closed, {"left": 4})).code == "app_closed"


def test_snapshots_count_while_their_instance_lives(
    stage: Any, declare: Callable[..., Instance], small_limits: Any
) -> None:
    timer = declare()
    stage.run(save(timer, {"left": 5}))

    def used() -> int:
        size: int = stage.look(lambda txn: quotas.used(txn, "timer", quotas.STATE))
        return size

    assert used() == len(canonical_json({"left": 5}))
    with small_limits(MIB=1):
        assert stage.refused(save(timer, {"left": 5, "activity": "a book"})).code == "state_too_large"
        stage.run(save(timer, {"left": 4}))
    stage.run(lambda ctx: instances.close(ctx, timer.instance_id, "closed_by_person", ""))
    assert used() == 0
