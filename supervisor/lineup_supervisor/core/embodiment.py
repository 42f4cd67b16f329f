"""Which instances have a process just now. Owns ``WORKERS``, ``WANTED``, ``START_QUEUE`` and ``STARTS``.

An instance wants a worker while there is something that only its code can do: undelivered inbox items, running calls,
its own pending questions, an open surface on screen. Everything here is derived again from rows after each event that
touched an instance, so that no start can be forgotten.

Whose turn it is to start: the MiniApp's with the fewest starts under way, of these the one that waits longest; but no
MiniApp has more than half of the starts. So one that hangs in each of its starts holds up itself, and nobody waits for
ever: each start ends in time, and then who waits longest has no more of them under way than anybody else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import apps, calls, inbox, instances, timers
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import WorkerDenied, WorkerThrottled
from lineup_supervisor.core.schema import (
    APPS,
    BUNDLES,
    CALLS,
    CONVERSATIONS,
    INBOX,
    INSTANCES,
    INTERACTIONS,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    OPEN_SURFACES,
    START_QUEUE,
    STARTS,
    WANTED,
    WORKERS,
    App,
    Instance,
    Mark,
    Starts,
    Wish,
    Worker,
)
from lineup_supervisor.core.tables import WORKER, CallState, InstanceState, WorkerEvent, WorkerState
from lineup_supervisor.core.txn import Key

replace = msgspec.structs.replace
_MARK = Mark()

# Ends of a worker that say nothing against its code, beside those that were asked for (``WorkerState.STOPPING``).
_PEACEFUL = ("runtime_restart",)
# Ends that another start would only repeat.
_HOPELESS = ("isolation_insufficient", "app_start_failed")
_LATE = "start_timeout"


def wants_worker(ctx: Ctx, instance: Instance) -> bool:
    """True while there is something for the instance's code to do."""
    if instance.state == InstanceState.CLOSED:
        return False
    key = (instance.instance_id,)
    if ctx.txn.first(INBOX, key) is not None:
        return True
    for call_key, _ in ctx.txn.scan(OPEN_CALLS, key):
        call = ctx.need(CALLS, call_key[1:])
        if call.status == CallState.RUNNING and call.operation_id is None:
            return True
    for question_key, _ in ctx.txn.scan(OPEN_INTERACTIONS, key):
        if ctx.need(INTERACTIONS, (question_key[1],)).source == "miniapp_tool":
            return True
    if instance.state == InstanceState.STARTING and instance.kind != "system":
        return True  # it takes its place on screen once its code has run
    return instance.state == InstanceState.FOREGROUND and ctx.txn.first(OPEN_SURFACES, key) is not None


def reconcile(ctx: Ctx) -> None:
    """At the end of every event: bring each touched instance's process in line with its rows."""
    while ctx.touched:
        instance_id = next(iter(ctx.touched))
        del ctx.touched[instance_id]
        instance = ctx.get(INSTANCES, (instance_id,))
        if instance is not None:
            _reconcile_one(ctx, instance)
        else:  # closed and swept away in this very event
            _forget_wish(ctx, instance_id)
    _start_from_queue(ctx)


def _reconcile_one(ctx: Ctx, instance: Instance) -> None:
    key = (instance.instance_id,)
    worker = ctx.get(WORKERS, key)
    if instance.state == InstanceState.CLOSED:
        _forget_wish(ctx, instance.instance_id)
        if worker is not None:
            stop(ctx, worker, "closed", ctx.policy.worker_stop_grace_ms)
        return
    wanted = wants_worker(ctx, instance)
    if wanted:
        if ctx.get(WANTED, key) is None:
            ctx.put(WANTED, key, Wish())
        timers.clear_timer(ctx, "idle", instance.instance_id)
    else:
        _forget_wish(ctx, instance.instance_id)
    if worker is None:
        if wanted and not timers.is_armed(ctx, "restart", instance.instance_id):
            _enqueue(ctx, instance)
    elif worker.state == WorkerState.READY:
        inbox.flush(ctx, instance.instance_id)
        if not wanted:
            timers.set_timer(ctx, "steady", ctx.now.steady_ms + ctx.policy.worker_idle_ms, "idle", instance.instance_id)


def _forget_wish(ctx: Ctx, instance_id: str) -> None:
    _dequeue(ctx, instance_id)
    ctx.delete(WANTED, (instance_id,))


