"""The worker's session, by itself: messages in, events and messages out."""

from __future__ import annotations

from typing import Any

import pytest

from lineup_protocol.errors import LineUpError
from lineup_sdk.events import (
    Answered,
    CallStarted,
    CancelAsked,
    ClaimRefused,
    ContextChanged,
    InteractionChanged,
    MessageDelivered,
    OperationChanged,
    Refused,
    StopAsked,
    SurfaceChanged,
    Welcomed,
)
from lineup_sdk.session import COMMANDS_MAX, ProtocolViolation, WorkerSession

CONTEXT = {
    "app_scope": "probe",
    "instance_id": "i-1",
    "conversation_id": "c-1",
    "app_version": "1.0.0",
    "state": "starting",
}
WELCOME: dict[str, Any] = {
    "protocol": 1,
    "context": CONTEXT,
    "entry": "app:app",
    "limits": {"ping_ms": 5},
    "state": {"n": 1},
    "state_revision": 3,
    "operations": [{"operation_id": "o-1", "state": "focusing", "ends_at": "2026-11-30T08:00:00Z"}],
    "interactions": [
        {"interaction_id": "q-1", "kind": "notice", "request": {"kind": "notice"}, "status": "pending", "owner": {}}
    ],
    "calls": [{"call_id": "k-0", "tool_id": "probe.old", "input": {}}],
    "surfaces": [{"surface_id": "s-1", "entry": "surface/index.html", "state": {"a": {"b": 1}}, "revision": 4}],
}


def greet(**options: Any) -> WorkerSession:
    session = WorkerSession(**options)
    session.hello()
    session.outgoing()
    return session


def opened(**options: Any) -> WorkerSession:
    session = greet(**options)
    session.receive("worker.welcome", None, WELCOME)
    session.ready()
    session.outgoing()
    return session


def deliver(session: WorkerSession, seq: int, kind: str, body: dict[str, Any]) -> list[Any]:
    message = {"seq": seq, "kind": kind, "message_id": f"m-{seq}", "body": body}
    return session.receive("inbox.deliver", None, message)


def call_body(call_id: str = "k-1", *, retry_safe: bool = True) -> dict[str, Any]:
    return {"call_id": call_id, "tool_id": "probe.do", "input": {"x": 1}, "attempt": 1, "retry_safe": retry_safe}


def text(words: str) -> dict[str, Any]:
    return {"text": words, "format": "plain", "at": "2026-11-30T08:00:00Z", "from": "person"}


def types(session: WorkerSession) -> list[str]:
    return [message["type"] for message in session.outgoing()]


def test_hello_comes_first_and_names_the_versions() -> None:
    session = WorkerSession()
    session.hello()
    assert session.outgoing() == [{"type": "worker.hello", "body": {"protocols": [1], "sdk_version": "1.0"}}]
    assert session.outgoing() == []


def test_welcome_loads_the_projection() -> None:
    session = greet()
    assert session.receive("worker.welcome", None, WELCOME) == [Welcomed("app:app")]
    known = session.projection
    assert known.context.instance_id == "i-1"
    assert (known.state, known.state_revision) == ({"n": 1}, 3)
    assert known.calls["k-0"].tool_id == "probe.old"
    assert known.operations["o-1"].state == "focusing"
    assert known.interactions["q-1"].status == "pending"
    assert known.surfaces["s-1"].revision == 4
    session.ready()
    assert types(session) == ["worker.ready"]


def test_refusal() -> None:
    session = greet()
    body = {"code": "protocol_unsupported", "message": "no common version"}
    assert session.receive("worker.refuse", None, body) == [Refused("protocol_unsupported", "no common version")]


@pytest.mark.parametrize("phase", ["greeting", "open"])
def test_a_ping_is_answered_at_once_in_every_phase(phase: str) -> None:
    session = greet() if phase == "greeting" else opened()
    assert session.receive("worker.ping", None, {"nonce": 7}) == []
    assert session.outgoing() == [{"type": "worker.pong", "body": {"nonce": 7}}]
    assert session.pings == 1


