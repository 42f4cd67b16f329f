"""Which instances have a process just now. Owns ``WORKERS``, ``WANTED``, ``START_QUEUE``, ``STARTS`` and ``SPARE``.

An instance wants a worker while there is something that only its code can do: undelivered inbox items, running calls,
its own pending questions, an open surface on screen. Everything here is derived again from rows after each event that
touched an instance, so that no start can be forgotten.

Whose turn it is to start: the MiniApp's with the fewest starts under way, of these the one that waits longest; but no
MiniApp has more than half of the starts. So one that hangs in each of its starts holds up itself, and nobody waits for
ever: each start ends in time, and then who waits longest has no more of them under way than anybody else.

A place is given back when there are others that wait for one: by who has nothing to do, then by who only waits for a
person (for the answer to its question, or for a look at its page). The latter *rests*: it is not started again before
the answer, or the look, has come. Whose code has something to do is never ended for a place, however long that takes;
so no MiniApp has more than half of the places, and Interact, which everybody needs, has some that nobody else gets.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import apps, budgets, calls, inbox, instances, timers
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
    SHOWN,
    SPARE,
    START_QUEUE,
    STARTS,
    WANTED,
    WORKERS,
    App,
    Instance,
    Mark,
    Spare,
    Starts,
    Wish,
    Worker,
)
from lineup_supervisor.core.tables import WORKER, CallState, InstanceState, WorkerEvent, WorkerState
from lineup_supervisor.core.txn import Key

replace = msgspec.structs.replace
_MARK = Mark()

# Ends before any of its code has run, for want of something that this machine has too little of just now.
_UNSTARTED = ("start_failed", "unconfined")
# Ends of a worker that say nothing against its code, beside those that were asked for (``WorkerState.STOPPING``).
_PEACEFUL = ("runtime_restart", *_UNSTARTED)
# Ends that another start would only repeat.
_HOPELESS = ("isolation_insufficient", "app_start_failed")
_LATE = "start_timeout"
_ONE_IN = 8  # of the places is kept for Interact


class Need(IntEnum):
    """What an instance needs a process for."""

    NOTHING = 0
    PERSON = 1  # it waits for a person's answer or look
    WORK = 2  # its code has something to do, or a person looks at its page


def need_of(ctx: Ctx, instance: Instance) -> Need:
    """By its rows alone."""
    key = (instance.instance_id,)
    if instance.state == InstanceState.CLOSED:
        return Need.NOTHING
    if ctx.txn.first(INBOX, key) is not None:
        return Need.WORK
    for call_key, _ in ctx.txn.scan(OPEN_CALLS, key):
        call = ctx.need(CALLS, call_key[1:])
        if call.status == CallState.RUNNING and call.operation_id is None:
            return Need.WORK
    if instance.state == InstanceState.STARTING and instance.kind != "system":
        return Need.WORK  # it takes its place on screen once its code has run
    if instance.state == InstanceState.FOREGROUND and instance.kind != "system" and not instance.began:
        return Need.WORK  # it was left before that, and is looked at now
    if instance.state == InstanceState.FOREGROUND and ctx.txn.first(OPEN_SURFACES, key) is not None:
        return Need.PERSON if ctx.get(SHOWN, key) is None else Need.WORK
    for question_key, _ in ctx.txn.scan(OPEN_INTERACTIONS, key):
        if ctx.need(INTERACTIONS, (question_key[1],)).source == "miniapp_tool":
            return Need.PERSON
    return Need.NOTHING


def wants_worker(ctx: Ctx, instance: Instance) -> bool:
    """True while it should have a process; who rests has let go of it and waits on."""
    need = need_of(ctx, instance)
    return need == Need.WORK or (need == Need.PERSON and not instance.rests)


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
    need = need_of(ctx, instance)
    wanted = need == Need.WORK or (need == Need.PERSON and not instance.rests)
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
        _note_spare(ctx, instance, Need.WORK if worker.condemned else need)  # that one is going already
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


def _count(ctx: Ctx, app_scope: str, *, under_way: int = 0, waiting: int = 0, places: int = 0, going: int = 0) -> None:
    starts = ctx.get(STARTS, (app_scope,)) or Starts()
    starts = Starts(
        under_way=max(0, starts.under_way + under_way),
        waiting=max(0, starts.waiting + waiting),
        places=max(0, starts.places + places),
        going=max(0, starts.going + going),
    )
    if starts.waiting or starts.places:
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
    """Start what waits, as far as there is room; make room by letting go of who can do without a process."""
    if ctx.meta.stopping:
        return
    while ctx.meta.starts_queued and ctx.meta.workers_starting < ctx.policy.workers_starting_max:
        turn = _next_turn(ctx)
        if turn is None:
            _make_room(ctx)
            return  # it comes when one of its MiniApp's starts is over, or one that was let go has exited
        instance_id = str(turn[2])
        _dequeue(ctx, instance_id)
        _start(ctx, ctx.need(INSTANCES, (instance_id,)))


def _share(ctx: Ctx) -> int:
    """How many starts of one MiniApp may be under way."""
    return max(1, min(ctx.policy.workers_starting_max, ctx.policy.workers_max) // 2)


def _share_of_places(ctx: Ctx) -> int:
    """How many processes a MiniApp may have at once; Interact as many as there are places."""
    return max(1, ctx.policy.workers_max // 2)


def _kept_places(ctx: Ctx) -> int:
    """How many places are left to Interact beside those that it has."""
    interact = ctx.get(STARTS, (instances.CHAT_SCOPE,)) or Starts()
    return max(0, ctx.policy.workers_max // _ONE_IN - interact.places)


def _places_to_give(ctx: Ctx) -> int:
    """How many of Interact's workers, the leaving ones too, give others a place by leaving: the rest's are kept."""
    interact = ctx.get(STARTS, (instances.CHAT_SCOPE,)) or Starts()
    return max(0, interact.places - ctx.policy.workers_max // _ONE_IN)


def _has_place(ctx: Ctx, app_scope: str, starts: Starts) -> bool:
    """One more process of this MiniApp may be started now, as far as places go."""
    free = ctx.policy.workers_max - ctx.meta.workers_live
    if app_scope == instances.CHAT_SCOPE:
        return free > 0
    return starts.places < _share_of_places(ctx) and free > _kept_places(ctx)


def _next_turn(ctx: Ctx) -> Key | None:
    """The key in ``START_QUEUE`` of the next start, None if there is none that may be: a look at each MiniApp."""
    share = _share(ctx)
    found: tuple[int, Key, Key] | None = None
    for app, starts in ctx.txn.scan(STARTS):
        if not starts.waiting or starts.under_way >= share or (found and found[0] < starts.under_way):
            continue
        if not _has_place(ctx, str(app[0]), starts):
            continue
        first = ctx.txn.first(START_QUEUE, app)
        if first is not None and (found is None or (starts.under_way, first[1:]) < found[:2]):
            found = (starts.under_way, first[1:], first)
    return found[2] if found else None


def _make_room(ctx: Ctx) -> None:
    """Let go of one worker for each start that would have its turn if there was a place; those that are on their way
    out already count. Whose MiniApp has its share waits for one of its own."""
    if ctx.txn.first(SPARE, ()) is None:
        return  # nobody can go, and a full house costs no event more than an empty one
    share, most = _share(ctx), _share_of_places(ctx)
    waiting = going = interact_waits = interact_goes = 0
    for (scope, *_), starts in list(ctx.txn.scan(STARTS)):
        is_blocked = bool(starts.waiting) and starts.under_way < share and not _has_place(ctx, str(scope), starts)
        if scope == instances.CHAT_SCOPE:
            interact_waits, interact_goes = starts.waiting * is_blocked, starts.going
            continue
        if starts.places < most:
            going += starts.going
            waiting += _fewer(starts, most) * is_blocked
            continue
        going += max(0, starts.going - starts.waiting)  # the others of them are for its own
        if is_blocked:
            for _ in range(starts.going, starts.waiting):
                if not _let_go_of_one(ctx, str(scope)):
                    break
    for _ in range(going + interact_goes, interact_waits):
        if not _let_go_of_one(ctx):
            return
    left = max(0, going - max(0, interact_waits - interact_goes)) + min(interact_goes, _places_to_give(ctx))
    for _ in range(left, waiting):
        if not _let_go_of_one(ctx, for_others=True):
            return


def _fewer(starts: Starts, most: int) -> int:
    """How many of a MiniApp's starts that wait its share allows."""
    return min(starts.waiting, most - starts.places)


