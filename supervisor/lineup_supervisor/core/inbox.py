"""The inbox of each instance: durable deliveries, in order, sent again to every new worker until acknowledged.

Owns ``INBOX`` and the cursor ``Worker.sent_seq``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import calls, interactions
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import CALLS, INBOX, INSTANCES, WORKERS, InboxItem, Instance
from lineup_supervisor.core.tables import WorkerState

replace = msgspec.structs.replace


def append(
    ctx: Ctx,
    instance_id: str,
    kind: str,
    body: dict[str, Any],
    *,
    agent_id: str = "",
    call_id: str = "",
    interaction_id: str = "",
) -> int:
    """Write one delivery; it is sent at the end of this event if a worker is ready. Returns its ``seq``."""
    instance = ctx.need(INSTANCES, (instance_id,))
    seq = instance.next_inbox
    ctx.put(INSTANCES, (instance_id,), replace(instance, next_inbox=seq + 1, last_used_ms=ctx.now.steady_ms))
    item = InboxItem(
        kind=kind,
        message_id=ctx.new_id("m"),
        body=body,
        cause=ctx.cause,
        at_ms=ctx.now.wall_ms,
        agent_id=agent_id,
        call_id=call_id,
        interaction_id=interaction_id,
    )
    ctx.put(INBOX, (instance_id, seq), item)
    ctx.touch(instance_id)
    return seq


def withdraw(ctx: Ctx, instance_id: str, seq: int) -> None:
    """Take back a delivery that no longer matters."""
    ctx.delete(INBOX, (instance_id, seq))
    audit(ctx, "inbox.withdrawn", instance_id, seq=seq)


def flush(ctx: Ctx, instance_id: str) -> None:
    """Send what the rows say and the window allows to the instance's ready worker."""
    worker = ctx.get(WORKERS, (instance_id,))
    if worker is None or worker.state != WorkerState.READY:
        return
    newest = ctx.need(INSTANCES, (instance_id,)).next_inbox - 1
    if worker.sent_seq >= newest:
        return  # all of it is on its way
    oldest = ctx.txn.first(INBOX, (instance_id,))
    if oldest is None:
        return
    sent, first = worker.sent_seq, int(oldest[1])
    for seq in range(max(sent + 1, first), min(first + limits.INBOX_WINDOW_MESSAGES_MAX - 1, newest) + 1):
        item = ctx.get(INBOX, (instance_id, seq))
        if item is None:
            continue  # withdrawn before it was sent
        body = {"seq": seq, "kind": item.kind, "message_id": item.message_id, "body": item.body}
        ctx.send_worker(instance_id, worker.incarnation, {"type": "inbox.deliver", "body": body})
        sent = seq
    if sent != worker.sent_seq:
        ctx.put(WORKERS, (instance_id,), replace(worker, sent_seq=sent))


def acknowledge(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    """The worker has taken one delivery over.

    Raises:
        LineUpError: ``message_invalid`` if it was never sent to this worker; ``call_already_final`` if it was
            withdrawn because its call has ended, so that the handler must not run.
    """
    seq = body["seq"]
    worker = ctx.need(WORKERS, (instance.instance_id,))
    if not 1 <= seq <= worker.sent_seq:
        raise LineUpError("message_invalid", f"/seq: {seq} was not delivered to this worker", detail={"path": "/seq"})
    item = ctx.get(INBOX, (instance.instance_id, seq))
    if item is None:
        raise LineUpError("call_already_final", f"delivery {seq} was taken over before, or withdrawn")
    ctx.delete(INBOX, (instance.instance_id, seq))
    ctx.touch(instance.instance_id)
    ctx.cause = item.cause
    if item.kind == "tool.call":
        calls.claim(ctx, ctx.need(CALLS, (item.agent_id, item.call_id)))
    elif item.interaction_id:
        interactions.delivered(ctx, item.interaction_id)
