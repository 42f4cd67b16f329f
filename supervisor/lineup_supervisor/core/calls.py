"""Tool calls: their one record, their one result, and everything that moves a call between the two.

Owns ``CALLS`` and its indexes. A call gets into a terminal state only through ``settle``; the outbox result is written
there and nowhere else, in the same transaction.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.strict_json import canonical_json
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import budgets, inbox, instances, interactions, inventory, outbox, timers
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    AGENTS,
    CALLS,
    CALLS_BY_ID,
    CALLS_BY_TIME,
    CONVERSATIONS,
    DESCRIPTORS,
    INBOX,
    INSTANCES,
    OPEN_CALLS,
    WORKERS,
    Call,
    Conversation,
    Instance,
    Mark,
)
from lineup_supervisor.core.tables import CALL, CallEvent, CallState
from lineup_supervisor.core.txn import Txn

replace = msgspec.structs.replace
_MARK = Mark()
AGENTS_NAMED_MAX = 8  # in a refusal


def key_of(call: Call) -> tuple[str, str]:
    return (call.agent_id, call.call_id)


def insert(ctx: Ctx, call: Call) -> Call:
    """Write a new record with its indexes."""
    ctx.put(CALLS, key_of(call), call)
    ctx.put(CALLS_BY_ID, (call.call_id, call.agent_id), _MARK)
    ctx.put(CALLS_BY_TIME, (call.created_ms, call.agent_id, call.call_id), _MARK)
    return call


def find(txn: Txn, call_id: str) -> list[Call]:
    """Every agent's call of this id (ids are unique per agent only)."""
    found = []
    for key, _ in txn.scan(CALLS_BY_ID, (call_id,)):
        call = txn.get(CALLS, (key[1], call_id))
        if call is not None:
            found.append(call)
    return found


def one(txn: Txn, call_id: str, agent_id: str = "") -> Call:
    """The call that somebody means who is no agent: of this agent, or the only one of this id.

    Raises:
        LineUpError: ``call_not_found``; ``conflict`` with ``{agent_ids}`` if it is the id of several agents' calls.
    """
    found = find(txn, call_id) if not agent_id else [call for call in (txn.get(CALLS, (agent_id, call_id)),) if call]
    if not found:
        raise LineUpError("call_not_found", f"no call {call_id}" + (f" of {agent_id}" if agent_id else ""))
    if len(found) > 1:
        agents = [call.agent_id for call in found][:AGENTS_NAMED_MAX]
        message = f"each of {', '.join(agents)} has a call {call_id}: say whose is meant (agent_id)"
        raise LineUpError("conflict", message, detail={"agent_ids": agents})
    return found[0]


def callers_in(conversation: Conversation) -> tuple[str, ...]:
    """Whose calls there can be in a conversation: its agent's and the operator's."""
    return tuple(dict.fromkeys((conversation.agent_id, outbox.OPERATOR)))


def of_instance(ctx: Ctx, instance: Instance, call_id: str) -> Call:
    """The call as this instance may see it.

    Raises:
        LineUpError: ``call_not_found``, or ``app_scope_mismatch`` if it belongs to another instance.
    """
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    callers = (ctx.get(CALLS, (agent_id, call_id)) for agent_id in callers_in(conversation))
    mine = [call for call in callers if call is not None and call.instance_id == instance.instance_id]
    if mine:
        return max(mine, key=lambda call: (not CALL.is_final(call.status), call.created_ms))
    if find(ctx.txn, call_id):
        raise LineUpError("app_scope_mismatch", f"call {call_id} is not one of this instance")
    raise LineUpError("call_not_found", f"no call {call_id}")


def save(ctx: Ctx, call: Call, **changes: Any) -> Call:
    """Put a changed record."""
    call = replace(call, updated_ms=ctx.now.wall_ms, **changes)
    ctx.put(CALLS, key_of(call), call)
    return call


def queue(ctx: Ctx, call: Call) -> Call:
    """Put the call into its instance's inbox."""
    status = CALL.next(call.status, CallEvent.QUEUE if call.status == CallState.ROUTING else CallEvent.REDELIVER)
    seq = deliver(ctx, call, delivery_body(call))
    return save(ctx, call, status=status, inbox_seq=seq)


