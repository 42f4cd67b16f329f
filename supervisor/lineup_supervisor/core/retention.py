"""What is over goes in time, so that the store stays bounded: how long and how many is data in ``policy``.

Owns ``RETIRED``, a queue of everything that is over, and the anchor from which the audit in the store goes on. It must
not know how anything comes to its end: whoever ends it says ``retire``.

Laws:
    1. Nothing open goes, and nothing that something open refers to. A call is over when its agent has taken its result
       over, not before: until then a resend must find the record.
    2. Ages are those of the steady clock. A wall clock that jumps makes nothing old, and neither do sleep and downtime.
    3. One sweep touches a bounded number of rows; what is left waits for the next one.
    4. The sweep's timer is armed if and only if something may grow too old, or too much: rest stays rest.
    5. A row of the audit is deleted only after the edges said that it is in a file, on the disk.
    6. Where there is too much of a kind, in rows or in bytes, the oldest of whoever has most of it goes. Calls are
       their agent's, all else is its MiniApp's in the conversations of one agent: so what is kept for one of them is
       pushed out only while nobody else has more of that kind.

After its record has gone, a ``call_id`` is free: the same call again is a new call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

import msgspec

from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import inbox, inventory, merge_patch, timers
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import AuditArchived
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import (
    APPS,
    AUDIT,
    AUDIT_BY_SUBJECT,
    BUDGETS,
    BUNDLES,
    CALLS,
    CALLS_BY_ID,
    CALLS_BY_TIME,
    CONVERSATIONS,
    DESCRIPTORS,
    INBOX,
    INSTANCES,
    INTERACTIONS,
    INTERACTIONS_BY_CALL,
    LIVE_INSTANCES,
    OPEN_CALLS,
    OPERATIONS,
    OPERATIONS_OF,
    OVER,
    REQUESTS,
    RETIRED,
    SAID,
    SESSION_ENTRIES,
    SESSIONS,
    SNAPSHOTS,
    SURFACES,
    TIMELINE,
    WORKERS,
    Over,
    Retired,
)
from lineup_supervisor.core.tables import CALL as CALL_TABLE
from lineup_supervisor.core.tables import INTERACTION as INTERACTION_TABLE
from lineup_supervisor.core.tables import InstanceState, SurfaceState
from lineup_supervisor.core.txn import Key

CALL, INTERACTION, INSTANCE, SURFACE = "call", "interaction", "instance", "surface"
STATE = "state"  # of a closed surface: the rest of its rows, which nobody reads any more
BACKLOG = "backlog"  # of a closed instance: deliveries that nobody takes over any more

SWEEP_ROWS_MAX = 256  # of one event: some milliseconds, so that nobody waits for it
SWEEP_BYTES = 16 << 20  # so much too much, and events sweep beside the timer
BYTES_PER_ROW = 16 << 10  # of what is large, which takes as long as several rows; the largest by far fits a sweep
SWEEP_AGAIN_MS = 20  # to the next sweep while there is more
SWEEP_PAUSE_MS = 10_000  # from the moment that there is too much: many then go in one sweep
SWEEP_EVERY_MS = 3_600_000  # ages are kept to the hour
ARCHIVE_ROWS = 10_000  # of the audit in one file, some 5 MB
ARCHIVE_RETRY_MS = 60_000  # a lost effect, or a disk that refused it
DROP_ROWS_MAX = 32  # archived rows that each event takes along while there are far too many
HELD_LOOK_MAX = 64  # undelivered items that are looked through for a question of version 0.1.0


@dataclass(frozen=True)
class _Rule:
    """One kind. ``counter`` names its count in ``Meta``; ``bounds`` gives (kept_ms or 0, kept_max, bytes or 0).

    ``whose`` gives its owner, and what it takes in bytes. ``is_held`` is true while something still needs it.
    ``remove`` takes the room for rows and returns how many it has removed and whether it is done. ``pause_ms`` goes by
    from the moment that there is too much.
    """

    counter: str
    bounds: Callable[[Policy], tuple[int, int, int]]
    whose: Callable[[Ctx, Key], tuple[str, int]]
    is_held: Callable[[Ctx, Key], bool]
    remove: Callable[[Ctx, Key, int], tuple[int, bool]]
    pause_ms: int = SWEEP_PAUSE_MS


def retire(ctx: Ctx, kind: str, *ref: str) -> None:
    """It is over: from now on its time runs."""
    rule = _RULES[kind]
    owner, size = rule.whose(ctx, ref)
    ctx.retired = True
    ctx.put(RETIRED, (kind, owner, ctx.now.steady_ms, *ref), Retired(bytes=size))
    _count(ctx, kind, owner, 1, size)
    kept_ms = rule.bounds(ctx.policy)[0]
    if any(_too_much(ctx, rule)):
        _arm(ctx, ctx.now.steady_ms + rule.pause_ms)
    elif kept_ms:
        _arm(ctx, ctx.now.steady_ms + max(kept_ms, SWEEP_EVERY_MS))


def keep_bounds(ctx: Ctx) -> None:
    """At the end of every event: have the audit archived when there is a file's worth too much of it. And where more
    has come to its end than the sweeps of a busy Runtime take away, what brings more takes a part of it along.
    """
    now_ms, meta = ctx.now.steady_ms, ctx.meta
    if _audit_is_long(ctx):
        _arm(ctx, max(now_ms + SWEEP_PAUSE_MS, _may_ask_from(ctx)))
    elif meta.audit_seq - meta.audit_anchor_seq >= ctx.policy.audit_rows_max + 2 * ARCHIVE_ROWS:
        _drop_archived(ctx, DROP_ROWS_MAX)
    if (
        ctx.retired
        and now_ms >= meta.sweep_rests_ms
        and any(_is_far_too_much(*_too_much(ctx, rule)) for rule in _RULES.values())
    ):
        sweep(ctx)


def _is_far_too_much(rows: int, size: int) -> bool:
    return rows >= SWEEP_ROWS_MAX or size >= SWEEP_BYTES


def tidy(ctx: Ctx) -> None:
    """At the start of a run: the policy may be another one, what was asked of the edges is lost, versions are old."""
    _drop_bundles(ctx)
    _drop_descriptors(ctx)
    timers.clear_timer(ctx, "sweep")
    ctx.set_meta(sweep_due_ms=0, audit_asked_ms=0)
    _arm_next(ctx, ctx.now.steady_ms + SWEEP_PAUSE_MS)


def sweep(ctx: Ctx) -> None:
    """Remove what has had its time, a bounded number of rows."""
    ctx.cause, ctx.actor = ctx.event.event_id, "runtime"
    timers.clear_timer(ctx, "sweep")
    ctx.set_meta(sweep_due_ms=0)
    room, progress, stuck = SWEEP_ROWS_MAX, False, False
    gone: dict[str, int] = {}
    for kind, rule in _RULES.items():
        swept = _sweep_kind(ctx, kind, rule, room)
        room -= swept.looked + swept.rows
        progress |= swept.rows + swept.removed > 0
        stuck |= swept.looked > 0 and any(_too_much(ctx, rule))
        if swept.removed:
            gone[f"{kind}s"] = swept.removed
    if stuck and not progress:  # all of it is held: nothing would come of looking again at once
        ctx.set_meta(sweep_rests_ms=ctx.now.steady_ms + SWEEP_EVERY_MS)
    room -= _drop_archived(ctx, room)
    if gone:
        audit(ctx, "retention.swept", gone=gone)
    if _audit_is_long(ctx) and ctx.now.steady_ms >= _may_ask_from(ctx):
        _ask_for_archive(ctx)
    may_go_on = room <= 0 and (progress or ctx.meta.audit_archived_seq > ctx.meta.audit_anchor_seq)
    _arm_next(ctx, ctx.now.steady_ms + (SWEEP_AGAIN_MS if may_go_on else SWEEP_EVERY_MS))


def archived(ctx: Ctx, event: AuditArchived) -> None:
    """The edges have written a file, or could not. What does not fit what was asked is an answer that came late."""
    if event.error:
        audit(ctx, "audit.archive_failed", reason=event.error)
        return
    meta = ctx.meta
    row = ctx.get(AUDIT, (event.up_to_seq,))
    if row is None or event.after_seq != meta.audit_anchor_seq or event.up_to_seq <= meta.audit_archived_seq:
        return
    if row.hash != event.hash:
        audit(ctx, "audit.archive_failed", reason="the file holds other rows than the store")
        return
    ctx.set_meta(audit_archived_seq=event.up_to_seq, audit_asked_ms=0)
    audit(ctx, "audit.archived", after_seq=event.after_seq, up_to_seq=event.up_to_seq, hash=event.hash)
    _arm(ctx, ctx.now.steady_ms + SWEEP_AGAIN_MS)


# the queue


class _Swept(NamedTuple):
    """What one kind has done: the room that objects took which were looked at, those removed, rows removed beside."""

    looked: int
    removed: int
    rows: int


def _sweep_kind(ctx: Ctx, kind: str, rule: _Rule, room: int) -> _Swept:
    sweep = _Sweep(ctx, kind, rule, room)
    kept_ms = rule.bounds(ctx.policy)[0]
    if kept_ms:
        sweep.old(ctx.now.steady_ms - kept_ms)
    for measure in (_ROWS, _BYTES):
        if _too_much(ctx, rule)[measure]:
            sweep.of_whoever_has_most(measure)
    return _Swept(sweep.looked, sweep.removed, sweep.rows)


_ROWS, _BYTES = 0, 1  # what can be too much


class _Sweep:
    """One kind's part of a sweep: takes the oldest of one owner after another, as long as there is room."""

    def __init__(self, ctx: Ctx, kind: str, rule: _Rule, room: int) -> None:
        self._ctx, self._kind, self._rule, self._room = ctx, kind, rule, room
        self._held: set[Key] = set()
        self.looked = self.removed = self.rows = 0

    @property
    def has_room(self) -> bool:
        return self.looked + self.rows < self._room

    def old(self, up_to_ms: int) -> None:
        """Whatever is over since that moment or longer."""
        for owner, _ in self._owners():
            while self.has_room and (key := self._oldest(owner)) is not None and int(key[2]) <= up_to_ms:
                if not self._take(key):
                    return

    def of_whoever_has_most(self, measure: int) -> None:
        """Until there is no longer too much. What is held of whoever has most makes nobody else's go."""
        most = [(-(over.rows, over.bytes)[measure], owner) for owner, over in self._owners()]
        heapify(most)
        while self.has_room and _too_much(self._ctx, self._rule)[measure] and most:
            _, owner = heappop(most)
            key = self._oldest(owner)
            if key is None or not self._take(key):
                return
            over = self._ctx.get(OVER, (self._kind, owner)) or Over()
            heappush(most, (-(over.rows, over.bytes)[measure], owner))

    def _owners(self) -> list[tuple[str, Over]]:
        return [(str(key[1]), over) for key, over in self._ctx.txn.scan(OVER, (self._kind,))]

    def _oldest(self, owner: str) -> Key | None:
        """Of what this sweep has not found to be held."""
        keys = (key for key, _ in self._ctx.txn.scan(RETIRED, (self._kind, owner)))
        return next((key for key in keys if key[3:] not in self._held), None)

    def _take(self, key: Key) -> bool:
        """Remove it, unless it is held. False if there was not room enough for all that hangs on it."""
        ctx, (kind, owner, _, *ref) = self._ctx, key
        row = ctx.need(RETIRED, key)
        self.looked += 1 + row.bytes // BYTES_PER_ROW
        if self._rule.is_held(ctx, tuple(ref)):
            ctx.delete(RETIRED, key)
            ctx.put(RETIRED, (kind, owner, ctx.now.steady_ms, *ref), row)  # looked at again after as long a time
            self._held.add(tuple(ref))
            return True
        more, is_done = self._rule.remove(ctx, tuple(ref), self._room - self.looked - self.rows)
        self.rows += more
        if is_done:
            ctx.delete(RETIRED, key)
            _count(ctx, self._kind, str(owner), -1, -row.bytes)
            self.removed += 1
        return is_done


