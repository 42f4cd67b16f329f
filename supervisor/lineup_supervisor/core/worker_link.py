"""The worker link: what each message of a worker does, for the instance that the privileged side says it is.

No message carries a scope, an instance or a conversation. Where one names a call, an interaction, a surface or an
artifact, the rule that takes it checks that it belongs to this instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.codec import check_frame
from lineup_protocol.errors import LineUpError
from lineup_protocol.handshake import choose_version
from lineup_protocol.messages import check_lengths, find
from lineup_supervisor.core import (
    artifacts,
    budgets,
    calls,
    capabilities,
    closing,
    conversations,
    embodiment,
    inbox,
    instances,
    interactions,
    operations,
    snapshots,
    surfaces,
)
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    BUNDLES,
    CALLS,
    INBOX,
    INSTANCES,
    INTERACTIONS,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    WORKERS,
    Instance,
    Worker,
)
from lineup_supervisor.core.tables import CallState, InstanceState, WorkerState

replace = msgspec.structs.replace
Rule = Callable[[Ctx, Instance, dict[str, Any]], dict[str, Any] | None]


def frame(ctx: Ctx, instance_id: str, incarnation: int, content: Any) -> None:
    """One message of one incarnation. A message of an incarnation that is over is dropped and audited."""
    instance, worker = ctx.get(INSTANCES, (instance_id,)), ctx.get(WORKERS, (instance_id,))
    if instance is None or worker is None or worker.incarnation != incarnation:
        audit(ctx, "worker.late_message", instance_id, incarnation=incarnation)
        return
    if worker.condemned:
        return  # what it says between its violation and its death; the violation is in the audit
    ctx.actor = f"app:{instance.app_scope}"
    try:
        type_, message_id, body = check_frame(content, "worker", from_runtime=False)
    except LineUpError as error:
        _violation(ctx, worker, error)
        return
    try:
        _take(ctx, instance, worker, type_, message_id, body)
    except LineUpError as error:
        named = [str(body[name]) for name in ("call_id", "interaction_id", "surface_id") if name in body]
        audit(ctx, "command.refused", instance_id, *named, command=type_, code=error.code, rule=error.message)
        if message_id is not None:
            _receipt(ctx, worker, message_id, {"accepted": False, **error.as_dict()})
        if type_ in _LINK_RULES:
            _violation(ctx, worker, error)
        elif not budgets.note_refusal(ctx, instance_id):
            most = limits.WORKER_REFUSALS_PER_MINUTE_MAX
            _violation(ctx, worker, LineUpError("rate_limited", f"more than {most} messages were refused in a minute"))


def _take(
    ctx: Ctx, instance: Instance, worker: Worker, type_: str, message_id: str | None, body: dict[str, Any]
) -> None:
    row = find("worker", type_, from_runtime=False)
    assert row is not None, type_
    check_lengths(row, body)
    if type_ in _LINK_RULES:
        ctx.attempt(_LINK_RULES[type_], ctx, instance, worker, body)
        return
    if worker.state == WorkerState.STARTING:
        raise LineUpError("message_invalid", f"{type_} before worker.ready")
    if instance.state == InstanceState.CLOSED:
        raise LineUpError("app_closed", "the instance is closed")
    budgets.charge(ctx, instance.instance_id, type_)
    detail = ctx.attempt(_RULES[type_], ctx, instance, body)
    if message_id is not None:
        _receipt(ctx, worker, message_id, {"accepted": True} | ({"detail": detail} if detail is not None else {}))


def _receipt(ctx: Ctx, worker: Worker, message_id: str, answer: dict[str, Any]) -> None:
    message = {"type": "receipt", "body": {"re": message_id, **answer}}
    ctx.send_worker(worker.instance_id, worker.incarnation, message)


def _violation(ctx: Ctx, worker: Worker, error: LineUpError) -> None:
    """The worker breaks the protocol itself: it is ended, which counts as a crash."""
    audit(
        ctx, "worker.violation", worker.instance_id, incarnation=worker.incarnation, code=error.code, rule=error.message
    )
    sentence = f"{error.code}: {error.message}"[: limits.REASON_LENGTH_MAX]
    worker = ctx.need(WORKERS, (worker.instance_id,))
    ctx.touch(worker.instance_id)
    ctx.put(WORKERS, (worker.instance_id,), replace(worker, condemned=True, stop_reason=sentence))
    ctx.emit(
        fx.StopWorker(instance_id=worker.instance_id, incarnation=worker.incarnation, reason="violation", grace_ms=0)
    )


def _hello(ctx: Ctx, instance: Instance, worker: Worker, body: dict[str, Any]) -> None:
    if worker.welcomed:  # a welcome is dear, and one tells everything
        raise LineUpError("message_invalid", "a second worker.hello")
    if worker.state != WorkerState.STARTING:
        return  # it was asked to stop before it came so far
    try:
        protocol = choose_version(body["protocols"])
    except LineUpError as error:
        refusal = {"type": "worker.refuse", "body": {"code": error.code, "message": error.message}}
        ctx.send_worker(worker.instance_id, worker.incarnation, refusal)
        embodiment.load_failed(ctx, instance, worker, error)
        return
    ctx.put(WORKERS, (worker.instance_id,), replace(worker, welcomed=True))
    message = {"type": "worker.welcome", "body": welcome(ctx, instance, protocol)}
    ctx.send_worker(worker.instance_id, worker.incarnation, message)


def welcome(ctx: Ctx, instance: Instance, protocol: int) -> dict[str, Any]:
    """Everything that a new incarnation needs to go on where the last one was."""
    manifest = ctx.need(BUNDLES, (instance.digest,)).manifest
    context: dict[str, Any] = {
        "app_scope": instance.app_scope,
        "instance_id": instance.instance_id,
        "conversation_id": instance.conversation_id,
        "app_version": manifest["version"],
        "state": str(instance.state),
    }
    if instance.kind == "system":
        context["mode"] = "im"
    snapshot = snapshots.current(ctx.txn, instance.instance_id)
    return {
        "protocol": protocol,
        "context": context,
        "entry": manifest["entry"],
        "limits": {
            "message_bytes_max": limits.WORKER_MESSAGE_BYTES_MAX,
            "inbox_window_messages": limits.INBOX_WINDOW_MESSAGES_MAX,
        },
        "state": snapshot.state if snapshot is not None else None,
        "state_revision": snapshot.revision if snapshot is not None else 0,
        "operations": [operations.public(o) for o in operations.of_instance(ctx, instance.instance_id)],
        "interactions": [
            interactions.public(ctx.need(INTERACTIONS, (key[1],)))
            for key, _ in ctx.txn.scan(OPEN_INTERACTIONS, (instance.instance_id,))
        ],
        "calls": _taken_calls(ctx, instance),
        "surfaces": surfaces.open_surfaces(ctx, instance.instance_id),
    }


def _taken_calls(ctx: Ctx, instance: Instance) -> list[dict[str, Any]]:
    """Open calls whose delivery an earlier incarnation has taken over and that are not delivered again."""
    taken = []
    for key, _ in ctx.txn.scan(OPEN_CALLS, (instance.instance_id,)):
        call = ctx.need(CALLS, key[1:])
        if call.status == CallState.RUNNING and ctx.get(INBOX, (instance.instance_id, call.inbox_seq)) is None:
            taken.append(calls.delivery_body(call))
    return taken


def _ready(ctx: Ctx, instance: Instance, worker: Worker, body: dict[str, Any]) -> None:
    if worker.state == WorkerState.STARTING and not worker.welcomed:
        raise LineUpError("message_invalid", "worker.ready before worker.hello")
    embodiment.ready(ctx, instance, worker)


def _failed(ctx: Ctx, instance: Instance, worker: Worker, body: dict[str, Any]) -> None:
    embodiment.load_failed(ctx, instance, worker, LineUpError("app_start_failed", body["message"]))


def _pong(ctx: Ctx, instance: Instance, worker: Worker, body: dict[str, Any]) -> None:
    """Heartbeats are the edge's own; one that comes through means nothing here."""