def deliver(ctx: Ctx, call: Call, body: dict[str, Any]) -> int:
    """Put one delivery of this call into its instance's inbox; returns its ``seq``. ``intake`` has looked for room."""
    assert call.instance_id is not None
    return inbox.append(
        ctx, call.instance_id, "tool.call", body, owed=True, agent_id=call.agent_id, call_id=call.call_id
    )


def delivery_body(call: Call) -> dict[str, Any]:
    body: dict[str, Any] = {
        "call_id": call.call_id,
        "tool_id": call.tool_id,
        "input": call.input,
        "attempt": call.attempt,
        "retry_safe": call.retry_safe,
        "inventory_revision": call.inventory_revision,
        "conversation_id": call.conversation_id,
        "created_at": to_rfc3339(call.created_ms),
    }
    if call.operation_id is not None:
        body["operation_id"] = call.operation_id
    return body


def open_(ctx: Ctx, call: Call, instance_id: str | None) -> Call:
    """Count the call as open: in its agent's share, its instance's list, against its timeout."""
    agent = outbox.agent_row(ctx, call.agent_id)
    ctx.put(AGENTS, (call.agent_id,), replace(agent, in_flight=agent.in_flight + 1))
    if instance_id is not None:
        ctx.put(OPEN_CALLS, (instance_id, call.agent_id, call.call_id), _MARK)
        ctx.touch(instance_id)
    if call.timeout_ms is not None:
        timers.set_timer(ctx, "steady", ctx.now.steady_ms + call.timeout_ms, "call", *key_of(call))
    return call


def claim(ctx: Ctx, call: Call) -> Call:
    """The worker acknowledged the delivery: from now on the handler may have run."""
    status = CALL.next(call.status, CallEvent.CLAIM)
    if status == call.status:
        return call
    audit(ctx, "call.running", call.call_id, call.instance_id or "", attempt=call.attempt, cause=call.cause)
    return save(ctx, call, status=status)


def settle(
    ctx: Ctx,
    call: Call,
    event: CallEvent,
    *,
    result: dict[str, Any] | None = None,
    error: LineUpError | dict[str, Any] | None = None,
) -> Call:
    """Bring the call to its terminal state with its one result.

    Raises:
        LineUpError: ``call_already_final`` if it has one; nothing changes.
    """
    status = CALL.next(call.status, event)
    if event == CallEvent.SUBMIT:
        status = CALL.next(status, CallEvent.SETTLE)
    fault = error.as_dict() if isinstance(error, LineUpError) else error
    ctx.cause, before = call.cause, ctx.cause
    call = save(ctx, call, status=status, result=result, error=fault)
    _release(ctx, call)
    payload: dict[str, Any] = {"call_id": call.call_id, "status": str(status), "at": to_rfc3339(ctx.now.wall_ms)}
    if result is not None:
        payload["result"] = result
    if fault is not None:
        payload["error"] = fault
    seq = outbox.append(ctx, call.agent_id, "lineup.v1.tool.result", call.conversation_id, payload)
    audit(
        ctx,
        f"call.{status}",
        call.call_id,
        call.agent_id,
        call.instance_id or "",
        code=fault["code"] if fault else None,
        result=digest(result) if result is not None else None,
        seq=seq,
    )
    interactions.parent_ended(ctx, call)
    _restore_focus(ctx, call)
    ctx.cause = before
    return call


def reject(ctx: Ctx, call: Call, error: LineUpError) -> None:
    """Record a refused call: ``rejected`` is its one result."""
    call = insert(ctx, replace(call, status=CALL.next(call.status, CallEvent.REFUSE), error=error.as_dict()))
    audit(
        ctx, "call.rejected", call.call_id, call.agent_id, code=error.code, tool=call.tool_id, input=call.input_digest
    )
    payload = {
        "call_id": call.call_id,
        "status": "rejected",
        "error": error.as_dict(),
        "at": to_rfc3339(ctx.now.wall_ms),
    }
    outbox.append(ctx, call.agent_id, "lineup.v1.tool.result", call.conversation_id, payload)