def _start(ctx: Ctx, instance: Instance) -> None:
    bundle = ctx.need(BUNDLES, (instance.digest,))
    incarnation = instance.incarnation + 1
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, incarnation=incarnation, rests=False))
    worker = Worker(
        instance_id=instance.instance_id,
        incarnation=incarnation,
        state=WORKER.next(WorkerState.ABSENT, WorkerEvent.START),
        started_ms=ctx.now.steady_ms,
    )
    ctx.put(WORKERS, (instance.instance_id,), worker)
    ctx.set_meta(workers_starting=ctx.meta.workers_starting + 1, workers_live=ctx.meta.workers_live + 1)
    _count(ctx, instance.app_scope, under_way=1, places=1)
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
    if instance.late_starts or instance.unstarted or not instance.began:
        ctx.put(INSTANCES, (instance.instance_id,), replace(instance, late_starts=0, unstarted=0, began=True))
    ctx.put(WORKERS, (instance.instance_id,), replace(worker, state=state, stop_reason=""))
    instance = _start_is_over(ctx, worker)
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


def _start_is_over(ctx: Ctx, worker: Worker) -> Instance:
    instance = ctx.need(INSTANCES, (worker.instance_id,))
    ctx.set_meta(workers_starting=max(0, ctx.meta.workers_starting - 1))
    _count(ctx, instance.app_scope, under_way=-1)
    took_ms = max(0, ctx.now.steady_ms - worker.started_ms)
    return ctx.put(INSTANCES, (instance.instance_id,), replace(instance, starting_ms=instance.starting_ms + took_ms))


