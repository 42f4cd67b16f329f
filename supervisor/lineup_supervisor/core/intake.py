"""A tool call comes in: every check, in its fixed order.

Order: envelope (by the link), known call_id, share, room in the inbox, link scope, revision, descriptor, input schema,
MiniApp state, permission; then the record, then ``routing``. A refusal from link scope on is the call's terminal result
too, so that no call is left without one; unless the same call may be taken later, which leaves no record.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.shapes import shape
from lineup_protocol.strict_json import canonical_json
from lineup_supervisor.core import (
    apps,
    calls,
    capabilities,
    inbox,
    instances,
    interactions,
    inventory,
    operations,
    outbox,
    quotas,
    routing,
)
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.interaction_rules import check_request
from lineup_supervisor.core.schema import CALLS, CONVERSATIONS, INSTANCES, OPEN_CALLS, Call, Conversation, Instance
from lineup_supervisor.core.tables import CallState

replace = msgspec.structs.replace


def submit(ctx: Ctx, agent_id: str, conversation_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Take one ``tool.call``. Returns the receipt's ``{accepted, code?, message?, detail?}``."""
    legacy = "tool" in payload
    tool_id = payload.get("tool") or payload.get("tool_id")
    if tool_id is None or (legacy and "tool_id" in payload):
        rule = "exactly one of tool_id and tool is required"
        raise LineUpError(
            "message_invalid", f"/payload/tool_id: {rule}", detail={"path": "/payload/tool_id", "rule": rule}
        )
    size = len(canonical_json(payload["input"]))
    if size > limits.TOOL_INPUT_BYTES_MAX:
        raise LineUpError(
            "message_too_large", f"/payload/input: {size} bytes, at most {limits.TOOL_INPUT_BYTES_MAX}; send less"
        )
    _check_shape(payload["input"])
    input_digest = digest([tool_id, conversation_id, payload["input"]])
    known = ctx.get(CALLS, (agent_id, payload["call_id"]))
    if known is not None:
        return _known(ctx, known, input_digest)
    if ctx.meta.stopping:
        raise LineUpError("runtime_stopping", "the Runtime is going down; send the call again when it is back")
    agent = outbox.agent_row(ctx, agent_id)
    if agent.in_flight >= limits.IN_FLIGHT_CALLS_PER_AGENT_MAX:
        raise LineUpError("rate_limited", f"{agent.in_flight} calls of this agent are open already")
    if agent_id != outbox.OPERATOR and outbox.is_full(ctx, agent_id):
        raise LineUpError("rate_limited", "too many messages wait for this agent to acknowledge them")
    tool = inventory.tool_index(ctx.txn).get(tool_id)
    if tool is not None:
        _check_room(ctx, agent_id, conversation_id, tool, size)
    call = Call(
        agent_id=agent_id,
        call_id=payload["call_id"],
        tool_id=tool_id,
        inventory_revision=payload.get("inventory_revision") or (ctx.meta.inventory_revision if legacy else ""),
        app_scope="",
        conversation_id=conversation_id,
        status=CallState.RECEIVED,
        input=payload["input"],
        input_digest=input_digest,
        created_ms=ctx.now.wall_ms,
        updated_ms=ctx.now.wall_ms,
        cause=ctx.cause,
        legacy=legacy,
    )
    audit(ctx, "call.received", call.call_id, agent_id, conversation_id, tool=tool_id, input=input_digest)
    try:
        ctx.attempt(_take, ctx, call, tool)
    except LineUpError as error:
        if error.retry == "same":  # the same call may be taken later, so it has no result yet
            raise
        calls.reject(ctx, call, error)
        return {"accepted": False, **error.as_dict()}
    return {"accepted": True}


def _take(ctx: Ctx, call: Call, declared: inventory.Tool | None) -> None:
    """Check the call, then carry it to whoever does it.

    Raises:
        LineUpError: the first refusal, which is the call's result.
    """
    call, tool = _check(ctx, call, declared)
    if ctx.get(CONVERSATIONS, (call.conversation_id,)) is None:
        title = str(tool.descriptor.get("title") or call.tool_id)[: limits.TITLE_LENGTH_MAX]
        instances.open_conversation(ctx, call.conversation_id, call.agent_id, opened_by="agent", title=title)
    routing.route(ctx, call, tool)


def _check_shape(input_: Any) -> None:
    """What is taken here is carried on, in messages that have more around it than the agent's frame."""
    nodes, depth = shape(input_)
    rule = ""
    if nodes > limits.TOOL_INPUT_NODES_MAX:
        rule = f"must have at most {limits.TOOL_INPUT_NODES_MAX} values and keys"
    elif depth > limits.VALUE_DEPTH_MAX:
        rule = f"must not be nested deeper than {limits.VALUE_DEPTH_MAX}"
    if rule:
        detail = {"path": "/payload/input", "rule": rule}
        raise LineUpError("message_invalid", f"/payload/input: {rule}", detail=detail)


def _known(ctx: Ctx, call: Call, input_digest: str) -> dict[str, Any]:
    """The same call again is answered by its record; other content under its id is a conflict and changes nothing."""
    if call.input_digest == input_digest:
        audit(ctx, "call.resent", call.call_id, call.agent_id, cause=call.cause)
        return {"accepted": True, "detail": calls.record_for_agent(call)}
    raise LineUpError("call_id_conflict", f"call {call.call_id} exists with other content; use a new call_id")