def _count(ctx: Ctx, kind: str, owner: str, rows: int, size: int) -> None:
    over = ctx.get(OVER, (kind, owner)) or Over()
    over = Over(rows=over.rows + rows, bytes=over.bytes + size)
    if over.rows:
        ctx.put(OVER, (kind, owner), over)
    else:
        ctx.delete(OVER, (kind, owner))
    for name, more in ((_RULES[kind].counter, rows), (f"{_RULES[kind].counter}_bytes", size)):
        ctx.set_meta(**{name: getattr(ctx.meta, name) + more})


def _too_much(ctx: Ctx, rule: _Rule) -> tuple[int, int]:
    """How many rows, and how many bytes, are over and should go; 0 if there is room."""
    _, rows_max, bytes_max = rule.bounds(ctx.policy)
    rows = getattr(ctx.meta, rule.counter) - rows_max
    size = getattr(ctx.meta, f"{rule.counter}_bytes") - bytes_max if bytes_max else 0
    return max(0, rows), max(0, size)


def _arm(ctx: Ctx, due_ms: int) -> None:
    """Sweep at that moment, or earlier if that is planned already."""
    if not ctx.meta.sweep_due_ms or due_ms < ctx.meta.sweep_due_ms:
        ctx.set_meta(sweep_due_ms=due_ms)
        timers.set_timer(ctx, "steady", due_ms, "sweep")