def stop(ctx: Ctx, worker: Worker, reason: str, grace_ms: int) -> None:
    """Ask the edge to end the process; its exit is a later event."""
    state = WORKER.next(worker.state, WorkerEvent.STOP)
    if state == worker.state:
        return
    if worker.state == WorkerState.STARTING:
        _start_is_over(ctx, worker)
    _forget_spare(ctx, worker.instance_id)
    _count(ctx, ctx.need(INSTANCES, (worker.instance_id,)).app_scope, going=1)
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
    if worker.state == WorkerState.STARTING:
        _start_is_over(ctx, worker)
    instance = ctx.need(INSTANCES, (instance_id,))
    _forget_spare(ctx, instance_id)
    _count(ctx, instance.app_scope, places=-1, going=-1 if worker.state == WorkerState.STOPPING else 0)
    ctx.set_meta(workers_live=max(0, ctx.meta.workers_live - 1))
    for timer in ("start", "idle"):
        timers.clear_timer(ctx, timer, instance_id)
    audit(ctx, "worker.exited", instance_id, incarnation=incarnation, reason=reason, detail=detail or None)
    ctx.touch(instance_id)
    if instance.state == InstanceState.CLOSED:
        budgets.forget(ctx, instance_id)  # what was refused of it after the close was counted too
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
    if reason in _UNSTARTED:
        instance = ctx.put(INSTANCES, (instance_id,), replace(instance, unstarted=instance.unstarted + 1))
        _back_off(ctx, instance, instance.unstarted)
    elif peaceful:
        instances.suspend(ctx, instance)
    else:
        _back_off(ctx, instance, len(instance.crashes))


def _too_many_crashes(ctx: Ctx, instance: Instance) -> bool:
    """Restart intensity: ``restarts_max`` within ``restart_window_ms``, judged on a steady clock that stands still
    while a process of it starts: else one that takes long to be ready and then ends would never come to so many."""
    now_ms = ctx.now.steady_ms - instance.starting_ms
    since = now_ms - ctx.policy.restart_window_ms
    crashes = (*(at for at in instance.crashes if at > since), now_ms)
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, crashes=crashes))
    return len(crashes) > ctx.policy.restarts_max


def _too_many_late_starts(ctx: Ctx, instance: Instance) -> bool:
    """One that hangs while it is loaded: the window of ``_too_many_crashes`` would never see enough of its ends."""
    instance = ctx.need(INSTANCES, (instance.instance_id,))
    late_starts = instance.late_starts + 1
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, late_starts=late_starts))
    return late_starts > ctx.policy.late_starts_max


def _back_off(ctx: Ctx, instance: Instance, times: int) -> None:
    # More doublings than these are beyond every longest delay.
    delay = min(ctx.policy.restart_delay_ms_max, ctx.policy.restart_delay_ms_min * 2 ** min(max(0, times - 1), 32))
    timers.set_timer(ctx, "steady", ctx.now.steady_ms + delay, "restart", instance.instance_id)


