"""The agent link: who is behind a link, and what each of an agent's frames does.

Owns ``AGENT_LINKS``, ``RECEIPTS`` and the link part of ``AGENTS``. Identity is what the hello of this link said,
under the token that hostshell
checked; a frame cannot speak for another agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.envelope import Envelope, check_envelope, message_id_of
from lineup_protocol.errors import LineUpError
from lineup_protocol.handshake import CLOSE_TAKEN_OVER, choose_version
from lineup_protocol.messages import check_lengths, find
from lineup_supervisor.core import calls, conversations, envelopes, intake, inventory, outbox
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    AGENT_LINKS,
    AGENTS,
    CALLS,
    RECEIPT_RING,
    RECEIPTS,
    Agent,
    AgentLink,
    Call,
    Receipt,
)

replace = msgspec.structs.replace

VIOLATION = 1008


def frame(ctx: Ctx, link_id: str, content: Any) -> None:
    """One frame of one link."""
    link = ctx.get(AGENT_LINKS, (link_id,))
    ctx.actor = f"agent:{link.agent_id}" if link is not None else f"link:{link_id}"
    try:
        envelope = check_envelope(content)
    except LineUpError as error:
        audit(ctx, "frame.refused", link_id, code=error.code, rule=error.message)
        ctx.send_agent(link_id, envelopes.error_frame(ctx, error, message_id_of(content)))
        if link is None:
            ctx.emit(fx.CloseAgent(link_id=link_id, code=VIOLATION, reason="the first frame must be lineup.v1.hello"))
        return
    if envelope.type == "lineup.v1.hello":
        _hello(ctx, link_id, link, envelope)
    elif link is None:
        refusal = LineUpError("unauthorized", "the first frame must be lineup.v1.hello")
        audit(ctx, "frame.refused", link_id, code=refusal.code)
        ctx.send_agent(link_id, envelopes.error_frame(ctx, refusal, envelope.message_id))
        ctx.emit(fx.CloseAgent(link_id=link_id, code=VIOLATION, reason=refusal.message))
    else:
        _HANDLERS[envelope.type](ctx, link_id, link.agent_id, envelope)


def link_closed(ctx: Ctx, link_id: str) -> None:
    """The WebSocket is gone; what was sent and not acknowledged stays in the outbox."""
    link = ctx.get(AGENT_LINKS, (link_id,))
    if link is None:
        return
    ctx.delete(AGENT_LINKS, (link_id,))
    agent = ctx.need(AGENTS, (link.agent_id,))
    if agent.link_id == link_id:
        ctx.put(AGENTS, (link.agent_id,), replace(agent, link_id=None, sent_seq=agent.acked_seq, sent_bytes=0))
        audit(ctx, "link.closed", link.agent_id, link_id)


def forget_links(ctx: Ctx) -> None:
    """A new run: no link of the last one exists any more."""
    for key, _ in list(ctx.txn.scan(AGENT_LINKS)):
        link_closed(ctx, str(key[0]))


def _hello(ctx: Ctx, link_id: str, link: AgentLink | None, envelope: Envelope) -> None:
    agent_id = envelope.payload["agent_id"]
    try:
        if link is not None:
            raise LineUpError("message_invalid", "/type: this link has said hello already")
        protocol = choose_version(envelope.payload["protocol"])
        agent = outbox.agent_row(ctx, agent_id)
        acked = envelope.payload.get("acked_seq", agent.acked_seq)
        if sum(1 for _ in ctx.txn.scan(AGENT_LINKS)) >= limits.AGENT_LINKS_MAX and agent.link_id is None:
            raise LineUpError("rate_limited", f"{limits.AGENT_LINKS_MAX} agents are connected already")
        if agent_id == outbox.OPERATOR:
            raise LineUpError("unauthorized", f"agent_id {outbox.OPERATOR!r} is the operator's own; choose another")
        # Beyond what was sent, it is the word of another history: of the one before a backup was restored.
        if not 0 <= acked <= agent.max_sent_seq:
            rule = f"must be from 0 to {agent.max_sent_seq}"
            raise LineUpError("message_invalid", f"/payload/acked_seq: {rule}", detail={"path": "/payload/acked_seq"})
    except LineUpError as error:
        audit(ctx, "frame.refused", link_id, agent_id, code=error.code)
        ctx.send_agent(link_id, envelopes.error_frame(ctx, error, envelope.message_id))
        ctx.emit(fx.CloseAgent(link_id=link_id, code=VIOLATION, reason=error.message[:120]))
        return
    ctx.actor = f"agent:{agent_id}"
    if agent.link_id is not None:
        _take_over(ctx, agent)
    ctx.put(AGENT_LINKS, (link_id,), AgentLink(agent_id=agent_id))
    agent = replace(
        outbox.agent_row(ctx, agent_id),
        link_id=link_id,
        last_hello_ms=ctx.now.wall_ms,
        sent_seq=agent.acked_seq,
        sent_bytes=0,
    )
    ctx.put(AGENTS, (agent_id,), agent)
    audit(ctx, "link.opened", agent_id, link_id, acked_seq=acked)
    welcome = {"boot_id": ctx.meta.boot_id, "protocol": protocol, "acked_seq": max(acked, agent.acked_seq)}
    ctx.send_agent(link_id, envelopes.runtime_frame(ctx, "lineup.v1.welcome", welcome))
    ctx.send_agent(link_id, inventory.inventory_frame(ctx))
    if acked > agent.acked_seq:
        outbox.acknowledge(ctx, agent_id, acked)
    else:
        outbox.flush(ctx, agent_id)


def _take_over(ctx: Ctx, agent: Agent) -> None:
    """A second link of the same agent: the newer one wins."""
    assert agent.link_id is not None
    ctx.delete(AGENT_LINKS, (agent.link_id,))
    audit(ctx, "link.taken_over", agent.agent_id, agent.link_id)
    ctx.emit(
        fx.CloseAgent(
            link_id=agent.link_id, code=CLOSE_TAKEN_OVER, reason="a newer link of this agent_id has taken over"
        )
    )
    ctx.put(AGENTS, (agent.agent_id,), replace(agent, link_id=None, sent_seq=agent.acked_seq, sent_bytes=0))


def _ping(ctx: Ctx, link_id: str, agent_id: str, envelope: Envelope) -> None:
    ctx.send_agent(link_id, envelopes.runtime_frame(ctx, "lineup.v1.pong", {}))


def _ack(ctx: Ctx, link_id: str, agent_id: str, envelope: Envelope) -> None:
    try:
        outbox.acknowledge(ctx, agent_id, envelope.payload["seq"])
    except LineUpError as error:
        audit(ctx, "frame.refused", agent_id, code=error.code)
        ctx.send_agent(link_id, envelopes.error_frame(ctx, error, envelope.message_id))


def _get(ctx: Ctx, link_id: str, agent_id: str, envelope: Envelope) -> None:
    call = ctx.get(CALLS, (agent_id, envelope.payload["call_id"]))
    if call is None:
        error = LineUpError("call_not_found", f"no call {envelope.payload['call_id']} of this agent")
        _send_receipt(ctx, link_id, envelopes.refusal_body(envelope.message_id, error))
        return
    _send_receipt(ctx, link_id, envelopes.receipt_body(envelope.message_id, True))
    state = {"call_id": call.call_id, "record": calls.record_for_agent(call)}
    ctx.send_agent(link_id, envelopes.runtime_frame(ctx, "lineup.v1.tool.state", state, call.conversation_id))


def _durably(rule: Callable[[Ctx, str, Envelope], dict[str, Any]]) -> Callable[[Ctx, str, str, Envelope], None]:
    """A message with an effect: its receipt is kept, and the same message_id gets the same receipt again (see
    ``_again``)."""

    def handle(ctx: Ctx, link_id: str, agent_id: str, envelope: Envelope) -> None:
        row = find("agent", envelope.type, from_runtime=False)
        assert row is not None, envelope.type
        kept = ctx.get(RECEIPTS, (agent_id, envelope.message_id))
        if kept is not None:
            _send_receipt(ctx, link_id, _again(ctx, agent_id, kept))
            return
        try:
            check_lengths(row, envelope.payload, path="/payload")
            answer = ctx.attempt(rule, ctx, agent_id, envelope)
        except LineUpError as error:
            audit(
                ctx,
                "message.refused",
                agent_id,
                envelope.payload.get("call_id", ""),
                code=error.code,
                rule=error.message,
            )
            answer = {"accepted": False, **error.as_dict()}
            if error.retry == "same":  # the same message may succeed later, so its refusal is not kept
                _send_receipt(ctx, link_id, {"reply_to": envelope.message_id, **answer})
                return
        body = {"reply_to": envelope.message_id, **answer}
        _keep_receipt(ctx, agent_id, envelope, body)
        _send_receipt(ctx, link_id, body)

    return handle


def _again(ctx: Ctx, agent_id: str, kept: Receipt) -> dict[str, Any]:
    """The kept receipt; one that had a call's record has it as it is now: the result may have been taken over long ago,
    and an agent that never saw the first receipt would wait for it in vain."""
    call = ctx.get(CALLS, (agent_id, kept.call_id)) if kept.call_id else None
    return kept.body if call is None else {**kept.body, "detail": calls.record_for_agent(call)}


def _keep_receipt(ctx: Ctx, agent_id: str, envelope: Envelope, body: dict[str, Any]) -> None:
    # The record in a resend's receipt may be large and is kept elsewhere anyway.
    has_record = body["accepted"] and "detail" in body
    kept = {name: value for name, value in body.items() if name != "detail" or not has_record}
    receipt = Receipt(body=kept, call_id=envelope.payload["call_id"] if has_record else "")
    ctx.put(RECEIPTS, (agent_id, envelope.message_id), receipt)
    agent = outbox.agent_row(ctx, agent_id)
    n = agent.next_receipt
    ctx.put(AGENTS, (agent_id,), replace(agent, next_receipt=n + 1))
    slot = (agent_id, n % ctx.policy.receipts_kept)
    oldest = ctx.get(RECEIPT_RING, slot)
    if oldest is not None:
        ctx.delete(RECEIPTS, (agent_id, oldest.body["message_id"]))
    ctx.put(RECEIPT_RING, slot, Receipt(body={"message_id": envelope.message_id}))


def _send_receipt(ctx: Ctx, link_id: str, body: dict[str, Any]) -> None:
    ctx.send_agent(link_id, envelopes.runtime_frame(ctx, "lineup.v1.receipt", body))


def _call(ctx: Ctx, agent_id: str, envelope: Envelope) -> dict[str, Any]:
    assert envelope.conversation_id is not None
    return intake.submit(ctx, agent_id, envelope.conversation_id, envelope.payload)


def _cancel(ctx: Ctx, agent_id: str, envelope: Envelope) -> dict[str, Any]:
    calls.cancel(ctx, _own_call(ctx, agent_id, envelope.payload["call_id"]), envelope.payload.get("reason", ""))
    return {"accepted": True}


def _own_call(ctx: Ctx, agent_id: str, call_id: str) -> Call:
    call = ctx.get(CALLS, (agent_id, call_id))
    if call is None:
        raise LineUpError("call_not_found", f"no call {call_id} of this agent")
    return call


def _text(ctx: Ctx, agent_id: str, envelope: Envelope) -> dict[str, Any]:
    assert envelope.conversation_id is not None
    conversations.agent_text(
        ctx, agent_id, envelope.conversation_id, envelope.payload["text"], envelope.payload.get("format", "markdown")
    )
    return {"accepted": True}


_HANDLERS: dict[str, Callable[[Ctx, str, str, Envelope], None]] = {
    "lineup.v1.ping": _ping,
    "lineup.v1.ack": _ack,
    "lineup.v1.tool.get": _get,
    "lineup.v1.tool.call": _durably(_call),
    "lineup.v1.tool.cancel": _durably(_cancel),
    "lineup.v1.message.text": _durably(_text),
}