def _check_room(ctx: Ctx, agent_id: str, conversation_id: str, tool: inventory.Tool, size: int) -> None:
    """Before the call has a record, so that the same call may come again: its delivery, or its answer, has room."""
    conversation = ctx.get(CONVERSATIONS, (conversation_id,))
    if conversation is not None and agent_id not in calls.callers_in(conversation):
        return  # it is refused for that
    target = None
    if conversation is not None and tool.descriptor["handling"] == "interactive":
        quotas.check_asked(ctx, conversation_id, size + limits.INTERACTION_OVERHEAD_BYTES)
        target = ctx.get(INSTANCES, (conversation.chat_instance_id,))
    elif conversation is not None:
        target = routing.live_target(ctx, conversation_id, tool)
    if target is not None:
        inbox.check_room(ctx, target, size)
    else:
        quotas.check_inbox(ctx, tool.app.app_scope, size)


def _check(ctx: Ctx, call: Call, declared: inventory.Tool | None) -> tuple[Call, inventory.Tool]:
    """Every check from link scope to permission.

    Raises:
        LineUpError: the first refusal.
    """
    conversation = ctx.get(CONVERSATIONS, (call.conversation_id,))
    _check_scope(call, conversation)
    if conversation is None:
        instances.check_room(ctx)
    revision = ctx.meta.inventory_revision
    if call.inventory_revision != revision:
        raise LineUpError(
            "inventory_revision_mismatch",
            f"the inventory is at {revision}; read it again and call with a new call_id",
            detail={"current": revision},
        )
    tool = _callable(ctx, call.tool_id, declared)
    descriptor = tool.descriptor
    input_ = tool.input.validate(call.input, code="tool_input_invalid")
    if descriptor["handling"] == "interactive":
        _check_question(ctx, call.tool_id, input_)
    call = replace(call, input=input_, app_scope=tool.app.app_scope)
    _check_state(ctx, call, tool, conversation)
    capabilities.permission_check(ctx, tool.app, tool.bundle.manifest, descriptor)
    return _filled(ctx, call, tool), tool


def _check_scope(call: Call, conversation: Conversation | None) -> None:
    """A conversation belongs to the agent that first used it; the operator may act in every one."""
    if conversation is None or call.agent_id in (outbox.OPERATOR, conversation.agent_id):
        return
    raise LineUpError("unauthorized", f"conversation {call.conversation_id} belongs to another agent")


def _callable(ctx: Ctx, tool_id: str, tool: inventory.Tool | None) -> inventory.Tool:
    if tool is None:
        raise LineUpError("tool_not_advertised", f"no tool {tool_id} in the current inventory")
    if not tool.app.enabled:
        raise LineUpError(
            "app_disabled", f"{tool.app.app_scope} is disabled; `lineup apps enable {tool.app.app_scope}`"
        )
    if tool.app.quarantined:
        raise LineUpError(
            "app_quarantined",
            f"{tool.app.app_scope} is quarantined ({tool.app.quarantine_reason}); "
            f"`lineup apps enable {tool.app.app_scope}` lifts it",
        )
    apps.check_isolation(ctx, tool.bundle.manifest)
    return tool


def _check_question(ctx: Ctx, tool_id: str, input_: dict[str, Any]) -> None:
    """What the schema subset cannot say of a question (unique ids, bounds that fit their type, a time to come)."""
    asked = {name: value for name, value in input_.items() if name not in ("expires_at", "presentation")}
    try:
        check_request({"kind": tool_id, **asked})
        interactions.expiry(ctx, input_.get("expires_at"))
    except LineUpError as error:
        raise LineUpError("tool_input_invalid", error.message, detail=error.detail) from None


def _check_state(ctx: Ctx, call: Call, tool: inventory.Tool, conversation: Conversation | None) -> None:
    descriptor = tool.descriptor
    deadline = descriptor.get("deadline") or {}
    if deadline.get("role") == "start":
        operations.settle_due(ctx, call.conversation_id)
    live = routing.live_target(ctx, call.conversation_id, tool) if conversation is not None else None
    if deadline.get("role") == "start":
        operations.check_start(ctx, call.conversation_id, call.app_scope, deadline, call.input)
    if deadline.get("role") != "interrupt" and live is None and not routing.creates_instance(descriptor):
        raise LineUpError(
            "app_instance_not_found", f"{call.app_scope} is not open in this conversation; call its launch tool first"
        )
    _check_depth(conversation, descriptor, live)
    if live is None or conversation is None:
        return
    for agent_id in calls.callers_in(conversation):
        if ctx.get(OPEN_CALLS, (live.instance_id, agent_id, call.call_id)) is not None:
            raise LineUpError("call_id_conflict", f"another agent's call {call.call_id} is open in this MiniApp")


def _check_depth(conversation: Conversation | None, descriptor: dict[str, Any], live: Instance | None) -> None:
    if (
        conversation is not None
        and (live is None or live.instance_id not in conversation.focus)
        and inventory.takes_screen(descriptor)
        and len(conversation.focus) >= limits.FOCUS_DEPTH_MAX
    ):
        raise LineUpError(
            "lifecycle_denied", f"{limits.FOCUS_DEPTH_MAX} MiniApps are open in this conversation; close one first"
        )


def _filled(ctx: Ctx, call: Call, tool: inventory.Tool) -> Call:
    descriptor = tool.descriptor
    handling = descriptor["handling"]
    return replace(
        call,
        handling=handling,
        retry_safe=bool(descriptor.get("retry_safe")),
        restore_previous_focus=bool(descriptor["target"].get("restore_previous_focus")),
        timeout_ms=descriptor.get("timeout_ms") or (ctx.policy.direct_timeout_ms if handling == "direct" else None),
        descriptor_digest=inventory.keep_descriptor(ctx, tool),
    )
