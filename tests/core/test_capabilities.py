"""The capability gateway: every rule that may say no, a person's word, and exactly one result for each request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_supervisor.core import apps, artifacts, capabilities, instances, interactions, schema
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import Instance
from lineup_supervisor.core.tables import InstanceState, InteractionState

NOTIFY = {"capability": "notification.show", "reason": "to tell you when it is done", "arguments": {"title": "Done"}}
ALL = ["notification.show", "artifact.export", "microphone", "camera", "files", "clipboard", "network"]


@pytest.fixture
def board(stage: Any, make_manifest: Callable[..., dict[str, Any]]) -> Instance:
    stage.install(make_manifest("board", title="Board", requested_capabilities=ALL))
    made: Instance = stage.instance("board")
    return made


def request(instance: Instance, **changes: Any) -> Callable[[Any], Any]:
    return lambda ctx: capabilities.request(ctx, instance, NOTIFY | changes)


def question_of(stage: Any, instance: Instance) -> str:
    (row,) = stage.rows(schema.OPEN_INTERACTIONS, instance.instance_id) and [
        row
        for row in stage.rows(schema.INTERACTIONS)
        if row.instance_id == instance.instance_id and row.status == InteractionState.PENDING
    ]
    interaction_id: str = row.interaction_id
    return interaction_id


def answer(stage: Any, instance: Instance, action: str) -> None:
    question = question_of(stage, instance)
    result = {"action_ids": [action]}
    stage.run(lambda ctx: interactions.answer(ctx, question, result), actor="person")


def results(stage: Any, instance: Instance) -> list[dict[str, Any]]:
    assert {kind for kind, _ in stage.inbox(instance.instance_id)} <= {"capability.result"}
    return [body for _, body in stage.inbox(instance.instance_id)]


# consent


@pytest.mark.conformance("03-9.13")
def test_the_person_is_asked_by_the_runtime_and_the_answer_is_delivered(stage: Any, board: Instance) -> None:
    receipt = stage.run(request(board))
    assert receipt == {"request_id": receipt["request_id"], "pending": True}
    row = stage.row(schema.INTERACTIONS, question_of(stage, board))
    assert (row.source, row.kind, row.app_scope, row.cause) == ("runtime_policy", "choice", "board", board.cause)
    assert [action["id"] for action in row.request["actions"]] == ["once", "session", "always", "deny"]
    assert row.request["title"] == "Board would like to show you notifications"
    assert NOTIFY["reason"] in row.request["prompt"]
    assert row.purpose["arguments"] == {"title": "Done"}
    assert results(stage, board) == []

    answer(stage, board, "once")
    (body,) = results(stage, board)
    notification_id = body["result"]["notification_id"]
    assert body == {
        "request_id": receipt["request_id"],
        "capability": "notification.show",
        "granted": True,
        "result": {"notification_id": notification_id},
    }
    assert stage.row(schema.NOTIFICATIONS, notification_id).title == "Done"
    assert stage.row(schema.INTERACTIONS, row.interaction_id).status == InteractionState.COMPLETED
    assert stage.rows(schema.OPEN_INTERACTIONS) == []
    assert stage.rows(schema.PENDING_CONSENT) == []
    assert stage.rows(schema.GRANTS) == []
    audited = stage.audited("capability.granted")[-1]
    assert (audited.actor, audited.cause, audited.detail["by"]) == ("person", board.cause, "once")


@pytest.mark.parametrize("action", ["session", "always"])
def test_a_standing_grant_spares_the_person(stage: Any, board: Instance, action: str) -> None:
    stage.run(request(board))
    answer(stage, board, action)
    again = stage.run(request(board))
    assert (again["pending"], again["granted"]) == (False, True)
    assert [body["request_id"] for body in results(stage, board)][-1] == again["request_id"]
    (grant,) = stage.look(capabilities.grants)
    assert (grant["app_scope"], grant["capability"], grant["scope"]) == ("board", "notification.show", action)
    canonical_json(grant)
    # It is the MiniApp's, not the instance's.
    other = stage.instance("board")
    assert stage.run(request(other))["pending"] is False


def test_a_grant_for_the_session_ends_with_the_run_and_an_always_does_not(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    answer(stage, board, "session")
    stage.run(lambda ctx: ctx.set_meta(boot_id="boot-2"))
    assert stage.look(capabilities.grants) == []
    assert stage.run(request(board))["pending"] is True
    answer(stage, board, "always")
    stage.run(lambda ctx: ctx.set_meta(boot_id="boot-3"))
    assert stage.run(request(board))["pending"] is False


@pytest.mark.parametrize(
    ("action", "lasts_ms"),
    [
        ("session", limits.SESSION_GRANT_MS_MAX),
        ("always", limits.ALWAYS_GRANT_MS_MAX),
    ],
)
def test_grants_run_out(stage: Any, board: Instance, action: str, lasts_ms: int) -> None:
    stage.run(request(board))
    answer(stage, board, action)
    stage.wall_ms += lasts_ms - 1
    assert stage.run(request(board))["pending"] is False
    stage.wall_ms += 1
    assert stage.run(request(board))["pending"] is True


def test_a_revocation_takes_effect_at_once(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    answer(stage, board, "always")
    stage.run(lambda ctx: capabilities.revoke(ctx, "board", "notification.show"), actor="person")
    assert stage.look(capabilities.grants) == []
    assert stage.run(request(board))["pending"] is True
    error = stage.refused(lambda ctx: capabilities.revoke(ctx, "board", "notification.show"))
    assert error.code == "not_found"
    assert stage.audited("capability.revoked")[-1].actor == "person"


def test_a_refusal_is_delivered_and_holds_for_a_while(stage: Any, board: Instance) -> None:
    receipt = stage.run(request(board))
    answer(stage, board, "deny")
    (body,) = results(stage, board)
    assert (body["request_id"], body["granted"], body["code"]) == (receipt["request_id"], False, "capability_denied")
    assert body["detail"] == {"capability": "notification.show", "why": "denied_by_person"}
    assert stage.rows(schema.NOTIFICATIONS) == []
    assert stage.refused(request(board)).detail["why"] == "denied_by_person"
    stage.wall_ms += limits.DENIED_GRANT_MS
    assert stage.run(request(board))["pending"] is True


def test_the_person_may_take_a_refusal_back(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    answer(stage, board, "deny")
    stage.run(lambda ctx: capabilities.revoke(ctx, "board", "notification.show"))
    assert stage.run(request(board))["pending"] is True


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda ctx, question: interactions.cancel(ctx, question, "not now"), "consent_cancelled"),
        (lambda ctx, question: interactions.expired(ctx, question), "consent_expired"),
    ],
)
def test_without_an_answer_there_is_no_consent(stage: Any, board: Instance, end: Any, why: str) -> None:
    stage.run(request(board))
    question = question_of(stage, board)
    stage.run(lambda ctx: end(ctx, question))
    (body,) = results(stage, board)
    assert (body["granted"], body["code"], body["detail"]["why"]) == (False, "capability_denied", why)
    assert stage.rows(schema.PENDING_CONSENT) == []
    assert stage.run(request(board))["pending"] is True  # that was no refusal


def test_a_question_for_consent_does_not_wait_for_ever(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    row = stage.row(schema.INTERACTIONS, question_of(stage, board))
    assert row.expires_ms == stage.wall_ms + limits.CONSENT_MS_MAX


def test_one_question_for_one_capability_at_a_time(stage: Any, board: Instance, small_limits: Any) -> None:
    stage.run(request(board))
    assert stage.refused(request(board)).code == "rate_limited"
    export = {"capability": "artifact.export", "arguments": {"artifact_id": "a-1"}}
    with small_limits(INTERACTIONS_PENDING_PER_INSTANCE_MAX=1):
        assert stage.refused(request(board, **export)).code == "rate_limited"
    assert stage.run(request(board, **export))["pending"] is True


def test_an_owner_that_closes_takes_its_question_with_it(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    question = question_of(stage, board)
    stage.run(lambda ctx: instances.close(ctx, board.instance_id, "closed_by_person", ""))
    assert stage.row(schema.INTERACTIONS, question).status == InteractionState.CANCELLED
    assert stage.rows(schema.PENDING_CONSENT) == []
    assert stage.inbox(board.instance_id) == []
    late = stage.refused(lambda ctx: interactions.answer(ctx, question, {"action_ids": ["always"]}))
    assert late.code == "interaction_already_final"
    assert stage.rows(schema.GRANTS) == []


def test_the_app_can_neither_cancel_nor_answer_the_question(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    body = {"interaction_id": question_of(stage, board)}
    error = stage.refused(lambda ctx: interactions.cancel_from_app(ctx, board, body))
    assert error.code == "app_scope_mismatch"


# what says no before anybody is asked


@pytest.mark.parametrize("name", ["microphone", "camera", "files", "clipboard", "network"])
def test_what_is_not_offered_says_why(stage: Any, board: Instance, name: str) -> None:
    error = stage.refused(request(board, capability=name, arguments={}))
    assert (error.code, error.detail) == ("capability_denied", {"capability": name, "why": "host_unsupported"})
    assert capabilities.CATALOGUE[name].why_not in error.message


def test_unknown_or_unrequested_capabilities_are_denied(
    stage: Any, board: Instance, make_manifest: Callable[..., dict[str, Any]]
) -> None:
    assert stage.refused(request(board, capability="tauri.invoke")).detail["why"] == "unknown_capability"
    stage.install(make_manifest("modest"))
    assert stage.refused(request(stage.instance("modest"))).detail["why"] == "not_requested"


def test_the_operator_may_forbid_a_capability_to_all(stage: Any, board: Instance) -> None:
    stage.run(lambda ctx: ctx.set_meta(policy=Policy(capabilities_denied=("notification.show",))))
    assert stage.refused(request(board)).detail["why"] == "policy"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"reason": ""}, "/reason"),
        ({"reason": "x" * (limits.REASON_LENGTH_MAX + 1)}, "/reason"),
        ({"reason": "to \u202ehelp"}, "/reason"),
        ({"reason": "\x1b[31mred"}, "/reason"),
        ({"arguments": {}}, "/arguments/title"),
        ({"arguments": {"title": "x", "more": 1}}, "/arguments/more"),
        ({"arguments": {"title": ""}}, "/arguments/title"),
    ],
)
def test_reason_and_arguments_are_checked(stage: Any, board: Instance, changes: dict[str, Any], path: str) -> None:
    error = stage.refused(request(board, **changes))
    assert (error.code, error.detail["path"]) == ("message_invalid", path)


def test_only_what_is_in_the_foreground_may_export(stage: Any, board: Instance) -> None:
    hidden = msgspec.structs.replace(board, state=InstanceState.BACKGROUND)
    export = {"capability": "artifact.export", "arguments": {"artifact_id": "a-1"}}
    assert stage.refused(request(hidden, **export)).detail["why"] == "not_in_foreground"
    assert stage.run(request(hidden))["pending"] is True  # a notification needs no screen


def test_disabled_quarantined_and_closed_apps_get_nothing(stage: Any, board: Instance) -> None:
    for change in (apps.disable, lambda ctx, scope: apps.quarantine(ctx, scope, "it broke")):
        stage.run(lambda ctx, change=change: change(ctx, "board"))
        assert stage.refused(request(board)).detail["why"] == "app_disabled"
        stage.run(lambda ctx: apps.enable(ctx, "board"))
    closed = msgspec.structs.replace(board, state=InstanceState.CLOSED)
    assert stage.refused(request(closed)).code == "app_closed"


def test_rules_of_state_hold_again_when_the_person_has_answered(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    stage.run(lambda ctx: apps.disable(ctx, "board"))
    answer(stage, board, "always")
    (body,) = results(stage, board)
    assert (body["granted"], body["detail"]["why"]) == (False, "app_disabled")
    assert stage.rows(schema.NOTIFICATIONS) == []


def test_a_tool_that_needs_what_its_app_can_never_have_is_not_called(stage: Any, board: Instance) -> None:
    app = stage.row(schema.APPS, "board")
    manifest = stage.row(schema.BUNDLES, board.digest).manifest

    def check(**tool: Any) -> Callable[[Any], None]:
        return lambda ctx: capabilities.permission_check(ctx, app, manifest, tool)

    stage.run(check())
    stage.run(check(permissions=["notification.show", "artifact.export"]))
    assert stage.refused(check(permissions=["notification.show", "camera"])).detail["why"] == "host_unsupported"
    assert stage.refused(check(permissions=["teleport"])).detail["why"] == "unknown_capability"
    bare = manifest | {"requested_capabilities": []}
    error = stage.refused(
        lambda ctx: capabilities.permission_check(ctx, app, bare, {"permissions": ["notification.show"]})
    )
    assert (error.code, error.detail["why"]) == ("capability_denied", "not_requested")


# what is done


def granted(stage: Any, board: Instance) -> None:
    stage.run(request(board))
    answer(stage, board, "always")


def test_notifications_are_rows_that_people_see_and_fall_into_one(stage: Any, board: Instance) -> None:
    granted(stage, board)
    stage.wall_ms += 1_000
    again = stage.run(request(board, arguments={"title": "Done", "body": "again"}))
    (row,) = stage.rows(schema.NOTIFICATIONS)
    assert (row.count, row.body, row.at_ms) == (2, "again", stage.wall_ms)
    assert ("notifications", (row.notification_id,), row) in stage.projected
    assert again["result"] == {"notification_id": row.notification_id}
    stage.run(request(board, arguments={"title": "Other"}))
    assert [n["title"] for n in stage.look(capabilities.notifications)] == ["Done", "Other"]
    stage.run(lambda ctx: capabilities.dismiss_notification(ctx, row.notification_id))
    assert [n["title"] for n in stage.look(capabilities.notifications)] == ["Other"]
    gone = stage.refused(lambda ctx: capabilities.dismiss_notification(ctx, row.notification_id))
    assert gone.code == "not_found"


def test_notifications_of_one_app_are_bounded(stage: Any, board: Instance, small_limits: Any) -> None:
    granted(stage, board)
    with small_limits(NOTIFICATIONS_PER_APP_MAX=3):
        for n in range(5):
            stage.wall_ms += 1
            stage.run(request(board, arguments={"title": f"n{n}"}))
    assert [n["title"] for n in stage.look(capabilities.notifications)] == ["n2", "n3", "n4"]
    assert len(stage.rows(schema.NOTIFICATIONS_OF)) == 3


def test_an_export_marks_the_artifact_and_saves_its_file(stage: Any, board: Instance) -> None:
    content = {"title": "Plan", "media_type": "text/plain", "content": b"plan"}
    artifact_id = stage.run(lambda ctx: artifacts.submit(ctx, board, content))["artifact_id"]
    stage.run(request(board, capability="artifact.export", arguments={"artifact_id": artifact_id}))
    answer(stage, board, "once")
    (body,) = results(stage, board)
    assert body["result"]["artifact"]["exported_at"] == "2027-01-15T08:00:00.000Z"
    assert [effect.content for effect in stage.effects if isinstance(effect, fx.SaveBlob)] == [b"plan"]
    assert stage.row(schema.ARTIFACTS, artifact_id).exported_ms == stage.wall_ms
    assert [a.artifact_id for a in stage.look(artifacts.exported)] == [artifact_id]


def test_nobody_exports_what_belongs_to_another_instance(stage: Any, board: Instance) -> None:
    other = stage.instance("board", InstanceState.BACKGROUND)
    content = {"title": "Plan", "media_type": "text/plain", "content": b"plan"}
    artifact_id = stage.run(lambda ctx: artifacts.submit(ctx, other, content))["artifact_id"]
    stage.run(request(board, capability="artifact.export", arguments={"artifact_id": artifact_id}))
    answer(stage, board, "always")
    (body,) = results(stage, board)
    assert (body["granted"], body["code"]) == (False, "not_found")
    assert stage.row(schema.ARTIFACTS, artifact_id).exported_ms is None
    assert not any(isinstance(effect, fx.SaveBlob) for effect in stage.effects)


def test_a_removed_app_leaves_no_grant_and_no_notification(stage: Any, board: Instance) -> None:
    granted(stage, board)
    stage.run(lambda ctx: apps.remove(ctx, "board"))
    for table in (schema.GRANTS, schema.NOTIFICATIONS, schema.NOTIFICATIONS_OF, schema.PENDING_CONSENT):
        assert stage.rows(table) == []


def test_the_catalogue_is_whole() -> None:
    assert set(capabilities.CATALOGUE) == set(ALL)
    for row in capabilities.CATALOGUE.values():
        assert (row.run is None) == bool(row.why_not)
        assert row.run is None or row.arguments is not None