def test_stop_is_reported() -> None:
    assert opened().receive("worker.stop", None, {"reason": "idle", "grace_ms": 500}) == [StopAsked("idle", 500)]


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("no.such", {}),
        ("worker.hello", {"protocols": [1], "sdk_version": "1"}),
        ("worker.ping", {"nonce": "seven"}),
        ("worker.ping", {"nonce": 1, "more": 2}),
        ("worker.ping", None),
        ("receipt", {"re": "99", "accepted": True}),
        ("worker.welcome", WELCOME),
        ("inbox.deliver", {"seq": 1, "kind": "no.kind", "message_id": "m", "body": {}}),
        ("inbox.deliver", {"seq": 1, "kind": "tool.call", "message_id": "m", "body": {"tool_id": "probe.do"}}),
        ("inbox.deliver", {"seq": 1, "kind": "interaction.result", "message_id": "m", "body": {"interaction": 3}}),
    ],
)
def test_what_the_runtime_may_not_say_is_a_violation(type_: str, body: Any) -> None:
    with pytest.raises(ProtocolViolation):
        opened().receive(type_, None, body)


@pytest.mark.parametrize("type_", ["inbox.deliver", "receipt", "context.changed"])
def test_nothing_but_greeting_before_the_welcome(type_: str) -> None:
    bodies = {
        "inbox.deliver": {"seq": 1, "kind": "message.text", "message_id": "m-1", "body": text("hi")},
        "receipt": {"re": "1", "accepted": True},
        "context.changed": {"state": "foreground"},
    }
    with pytest.raises(ProtocolViolation, match=r"before worker\.welcome"):
        greet().receive(type_, None, bodies[type_])


def test_a_welcome_with_another_version_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="not offered"):
        greet().receive("worker.welcome", None, WELCOME | {"protocol": 2})


def test_a_retry_safe_call_starts_at_once_and_is_acknowledged() -> None:
    session = opened()
    (event,) = deliver(session, 5, "tool.call", call_body())
    assert isinstance(event, CallStarted)
    assert event.call.call_id == "k-1"
    assert session.outgoing() == []
    assert session.deferring
    session.acknowledge_deferred()
    assert session.outgoing() == [{"type": "inbox.ack", "body": {"seq": 5}}]


def test_the_acknowledgement_of_a_retry_safe_call_goes_right_before_its_first_message() -> None:
    session = opened()
    deliver(session, 5, "tool.call", call_body())
    session.command("tool.complete", {"call_id": "k-1", "result": {}})
    assert [message["type"] for message in session.outgoing()] == ["inbox.ack", "tool.complete"]
    assert not session.deferring


def test_the_acknowledgement_of_a_retry_safe_call_goes_when_its_handler_has_ended() -> None:
    session = opened()
    deliver(session, 5, "tool.call", call_body())
    session.finished("k-1")
    assert [message["type"] for message in session.outgoing()] == ["inbox.ack"]


def test_any_other_call_starts_only_after_its_acknowledgement_is_committed() -> None:
    session = opened()
    assert deliver(session, 1, "tool.call", call_body(retry_safe=False)) == []
    (ack,) = session.outgoing()
    assert ack["type"] == "inbox.ack"
    answered, started = session.receive("receipt", None, {"re": ack["id"], "accepted": True})
    assert isinstance(answered, Answered)
    assert isinstance(started, CallStarted)


def test_a_refused_claim_is_never_run() -> None:
    session = opened()
    deliver(session, 1, "tool.call", call_body(retry_safe=False))
    (ack,) = session.outgoing()
    body = {"re": ack["id"], "accepted": False, "code": "call_already_final", "message": "withdrawn"}
    events = session.receive("receipt", None, body)
    assert [type(event) for event in events] == [Answered, ClaimRefused]
    assert "k-1" not in session.projection.calls
    assert not session.busy


