"""Standard interactions: questions to a person, kept by the Runtime until the first answer.

Owns ``INTERACTIONS`` and its indexes. The owner of an interaction is stamped here, from what the Runtime itself knows
of the sender; no request can carry one. Answers go to the owner's inbox and nowhere else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import from_rfc3339, to_rfc3339
from lineup_supervisor.core import calls, capabilities, inbox, quotas, retention, timeline, timers
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.canonical import canonical
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.interaction_rules import check_request, check_result
from lineup_supervisor.core.schema import (
    CALLS,
    INBOX,
    INTERACTIONS,
    INTERACTIONS_BY_CALL,
    OPEN_INTERACTIONS,
    OPEN_SURFACES,
    REQUESTS,
    Call,
    Instance,
    Interaction,
    Mark,
    Request,
)
from lineup_supervisor.core.tables import CALL, INTERACTION, InteractionEvent, InteractionState

replace = msgspec.structs.replace
_MARK = Mark()


def ask(
    ctx: Ctx,
    instance: Instance,
    request: dict[str, Any],
    *,
    source: str,
    parent: Call | None = None,
    presentation: str = "default",
    expires_ms: int | None = None,
    key: str = "",
    purpose: dict[str, Any] | None = None,
) -> Interaction:
    """Create the record. The request must have been checked.

    Raises:
        LineUpError: ``rate_limited`` if too many bytes of questions of this MiniApp wait for a person; nothing changes.
    """
    # The Runtime's own questions are few for each instance and short. For an agent's the room was looked at when its
    # call came in.
    charged = len(canonical(request)) + limits.INTERACTION_OVERHEAD_BYTES if source != "runtime_policy" else 0
    if source == "miniapp_tool":
        quotas.check_questions(ctx, instance.app_scope, charged)
    surface_id = next((str(k[1]) for k, _ in ctx.txn.scan(OPEN_SURFACES, (instance.instance_id,))), None)
    interaction = Interaction(
        interaction_id=ctx.new_id("q"),
        app_scope=instance.app_scope,
        instance_id=instance.instance_id,
        conversation_id=instance.conversation_id,
        source=source,
        kind=request["kind"],
        request=request,
        status=InteractionState.PENDING,
        created_ms=ctx.now.wall_ms,
        updated_ms=ctx.now.wall_ms,
        cause=ctx.cause,
        parent_agent_id=parent.agent_id if parent else None,
        parent_call_id=parent.call_id if parent else None,
        surface_id=surface_id if source == "miniapp_tool" else None,
        presentation=presentation,
        expires_ms=expires_ms,
        key=key,
        session_id=instance.session_id,
        purpose=purpose,
        charged=charged,
        told_seq=0,
    )
    quotas.charge(ctx, *payer(interaction), charged)
    ctx.put(INTERACTIONS, (interaction.interaction_id,), interaction)
    ctx.put(OPEN_INTERACTIONS, (instance.instance_id, interaction.interaction_id), _MARK)
    ctx.touch(instance.instance_id)
    if parent is not None:
        ctx.put(INTERACTIONS_BY_CALL, (parent.agent_id, parent.call_id, interaction.interaction_id), _MARK)
        calls.pause_timeout(ctx, ctx.need(CALLS, calls.key_of(parent)))
    if expires_ms is not None:
        timers.set_timer(ctx, "wall", expires_ms, "interaction", interaction.interaction_id)
    audit(
        ctx,
        "interaction.asked",
        interaction.interaction_id,
        instance.instance_id,
        interaction.parent_call_id or "",
        primitive=interaction.kind,
        source=source,
        request=digest(request),
    )
    if entry := timeline.interaction_asked(ctx, interaction):
        interaction = replace(interaction, entry=entry)
        ctx.put(INTERACTIONS, (interaction.interaction_id,), interaction)
    return interaction


def payer(interaction: Interaction) -> tuple[str, str]:
    """Whose room a waiting question takes, and which: an agent's must not take that of all other agents."""
    if interaction.source == "agent_tool":
        return interaction.conversation_id, quotas.ASKED
    return interaction.app_scope, quotas.QUESTIONS


