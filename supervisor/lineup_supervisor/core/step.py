"""The one door: ``step(txn, event, now)``. Nothing else changes the Runtime's state.

One event in, rules over typed rows, effects out. No clock, no I/O, no randomness; the caller commits, then carries the
effects out in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import (
    actions,
    agents,
    apps,
    calls,
    embodiment,
    instances,
    interactions,
    inventory,
    operations,
    queries,
    retention,
    timers,
    views,
    worker_link,
)
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import META_KEY, Ctx
from lineup_supervisor.core.schema import CALLS, META, WORKERS
from lineup_supervisor.core.txn import Key, Txn

# Timers settled in one event; the edge wakes again at once if more are due. A deadline costs a millisecond or two, and
# whoever calls meanwhile waits for the whole transaction.
TIMERS_PER_EVENT_MAX = 32


def step(txn: Txn, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
    """Handle one event inside ``txn``. Returns what the edges must do after the commit."""
    ctx = Ctx(txn, event, now)
    _HANDLERS[type(event)](ctx, event)
    if not isinstance(event, ev.HostQuery | ev.HostWatch):  # a question leaves no trace, so that it costs no sync
        embodiment.reconcile(ctx)
        _finish(ctx)
    return ctx.effects()


def _finish(ctx: Ctx) -> None:
    """Tell people what changed, under the next revision, and keep the Runtime's own row."""
    retention.keep_bounds(ctx)
    if ctx.changed or ctx.extra_changes:
        ctx.set_meta(projection_revision=ctx.meta.projection_revision + 1)
        changes = views.Changes(ctx.changed, ctx.extra_changes)
        event_id = ctx.event.event_id
        ctx.emit(fx.HostDelta(revision=ctx.meta.projection_revision, changes=changes, event_id=event_id))
    if ctx.now.steady_ms > ctx.meta.steady_ms:
        ctx.set_meta(steady_ms=ctx.now.steady_ms)
    ctx.txn.put(META, META_KEY, ctx.meta)


def _boot(ctx: Ctx, event: ev.Boot) -> None:
    """A new run: no link and no process of the last one exists; everything else goes on."""
    ctx.set_meta(
        boot_id=event.boot_id,
        isolation=event.isolation,
        policy=event.policy,
        stopping=False,
        boots=ctx.meta.boots + 1,
        workers_starting=0,
        workers_live=sum(1 for _ in ctx.txn.scan(WORKERS)),
    )
    audit(ctx, "runtime.started", event.boot_id, isolation=event.isolation)
    agents.forget_links(ctx)
    instances.look_at(ctx, ())  # no Host of the last run shows anything any more
    apps.install_own(ctx, event.bundles)
    inventory.refresh(ctx)
    for key, worker in list(ctx.txn.scan(WORKERS)):
        embodiment.exited(ctx, str(key[0]), worker.incarnation, "runtime_restart", "the Runtime was restarted")
    ctx.set_meta(workers_starting=0, workers_live=0)  # what else is wanted is in the queue, however many there are
    embodiment.adopt_queue(ctx)
    retention.tidy(ctx)
    _wake(ctx, event)


def _wake(ctx: Ctx, event: ev.Event) -> None:
    for kind, ref, _ in list(timers.take_due(ctx, TIMERS_PER_EVENT_MAX, ctx.now)):
        ctx.cause = ctx.event.event_id
        ctx.actor = "clock"
        _TIMERS[kind](ctx, ref)


def _call_of(ctx: Ctx, ref: Key) -> Any:
    return ctx.need(CALLS, ref)


_TIMERS: dict[str, Callable[[Ctx, Key], None]] = {
    "call": lambda ctx, ref: calls.timed_out(ctx, _call_of(ctx, ref)),
    "cancel": lambda ctx, ref: calls.cancel_grace_over(ctx, _call_of(ctx, ref)),
    "interaction": lambda ctx, ref: interactions.expired(ctx, str(ref[0])),
    "operation": lambda ctx, ref: operations.due(ctx, str(ref[0])),
    "start": lambda ctx, ref: embodiment.start_timed_out(ctx, str(ref[0])),
    "idle": lambda ctx, ref: embodiment.idle_over(ctx, str(ref[0])),
    "restart": lambda ctx, ref: embodiment.restart_due(ctx, str(ref[0])),
    "action": lambda ctx, ref: actions.forget(ctx, str(ref[0])),
    "sweep": lambda ctx, ref: retention.sweep(ctx),
}


def _stopping(ctx: Ctx, event: ev.Stopping) -> None:
    """Refuse new calls, let every worker go, halt when the last one has."""
    if not ctx.meta.stopping:
        ctx.set_meta(stopping=True)
        audit(ctx, "runtime.stopping", ctx.meta.boot_id, reason=event.reason)
    for _, worker in list(ctx.txn.scan(WORKERS)):
        embodiment.stop(ctx, worker, "runtime_stopping", ctx.policy.worker_stop_grace_ms)
    _halt_if_done(ctx)


def _halt_if_done(ctx: Ctx) -> None:
    if ctx.meta.stopping and not any(True for _ in ctx.txn.scan(WORKERS)):
        audit(ctx, "runtime.stopped", ctx.meta.boot_id)
        ctx.emit(fx.Halt(reason="stopped"))


def _worker_exited(ctx: Ctx, event: ev.WorkerExited) -> None:
    detail = event.detail[: limits.REASON_LENGTH_MAX]  # it may end with the worker's last words
    embodiment.exited(ctx, event.instance_id, event.incarnation, event.reason, detail)
    _halt_if_done(ctx)


def _host_watch(ctx: Ctx, event: ev.HostWatch) -> None:
    try:
        call = calls.one(ctx.txn, event.call_id, event.agent_id)
    except LineUpError as error:
        ctx.reply_host(event.reply_to, False, code=error.code, message=error.message, detail=error.detail)
    else:
        ctx.reply_host(event.reply_to, True, detail={"record": calls.record(call)})


_HANDLERS: dict[type[ev.Event], Callable[[Ctx, Any], None]] = {
    ev.Boot: _boot,
    ev.Wake: _wake,
    ev.Stopping: _stopping,
    ev.AgentFrame: lambda ctx, e: agents.frame(ctx, e.link_id, e.frame),
    ev.AgentLinkClosed: lambda ctx, e: agents.link_closed(ctx, e.link_id),
    ev.WorkerStarted: lambda ctx, e: embodiment.started(ctx, e.instance_id, e.incarnation, e.pid, e.isolation),
    ev.WorkerFrame: lambda ctx, e: worker_link.frame(ctx, e.instance_id, e.incarnation, e.frame),
    ev.WorkerThrottled: lambda ctx, e: embodiment.throttled(ctx, e),
    ev.WorkerDenied: lambda ctx, e: embodiment.denied(ctx, e),
    ev.WorkerExited: _worker_exited,
    ev.HostQuery: queries.handle,
    ev.HostAction: actions.handle,
    ev.HostWatch: _host_watch,
    ev.AuditArchived: lambda ctx, e: retention.archived(ctx, e),
    ev.ReclaimWorkers: lambda ctx, e: embodiment.reclaim(ctx, e.count),
}
