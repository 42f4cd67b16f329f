"""Deadline operations: the Runtime keeps ``ends_at`` in UTC wall clock and decides once how the operation ended.

Owns ``OPERATIONS`` and ``FOCUSING``. A tool is bound to this service by the ``deadline`` member of its descriptor, so
that no MiniApp is a special case.

Laws:
    1. The deadline, a tool, a person's leaving and a close compete in ``decide``; the first one wins, the rest learn of
       it.
    2. What comes at or after ``ends_at`` comes after the deadline, however late the timer is: who wins follows from
       the clock and the row alone.
    3. An operation that is decided closes its instance in the same transaction.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import WALL_MS_MAX, to_rfc3339
from lineup_supervisor.core import calls, instances, timeline, timers
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    CALLS,
    FOCUSING,
    INSTANCES,
    LAST_OPERATION,
    OPERATIONS,
    OPERATIONS_OF,
    Call,
    Instance,
    Mark,
    Operation,
    Ref,
)
from lineup_supervisor.core.tables import (
    OPERATION,
    CallEvent,
    OperationEvent,
    OperationState,
)

replace = msgspec.structs.replace


def check_start(
    ctx: Ctx, conversation_id: str, app_scope: str, deadline: dict[str, Any], input_: dict[str, Any]
) -> None:
    """Refuse a start that cannot be kept.

    Raises:
        LineUpError: ``active_focusing_operation``, or ``tool_input_invalid`` with the duration's or the label's path.
    """
    if ctx.meta.operations_pending >= limits.OPERATIONS_PENDING_MAX:
        raise LineUpError("rate_limited", f"{limits.OPERATIONS_PENDING_MAX} operations are pending already")
    seconds = input_[deadline["duration_field"]]
    path = f"/{deadline['duration_field']}"
    # Its own schema may have no minimum: manifests that were taken by a version before are still installed.
    is_kept = 1 <= seconds <= limits.OPERATION_DURATION_SECONDS_MAX
    if not is_kept or ctx.now.wall_ms + int(seconds) * 1000 > WALL_MS_MAX:
        rule = f"from 1 to {limits.OPERATION_DURATION_SECONDS_MAX} seconds, and not past the year 9999"
        raise LineUpError("tool_input_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
    label = deadline.get("label_field")
    if label and len(input_.get(label) or "") > limits.REASON_LENGTH_MAX:  # people read it for as long as it runs
        rule = f"must have at most {limits.REASON_LENGTH_MAX} characters"
        raise LineUpError("tool_input_invalid", f"/{label}: {rule}", detail={"path": f"/{label}", "rule": rule})
    active = focusing(ctx, conversation_id, app_scope)
    if active is not None:
        raise LineUpError(
            "active_focusing_operation",
            "this conversation already has a focusing operation; interrupt it first or wait for its end",
            detail={"operation_id": active.operation_id, "ends_at": to_rfc3339(active.ends_ms)},
        )


def start(ctx: Ctx, call: Call, instance: Instance, deadline: dict[str, Any]) -> Operation:
    """Begin at this moment; the call stays open until the operation is decided."""
    seconds = int(call.input[deadline["duration_field"]])
    activity = call.input.get(deadline.get("label_field") or "")
    operation = Operation(
        operation_id=ctx.new_id("op"),
        source_agent_id=call.agent_id,
        source_call_id=call.call_id,
        instance_id=instance.instance_id,
        conversation_id=instance.conversation_id,
        app_scope=instance.app_scope,
        duration_seconds=seconds,
        started_ms=ctx.now.wall_ms,
        ends_ms=ctx.now.wall_ms + seconds * 1000,
        state=OperationState.FOCUSING,
        cause=ctx.cause,
        activity=activity,
    )
    ctx.set_meta(operations_pending=ctx.meta.operations_pending + 1)
    key = (operation.operation_id,)
    ctx.put(OPERATIONS, key, operation)
    ctx.put(FOCUSING, (operation.conversation_id, operation.app_scope, operation.operation_id), Mark())
    ctx.put(OPERATIONS_OF, (instance.instance_id, operation.operation_id), Mark())
    ctx.put(LAST_OPERATION, (operation.conversation_id, operation.app_scope), Ref(ref=operation.operation_id))
    timers.set_timer(ctx, "wall", operation.ends_ms, "operation", operation.operation_id)
    audit(
        ctx,
        "operation.started",
        operation.operation_id,
        call.call_id,
        instance.instance_id,
        ends_at=to_rfc3339(operation.ends_ms),
    )
    if activity:
        timeline.rename(ctx, instance.session_id, activity)
    return operation


def focusing(ctx: Ctx, conversation_id: str, app_scope: str) -> Operation | None:
    for key, _ in ctx.txn.scan(FOCUSING, (conversation_id, app_scope)):
        return ctx.need(OPERATIONS, (key[2],))
    return None


def of_instance(ctx: Ctx, instance_id: str) -> list[Operation]:
    return [ctx.need(OPERATIONS, (key[1],)) for key, _ in ctx.txn.scan(OPERATIONS_OF, (instance_id,))]


def is_focusing(ctx: Ctx, instance_id: str) -> bool:
    return any(operation.state == OperationState.FOCUSING for operation in of_instance(ctx, instance_id))


def due(ctx: Ctx, operation_id: str) -> None:
    """Its time has come. A timer that woke too early (the clock was set back meanwhile) is armed again."""
    operation = ctx.get(OPERATIONS, (operation_id,))
    if operation is None or operation.state != OperationState.FOCUSING:
        return
    if operation.ends_ms > ctx.now.wall_ms:
        timers.set_timer(ctx, "wall", operation.ends_ms, "operation", operation_id)
        return
    before, ctx.cause = ctx.cause, operation.cause
    _end(ctx, operation, OperationEvent.DUE)
    ctx.cause = before


def settle_due(ctx: Ctx, conversation_id: str) -> None:
    """Decide what is due in a conversation before anything new begins there; its timer may be late."""
    for key, _ in list(ctx.txn.scan(FOCUSING, (conversation_id,))):
        if ctx.need(OPERATIONS, (key[2],)).ends_ms <= ctx.now.wall_ms:
            due(ctx, str(key[2]))


def interrupt(ctx: Ctx, operation: Operation, reason: str) -> bool:
    """Interrupt it and close its instance. False if it was decided already, or its deadline has passed."""
    return _end(ctx, operation, OperationEvent.INTERRUPT, reason) == OperationState.INTERRUPTED


def _end(ctx: Ctx, operation: Operation, event: OperationEvent, reason: str | None = None) -> OperationState | None:
    state = decide(ctx, operation, event, reason)
    if state is not None:
        code = reason if reason and state == OperationState.INTERRUPTED else str(state)
        instances.close(ctx, operation.instance_id, "operation_ended", code)
    return state


def decide(ctx: Ctx, operation: Operation, event: OperationEvent, reason: str | None = None) -> OperationState | None:
    """The one place where an operation ends: its state, the call's one result and its outbox item together.

    Returns the state that it came to, None if it was decided before.
    """
    operation = ctx.need(OPERATIONS, (operation.operation_id,))
    if operation.state == OperationState.FOCUSING and operation.ends_ms <= ctx.now.wall_ms:
        event, reason = OperationEvent.DUE, None
    state = OPERATION.next(operation.state, event)
    if state == operation.state:
        return None
    before, ctx.cause = ctx.cause, operation.cause
    late_ms = max(0, ctx.now.wall_ms - operation.ends_ms) if event == OperationEvent.DUE else 0
    operation = replace(operation, state=state, ended_ms=ctx.now.wall_ms, interruption_reason=reason, late_ms=late_ms)
    ctx.put(OPERATIONS, (operation.operation_id,), operation)
    ctx.set_meta(operations_pending=max(0, ctx.meta.operations_pending - 1))
    ctx.delete(FOCUSING, (operation.conversation_id, operation.app_scope, operation.operation_id))
    timers.clear_timer(ctx, "operation", operation.operation_id)
    audit(
        ctx,
        f"operation.{state}",
        operation.operation_id,
        operation.source_call_id,
        operation.instance_id,
        late_ms=late_ms or None,
        reason=reason,
    )
    instance = ctx.need(INSTANCES, (operation.instance_id,))
    timeline.note_call(
        ctx,
        operation.conversation_id,
        instance.session_id,
        operation.source_agent_id,
        operation.source_call_id,
        "result",
        str(state),
    )
    ctx.tell_worker(operation.instance_id, "operation.changed", {"operation": public(operation)})
    call = ctx.need(CALLS, (operation.source_agent_id, operation.source_call_id))
    calls.settle(ctx, call, CallEvent.SUBMIT, result=result_of(operation))
    ctx.cause = before
    return state


def cancel_call(ctx: Ctx, call: Call) -> Call:
    """The long call was cancelled: the same rule, and the same form of result, as any other interruption."""
    assert call.operation_id is not None
    by = ctx.actor if ctx.actor in ("person", "operator") else "agent"
    interrupt(ctx, ctx.need(OPERATIONS, (call.operation_id,)), f"cancelled_by_{by}")
    return ctx.need(CALLS, calls.key_of(call))


def interrupt_by_tool(ctx: Ctx, conversation_id: str, app_scope: str) -> dict[str, Any]:
    """The stable receipt of the short tool; it binds by the conversation and nothing else."""
    operation = focusing(ctx, conversation_id, app_scope)
    if operation is not None and interrupt(ctx, operation, "interrupted_by_agent"):
        return {"status": "interrupted", "operation_id": operation.operation_id}
    last = ctx.get(LAST_OPERATION, (conversation_id, app_scope))
    if last is None:
        return {"status": "no_active_focusing_operation"}
    return {"status": "operation_already_final", "operation_id": last.ref}


def left_screen(ctx: Ctx, instance: Instance) -> None:
    """The person went elsewhere, or a call took the screen: a focusing operation does not go on in the background."""
    for operation in of_instance(ctx, instance.instance_id):
        if operation.state == OperationState.FOCUSING:
            interrupt(ctx, operation, "left_workspace" if ctx.actor == "person" else "screen_taken")


def instance_closing(ctx: Ctx, instance: Instance, reason: str) -> None:
    """The instance is being closed: what still runs is interrupted first, so that its result stands."""
    for operation in of_instance(ctx, instance.instance_id):
        decide(ctx, operation, OperationEvent.INTERRUPT, reason)


def result_of(operation: Operation) -> dict[str, Any]:
    """The long tool's result, as its frozen schema has it."""
    assert operation.ended_ms is not None
    result: dict[str, Any] = {
        "state": str(operation.state),
        "operation_id": operation.operation_id,
        "started_at": to_rfc3339(operation.started_ms),
        "ends_at": to_rfc3339(operation.ends_ms),
        "ended_at": to_rfc3339(operation.ended_ms),
    }
    if operation.interruption_reason:
        result["interruption_reason"] = operation.interruption_reason
    return result


def public(operation: Operation) -> dict[str, Any]:
    """The read-only projection that MiniApps and people get."""
    body: dict[str, Any] = {
        "operation_id": operation.operation_id,
        "source_tool_call_id": operation.source_call_id,
        "duration_seconds": operation.duration_seconds,
        "started_at": to_rfc3339(operation.started_ms),
        "ends_at": to_rfc3339(operation.ends_ms),
        "state": str(operation.state),
        "instance_id": operation.instance_id,
        "conversation_id": operation.conversation_id,
    }
    if operation.activity is not None:
        body["activity"] = operation.activity
    if operation.ended_ms is not None:
        body["ended_at"] = to_rfc3339(operation.ended_ms)
    if operation.interruption_reason is not None:
        body["interruption_reason"] = operation.interruption_reason
    if operation.late_ms:
        body["late_ms"] = operation.late_ms
    return body
