"""The outbox: durable messages to agents, numbered without a gap, sent again until acknowledged.

Owns ``OUTBOX_ITEMS`` and the cursors in ``Agent``. What is to be sent follows from the rows and the link's cursor
alone, so a reconnect, a restart and the first send are the same code.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import retention
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import AGENTS, OUTBOX_ITEMS, Agent, OutboxItem
from lineup_supervisor.core.tables import OUTBOX, OutboxEvent, OutboxState

OPERATOR = "cli"  # the operator reads records instead of an outbox; its items are numbered but not kept

RESULT = "lineup.v1.tool.result"

replace = msgspec.structs.replace


def agent_row(ctx: Ctx, agent_id: str) -> Agent:
    return ctx.get(AGENTS, (agent_id,)) or Agent(agent_id=agent_id)


def append(ctx: Ctx, agent_id: str, type_: str, conversation_id: str, payload: dict[str, Any]) -> int:
    """Write one message and send it if the link's window has room. Returns its ``seq``."""
    agent = agent_row(ctx, agent_id)
    seq = agent.next_seq
    if agent_id == OPERATOR:
        ctx.put(AGENTS, (agent_id,), replace(agent, next_seq=seq + 1, acked_seq=seq, sent_seq=seq, max_sent_seq=seq))
        _taken_over(ctx, agent_id, type_, payload)
        return seq
    item = OutboxItem(
        type=type_,
        message_id=f"o-{agent_id}-{seq}" if len(agent_id) < 96 else ctx.new_id("o"),
        conversation_id=conversation_id,
        payload=payload,
        at_ms=ctx.now.wall_ms,
        cause=ctx.cause,
        bytes=len(msgspec.json.encode(payload)),
    )
    ctx.put(OUTBOX_ITEMS, (agent_id, seq), item)
    _flush(ctx, replace(agent, next_seq=seq + 1))
    return seq


def coalesce(ctx: Ctx, agent_id: str, seq: int, payload: dict[str, Any]) -> bool:
    """Put newer content into an item that was never sent. False if it has been sent or taken over."""
    agent = ctx.get(AGENTS, (agent_id,))
    item = ctx.get(OUTBOX_ITEMS, (agent_id, seq)) if agent is not None else None
    if agent is None or item is None or not OUTBOX.allows(state_of(agent, seq), OutboxEvent.COALESCE):
        return False
    OUTBOX.next(state_of(agent, seq), OutboxEvent.COALESCE)
    ctx.put(OUTBOX_ITEMS, (agent_id, seq), replace(item, payload=payload, at_ms=ctx.now.wall_ms))
    return True


def is_full(ctx: Ctx, agent_id: str) -> bool:
    """True if the agent has left so much unacknowledged that nothing new should be begun for it."""
    agent = agent_row(ctx, agent_id)
    return agent.next_seq - 1 - agent.acked_seq >= limits.OUTBOX_MESSAGES_PER_AGENT_MAX


def state_of(agent: Agent, seq: int) -> OutboxState:
    if seq <= agent.acked_seq:
        return OutboxState.ACKNOWLEDGED
    return OutboxState.SENT if seq <= agent.max_sent_seq else OutboxState.QUEUED


def acknowledge(ctx: Ctx, agent_id: str, seq: int) -> None:
    """Everything up to ``seq`` has been taken over.

    Raises:
        LineUpError: ``message_invalid`` if ``seq`` was never sent; nothing changes.
    """
    agent = agent_row(ctx, agent_id)
    if seq < 0:
        raise LineUpError("message_invalid", "/payload/seq: must not be negative", detail={"path": "/payload/seq"})
    try:
        state = OUTBOX.next(state_of(agent, seq), OutboxEvent.ACKNOWLEDGE)
    except LineUpError as error:
        rule = f"{seq} was never sent; the last one that was is {agent.max_sent_seq}"
        raise LineUpError(error.code, f"/payload/seq: {rule}", detail={"path": "/payload/seq", "rule": rule}) from None
    if state == state_of(agent, seq):
        return
    sent_bytes = agent.sent_bytes
    for taken in range(agent.acked_seq + 1, seq + 1):
        item = ctx.need(OUTBOX_ITEMS, (agent_id, taken))
        sent_bytes -= item.bytes if taken <= agent.sent_seq else 0
        ctx.delete(OUTBOX_ITEMS, (agent_id, taken))
        _taken_over(ctx, agent_id, item.type, item.payload)
    sent_seq = max(seq, agent.sent_seq)
    _flush(ctx, replace(agent, acked_seq=seq, sent_seq=sent_seq, sent_bytes=max(0, sent_bytes)))


def _taken_over(ctx: Ctx, agent_id: str, type_: str, payload: dict[str, Any]) -> None:
    """Only now is a call over: until its agent has the result, a resend must find the record."""
    if type_ == RESULT:
        retention.retire(ctx, retention.CALL, agent_id, payload["call_id"])


def flush(ctx: Ctx, agent_id: str) -> None:
    """Send what the rows say and the window allows, if there is a link."""
    _flush(ctx, agent_row(ctx, agent_id))


def _flush(ctx: Ctx, agent: Agent) -> None:
    """Keep the agent's row, with what is sent now. Items are numbered without a gap, so that each is found by name."""
    sent, sent_bytes = agent.sent_seq, agent.sent_bytes
    if agent.link_id is not None:
        newest = min(agent.next_seq - 1, agent.acked_seq + limits.OUTBOX_WINDOW_MESSAGES_MAX)
        for seq in range(sent + 1, newest + 1):
            item = ctx.need(OUTBOX_ITEMS, (agent.agent_id, seq))
            if sent_bytes and sent_bytes + item.bytes > limits.OUTBOX_WINDOW_BYTES_MAX:
                break
            OUTBOX.next(state_of(agent, seq), OutboxEvent.SEND)
            ctx.send_agent(agent.link_id, frame(item, seq))
            sent, sent_bytes = seq, sent_bytes + item.bytes
    if sent != agent.sent_seq:
        agent = replace(agent, sent_seq=sent, sent_bytes=sent_bytes, max_sent_seq=max(sent, agent.max_sent_seq))
    ctx.put(AGENTS, (agent.agent_id,), agent)


def frame(item: OutboxItem, seq: int) -> dict[str, Any]:
    return {
        "type": item.type,
        "message_id": item.message_id,
        "conversation_id": item.conversation_id,
        "sent_at": to_rfc3339(item.at_ms),
        "seq": seq,
        "payload": item.payload,
    }