def test_a_delivery_is_reported_once_and_acknowledged_again_if_it_was_before() -> None:
    session = opened()
    (event,) = deliver(session, 1, "message.text", text("hi"))
    assert isinstance(event, MessageDelivered)
    assert deliver(session, 1, "message.text", text("hi")) == []
    assert session.outgoing() == []
    session.acknowledge(1)
    assert session.outgoing() == [{"type": "inbox.ack", "body": {"seq": 1}}]
    assert deliver(session, 1, "message.text", text("hi")) == []
    assert session.outgoing() == [{"type": "inbox.ack", "body": {"seq": 1}}]


def test_the_inbox_holds_what_is_not_acknowledged_in_order() -> None:
    session = opened()
    for seq in (3, 7, 8):
        deliver(session, seq, "message.text", text(str(seq)))
    session.acknowledge(7)
    assert list(session.projection.inbox) == ["m-3", "m-8"]
    session.acknowledge(7)
    assert types(session) == ["inbox.ack"]


def test_calls_beyond_the_handlers_wait_unacknowledged_in_order() -> None:
    session = opened(handlers_max=1)
    (first,) = deliver(session, 1, "tool.call", call_body("k-1"))
    assert deliver(session, 2, "tool.call", call_body("k-2")) == []
    assert deliver(session, 3, "tool.call", call_body("k-3", retry_safe=False)) == []
    session.acknowledge_deferred()
    assert [message["body"] for message in session.outgoing()] == [{"seq": 1}]
    (second,) = session.finished(first.call.call_id)
    assert second.call.call_id == "k-2"
    assert session.finished("k-2") == []
    ack = session.outgoing()[-1]
    assert (ack["type"], ack["body"]) == ("inbox.ack", {"seq": 3})
    (_, third) = session.receive("receipt", None, {"re": ack["id"], "accepted": True})
    assert third.call.call_id == "k-3"


def test_a_cancel_reaches_a_started_call() -> None:
    session = opened()
    (started,) = deliver(session, 1, "tool.call", call_body())
    (asked,) = deliver(session, 2, "tool.cancel", {"call_id": "k-1", "reason": "enough"})
    assert asked == CancelAsked(started.call, 2, "enough", True)


def test_a_cancel_of_a_waiting_call_means_that_it_never_starts() -> None:
    session = opened(handlers_max=1)
    deliver(session, 1, "tool.call", call_body("k-1"))
    deliver(session, 2, "tool.call", call_body("k-2"))
    (asked,) = deliver(session, 3, "tool.cancel", {"call_id": "k-2"})
    assert (asked.started, asked.call.call_id) == (False, "k-2")
    assert session.finished("k-1") == []


def test_a_cancel_overtakes_a_claim() -> None:
    session = opened()
    deliver(session, 1, "tool.call", call_body(retry_safe=False))
    (ack,) = session.outgoing()
    (asked,) = deliver(session, 2, "tool.cancel", {"call_id": "k-1"})
    assert not asked.started
    events = session.receive("receipt", None, {"re": ack["id"], "accepted": True})
    assert [type(event) for event in events] == [Answered]


def test_a_cancel_of_a_call_that_has_ended_is_only_acknowledged() -> None:
    session = opened()
    assert deliver(session, 1, "tool.cancel", {"call_id": "k-gone"}) == []
    assert types(session) == ["inbox.ack"]


@pytest.mark.parametrize("type_", ["tool.complete", "tool.fail", "tool.cancel"])
@pytest.mark.parametrize(
    ("accepted", "code", "still_open"),
    [(True, None, False), (False, "call_already_final", False), (False, "tool_output_invalid", True)],
)
def test_receipts_close_calls(type_: str, accepted: bool, code: str | None, still_open: bool) -> None:
    session = opened()
    extra = {"tool.complete": {"result": {}}, "tool.fail": {"code": "x", "message": "y"}, "tool.cancel": {}}
    command_id = session.command(type_, {"call_id": "k-0", **extra[type_]})
    body = {"re": command_id, "accepted": accepted} | ({"code": code} if code else {})
    session.receive("receipt", None, body)
    assert ("k-0" in session.projection.calls) is still_open