def _enqueue(ctx: Ctx, instance: Instance) -> None:
    wish = ctx.need(WANTED, (instance.instance_id,))
    if wish.queued_ms is None:
        _queue(ctx, instance.instance_id, instance.app_scope, ctx.now.steady_ms)
        ctx.set_meta(starts_queued=ctx.meta.starts_queued + 1)


def _queue(ctx: Ctx, instance_id: str, app_scope: str, since_ms: int) -> None:
    ctx.put(WANTED, (instance_id,), Wish(queued_ms=since_ms, app_scope=app_scope))
    ctx.put(START_QUEUE, (app_scope, since_ms, instance_id), _MARK)
    _count(ctx, app_scope, waiting=1)


def _dequeue(ctx: Ctx, instance_id: str) -> None:
    wish = ctx.get(WANTED, (instance_id,))
    if wish is not None and wish.queued_ms is not None:
        ctx.delete(START_QUEUE, (wish.app_scope, wish.queued_ms, instance_id))
        _count(ctx, wish.app_scope, waiting=-1)
        ctx.set_meta(starts_queued=ctx.meta.starts_queued - 1)
        ctx.put(WANTED, (instance_id,), Wish())


def _count(ctx: Ctx, app_scope: str, *, under_way: int = 0, waiting: int = 0) -> None:
    starts = ctx.get(STARTS, (app_scope,)) or Starts()
    starts = Starts(under_way=max(0, starts.under_way + under_way), waiting=max(0, starts.waiting + waiting))
    if starts.under_way or starts.waiting:
        ctx.put(STARTS, (app_scope,), starts)
    else:
        ctx.delete(STARTS, (app_scope,))


def adopt_queue(ctx: Ctx) -> None:
    """At boot: a queue of version 0.1.0 has keys without the MiniApp and was not counted."""
    old = []
    for key, _ in ctx.txn.scan(START_QUEUE):
        if not isinstance(key[0], int):  # integers sort before names
            break
        old.append((key[0], str(key[1])))
    for since_ms, instance_id in old:
        ctx.delete(START_QUEUE, (since_ms, instance_id))
        _queue(ctx, instance_id, ctx.need(INSTANCES, (instance_id,)).app_scope, since_ms)
    if old:
        ctx.set_meta(starts_queued=sum(starts.waiting for _, starts in ctx.txn.scan(STARTS)))


def _start_from_queue(ctx: Ctx) -> None:
    """Start what waits, as far as there is room; make room by letting go of idle workers."""
    if ctx.meta.stopping:
        return
    while ctx.meta.starts_queued and ctx.meta.workers_starting < ctx.policy.workers_starting_max:
        turn = _next_turn(ctx)
        if turn is None:
            return  # it comes when one of its MiniApp's starts is over
        if ctx.meta.workers_live >= ctx.policy.workers_max:
            _make_room(ctx)
            return  # it comes when one that was let go has exited
        instance_id = str(turn[2])
        _dequeue(ctx, instance_id)
        _start(ctx, ctx.need(INSTANCES, (instance_id,)))


