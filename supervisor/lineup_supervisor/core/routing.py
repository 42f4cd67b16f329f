"""Where an accepted call goes, by its tool's ``handling``.

``direct``       to the live instance, else to one created in the background; the screen stays; the worker ends it.
``interactive``  to a person, through Interact; the screen stays; Interact ends the call with the answer.
``launch``       to the live instance, else a new one; to the front if ``requires_foreground``; the worker ends it.
``foreground``   likewise, and always to the front.
``operation``    to the live instance; a new one only if ``requires_foreground``, else ``app_instance_not_found``.
                 The worker ends it, or the Runtime itself if the tool is bound to a deadline.

After an upgrade a live instance stays on the version that it started with, and its calls with it. What is called from
then on goes to an instance of the new version; only a tool that creates none, and that has not changed, still reaches
an older one. Interact is one per conversation, whatever its version.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import calls, instances, interactions, inventory, operations, timeline
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import BUNDLES, CALLS, CONVERSATIONS, INSTANCES, Call, Instance
from lineup_supervisor.core.tables import CALL, CallEvent

replace = msgspec.structs.replace


def creates_instance(tool: dict[str, Any]) -> bool:
    """False only for an operation on something that must be there already."""
    return bool(tool["handling"] != "operation" or tool["target"]["requires_foreground"])


def route(ctx: Ctx, call: Call, tool: inventory.Tool) -> Call:
    """Carry an accepted call to whoever does it.

    Every check has been made; a refusal here all the same is one of the call as a whole (``intake``).
    """
    call = replace(call, status=CALL.next(call.status, CallEvent.ROUTE))
    deadline = tool.descriptor.get("deadline") or {}
    if deadline.get("role") == "interrupt":
        return _interrupt(ctx, call)
    if tool.descriptor["handling"] == "interactive":
        return _ask_person(ctx, call)
    instance = _instance_for(ctx, call, tool)
    call = replace(call, instance_id=instance.instance_id)
    if inventory.takes_screen(tool.descriptor):
        instances.front(ctx, instance.instance_id, borrow=call.restore_previous_focus)
    if deadline.get("role") == "start":
        return _hold(ctx, call, instance, deadline)
    call = calls.insert(ctx, call)
    call = calls.open_(ctx, call, instance.instance_id)
    audit(ctx, "call.routed", call.call_id, instance.instance_id, handling=call.handling)
    if instance.session_id and call.handling == "launch":
        title = str(tool.descriptor.get("title") or call.tool_id)
        _note(ctx, call, instance, title)
    return calls.queue(ctx, call)


def live_target(ctx: Ctx, conversation_id: str, tool: inventory.Tool) -> Instance | None:
    """The live instance that a call of this tool goes to; None if there is none of the right version."""
    found = instances.all_live(ctx, conversation_id, tool.app.app_scope)
    for instance in found:
        if instance.digest == tool.app.digest or instance.kind == "system":
            return instance
    if creates_instance(tool.descriptor):
        return None
    return next((each for each in found if _declares(ctx, each, tool.descriptor)), None)


def _declares(ctx: Ctx, instance: Instance, descriptor: dict[str, Any]) -> bool:
    return descriptor in ctx.need(BUNDLES, (instance.digest,)).manifest["tools"]


def _instance_for(ctx: Ctx, call: Call, tool: inventory.Tool) -> Instance:
    instance = live_target(ctx, call.conversation_id, tool)
    if instance is not None:
        return instance
    if not creates_instance(tool.descriptor):
        raise LineUpError("app_instance_not_found", f"{call.app_scope} is not open in this conversation")
    return instances.create(ctx, tool.app, ctx.need(CONVERSATIONS, (call.conversation_id,)))


def _hold(ctx: Ctx, call: Call, instance: Instance, deadline: dict[str, Any]) -> Call:
    """The Runtime keeps the deadline; the worker only gets to know of the call."""
    operation = operations.start(ctx, call, instance, deadline)
    call = replace(call, operation_id=operation.operation_id, timeout_ms=None)
    call = calls.insert(ctx, replace(call, status=CALL.next(call.status, CallEvent.HOLD)))
    call = calls.open_(ctx, call, instance.instance_id)
    audit(ctx, "call.held", call.call_id, instance.instance_id, operation.operation_id)
    _note(ctx, call, instance, operation.activity or "")
    body = calls.delivery_body(call) | {"operation": operations.public(operation)}
    return calls.save(ctx, call, inbox_seq=calls.deliver(ctx, call, body))


def _interrupt(ctx: Ctx, call: Call) -> Call:
    """A short tool that the Runtime answers itself, with no worker and no surface."""
    call = calls.insert(ctx, call)
    calls.open_(ctx, call, None)
    result = operations.interrupt_by_tool(ctx, call.conversation_id, call.app_scope)
    return calls.settle(ctx, call, CallEvent.SUBMIT, result=result)


def _ask_person(ctx: Ctx, call: Call) -> Call:
    """The call waits for a person. Interact's worker is needed only once there is an answer."""
    conversation = ctx.need(CONVERSATIONS, (call.conversation_id,))
    chat = ctx.need(INSTANCES, (conversation.chat_instance_id,))
    call = replace(call, instance_id=chat.instance_id, status=CALL.next(call.status, CallEvent.QUEUE))
    call = calls.insert(ctx, call)
    call = calls.open_(ctx, call, chat.instance_id)
    audit(ctx, "call.routed", call.call_id, chat.instance_id, handling=call.handling)
    interaction = interactions.ask_for_agent(ctx, call, chat)
    call = ctx.need(CALLS, calls.key_of(call))
    return calls.save(ctx, call, interaction_id=interaction.interaction_id)


def _note(ctx: Ctx, call: Call, instance: Instance, text: str) -> None:
    timeline.note_call(ctx, call.conversation_id, instance.session_id, call.agent_id, call.call_id, "asked", text)