def _arm_next(ctx: Ctx, soonest_ms: int) -> None:
    """Plan the next sweep from the rows alone: none if nothing can ever be due."""
    for kind, rule in _RULES.items():
        kept_ms = rule.bounds(ctx.policy)[0]
        if any(_too_much(ctx, rule)):
            _arm(ctx, soonest_ms)
        elif kept_ms:
            firsts = [ctx.txn.first(RETIRED, key) for key, _ in ctx.txn.scan(OVER, (kind,))]
            if oldest := [int(first[2]) for first in firsts if first is not None]:
                _arm(ctx, max(soonest_ms, min(oldest) + kept_ms))
    if ctx.meta.audit_archived_seq > ctx.meta.audit_anchor_seq:
        _arm(ctx, soonest_ms)


# calls


def _whose_call(ctx: Ctx, ref: Key) -> tuple[str, int]:
    return str(ref[0]), _size(ctx.get(CALLS, ref))


def _size(row: msgspec.Struct | None) -> int:
    return 0 if row is None else len(msgspec.msgpack.encode(row))


def _owner(ctx: Ctx, conversation_id: str, app_scope: str) -> str:
    """The name of a MiniApp in the conversations of one agent; no id has a space."""
    return f"{ctx.need(CONVERSATIONS, (conversation_id,)).agent_id} {app_scope}"