def _release(ctx: Ctx, call: Call) -> None:
    """Give back what an open call holds: its share, its timer, its undelivered inbox item."""
    agent = outbox.agent_row(ctx, call.agent_id)
    ctx.put(AGENTS, (call.agent_id,), replace(agent, in_flight=max(0, agent.in_flight - 1)))
    timers.clear_timer(ctx, "call", *key_of(call))
    timers.clear_timer(ctx, "cancel", *key_of(call))
    if call.instance_id is None:
        return
    ctx.delete(OPEN_CALLS, (call.instance_id, call.agent_id, call.call_id))
    ctx.touch(call.instance_id)
    if call.inbox_seq and ctx.get(INBOX, (call.instance_id, call.inbox_seq)) is not None:
        inbox.withdraw(ctx, call.instance_id, call.inbox_seq)


def _restore_focus(ctx: Ctx, call: Call) -> None:
    """What calls have borrowed of the screen is given back once no other open call of the instance wants the screen.

    One that stands for an operation does not: its instance is about to close. Nor does any while an operation is under
    way, which would not outlast it.
    """
    from lineup_supervisor.core import operations

    if not call.restore_previous_focus or call.instance_id is None or call.operation_id is not None:
        return
    if not ctx.need(INSTANCES, (call.instance_id,)).borrowed or operations.is_focusing(ctx, call.instance_id):
        return
    if not any(_takes_screen(ctx, other) for other in _open_of(ctx, call.instance_id)):
        instances.give_back(ctx, call.instance_id)


def gives_screen_back(ctx: Ctx, instance_id: str) -> bool:
    """Whether a call is open at whose end the instance goes back to where it was."""
    return any(call.restore_previous_focus for call in _open_of(ctx, instance_id))


def _open_of(ctx: Ctx, instance_id: str) -> list[Call]:
    return [ctx.need(CALLS, key[1:]) for key, _ in ctx.txn.scan(OPEN_CALLS, (instance_id,))]


def _takes_screen(ctx: Ctx, call: Call) -> bool:
    return inventory.takes_screen(ctx.need(DESCRIPTORS, (call.descriptor_digest,)).descriptor)


# what a worker may do with its calls


def _reported(ctx: Ctx, instance: Instance, call_id: str) -> Call:
    """A call that this instance's worker may speak about: its own, delivered, not final."""
    call = of_instance(ctx, instance, call_id)
    if CALL.is_final(call.status):
        raise LineUpError("call_already_final", f"call {call_id} is {call.status}", detail={"status": str(call.status)})
    worker = ctx.need(WORKERS, (instance.instance_id,))
    if call.interaction_id is None and call.inbox_seq > worker.sent_seq:
        raise LineUpError("conflict", f"call {call_id} has not been delivered to this worker yet")
    return call