_LINK_RULES: dict[str, Callable[[Ctx, Instance, Worker, dict[str, Any]], None]] = {
    "worker.hello": _hello,
    "worker.ready": _ready,
    "worker.failed": _failed,
    "worker.pong": _pong,
}


def _request_foreground(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    closing.check_may_take_screen(ctx, instance)
    instances.front(ctx, instance.instance_id, borrow=calls.gives_screen_back(ctx, instance.instance_id))


def _request_background(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    closing.check_may_leave_screen(ctx, instance)
    instances.back(ctx, instance.instance_id)


def _request_close(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    closing.check_may_close(ctx, instance)
    instances.close(ctx, instance.instance_id, "closed_by_app", body.get("reason", ""))


_RULES: dict[str, Rule] = {
    "inbox.ack": inbox.acknowledge,
    "tool.progress": calls.progress,
    "tool.complete": calls.complete,
    "tool.fail": calls.fail,
    "tool.cancel": calls.give_up,
    "ui.request": interactions.request_from_app,
    "ui.cancel": interactions.cancel_from_app,
    "lifecycle.foreground": _request_foreground,
    "lifecycle.background": _request_background,
    "lifecycle.close": _request_close,
    "surface.open": surfaces.open_from_app,
    "surface.update": surfaces.update_from_app,
    "surface.close": surfaces.close_from_app,
    "capability.request": capabilities.request,
    "state.save": snapshots.save,
    "artifact.submit": artifacts.submit,
    "conversation.send_text": conversations.send_text_from_app,
}