def _call_is_held(ctx: Ctx, ref: Key) -> bool:
    call = ctx.get(CALLS, ref)
    return call is not None and (
        not CALL_TABLE.is_final(call.status) or any(True for _ in ctx.txn.scan(INTERACTIONS_BY_CALL, ref))
    )


def _remove_call(ctx: Ctx, ref: Key, room: int) -> tuple[int, bool]:
    call = ctx.get(CALLS, ref)
    if call is not None:
        ctx.delete(CALLS, ref)
        ctx.delete(CALLS_BY_ID, (call.call_id, call.agent_id))
        ctx.delete(CALLS_BY_TIME, (call.created_ms, call.agent_id, call.call_id))
    return 0, True


# interactions


def _whose_interaction(ctx: Ctx, ref: Key) -> tuple[str, int]:
    row = ctx.need(INTERACTIONS, ref)
    return _owner(ctx, row.conversation_id, row.app_scope), _size(row)


def _interaction_is_held(ctx: Ctx, ref: Key) -> bool:
    """Its call may still have to end with the answer; its owner may still have to hear of it."""
    row = ctx.get(INTERACTIONS, ref)
    if row is None:
        return False
    if not INTERACTION_TABLE.is_final(row.status):
        return True
    if row.parent_agent_id is not None and row.parent_call_id is not None:
        parent = ctx.get(CALLS, (row.parent_agent_id, row.parent_call_id))
        if parent is not None and not CALL_TABLE.is_final(parent.status):
            return True
    if row.told_seq is not None:
        return row.told_seq > 0 and ctx.get(INBOX, (row.instance_id, row.told_seq)) is not None
    waiting = list(islice(ctx.txn.scan(INBOX, (row.instance_id,)), HELD_LOOK_MAX))
    return len(waiting) == HELD_LOOK_MAX or any(item.interaction_id == row.interaction_id for _, item in waiting)