def _share(ctx: Ctx) -> int:
    """How many starts of one MiniApp may be under way."""
    return max(1, min(ctx.policy.workers_starting_max, ctx.policy.workers_max) // 2)


def _next_turn(ctx: Ctx) -> Key | None:
    """The key in ``START_QUEUE`` of the next start, None if all that wait have their share: a look at each MiniApp."""
    share = _share(ctx)
    found: tuple[int, Key, Key] | None = None
    for app, starts in ctx.txn.scan(STARTS):
        if not starts.waiting or starts.under_way >= share or (found and found[0] < starts.under_way):
            continue
        first = ctx.txn.first(START_QUEUE, app)
        if first is not None and (found is None or (starts.under_way, first[1:]) < found[:2]):
            found = (starts.under_way, first[1:], first)
    return found[2] if found else None


def _make_room(ctx: Ctx) -> None:
    """Let go of one idle worker for each start that has its turn when there is room; those that are on their way out
    already count."""
    share = _share(ctx)
    waiting = sum(starts.waiting for _, starts in ctx.txn.scan(STARTS) if starts.under_way < share)
    going = sum(1 for _, worker in ctx.txn.scan(WORKERS) if worker.state == WorkerState.STOPPING)
    for _ in range(going, waiting):
        if not _let_go_of_one(ctx):
            return


def _start(ctx: Ctx, instance: Instance) -> None:
    bundle = ctx.need(BUNDLES, (instance.digest,))
    incarnation = instance.incarnation + 1
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, incarnation=incarnation))
    worker = Worker(
        instance_id=instance.instance_id,
        incarnation=incarnation,
        state=WORKER.next(WorkerState.ABSENT, WorkerEvent.START),
        started_ms=ctx.now.steady_ms,
    )
    ctx.put(WORKERS, (instance.instance_id,), worker)
    ctx.set_meta(workers_starting=ctx.meta.workers_starting + 1, workers_live=ctx.meta.workers_live + 1)
    _count(ctx, instance.app_scope, under_way=1)
    timers.set_timer(
        ctx, "steady", ctx.now.steady_ms + ctx.policy.worker_start_timeout_ms, "start", instance.instance_id
    )
    audit(ctx, "worker.starting", instance.instance_id, incarnation=incarnation)
    manifest = bundle.manifest
    ctx.emit(
        fx.StartWorker(
            instance_id=instance.instance_id,
            incarnation=incarnation,
            app_scope=instance.app_scope,
            bundle_path=bundle.path,
            kind=instance.kind,
            min_isolation=manifest.get("min_isolation") or "S3",
            limits=ctx.policy.limits_of(manifest),
        )
    )


def started(ctx: Ctx, instance_id: str, incarnation: int, pid: int, isolation: str) -> None:
    """The process exists."""
    worker = ctx.get(WORKERS, (instance_id,))
    if worker is None or worker.incarnation != incarnation:
        return
    ctx.put(WORKERS, (instance_id,), replace(worker, pid=pid))
    audit(ctx, "worker.started", instance_id, incarnation=incarnation, pid=pid, isolation=isolation)


def ready(ctx: Ctx, instance: Instance, worker: Worker) -> None:
    """The worker has loaded its app: deliveries begin."""
    state = WORKER.next(worker.state, WorkerEvent.READY)
    if state == worker.state:
        return
    if instance.late_starts:
        instance = ctx.put(INSTANCES, (instance.instance_id,), replace(instance, late_starts=0))
    ctx.put(WORKERS, (instance.instance_id,), replace(worker, state=state, stop_reason=""))
    _start_is_over(ctx, instance)
    timers.clear_timer(ctx, "start", instance.instance_id)
    audit(
        ctx,
        "worker.ready",
        instance.instance_id,
        incarnation=worker.incarnation,
        took_ms=ctx.now.steady_ms - worker.started_ms,
    )
    instances.started(ctx, instance)
    ctx.touch(instance.instance_id)


def _start_is_over(ctx: Ctx, instance: Instance) -> None:
    ctx.set_meta(workers_starting=max(0, ctx.meta.workers_starting - 1))
    _count(ctx, instance.app_scope, under_way=-1)


def stop(ctx: Ctx, worker: Worker, reason: str, grace_ms: int) -> None:
    """Ask the edge to end the process; its exit is a later event."""
    state = WORKER.next(worker.state, WorkerEvent.STOP)
    if state == worker.state:
        return
    if worker.state == WorkerState.STARTING:
        _start_is_over(ctx, ctx.need(INSTANCES, (worker.instance_id,)))
    ctx.put(WORKERS, (worker.instance_id,), replace(worker, state=state, stop_reason=reason))
    timers.clear_timer(ctx, "start", worker.instance_id)
    timers.clear_timer(ctx, "idle", worker.instance_id)
    audit(ctx, "worker.stopping", worker.instance_id, incarnation=worker.incarnation, reason=reason)
    ctx.emit(
        fx.StopWorker(instance_id=worker.instance_id, incarnation=worker.incarnation, reason=reason, grace_ms=grace_ms)
    )


def throttled(ctx: Ctx, event: WorkerThrottled) -> None:
    """The edges have the means, the audit has the name."""
    audit(
        ctx,
        "worker.throttled",
        event.instance_id,
        incarnation=event.incarnation,
        limit=event.limit,
        code="rate_limited",
        rule=event.detail,
    )