def request_from_app(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``ui.request`` of a worker. A repeat under the same key finds the record that the first one made."""
    request = check_request(body["request"])
    parent = _parent_of(ctx, instance, body.get("parent_call_id"))
    key = body.get("key", "")
    request_digest = digest(request)
    if key:
        made = ctx.get(REQUESTS, (instance.instance_id, f"ui:{key}"))
        if made is not None and made.digest == request_digest:
            return _receipt(ctx.need(INTERACTIONS, (made.ref,)))
    expires_ms = expiry(ctx, body.get("expires_at"))
    pending = sum(1 for _ in ctx.txn.scan(OPEN_INTERACTIONS, (instance.instance_id,)))
    if pending >= limits.INTERACTIONS_PENDING_PER_INSTANCE_MAX:
        raise LineUpError("rate_limited", f"{pending} interactions of this instance are waiting for a person already")
    inbox.check_room(ctx, instance, len(canonical(request)))
    presentation = body.get("presentation", "default")
    interaction = ask(
        ctx,
        instance,
        request,
        source="miniapp_tool",
        parent=parent,
        presentation=allowed_presentation(instance, presentation),
        expires_ms=expires_ms,
        key=key,
    )
    if key:
        made = Request(ref=interaction.interaction_id, digest=request_digest)
        ctx.put(REQUESTS, (instance.instance_id, f"ui:{key}"), made)
    return _receipt(interaction)


def allowed_presentation(instance: Instance, wanted: str) -> str:
    """Policy: a modal needs the screen, so an instance that is not in the foreground is lowered to inline."""
    return "inline" if wanted == "modal" and instance.state != "foreground" else wanted


def _parent_of(ctx: Ctx, instance: Instance, call_id: str | None) -> Call | None:
    if call_id is None:
        return None
    call = calls.of_instance(ctx, instance, call_id)
    if CALL.is_final(call.status):
        raise LineUpError("call_already_final", f"call {call_id} is {call.status}; it cannot be a parent")
    return call


def expiry(ctx: Ctx, text: str | None) -> int | None:
    """``expires_at`` in milliseconds. Raises ``interaction_invalid`` for what is no time, or has passed."""
    if text is None:
        return None
    rule = "must lie in the future"
    try:
        expires_ms = from_rfc3339(text)
    except ValueError:
        expires_ms, rule = 0, "must be an RFC 3339 time in UTC, for example 2026-11-30T08:00:00Z"
    if expires_ms <= ctx.now.wall_ms:
        detail = {"path": "/expires_at", "rule": rule}
        raise LineUpError("interaction_invalid", f"/expires_at: {rule}", detail=detail)
    return expires_ms


def ask_for_agent(ctx: Ctx, call: Call, chat: Instance) -> Interaction:
    """An agent's ``notice``, ``choice``, ``confirm`` or ``input``: the same record, owner Interact."""
    body = dict(call.input)
    expires_at = body.pop("expires_at", None)
    presentation = body.pop("presentation", "default")
    request = check_request({"kind": call.tool_id, **body})
    return ask(
        ctx,
        chat,
        request,
        source="agent_tool",
        parent=call,
        presentation=allowed_presentation(chat, presentation),
        expires_ms=expiry(ctx, expires_at),
    )


def present(ctx: Ctx, interaction_id: str) -> None:
    """A Host has shown it."""
    interaction = _existing(ctx, interaction_id)
    if INTERACTION.is_final(interaction.status) or interaction.status == InteractionState.SUBMITTED:
        return
    _move(ctx, interaction, InteractionEvent.PRESENT)


def keep_draft(ctx: Ctx, interaction_id: str, draft: dict[str, Any]) -> None:
    """What a person has typed so far; any form, bounded, thrown away with the answer."""
    interaction = _existing(ctx, interaction_id)
    if not INTERACTION.allows(interaction.status, InteractionEvent.ANSWER):
        INTERACTION.next(interaction.status, InteractionEvent.ANSWER)
    ctx.put(INTERACTIONS, (interaction_id,), replace(interaction, draft=draft, updated_ms=ctx.now.wall_ms))


def answer(ctx: Ctx, interaction_id: str, result: object) -> dict[str, Any]:
    """A person's answer; the first one wins.

    Raises:
        LineUpError: ``interaction_invalid``, ``interaction_already_final`` or ``interaction_expired``; nothing changes.
    """
    interaction = _existing(ctx, interaction_id)
    INTERACTION.next(interaction.status, InteractionEvent.ANSWER)
    if interaction.expires_ms is not None and interaction.expires_ms <= ctx.now.wall_ms:
        raise LineUpError("interaction_expired", f"interaction {interaction_id} expired before this answer")
    normal = check_result(interaction.request, result)
    _close(ctx, interaction, InteractionEvent.ANSWER, result=normal)
    return normal


def cancel(ctx: Ctx, interaction_id: str, reason: str) -> None:
    """By a person, or by the owner."""
    _close(ctx, _existing(ctx, interaction_id), InteractionEvent.CANCEL, reason=reason)


def cancel_from_app(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    interaction = _existing(ctx, body["interaction_id"])
    if interaction.instance_id != instance.instance_id or interaction.source == "runtime_policy":
        raise LineUpError("app_scope_mismatch", f"interaction {interaction.interaction_id} is not one of this instance")
    _close(ctx, interaction, InteractionEvent.CANCEL, reason=body.get("reason", "cancelled by its owner"))


def expired(ctx: Ctx, interaction_id: str) -> None:
    interaction = ctx.get(INTERACTIONS, (interaction_id,))
    if interaction is not None and INTERACTION.allows(interaction.status, InteractionEvent.EXPIRE):
        _close(ctx, interaction, InteractionEvent.EXPIRE, reason="expires_at has passed")


def delivered(ctx: Ctx, interaction_id: str) -> None:
    """The owner acknowledged the delivery of the outcome."""
    interaction = ctx.need(INTERACTIONS, (interaction_id,))
    if interaction.status == InteractionState.SUBMITTED:
        _move(ctx, interaction, InteractionEvent.DELIVER)
        ctx.delete(OPEN_INTERACTIONS, (interaction.instance_id, interaction_id))


def deliver_again(ctx: Ctx, call: Call) -> None:
    """Interact's worker died after it took an outcome over and before it ended the call: tell the next one."""
    interaction = ctx.need(INTERACTIONS, (call.interaction_id or "",))
    if interaction.status in (InteractionState.PENDING, InteractionState.PRESENTED) or CALL.is_final(call.status):
        return
    waiting = any(
        i.interaction_id == interaction.interaction_id for _, i in ctx.txn.scan(INBOX, (interaction.instance_id,))
    )
    if not waiting:
        _tell_owner(ctx, interaction)


def _tell_owner(ctx: Ctx, interaction: Interaction) -> None:
    """Put its outcome into its owner's inbox; the record stays as long as that waits there."""
    before, ctx.cause = ctx.cause, interaction.cause
    body = {"interaction": public(interaction)}
    key = interaction.interaction_id
    seq = inbox.append(ctx, interaction.instance_id, "interaction.result", body, owed=True, interaction_id=key)
    ctx.put(INTERACTIONS, (key,), replace(ctx.need(INTERACTIONS, (key,)), told_seq=seq))
    ctx.cause = before


def parent_ended(ctx: Ctx, call: Call) -> None:
    """The call that a question belonged to has its result: nobody needs the answer any more."""
    for key, _ in list(ctx.txn.scan(INTERACTIONS_BY_CALL, (call.agent_id, call.call_id))):
        interaction = ctx.need(INTERACTIONS, (key[2],))
        if interaction.status == InteractionState.SUBMITTED:
            continue  # answered; its owner is told by the delivery that is on its way
        _close(
            ctx,
            interaction,
            InteractionEvent.CANCEL,
            reason="its call has ended",
            tell_owner=interaction.source != "agent_tool",
        )


def attempt_ended(ctx: Ctx, call: Call) -> None:
    """The attempt of this call that asked is over and there will be another: what it asked under no key nobody can find
    again, and the next attempt's time must not stand still for it.
    """
    for key, _ in list(ctx.txn.scan(INTERACTIONS_BY_CALL, (call.agent_id, call.call_id))):
        interaction = ctx.need(INTERACTIONS, (key[2],))
        if not interaction.key:
            reason = "the attempt that asked it has ended"
            _close(ctx, interaction, InteractionEvent.CANCEL, reason=reason, tell_owner=False)


def owner_closed(ctx: Ctx, instance: Instance) -> None:
    """The owner was closed: what nobody can take over any more ends."""
    for key, _ in list(ctx.txn.scan(OPEN_INTERACTIONS, (instance.instance_id,))):
        interaction = ctx.need(INTERACTIONS, (key[1],))
        event = InteractionEvent.FAIL if interaction.status == InteractionState.SUBMITTED else InteractionEvent.CANCEL
        _close(ctx, interaction, event, reason="its MiniApp was closed", tell_owner=False)


def check_bound_result(ctx: Ctx, call: Call, result: dict[str, Any]) -> None:
    """An agent's question can only be completed with what the person answered."""
    if call.interaction_id is None:
        return
    interaction = ctx.need(INTERACTIONS, (call.interaction_id,))
    if interaction.result is None or interaction.result != result:
        detail = {"path": "/result", "rule": "must be the person's answer"}
        raise LineUpError("tool_output_invalid", "/result: must be what the person answered", detail=detail)


def _existing(ctx: Ctx, interaction_id: str) -> Interaction:
    interaction = ctx.get(INTERACTIONS, (interaction_id,))
    if interaction is None:
        raise LineUpError("interaction_not_found", f"no interaction {interaction_id}")
    return interaction


def _move(ctx: Ctx, interaction: Interaction, event: InteractionEvent, **changes: Any) -> Interaction:
    status = INTERACTION.next(interaction.status, event)
    if status == interaction.status:
        return interaction
    before, ctx.cause = ctx.cause, interaction.cause
    interaction = replace(interaction, status=status, updated_ms=ctx.now.wall_ms, **changes)
    ctx.put(INTERACTIONS, (interaction.interaction_id,), interaction)
    if INTERACTION.is_final(status):
        retention.retire(ctx, retention.INTERACTION, interaction.interaction_id)
    audit(
        ctx,
        f"interaction.{status}",
        interaction.interaction_id,
        interaction.instance_id,
        interaction.parent_call_id or "",
        result=digest(interaction.result) if event == InteractionEvent.ANSWER else None,
        reason=interaction.reason or None,
    )
    ctx.cause = before
    return interaction


def _close(
    ctx: Ctx,
    interaction: Interaction,
    event: InteractionEvent,
    *,
    result: dict[str, Any] | None = None,
    reason: str = "",
    tell_owner: bool = True,
) -> None:
    """No more answers: stop the expiry, let the parent's clock run again, tell the owner.

    An answer that was given stays in the record, also if nobody is left to take it over.
    """
    kept = interaction.result if result is None else result
    charged = interaction.charged
    interaction = _move(ctx, interaction, event, result=kept, draft=None, reason=reason, charged=0)
    quotas.charge(ctx, *payer(interaction), -charged)
    timers.clear_timer(ctx, "interaction", interaction.interaction_id)
    if interaction.status != InteractionState.SUBMITTED:
        ctx.delete(OPEN_INTERACTIONS, (interaction.instance_id, interaction.interaction_id))
    if interaction.parent_agent_id is not None and interaction.parent_call_id is not None:
        parent_key = (interaction.parent_agent_id, interaction.parent_call_id)
        if ctx.delete(INTERACTIONS_BY_CALL, (*parent_key, interaction.interaction_id)):
            calls.resume_timeout(ctx, ctx.need(CALLS, parent_key))
    ctx.touch(interaction.instance_id)
    if interaction.source == "runtime_policy":
        before, ctx.cause = ctx.cause, interaction.cause
        capabilities.consent_given(ctx, interaction)
        ctx.cause = before
        return
    if tell_owner:
        _tell_owner(ctx, interaction)
    else:
        ctx.tell_worker(interaction.instance_id, "interaction.changed", {"interaction": public(interaction)})


def public(interaction: Interaction) -> dict[str, Any]:
    """The record as its owner, the Host and the operator read it."""
    owner = {
        "app_scope": interaction.app_scope,
        "instance_id": interaction.instance_id,
        "conversation_id": interaction.conversation_id,
        "source": interaction.source,
    }
    if interaction.parent_call_id is not None:
        owner["parent_call_id"] = interaction.parent_call_id
    if interaction.surface_id is not None:
        owner["surface_id"] = interaction.surface_id
    body: dict[str, Any] = {
        "interaction_id": interaction.interaction_id,
        "owner": owner,
        "kind": interaction.kind,
        "request": interaction.request,
        "status": str(interaction.status),
        "presentation": interaction.presentation,
        "created_at": to_rfc3339(interaction.created_ms),
        "updated_at": to_rfc3339(interaction.updated_ms),
    }
    if interaction.result is not None:
        body["result"] = interaction.result
    if interaction.expires_ms is not None:
        body["expires_at"] = to_rfc3339(interaction.expires_ms)
    if interaction.reason:
        body["reason"] = interaction.reason
    if interaction.draft is not None:
        body["draft"] = interaction.draft
    if interaction.key:
        body["key"] = interaction.key
    if interaction.purpose is not None:
        body["purpose"] = {name: interaction.purpose[name] for name in ("capability", "reason")}
    return body


def _receipt(interaction: Interaction) -> dict[str, Any]:
    return {"interaction_id": interaction.interaction_id, "interaction": public(interaction)}