def _remove_interaction(ctx: Ctx, ref: Key, room: int) -> tuple[int, bool]:
    row = ctx.get(INTERACTIONS, ref)
    if row is not None:
        ctx.delete(INTERACTIONS, ref)
        ctx.delete(SAID, ref)
        made = ctx.get(REQUESTS, (row.instance_id, f"ui:{row.key}")) if row.key else None
        if made is not None and made.ref == row.interaction_id:
            ctx.delete(REQUESTS, (row.instance_id, f"ui:{row.key}"))
        _remove_entry(ctx, row.conversation_id, row.session_id, row.entry)
    return 0, True


def _remove_entry(ctx: Ctx, conversation_id: str, session_id: str, n: int) -> None:
    """What a timeline's entry stands for has gone, and so it goes too."""
    if n:
        ctx.delete(TIMELINE, (conversation_id, n))
        if session_id:
            ctx.delete(SESSION_ENTRIES, (session_id, n))


# closed instances: with them go the session, what stands in it, the operations and the saved state


def _whose_instance(ctx: Ctx, ref: Key) -> tuple[str, int]:
    row, saved = ctx.need(INSTANCES, ref), ctx.get(SNAPSHOTS, ref)
    return _owner(ctx, row.conversation_id, row.app_scope), 0 if saved is None else saved.bytes


def _instance_is_held(ctx: Ctx, ref: Key) -> bool:
    row = ctx.get(INSTANCES, ref)
    return row is not None and (
        row.state != InstanceState.CLOSED or ctx.get(WORKERS, ref) is not None or ctx.txn.first(INBOX, ref) is not None
    )


def _remove_instance(ctx: Ctx, ref: Key, room: int) -> tuple[int, bool]:
    row = ctx.get(INSTANCES, ref)
    if row is None:
        return 0, True
    removed = 0
    if row.session_id:
        for key, _ in list(islice(ctx.txn.scan(SESSION_ENTRIES, (row.session_id,)), max(0, room))):
            ctx.delete(SESSION_ENTRIES, key)
            ctx.delete(TIMELINE, (row.conversation_id, key[1]))
            removed += 1
    for key, _ in list(islice(ctx.txn.scan(OPERATIONS_OF, ref), max(0, room - removed))):
        ctx.delete(OPERATIONS_OF, key)
        ctx.delete(OPERATIONS, (key[1],))
        removed += 1
    for key, _ in list(islice(ctx.txn.scan(REQUESTS, ref), max(0, room - removed))):
        ctx.delete(REQUESTS, key)
        removed += 1
    if removed >= room > 0 or room <= 0:
        return removed, False
    session = ctx.get(SESSIONS, (row.session_id,)) if row.session_id else None
    if session is not None:
        ctx.delete(SESSIONS, (row.session_id,))
        _remove_entry(ctx, row.conversation_id, "", session.entry)
    ctx.delete(SNAPSHOTS, ref)
    ctx.delete(BUDGETS, ref)  # a version before left some behind
    ctx.delete(INSTANCES, ref)
    return removed, True


# surfaces


def _whose_surface(ctx: Ctx, ref: Key) -> tuple[str, int]:
    row = ctx.need(SURFACES, ref)
    return _owner(ctx, row.conversation_id, row.app_scope), 0


def _surface_is_held(ctx: Ctx, ref: Key) -> bool:
    row = ctx.get(SURFACES, ref)
    return row is not None and row.state != SurfaceState.CLOSED


def _remove_surface(ctx: Ctx, ref: Key, room: int) -> tuple[int, bool]:
    ctx.delete(SURFACES, ref)
    ctx.delete(SAID, ref)
    return 0, True


def _remove_state(ctx: Ctx, ref: Key, room: int) -> tuple[int, bool]:
    return merge_patch.drop(ctx, str(ref[0]), room)


def _remove_backlog(ctx: Ctx, ref: Key, room: int) -> tuple[int, bool]:
    return inbox.drop(ctx, str(ref[0]), room)


