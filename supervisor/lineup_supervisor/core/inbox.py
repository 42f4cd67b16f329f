"""The inbox of each instance: durable deliveries, in order, sent again to every new worker until acknowledged.

Owns ``INBOX`` and the cursor ``Worker.sent_seq`` with ``Worker.sent_bytes``.

Law: nothing new is taken while an instance has ``INBOX_MESSAGES_PER_INSTANCE_MAX`` items waiting, or its MiniApp
``INBOX_BYTES_PER_APP_MAX`` bytes. What is *owed* is always taken: the outcome of a question or a request, a cancel, a
call that is delivered again, the end of a page. Each of these follows from something that was let in while there was
room (``check_room``: a call, a question, a capability request, a surface), a few times at most, and of those no more
are open at once than their own bounds allow: so there is room for all of them, and it need not be counted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import calls, interactions, quotas, retention
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import CALLS, INBOX, INSTANCES, WORKERS, InboxItem, Instance
from lineup_supervisor.core.tables import WorkerState

replace = msgspec.structs.replace

ROWS_AT_ONCE = 16  # that go with their instance: many instances may close in one event
BYTES_PER_ROW = 16 * limits.KIB  # of a delivery that is deleted, so that a sweep reads a few megabytes at most


def append(
    ctx: Ctx,
    instance_id: str,
    kind: str,
    body: dict[str, Any],
    *,
    owed: bool = False,
    agent_id: str = "",
    call_id: str = "",
    interaction_id: str = "",
) -> int:
    """Write one delivery; it is sent at the end of this event if a worker is ready. Returns its ``seq``.

    Raises:
        LineUpError: ``rate_limited`` as ``check_room``, unless it is ``owed``; nothing changes.
    """
    instance = ctx.need(INSTANCES, (instance_id,))
    size = size_of(body)
    if not owed:
        check_room(ctx, instance, size)
    quotas.charge(ctx, instance.app_scope, quotas.INBOX, size)
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
        bytes=size,
    )
    ctx.put(INBOX, (instance_id, seq), item)
    ctx.touch(instance_id)
    return seq


def size_of(body: dict[str, Any]) -> int:
    """What a delivery counts in bytes."""
    return len(msgspec.json.encode(body)) + limits.INBOX_ITEM_OVERHEAD_BYTES


def check_room(ctx: Ctx, instance: Instance, more: int = 0) -> None:
    """Refuse what would put a delivery of ``more`` bytes into this inbox, now or later, if there is no room.

    Raises:
        LineUpError: ``rate_limited``, with ``{waiting, allowed}`` in items or ``{used, more, allowed}`` in bytes.
    """
    waiting = _waiting(ctx, instance)
    if waiting >= limits.INBOX_MESSAGES_PER_INSTANCE_MAX:
        raise LineUpError(
            "rate_limited",
            f"{waiting} messages wait for this instance of {instance.app_scope} already",
            detail={"waiting": waiting, "allowed": limits.INBOX_MESSAGES_PER_INSTANCE_MAX},
        )
    quotas.check_inbox(ctx, instance.app_scope, more)


def _waiting(ctx: Ctx, instance: Instance) -> int:
    """At most so many deliveries are waiting; not counted one by one."""
    oldest = ctx.txn.first(INBOX, (instance.instance_id,))
    return 0 if oldest is None else instance.next_inbox - int(oldest[1])


def withdraw(ctx: Ctx, instance_id: str, seq: int) -> None:
    """Take back a delivery that no longer matters."""
    _drop(ctx, ctx.need(INSTANCES, (instance_id,)), seq)
    audit(ctx, "inbox.withdrawn", instance_id, seq=seq)


def owner_closed(ctx: Ctx, instance: Instance) -> None:
    """Nobody will take over what waits. Much of it goes in sweeps, so that no event deletes more than a little."""
    waiting = _waiting(ctx, ctx.need(INSTANCES, (instance.instance_id,)))  # what else has ended may have told it so
    if not waiting:
        return
    if not drop(ctx, instance.instance_id, ROWS_AT_ONCE)[1]:
        retention.retire(ctx, retention.BACKLOG, instance.instance_id)
    audit(ctx, "inbox.closed", instance.instance_id, dropped=waiting)


def drop(ctx: Ctx, instance_id: str, room: int) -> tuple[int, bool]:
    """Delete deliveries that nobody takes over any more, the oldest first: how much of the ``room`` for rows it took (a
    long one counts as several), and whether that was the last one.
    """
    instance, took = ctx.need(INSTANCES, (instance_id,)), 0
    while (key := ctx.txn.first(INBOX, (instance_id,))) is not None and took < room:
        took += 1 + weight(ctx.need(INBOX, key)) // BYTES_PER_ROW
        _drop(ctx, instance, int(key[1]))
    return took, key is None


def _drop(ctx: Ctx, instance: Instance, seq: int) -> None:
    """One delivery waits no more: its bytes are given back."""
    item = ctx.need(INBOX, (instance.instance_id, seq))
    quotas.charge(ctx, instance.app_scope, quotas.INBOX, -item.bytes)
    ctx.delete(INBOX, (instance.instance_id, seq))
    worker = ctx.get(WORKERS, (instance.instance_id,))
    if worker is not None and seq <= worker.sent_seq:
        ctx.put_unseen(WORKERS, (instance.instance_id,), replace(worker, sent_bytes=worker.sent_bytes - weight(item)))


def weight(item: InboxItem) -> int:
    """What it takes of the window in bytes. One that a version before wrote has not been measured."""
    return item.bytes or size_of(item.body)


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
    sent, sent_bytes, first = worker.sent_seq, worker.sent_bytes, int(oldest[1])
    for seq in range(max(sent + 1, first), min(first + limits.INBOX_WINDOW_MESSAGES_MAX - 1, newest) + 1):
        item = ctx.get(INBOX, (instance_id, seq))
        if item is None:
            continue  # withdrawn before it was sent
        if sent_bytes and sent_bytes + weight(item) > limits.INBOX_WINDOW_BYTES_MAX:
            break
        body = {"seq": seq, "kind": item.kind, "message_id": item.message_id, "body": item.body}
        ctx.send_worker(instance_id, worker.incarnation, {"type": "inbox.deliver", "body": body})
        sent, sent_bytes = seq, sent_bytes + weight(item)
    if sent != worker.sent_seq:
        ctx.put(WORKERS, (instance_id,), replace(worker, sent_seq=sent, sent_bytes=sent_bytes))


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
    _drop(ctx, instance, seq)
    ctx.touch(instance.instance_id)
    ctx.cause = item.cause
    if item.kind == "tool.call":
        calls.claim(ctx, ctx.need(CALLS, (item.agent_id, item.call_id)))
    elif item.interaction_id:
        interactions.delivered(ctx, item.interaction_id)