def test_a_save_moves_the_state_only_when_accepted() -> None:
    session = opened()
    refused = session.command("state.save", {"state": {"n": 2}})
    session.receive("receipt", None, {"re": refused, "accepted": False, "code": "state_invalid"})
    assert (session.projection.state, session.projection.state_revision) == ({"n": 1}, 3)
    saved = session.command("state.save", {"state": {"n": 2}})
    session.receive("receipt", None, {"re": saved, "accepted": True, "detail": {"revision": 4}})
    assert (session.projection.state, session.projection.state_revision) == ({"n": 2}, 4)


def test_surfaces_follow_both_sides() -> None:
    session = opened()
    body = {"surface_id": "s-1", "revision": 5, "patch": {"a": {"b": None, "c": [1]}}}
    (changed,) = session.receive("surface.changed", None, body)
    assert isinstance(changed, SurfaceChanged)
    assert (changed.surface.state, changed.surface.revision) == ({"a": {"c": [1]}}, 5)
    assert session.receive("surface.changed", None, body) == []
    update = session.command("surface.update", {"surface_id": "s-1", "patch": {"d": 2}})
    session.receive("receipt", None, {"re": update, "accepted": True, "detail": {"revision": 6}})
    assert session.projection.surfaces["s-1"].state == {"a": {"c": [1]}, "d": 2}
    close = session.command("surface.close", {"surface_id": "s-1"})
    session.receive("receipt", None, {"re": close, "accepted": True})
    assert session.projection.surfaces == {}


def test_a_surface_that_the_person_closed_is_gone() -> None:
    session = opened()
    (event,) = deliver(session, 1, "surface.event", {"surface_id": "s-1", "name": "lineup.closed", "payload": None})
    assert isinstance(event, MessageDelivered)
    assert session.projection.surfaces == {}


def test_projections_change() -> None:
    session = opened()
    (context,) = session.receive("context.changed", None, {"state": "background"})
    assert isinstance(context, ContextChanged)
    assert context.context.state == session.projection.context.state == "background"
    record = WELCOME["interactions"][0] | {"status": "cancelled", "reason": "its call has ended"}
    (interaction,) = session.receive("interaction.changed", None, {"interaction": record})
    assert isinstance(interaction, InteractionChanged)
    assert interaction.interaction.settled
    assert not interaction.interaction.answered


def test_an_operation_that_ends_takes_its_call_along() -> None:
    session = opened()
    operation = {"operation_id": "o-2", "state": "focusing"}
    deliver(session, 1, "tool.call", call_body() | {"operation": operation, "operation_id": "o-2"})
    assert session.projection.operations["o-2"].state == "focusing"
    (changed,) = session.receive("operation.changed", None, {"operation": operation | {"state": "completed"}})
    assert isinstance(changed, OperationChanged)
    assert "k-1" not in session.projection.calls


def test_own_mistakes_are_refused_before_anything_is_sent() -> None:
    session = opened()
    with pytest.raises(LineUpError, match="message_invalid") as refusal:
        session.command("tool.progress", {"call_id": "k-0", "progress": float("nan")})
    assert refusal.value.detail == {"path": "/progress", "rule": "must be a finite number"}
    assert session.outgoing() == []
    assert not session.busy


def test_commands_without_receipts_are_bounded_but_claims_go_on() -> None:
    session = opened()
    for _ in range(COMMANDS_MAX):
        session.command("lifecycle.foreground", {})
    with pytest.raises(LineUpError, match="rate_limited"):
        session.command("lifecycle.foreground", {})
    session.outgoing()
    deliver(session, 1, "tool.call", call_body(retry_safe=False))
    assert types(session) == ["inbox.ack"]