_RULES = {
    CALL: _Rule(
        "calls_over",
        lambda p: (p.calls_kept_ms, p.calls_kept_max, p.calls_kept_bytes_max),
        _whose_call,
        _call_is_held,
        _remove_call,
    ),
    INTERACTION: _Rule(
        "interactions_over",
        lambda p: (p.interactions_kept_ms, p.interactions_kept_max, p.interactions_kept_bytes_max),
        _whose_interaction,
        _interaction_is_held,
        _remove_interaction,
    ),
    INSTANCE: _Rule(
        "instances_over",
        lambda p: (p.sessions_kept_ms, p.sessions_kept_max, p.sessions_kept_bytes_max),
        _whose_instance,
        _instance_is_held,
        _remove_instance,
    ),
    SURFACE: _Rule(
        "surfaces_over",
        lambda p: (p.surfaces_kept_ms, p.surfaces_kept_max, 0),
        _whose_surface,
        _surface_is_held,
        _remove_surface,
    ),
    STATE: _Rule(
        "states_over",
        lambda p: (0, 0, 0),
        lambda ctx, ref: ("", 0),
        lambda ctx, ref: False,
        _remove_state,
        SWEEP_AGAIN_MS,
    ),
    BACKLOG: _Rule(
        "backlogs_over",
        lambda p: (0, 0, 0),
        lambda ctx, ref: ("", 0),
        lambda ctx, ref: False,
        _remove_backlog,
        SWEEP_AGAIN_MS,
    ),
}


# the audit


def _audit_is_long(ctx: Ctx) -> bool:
    meta = ctx.meta
    begun = meta.audit_archived_seq > meta.audit_anchor_seq  # the last file's rows are still being deleted
    return not begun and meta.audit_seq - meta.audit_anchor_seq >= ctx.policy.audit_rows_max + ARCHIVE_ROWS


def _may_ask_from(ctx: Ctx) -> int:
    """The edges get time to answer before they are asked again."""
    asked_ms = ctx.meta.audit_asked_ms
    return asked_ms + ARCHIVE_RETRY_MS if asked_ms else 0


def _ask_for_archive(ctx: Ctx) -> None:
    after = ctx.meta.audit_anchor_seq
    ctx.set_meta(audit_asked_ms=ctx.now.steady_ms)
    ctx.emit(fx.ArchiveAudit(after_seq=after, up_to_seq=after + ARCHIVE_ROWS))


def _drop_archived(ctx: Ctx, room: int) -> int:
    """Delete rows that are in a file; the last one deleted is where the chain in the store goes on from."""
    first = ctx.meta.audit_anchor_seq + 1
    last = min(ctx.meta.audit_archived_seq, ctx.meta.audit_anchor_seq + max(0, room))
    for seq in range(first, last + 1):
        row = ctx.need(AUDIT, (seq,))
        ctx.delete(AUDIT, (seq,))
        for subject in dict.fromkeys((*row.subjects, row.cause)):
            ctx.delete(AUDIT_BY_SUBJECT, (subject, seq))
        ctx.set_meta(audit_anchor_seq=seq, audit_anchor_hash=row.hash)
    return max(0, last - first + 1)


# versions that nothing refers to


def _drop_bundles(ctx: Ctx) -> None:
    """Bundles of no installed MiniApp and no live instance. The search ends as soon as all others are accounted for."""
    stale = {str(key[0]) for key, _ in ctx.txn.scan(BUNDLES)} - {app.digest for _, app in ctx.txn.scan(APPS)}
    if stale:
        for key, _ in ctx.txn.scan(LIVE_INSTANCES):
            stale.discard(ctx.need(INSTANCES, (key[2],)).digest)
            if not stale:
                break
    for digest in sorted(stale):
        ctx.delete(BUNDLES, (digest,))


def _drop_descriptors(ctx: Ctx) -> None:
    """Descriptors of no declared tool under which no call is open."""
    stale = {str(key[0]) for key, _ in ctx.txn.scan(DESCRIPTORS)}
    stale -= {tool.digest for tool in inventory.tool_index(ctx.txn).values()}
    if stale:
        for key, _ in ctx.txn.scan(OPEN_CALLS):
            stale.discard(ctx.need(CALLS, key[1:]).descriptor_digest)
            if not stale:
                break
    for digest in sorted(stale):
        ctx.delete(DESCRIPTORS, (digest,))
