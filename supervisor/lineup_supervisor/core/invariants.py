"""What must hold between the tables after every event. Reads only; for tests, the simulation and ``lineup doctor``.

The rules elsewhere keep these; here they are stated once more, from the other side: every index against its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from lineup_supervisor.core import inbox, interactions, quotas, retention
from lineup_supervisor.core.audit import NO_HASH
from lineup_supervisor.core.ctx import META_KEY
from lineup_supervisor.core.instances import CHAT_SCOPE
from lineup_supervisor.core.outbox import OPERATOR
from lineup_supervisor.core.schema import (
    AGENT_LINKS,
    AGENTS,
    AUDIT,
    CALLS,
    CALLS_BY_ID,
    CALLS_BY_TIME,
    CONVERSATIONS,
    FOCUSING,
    INBOX,
    INSTANCES,
    INTERACTIONS,
    INTERACTIONS_BY_CALL,
    LIVE_INSTANCES,
    META,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    OPEN_SURFACES,
    OPERATIONS,
    OUTBOX_ITEMS,
    OVER,
    RETIRED,
    SESSION_ENTRIES,
    SESSIONS,
    SHOWN,
    SPARE,
    START_QUEUE,
    STARTS,
    SURFACE_PARTS,
    SURFACES,
    TIMER_DUE,
    TIMERS,
    USAGE,
    WANTED,
    WORKERS,
    Meta,
)
from lineup_supervisor.core.tables import (
    CALL,
    INTERACTION,
    CallState,
    InstanceState,
    OperationState,
    SurfaceState,
    WorkerState,
)
from lineup_supervisor.core.txn import Key, Table, Txn


def find_faults(txn: Txn) -> list[str]:
    """One sentence for each rule that does not hold; empty if all do."""
    return [words for rule in _RULES for words in rule(txn)]


def _calls(txn: Txn) -> Iterator[str]:
    """A call without a result is counted, listed and has somewhere to come from; one with a result is none of that."""
    in_flight: Counter[str] = Counter()
    for key, call in txn.scan(CALLS):
        listed = call.instance_id is not None and txn.get(OPEN_CALLS, (call.instance_id, *key)) is not None
        final = CALL.is_final(call.status)
        in_flight[call.agent_id] += not final
        if final == listed and call.instance_id is not None:
            yield f"call {key} is {call.status} and {'' if listed else 'not '}listed as open"
        if call.status in (CallState.RECEIVED, CallState.ROUTING, CallState.SUBMITTED):
            yield f"call {key} rests in {call.status}"
        if final and (call.result is None) == (call.error is None):
            yield f"call {key} is {call.status} with result {call.result} and error {call.error}"
        if txn.get(CALLS_BY_ID, (call.call_id, call.agent_id)) is None:
            yield f"call {key} is not in CALLS_BY_ID"
        if call.status == CallState.WAITING and call.interaction_id is None:
            item = txn.get(INBOX, (call.instance_id or "-", call.inbox_seq))
            if item is None or item.call_id != call.call_id:
                yield f"call {key} waits for delivery {call.inbox_seq}, which is not there"
    for key, agent in txn.scan(AGENTS):
        if agent.in_flight != in_flight[str(key[0])]:
            yield f"agent {key[0]} has {in_flight[str(key[0])]} open calls and counts {agent.in_flight}"


def _agents(txn: Txn) -> Iterator[str]:
    for key, agent in txn.scan(AGENTS):
        if not agent.acked_seq <= agent.sent_seq <= agent.max_sent_seq < agent.next_seq:
            yield f"agent {key[0]}: cursors {agent.acked_seq} {agent.sent_seq} {agent.max_sent_seq} {agent.next_seq}"
        seqs = [int(item[1]) for item, _ in txn.scan(OUTBOX_ITEMS, key)]
        if seqs != list(range(agent.acked_seq + 1, agent.next_seq)) and agent.agent_id != OPERATOR:
            yield f"agent {key[0]}: the outbox holds {seqs} between {agent.acked_seq} and {agent.next_seq}"
        if agent.link_id is not None:
            link = txn.get(AGENT_LINKS, (agent.link_id,))
            if link is None or link.agent_id != agent.agent_id:
                yield f"agent {key[0]} is on link {agent.link_id}, which is not its own"


def _instances(txn: Txn) -> Iterator[str]:
    going = _backlogs(txn)
    for key, instance in txn.scan(INSTANCES):
        live = txn.get(LIVE_INSTANCES, (instance.conversation_id, instance.app_scope, instance.instance_id)) is not None
        if live == (instance.state == InstanceState.CLOSED):
            yield f"instance {key[0]} is {instance.state} and {'' if live else 'not '}listed as live"
        if instance.state == InstanceState.CLOSED:
            of_the_living: tuple[Table[Any], ...] = (
                INBOX,
                OPEN_CALLS,
                OPEN_INTERACTIONS,
                OPEN_SURFACES,
                SHOWN,
                WANTED,
            )
            for table in of_the_living:
                if any(True for _ in txn.scan(table, key)) and not (table is INBOX and key[0] in going):
                    yield f"instance {key[0]} is closed and has rows in {table.name}"
    for conversation_key, conversation in txn.scan(CONVERSATIONS):
        for instance_id in conversation.focus:
            found = txn.get(INSTANCES, (instance_id,))
            if found is None or found.state == InstanceState.CLOSED:
                yield f"conversation {conversation_key[0]} has {instance_id} in its focus, which does not live"
        if conversation.chat_instance_id and conversation.chat_instance_id not in conversation.focus:
            yield f"conversation {conversation_key[0]} stands on no Interact"


def _backlogs(txn: Txn) -> set[Any]:
    """The closed instances whose deliveries are still being deleted."""
    return {key[3] for key, _ in txn.scan(RETIRED, (retention.BACKLOG,))}


def _workers(txn: Txn) -> Iterator[str]:
    meta = txn.get(META, META_KEY) or Meta()
    workers = [worker for _, worker in txn.scan(WORKERS)]
    starting = sum(worker.state == WorkerState.STARTING for worker in workers)
    if (meta.workers_live, meta.workers_starting) != (len(workers), starting):
        yield f"{len(workers)} workers, {starting} starting, counted {meta.workers_live} and {meta.workers_starting}"
    if (starts := sum(1 for _ in txn.scan(START_QUEUE))) != meta.starts_queued:
        yield f"{starts} wait to be started, counted {meta.starts_queued}"
    yield from _starts(txn)
    for worker in workers:
        sent = [item for key, item in txn.scan(INBOX, (worker.instance_id,)) if int(key[1]) <= worker.sent_seq]
        if worker.sent_bytes != sum(map(inbox.weight, sent)):
            yield f"{worker.instance_id}'s worker was sent {len(sent)} deliveries and counts {worker.sent_bytes} bytes"
    for key, wish in txn.scan(WANTED):
        queued = [k for k, _ in txn.scan(START_QUEUE) if k[2] == key[0]]
        if [k[:2] for k in queued] != ([] if wish.queued_ms is None else [(wish.app_scope, wish.queued_ms)]):
            yield f"{key[0]} is wanted with place {wish.queued_ms} and queued at {queued}"
        if wish.queued_ms is None and txn.get(WORKERS, key) is None and not _restarts(txn, str(key[0])):
            yield f"{key[0]} wants a worker and nothing will start one"
    for key, _ in txn.scan(START_QUEUE):
        if txn.get(WANTED, (key[2],)) is None:
            yield f"{key[2]} is in the start queue and not wanted"
        if txn.get(WORKERS, (key[2],)) is not None:
            yield f"{key[2]} is in the start queue and has a worker"
    going = _backlogs(txn)
    for key, _ in txn.scan(INBOX):
        if txn.get(WANTED, (key[0],)) is None and key[0] not in going:
            yield f"{key[0]} has a delivery waiting and is not wanted"


def _starts(txn: Txn) -> Iterator[str]:
    """Each MiniApp's starts and places are counted, it has no more of either than half of what there are, or one, and
    none waits while there is room for it, or while somebody could make room."""
    meta = txn.get(META, META_KEY) or Meta()
    most = max(1, min(meta.policy.workers_starting_max, meta.policy.workers_max) // 2)
    waiting = Counter(str(key[0]) for key, _ in txn.scan(START_QUEUE))
    under_way, places, going = Counter[str](), Counter[str](), Counter[str]()
    for key, worker in txn.scan(WORKERS):
        app = instance.app_scope if (instance := txn.get(INSTANCES, key)) is not None else ""
        places[app] += 1
        under_way[app] += worker.state == WorkerState.STARTING
        going[app] += worker.state == WorkerState.STOPPING
    counted = {str(key[0]): (s.under_way, s.waiting, s.places, s.going) for key, s in txn.scan(STARTS)}
    found = {app: (under_way[app], waiting[app], places[app], going[app]) for app in {*places, *waiting}}
    if counted != found:
        yield f"starts under way and waiting, places, and of them those on their way out are {found}, counted {counted}"
    for app, count in under_way.items():
        if count > most:
            yield f"{count} starts of {app} are under way, {most} may be"
    kept = max(0, meta.policy.workers_max // 8 - places[CHAT_SCOPE])
    to_give = max(0, places[CHAT_SCOPE] - meta.policy.workers_max // 8)  # Interact's that others would get
    half = max(1, meta.policy.workers_max // 2)
    for app, count in places.items():
        if app != CHAT_SCOPE and count > half:
            yield f"{app} has {count} places, {half} it may have"
    free = meta.policy.workers_max - meta.workers_live
    for app in waiting:
        may_start = under_way[app] < most and sum(under_way.values()) < meta.policy.workers_starting_max
        if not may_start or meta.stopping:
            continue
        has_share = app != CHAT_SCOPE and places[app] >= half
        if not has_share and free > (0 if app == CHAT_SCOPE else kept):
            yield f"{app} waits to be started though there is room"
            continue
        theirs, goes = ({app}, going[app]) if has_share else ({*places}, going.total())
        if app != CHAT_SCOPE and not has_share:
            theirs -= {CHAT_SCOPE} if going[CHAT_SCOPE] >= to_give else set()
            goes -= max(0, going[CHAT_SCOPE] - to_give)
        if not goes and any(txn.first(SPARE, (other,)) for other in theirs):
            yield f"{app} waits to be started, and nobody is let go of though somebody can be"


def _spare(txn: Txn) -> Iterator[str]:
    """Known to be spare is exactly who is ready and has nothing to do, or only waits for a person."""
    listed = {str(key[1]): row for key, row in txn.scan(SPARE)}
    for key, worker in txn.scan(WORKERS):
        instance = txn.get(INSTANCES, key)
        if instance is None or worker.state != WorkerState.READY or worker.condemned:
            continue
        row = listed.pop(str(key[0]), None)
        calls = [txn.get(CALLS, call_key[1:]) for call_key, _ in txn.scan(OPEN_CALLS, key)]
        runs = any(c is not None and c.status == CallState.RUNNING and c.operation_id is None for c in calls)
        on_screen = instance.state == InstanceState.FOREGROUND and txn.first(OPEN_SURFACES, key) is not None
        seen = on_screen and txn.get(SHOWN, key) is not None
        if (row is None) != (runs or seen or txn.first(INBOX, key) is not None):
            yield f"{key[0]} is {'not ' if row is None else ''}known to be spare, with calls {calls}, looked at {seen}"
        elif row is not None:
            questions = [txn.get(INTERACTIONS, (asked[1],)) for asked, _ in txn.scan(OPEN_INTERACTIONS, key)]
            waits = on_screen or any(q is not None and q.source == "miniapp_tool" for q in questions)
            if row.waits != waits:
                yield f"{key[0]} is known to be spare, waiting for a person {row.waits}, which is {waits}"
    for instance_id in listed:
        yield f"{instance_id} is known to be spare and has no ready worker"


def _inboxes(txn: Txn) -> Iterator[str]:
    """What waits for each MiniApp is counted in bytes."""
    waiting: Counter[str] = Counter()
    for key, item in txn.scan(INBOX):
        instance = txn.get(INSTANCES, key[:1])
        waiting[instance.app_scope if instance is not None else ""] += item.bytes
    counted = {str(scope): row.bytes for (scope, kind), row in txn.scan(USAGE) if kind == quotas.INBOX and row.bytes}
    if counted != {scope: size for scope, size in waiting.items() if size}:
        yield f"{dict(waiting)} bytes wait in inboxes, counted {counted}"


def _restarts(txn: Txn, instance_id: str) -> bool:
    return txn.get(TIMER_DUE, ("restart", instance_id)) is not None


def _interactions(txn: Txn) -> Iterator[str]:
    charged: Counter[tuple[str, str]] = Counter()
    for key, row in txn.scan(INTERACTIONS):
        charged[interactions.payer(row)] += row.charged
        if row.charged and row.status not in ("pending", "presented"):
            yield f"interaction {key[0]} is {row.status} and still counts {row.charged} bytes"
        listed = txn.get(OPEN_INTERACTIONS, (row.instance_id, row.interaction_id)) is not None
        if listed == INTERACTION.is_final(row.status):
            yield f"interaction {key[0]} is {row.status} and {'' if listed else 'not '}listed as open"
        if row.parent_agent_id is None or row.parent_call_id is None:
            continue
        waits = txn.get(INTERACTIONS_BY_CALL, (row.parent_agent_id, row.parent_call_id, row.interaction_id)) is not None
        if waits != (row.status in ("pending", "presented")):
            yield f"interaction {key[0]} is {row.status} and {'' if waits else 'not '}in the way of its call's timeout"
    for (scope, kind), usage in txn.scan(USAGE):
        if kind in (quotas.QUESTIONS, quotas.ASKED) and usage.bytes != charged.pop((str(scope), str(kind)), 0):
            yield f"questions of {scope} count {usage.bytes} bytes, which is not the sum of those that wait"
    if lacking := sorted(scope for (scope, _), count in charged.items() if count):
        yield f"waiting questions of {lacking} are not counted"
    asked: Counter[tuple[str, str]] = Counter()
    for by_call, _ in txn.scan(INTERACTIONS_BY_CALL):
        asked[str(by_call[0]), str(by_call[1])] += 1
    for call_key, call in txn.scan(CALLS):
        if not CALL.is_final(call.status) and call.questions != asked[call.agent_id, call.call_id]:
            yield f"call {call_key} has {asked[call.agent_id, call.call_id]} questions and counts {call.questions}"
        clock = txn.get(TIMER_DUE, ("call", *call_key)) is not None
        ticks = not CALL.is_final(call.status) and call.timeout_ms is not None and call.questions == 0
        if clock != ticks:
            does = "runs" if clock else "stands"
            yield f"call {call_key} is {call.status}, questions {call.questions}, and its clock {does}"


def _operations(txn: Txn) -> Iterator[str]:
    seen: Counter[tuple[str, str]] = Counter()
    for key, row in txn.scan(OPERATIONS):
        focusing = row.state == OperationState.FOCUSING
        indexed = txn.get(FOCUSING, (row.conversation_id, row.app_scope, row.operation_id)) is not None
        armed = txn.get(TIMER_DUE, ("operation", row.operation_id)) is not None
        if not focusing == indexed == armed:
            yield f"operation {key[0]} is {row.state}, indexed {indexed}, armed {armed}"
        seen[row.conversation_id, row.app_scope] += focusing
        call = txn.get(CALLS, (row.source_agent_id, row.source_call_id))
        if focusing if call is None else CALL.is_final(call.status) == focusing:
            yield f"operation {key[0]} is {row.state} and its call {call.status if call else 'missing'}"
    for where, count in seen.items():
        if count > 1:
            yield f"{where} has {count} focusing operations"


def _surfaces(txn: Txn) -> Iterator[str]:
    for key, row in txn.scan(SURFACES):
        listed = txn.get(OPEN_SURFACES, (row.instance_id, row.surface_id)) is not None
        if listed != (row.state == SurfaceState.OPEN):
            yield f"surface {key[0]} is {row.state} and {'' if listed else 'not '}listed as open"
    kept = {str(key[0]) for key, _ in txn.scan(SURFACE_PARTS)}
    wanted = {str(key[1]) for key, _ in txn.scan(OPEN_SURFACES)}
    leaving = {str(key[3]) for key, _ in txn.scan(RETIRED, (retention.STATE,))}
    if kept != wanted | leaving or wanted & leaving:
        yield f"states are kept for {sorted(kept ^ (wanted | leaving))[:4]} and not, or go that are open"


def _timers(txn: Txn) -> Iterator[str]:
    armed = {key[2:]: (key[0], key[1]) for key, _ in txn.scan(TIMERS)}
    found = {key: (row.clock, row.due_ms) for key, row in txn.scan(TIMER_DUE)}
    if armed != found:
        yield f"the timers differ from their index: {sorted(map(str, armed.items() ^ found.items()))[:4]}"


def _retention(txn: Txn) -> Iterator[str]:
    """What is queued to go is over, and counted; what hangs on something is not there without it."""
    meta = txn.get(META, META_KEY) or Meta()
    counted = {
        retention.CALL: meta.calls_over,
        retention.INTERACTION: meta.interactions_over,
        retention.INSTANCE: meta.instances_over,
        retention.SURFACE: meta.surfaces_over,
        retention.STATE: meta.states_over,
        retention.BACKLOG: meta.backlogs_over,
    }
    for kind, count in counted.items():
        retired = list(txn.scan(RETIRED, (kind,)))
        refs = [key[3:] for key, _ in retired]
        owned: dict[str, tuple[int, int]] = {}
        for key, row in retired:
            rows, size = owned.get(str(key[1]), (0, 0))
            owned[str(key[1])] = rows + 1, size + row.bytes
        kept = {str(key[1]): (over.rows, over.bytes) for key, over in txn.scan(OVER, (kind,))}
        if kept != owned:
            yield f"of the kind {kind} owners have {owned} rows and bytes, counted {kept}"
        if (in_all := getattr(meta, f"{kind}s_over_bytes")) != sum(size for _, size in owned.values()):
            yield f"the retired of the kind {kind} do not take the {in_all} bytes that are counted"
        if len(refs) != count or len(set(refs)) != count:
            yield f"{len(refs)} rows of the kind {kind} are retired, {len(set(refs))} different, {count} counted"
        for ref in refs:
            if not _is_over(txn, kind, ref):
                yield f"{kind} {ref} is retired and is not over, or not there"
    for table, place in ((CALLS_BY_ID, (1, 0)), (CALLS_BY_TIME, (1, 2))):
        for key, _ in txn.scan(table):
            if txn.get(CALLS, tuple(key[at] for at in place)) is None:
                yield f"{table.name} has {key}, which is no call"
    for key, _ in txn.scan(SESSION_ENTRIES):
        if txn.get(SESSIONS, (key[0],)) is None:
            yield f"an entry of session {key[0]} is kept without it"
    swept = txn.get(TIMER_DUE, ("sweep",))
    if (swept.due_ms if swept is not None else 0) != meta.sweep_due_ms:
        yield f"the sweep is due at {meta.sweep_due_ms}, its timer says {swept}"
    if not meta.audit_anchor_seq <= meta.audit_seq or not meta.audit_archived_seq <= meta.audit_seq:
        yield f"the audit has {meta.audit_seq} rows, {meta.audit_archived_seq} of them archived"
    first = next(iter(txn.scan(AUDIT)), None)
    if first is not None and (first[1].seq, first[1].prev) != (
        meta.audit_anchor_seq + 1,
        meta.audit_anchor_hash or NO_HASH,
    ):
        yield f"the audit begins with row {first[1].seq}, which does not hang on its anchor {meta.audit_anchor_seq}"


def _is_over(txn: Txn, kind: str, ref: Key) -> bool:
    if kind == retention.CALL:
        call = txn.get(CALLS, ref)
        return call is not None and CALL.is_final(call.status)
    if kind == retention.INTERACTION:
        asked = txn.get(INTERACTIONS, ref)
        return asked is not None and INTERACTION.is_final(asked.status)
    if kind in (retention.INSTANCE, retention.BACKLOG):
        instance = txn.get(INSTANCES, ref)
        return instance is not None and instance.state == InstanceState.CLOSED
    surface = txn.get(SURFACES, ref)
    if kind == retention.STATE and surface is None:
        return True  # its record may go before all that it said
    return surface is not None and surface.state == SurfaceState.CLOSED


_RULES = (
    _calls,
    _agents,
    _instances,
    _workers,
    _spare,
    _inboxes,
    _interactions,
    _operations,
    _surfaces,
    _timers,
    _retention,
)