def progress(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    call = _reported(ctx, instance, body["call_id"])
    value = float(body["progress"])
    if not 0 <= value <= 1:
        raise LineUpError(
            "message_invalid", "/progress: must be from 0 to 1", detail={"path": "/progress", "rule": "from 0 to 1"}
        )
    message = body.get("message", "")
    if not budgets.may_report(ctx, instance.instance_id):
        return
    ctx.cause = call.cause
    payload: dict[str, Any] = {"call_id": call.call_id, "progress": value, "at": to_rfc3339(ctx.now.wall_ms)}
    if message:
        payload["message"] = message
    seq = call.progress_seq
    if not (seq and outbox.coalesce(ctx, call.agent_id, seq, payload)):
        seq = outbox.append(ctx, call.agent_id, "lineup.v1.tool.progress", call.conversation_id, payload)
        audit(ctx, "call.progress", call.call_id, call.instance_id or "", progress=value, seq=seq)
    save(ctx, call, progress=value, progress_message=message, progress_seq=seq)


def complete(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    call = _reported(ctx, instance, body["call_id"])
    if call.operation_id is not None:
        raise LineUpError("conflict", "the Runtime itself ends a call that stands for a deadline operation")
    _check_size(body["result"], "/result", limits.TOOL_RESULT_BYTES_MAX)  # first, as it costs less than the schema
    validator = inventory.output_validator(ctx, call.descriptor_digest)
    result = validator.validate(body["result"], code="tool_output_invalid", path="/result")
    interactions.check_bound_result(ctx, call, result)
    settle(ctx, call, CallEvent.SUBMIT, result=result)


def fail(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    call = _reported(ctx, instance, body["call_id"])
    if call.operation_id is not None:
        raise LineUpError("conflict", "the Runtime itself ends a call that stands for a deadline operation")
    if not is_id(body["code"]):
        detail = {"path": "/code", "rule": "must be an id"}
        raise LineUpError("message_invalid", "/code: must be an id, for example task_not_found", detail=detail)
    error: dict[str, Any] = {"code": body["code"], "message": body["message"]}
    if body.get("detail") is not None:
        _check_size(body["detail"], "/detail", limits.DETAIL_BYTES_MAX)
        error["detail"] = body["detail"]
    settle(ctx, call, CallEvent.FAIL, error=error)


def _check_size(value: Any, path: str, bytes_max: int) -> None:
    """In the canonical form and in that of the wire, where ``1.0`` takes twice as much: both have to fit."""
    size = max(len(canonical_json(value)), len(msgspec.json.encode(value)))
    if size > bytes_max:
        raise LineUpError("message_too_large", f"{path}: {size} bytes, at most {bytes_max}; submit an artifact instead")


def give_up(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    """The app gives a call up, or confirms that it has stopped after a cancel."""
    call = _reported(ctx, instance, body["call_id"])
    if call.operation_id is not None:
        raise LineUpError("conflict", "the Runtime itself ends a call that stands for a deadline operation")
    reason = body.get("reason") or call.cancel_reason or "the MiniApp gave the call up"
    settle(ctx, call, CallEvent.CANCEL, error={"code": "cancelled", "message": reason})


# what an agent or a clock may do


def cancel(ctx: Ctx, call: Call, reason: str) -> Call:
    """Ask for the end of a call.

    Undelivered, or a person's question: at once. Otherwise its app is asked, with a grace.
    """
    if CALL.is_final(call.status):
        raise LineUpError(
            "call_already_final", f"call {call.call_id} is {call.status}", detail={"record": record_for_agent(call)}
        )
    if call.cancel_requested:
        return call
    ctx.cause = call.cause
    audit(ctx, "call.cancel_requested", call.call_id, call.agent_id, call.instance_id or "")
    call = save(ctx, call, cancel_requested=True, cancel_reason=reason)
    if call.operation_id is not None or call.interaction_id is not None or not _may_have_run(ctx, call):
        return cancelled(ctx, call)
    assert call.instance_id is not None
    inbox.append(
        ctx,
        call.instance_id,
        "tool.cancel",
        {"call_id": call.call_id, "reason": reason},
        owed=True,
        agent_id=call.agent_id,
        call_id=call.call_id,
    )
    timers.set_timer(ctx, "steady", ctx.now.steady_ms + ctx.policy.cancel_grace_ms, "cancel", *key_of(call))
    return call


def cancelled(ctx: Ctx, call: Call) -> Call:
    if call.operation_id is not None:
        from lineup_supervisor.core import operations

        return operations.cancel_call(ctx, call)
    reason = call.cancel_reason or "cancelled by the agent"
    return settle(ctx, call, CallEvent.CANCEL, error={"code": "cancelled", "message": reason})


def _may_have_run(ctx: Ctx, call: Call) -> bool:
    """False only if the delivery never left for a worker."""
    if call.status != CallState.WAITING or call.instance_id is None:
        return call.status == CallState.RUNNING
    worker = ctx.get(WORKERS, (call.instance_id,))
    return worker is not None and call.inbox_seq <= worker.sent_seq


def cancel_grace_over(ctx: Ctx, call: Call) -> None:
    """The app did not answer the cancel in time; the agent gets its result all the same."""
    if not CALL.is_final(call.status):
        audit(ctx, "call.cancel_unanswered", call.call_id, call.instance_id or "", cause=call.cause)
        cancelled(ctx, call)


def timed_out(ctx: Ctx, call: Call) -> None:
    if CALL.is_final(call.status):
        return
    had_run = _may_have_run(ctx, call)
    settle(ctx, call, CallEvent.EXPIRE, error=LineUpError("tool_timeout", f"no result within {call.timeout_ms} ms"))
    if had_run and call.instance_id is not None:
        body = {"call_id": call.call_id, "reason": "tool_timeout"}
        key = {"agent_id": call.agent_id, "call_id": call.call_id}
        inbox.append(ctx, call.instance_id, "tool.cancel", body, owed=True, **key)


def pause_timeout(ctx: Ctx, call: Call) -> Call:
    """A person is being asked: the call's clock stands still."""
    due = timers.clear_timer(ctx, "call", *key_of(call))
    left = max(0, due - ctx.now.steady_ms) if due is not None else call.timeout_left_ms
    return save(ctx, call, questions=call.questions + 1, timeout_left_ms=left)


def resume_timeout(ctx: Ctx, call: Call) -> Call:
    questions = max(0, call.questions - 1)
    call = save(ctx, call, questions=questions)
    if questions == 0 and call.timeout_left_ms is not None and not CALL.is_final(call.status):
        timers.set_timer(ctx, "steady", ctx.now.steady_ms + call.timeout_left_ms, "call", *key_of(call))
        call = save(ctx, call, timeout_left_ms=None)
    return call


def worker_lost(ctx: Ctx, call: Call, detail: str, reason: str) -> None:
    """The worker that ran this call is gone: deliver it again if its tool allows, else say that nobody knows.

    ``detail`` is the sentence, ``reason`` the word of ``WorkerExited``.
    """
    if call.interaction_id is not None:
        interactions.deliver_again(ctx, call)
        return
    if call.operation_id is not None:
        return
    if call.status != CallState.RUNNING:
        interactions.attempt_ended(ctx, call)  # one that was not claimed may have asked all the same
        return
    if call.cancel_requested:
        cancelled(ctx, call)
    elif call.retry_safe:
        ctx.cause, before = call.cause, ctx.cause
        interactions.attempt_ended(ctx, call)
        call = queue(ctx, replace(ctx.need(CALLS, key_of(call)), attempt=call.attempt + 1))
        why = f"{reason}: {detail}"[: limits.REASON_LENGTH_MAX]
        audit(ctx, "call.redelivered", call.call_id, call.instance_id or "", attempt=call.attempt, reason=why)
        ctx.cause = before
    else:
        sentence = f"the worker ended while it ran the call: {detail}"
        error = LineUpError("outcome_unknown", sentence, detail={"reason": reason})
        settle(ctx, call, CallEvent.FAIL, error=error)


def record_for_agent(call: Call) -> dict[str, Any]:
    """The record as it fits one frame: its agent sent the input itself, so a large one is left out."""
    body = record(call)
    if len(msgspec.json.encode(body)) > limits.AGENT_FRAME_BYTES_MAX - limits.AGENT_ENVELOPE_BYTES_MAX:
        del body["input"]
    return body


def record(call: Call) -> dict[str, Any]:
    """The record as agents and people read it."""
    body: dict[str, Any] = {
        "call_id": call.call_id,
        "tool_id": call.tool_id,
        "inventory_revision": call.inventory_revision,
        "app_scope": call.app_scope,
        "conversation_id": call.conversation_id,
        "status": str(call.status),
        "input": call.input,
        "attempt": call.attempt,
        "created_at": to_rfc3339(call.created_ms),
        "updated_at": to_rfc3339(call.updated_ms),
        "agent_id": call.agent_id,
    }
    optional = {
        "instance_id": call.instance_id,
        "result": call.result,
        "error": call.error,
        "error_code": call.error["code"] if call.error else None,
        "progress": call.progress,
        "progress_message": call.progress_message or None,
        "operation_id": call.operation_id,
        "interaction_id": call.interaction_id,
        "cancel_requested": call.cancel_requested or None,
    }
    return body | {name: value for name, value in optional.items() if value is not None}