def denied(ctx: Ctx, event: WorkerDenied) -> None:
    """It had no effect, and asking is no breach of the protocol: it is only written down."""
    audit(
        ctx,
        "worker.denied",
        event.instance_id,
        incarnation=event.incarnation,
        operation=event.operation,
    )


def exited(ctx: Ctx, instance_id: str, incarnation: int, reason: str, detail: str) -> None:
    """The process of one incarnation is gone: settle what it ran, decide whether another may start."""
    worker = ctx.get(WORKERS, (instance_id,))
    if worker is None or worker.incarnation != incarnation:
        return
    if worker.condemned and reason not in _PEACEFUL:
        reason, detail = "violation", worker.stop_reason
    peaceful = reason in _PEACEFUL or (worker.state == WorkerState.STOPPING and not worker.condemned)
    WORKER.next(worker.state, WorkerEvent.EXIT)
    ctx.delete(WORKERS, (instance_id,))
    instance = ctx.need(INSTANCES, (instance_id,))
    if worker.state == WorkerState.STARTING:
        _start_is_over(ctx, instance)
    ctx.set_meta(workers_live=max(0, ctx.meta.workers_live - 1))
    for timer in ("start", "idle"):
        timers.clear_timer(ctx, timer, instance_id)
    audit(ctx, "worker.exited", instance_id, incarnation=incarnation, reason=reason, detail=detail or None)
    ctx.touch(instance_id)
    if instance.state == InstanceState.CLOSED:
        return
    if reason in _HOPELESS:
        code = reason if reason == "isolation_insufficient" else "app_start_failed"
        _close_broken(ctx, instance, code, detail or reason, {"reason": reason})
        return
    if not peaceful and _too_many_crashes(ctx, instance):
        times = ctx.policy.restarts_max + 1
        what = f"its process ended {times} times" if times > 1 else "its process ended"
        _close_broken(ctx, instance, "app_crashed", f"{what}: {detail or reason}", {"reason": reason, "ends": times})
        return
    if worker.state == WorkerState.STARTING and worker.stop_reason == _LATE and _too_many_late_starts(ctx, instance):
        times, seconds = ctx.policy.late_starts_max + 1, ctx.policy.worker_start_timeout_ms / 1000
        what = f"its process was not ready within {seconds:g} s, {times} times in a row"
        _close_broken(ctx, instance, "app_crashed", what, {"reason": _LATE, "ends": times})
        return
    for key, _ in list(ctx.txn.scan(OPEN_CALLS, (instance_id,))):
        calls.worker_lost(ctx, ctx.need(CALLS, key[1:]), detail or reason, reason)
    instance = ctx.need(INSTANCES, (instance_id,))
    if peaceful:
        instances.suspend(ctx, instance)
    else:
        _back_off(ctx, instance)


def _too_many_crashes(ctx: Ctx, instance: Instance) -> bool:
    """Restart intensity: ``restarts_max`` within ``restart_window_ms``, judged on the steady clock."""
    since = ctx.now.steady_ms - ctx.policy.restart_window_ms
    crashes = (*(at for at in instance.crashes if at > since), ctx.now.steady_ms)
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, crashes=crashes))
    return len(crashes) > ctx.policy.restarts_max


def _too_many_late_starts(ctx: Ctx, instance: Instance) -> bool:
    """One that hangs while it is loaded: the window of ``_too_many_crashes`` would never see enough of its ends."""
    instance = ctx.need(INSTANCES, (instance.instance_id,))
    late_starts = instance.late_starts + 1
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, late_starts=late_starts))
    return late_starts > ctx.policy.late_starts_max


def _back_off(ctx: Ctx, instance: Instance) -> None:
    delay = min(
        ctx.policy.restart_delay_ms_max, ctx.policy.restart_delay_ms_min * 2 ** max(0, len(instance.crashes) - 1)
    )
    timers.set_timer(ctx, "steady", ctx.now.steady_ms + delay, "restart", instance.instance_id)


def _close_broken(ctx: Ctx, instance: Instance, code: str, reason: str, detail: dict[str, Any]) -> None:
    """``detail`` goes into the error of every call that ends with it: ``reason``, in one word of ``WorkerExited``."""
    instances.close(ctx, instance.instance_id, code, reason, detail)
    app = ctx.get(APPS, (instance.app_scope,))
    if app is not None and code == "app_crashed":
        _count_against_bundle(ctx, app, reason)
    if instance.kind == "system":
        _replace_chat(ctx, instance)