def _close_broken(ctx: Ctx, instance: Instance, code: str, reason: str, detail: dict[str, Any]) -> None:
    """``detail`` goes into the error of every call that ends with it: ``reason``, in one word of ``WorkerExited``."""
    if instance.kind == "system":
        _replace_chat(ctx, instance)  # first, so that nothing else comes to the front in its place
    instances.close(ctx, instance.instance_id, code, reason, detail)
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    if instance.kind == "system" and conversation.focus[-1:] == (conversation.chat_instance_id,):
        audit(ctx, "focus.changed", conversation.focus[-1], conversation.conversation_id, depth=len(conversation.focus))
    app = ctx.get(APPS, (instance.app_scope,))
    if app is not None and app.digest == instance.digest and code in ("app_crashed", "app_start_failed"):
        _count_against_bundle(ctx, app, reason)


def _count_against_bundle(ctx: Ctx, app: App, reason: str) -> None:
    since = ctx.now.steady_ms - ctx.policy.quarantine_window_ms
    crashes = (*(at for at in app.crashes if at > since), ctx.now.steady_ms)
    ctx.put(APPS, (app.app_scope,), replace(app, crashes=crashes))
    if len(crashes) >= ctx.policy.quarantine_closures_max and app.kind != "system":
        apps.quarantine(ctx, app.app_scope, reason)


def _replace_chat(ctx: Ctx, instance: Instance) -> None:
    """A conversation is never without its Interact: the next one is where the last one was, on top or the ground."""
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    app = ctx.get(APPS, (instance.app_scope,))
    if app is None or conversation.chat_instance_id != instance.instance_id:
        return
    chat = instances.create(ctx, app, conversation)
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    rest = tuple(i for i in conversation.focus if i != instance.instance_id)
    was_on_top = conversation.focus[-1:] == (instance.instance_id,)
    focus = (*rest, chat.instance_id) if was_on_top else (chat.instance_id, *rest)
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


def _note_spare(ctx: Ctx, instance: Instance, need: Need) -> None:
    """Keep in mind, of a ready worker, whether it can go: so that nobody has to look through all of them."""
    key = (instance.app_scope, instance.instance_id)
    if need == Need.WORK:
        ctx.delete(SPARE, key)
        return
    spare = Spare(waits=need == Need.PERSON, last_used_ms=instance.last_used_ms)
    if ctx.get(SPARE, key) != spare:
        ctx.put(SPARE, key, spare)


def _forget_spare(ctx: Ctx, instance_id: str) -> None:
    ctx.delete(SPARE, (ctx.need(INSTANCES, (instance_id,)).app_scope, instance_id))


def _let_go_of_one(ctx: Ctx, app_scope: str = "", *, for_others: bool = False) -> bool:
    """Stop the least recently used worker whose going loses nothing, of one MiniApp or of all: first who has nothing to
    do, then who waits for a person, which rests from then on. ``for_others``: not one of Interact whose place would be
    kept for it. False if there is none."""
    interact = ctx.get(STARTS, (instances.CHAT_SCOPE,)) or Starts()
    may_be_interact = not for_others or interact.going < _places_to_give(ctx)
    spares = ctx.txn.scan(SPARE, (app_scope,) if app_scope else ())
    found = min(
        (
            (spare.waits, spare.last_used_ms, str(key[1]))
            for key, spare in spares
            if may_be_interact or key[0] != instances.CHAT_SCOPE
        ),
        default=None,
    )
    if found is None:
        return False
    waits, _, instance_id = found
    if waits:
        instances.rest(ctx, instance_id)
    stop(ctx, ctx.need(WORKERS, (instance_id,)), "reclaimed", ctx.policy.worker_stop_grace_ms)
    return True


def load_failed(ctx: Ctx, instance: Instance, worker: Worker, error: LineUpError) -> None:
    """The worker said that its app cannot be loaded; another start would only repeat it. Once is enough."""
    if worker.state == WorkerState.STOPPING:
        return
    detail: dict[str, Any] = {"code": error.code, "message": error.message}
    audit(ctx, "worker.load_failed", instance.instance_id, incarnation=worker.incarnation, **detail)
    stop(ctx, worker, "load_failed", ctx.policy.worker_stop_grace_ms)
    _close_broken(ctx, instance, "app_start_failed", error.message, {"reason": "load_failed"})