def _count_against_bundle(ctx: Ctx, app: App, reason: str) -> None:
    since = ctx.now.steady_ms - ctx.policy.quarantine_window_ms
    crashes = (*(at for at in app.crashes if at > since), ctx.now.steady_ms)
    ctx.put(APPS, (app.app_scope,), replace(app, crashes=crashes))
    if len(crashes) >= ctx.policy.quarantine_closures_max and app.kind != "system":
        apps.quarantine(ctx, app.app_scope, reason)


def _replace_chat(ctx: Ctx, instance: Instance) -> None:
    """A conversation is never without its Interact."""
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    app = ctx.get(APPS, (instance.app_scope,))
    if app is None or conversation.chat_instance_id != instance.instance_id:
        return
    chat = instances.create(ctx, app, conversation)
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    focus = (chat.instance_id, *(i for i in conversation.focus if i != instance.instance_id))
    ctx.put(
        CONVERSATIONS,
        (conversation.conversation_id,),
        replace(conversation, chat_instance_id=chat.instance_id, focus=focus),
    )
    instances.settle_into_place(ctx, chat.instance_id)


# reclaiming


def idle_over(ctx: Ctx, instance_id: str) -> None:
    """Nobody has needed this worker for a while."""
    instance, worker = ctx.get(INSTANCES, (instance_id,)), ctx.get(WORKERS, (instance_id,))
    if instance is None or worker is None or worker.state != WorkerState.READY or wants_worker(ctx, instance):
        return
    stop(ctx, worker, "idle", ctx.policy.worker_stop_grace_ms)


def start_timed_out(ctx: Ctx, instance_id: str) -> None:
    worker = ctx.get(WORKERS, (instance_id,))
    if worker is not None and worker.state == WorkerState.STARTING:
        ctx.put(WORKERS, (instance_id,), replace(worker, stop_reason=_LATE))
        audit(ctx, "worker.start_timeout", instance_id, incarnation=worker.incarnation)
        ctx.emit(fx.StopWorker(instance_id=instance_id, incarnation=worker.incarnation, reason=_LATE, grace_ms=0))


def restart_due(ctx: Ctx, instance_id: str) -> None:
    ctx.touch(instance_id)


def reclaim(ctx: Ctx, count: int) -> None:
    """Memory is short: let go of up to ``count`` workers, those that nobody needs first."""
    for _ in range(count):
        if not _let_go_of_one(ctx):
            return


def _let_go_of_one(ctx: Ctx) -> bool:
    """Stop the least recently used worker whose going loses nothing. False if there is none."""
    candidates = []
    for key, worker in ctx.txn.scan(WORKERS):
        if worker.state != WorkerState.READY:
            continue
        instance = ctx.need(INSTANCES, (key[0],))
        if _may_lose_process(ctx, instance):
            candidates.append((wants_worker(ctx, instance), instance.last_used_ms, instance.instance_id, worker))
    idle = sorted(candidates, key=lambda c: c[:3])
    if not idle or idle[0][0]:
        return False
    stop(ctx, idle[0][3], "reclaimed", ctx.policy.worker_stop_grace_ms)
    return True


def _may_lose_process(ctx: Ctx, instance: Instance) -> bool:
    """Not what a person looks at, and nothing that runs and must not run twice."""
    if instance.state == InstanceState.FOREGROUND and instance.kind != "system":
        return False
    for key, _ in ctx.txn.scan(OPEN_CALLS, (instance.instance_id,)):
        call = ctx.need(CALLS, key[1:])
        if call.status == CallState.RUNNING and not call.retry_safe and call.operation_id is None:
            return False
    return True


def load_failed(ctx: Ctx, instance: Instance, worker: Worker, error: LineUpError) -> None:
    """The worker said that its app cannot be loaded; another start would only repeat it."""
    detail: dict[str, Any] = {"code": error.code, "message": error.message}
    audit(ctx, "worker.load_failed", instance.instance_id, incarnation=worker.incarnation, **detail)
    stop(ctx, worker, "load_failed", ctx.policy.worker_stop_grace_ms)
    _close_broken(ctx, instance, "app_start_failed", error.message, {"reason": "load_failed"})
