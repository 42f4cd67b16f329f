"""What is there just now: the lists of what is live, and the snapshot that a workspace starts from.

Reads only. Owns how much of a snapshot each of its parts may take; the questions that have names are in ``queries``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from lineup_protocol import limits
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import answers, calls, capabilities, interactions, operations, surfaces, views
from lineup_supervisor.core.answers import PAGE_ROWS_MAX, Room, Spare, cursor
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    AGENTS,
    APPS,
    BUNDLES,
    CALLS,
    CONVERSATIONS,
    FOCUSING,
    INSTANCES,
    INTERACTIONS,
    LIVE_INSTANCES,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    OPEN_SURFACES,
    OPERATIONS,
    OPERATIONS_OF,
    OUTBOX_ITEMS,
    SESSIONS,
    SNAPSHOTS,
    SURFACES,
    WORKERS,
    Call,
    Conversation,
    Instance,
    Interaction,
    Operation,
)
from lineup_supervisor.core.txn import Key, Txn

OPERATIONS_SHOWN_MAX = 100  # of one live instance, the newest; its session has the others
# What the parts of a snapshot may take. Together they stay far below the largest message of the host link, whatever
# MiniApps do: a workspace that cannot come up can put nothing in order.
SNAPSHOT_ROOM = {
    "conversations": 2 * limits.MIB,  # with what lives in them, but for the states
    "snapshots": limits.MIB,
    "interactions": limits.MIB,
    "calls": limits.MIB // 2,
    "workers": limits.MIB // 2,
    "apps": limits.MIB // 2,
    "agents": limits.MIB // 4,
    "grants": limits.MIB // 4,
    "notifications": limits.MIB // 2,
}


def live_instances(txn: Txn, conversation_id: str | None = None) -> Iterator[Instance]:
    for key, _ in txn.scan(LIVE_INSTANCES, () if conversation_id is None else (conversation_id,)):
        instance = txn.get(INSTANCES, (key[2],))
        assert instance is not None
        yield instance


def app_rows(txn: Txn, after: Key | None = None) -> Iterable[dict[str, Any]]:
    for _, app in txn.scan(APPS, after=after):
        bundle = txn.get(BUNDLES, (app.digest,))
        manifest = bundle.manifest if bundle is not None else {}
        row = views.view(APPS, app) or {}
        row |= {
            "version": manifest.get("version", ""),
            "title": manifest.get("title") or app.app_scope,
            "tools": [tool["id"] for tool in manifest.get("tools", ())],
            "surfaces": manifest.get("surfaces") or [],
        }
        yield row


def open_calls(txn: Txn, after: Key | None, *, brief: bool) -> Iterable[tuple[Key, dict[str, Any]]]:
    for key, _ in txn.scan(OPEN_CALLS, after=after):
        call = txn.get(CALLS, key[1:])
        if call is not None:
            yield key, listed(call, brief=brief)


def listed(call: Call, *, brief: bool) -> dict[str, Any]:
    return _brief(call) if brief else calls.record(call)


def _brief(call: Call) -> dict[str, Any]:
    return {name: value for name, value in calls.record(call).items() if name not in ("input", "result", "error")}


def asked(row: Interaction, *, brief: bool) -> dict[str, Any]:
    record = interactions.public(row)
    return answers.short_interaction(record) if brief else record


def waiting(txn: Txn, after: Key | None, *, brief: bool) -> Iterable[tuple[Key, dict[str, Any]]]:
    for key, _ in txn.scan(OPEN_INTERACTIONS, after=after):
        row = txn.get(INTERACTIONS, (key[1],))
        if row is not None and row.status in ("pending", "presented"):
            yield key, asked(row, brief=brief)


def status(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """What runs. ``truncated`` names those of ``instances``, ``apps`` and ``agents`` that are longer than shown."""
    agents = [views.agent_view(row) for _, row in txn.scan(AGENTS)]
    live = live_instances(txn)
    instances, more = answers.fitting(_status_row(txn, row) for row in itertools.islice(live, PAGE_ROWS_MAX))
    return {
        "boot_id": ctx.meta.boot_id,
        "isolation": ctx.meta.isolation,
        "stopping": ctx.meta.stopping,
        "inventory_revision": ctx.meta.inventory_revision,
        **answers.parts(
            {
                "instances": (instances, more or next(live, None) is not None),
                "apps": answers.fitting(app_rows(txn)),
                "agents": answers.fitting(agents),
            }
        ),
        "open_calls": sum(agent["in_flight"] for agent in agents),
        "outbox": sum(1 for _ in txn.scan(OUTBOX_ITEMS)),
        "workers": {"live": ctx.meta.workers_live, "starting": ctx.meta.workers_starting},
        "audit_rows": ctx.meta.audit_seq,
    }


def _status_row(txn: Txn, instance: Instance) -> dict[str, Any]:
    worker = txn.get(WORKERS, (instance.instance_id,))
    return {
        "instance_id": instance.instance_id,
        "app_scope": instance.app_scope,
        "conversation_id": instance.conversation_id,
        "state": str(instance.state),
        "worker_pid": worker.pid if worker is not None else None,
        "incarnation": instance.incarnation,
    }


def snapshot(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """What a workspace starts from; the timelines of the conversations come in pages.

    It always fits. Large questions are cut when there are many, the states of MiniApps are left out where there is no
    more room, the Runtime's own first; ``truncated`` names the parts that are not whole, ``interactions_next`` is where
    the query ``interactions`` goes on.
    """
    shown = _shown_conversations(txn)
    live = [instance for part in shown.conversations for instance in part]
    questions = _waiting_shown(txn)
    notifications = reversed(capabilities.notifications(txn))
    told, more_told = answers.fitting(notifications, SNAPSHOT_ROOM["notifications"])
    lists = {
        "conversations": (shown.rows, shown.more),
        "instances": ([views.instance_view(row) for row in live], shown.more),
        "workers": answers.fitting((views.worker_view(row) for _, row in txn.scan(WORKERS)), SNAPSHOT_ROOM["workers"]),
        "apps": answers.fitting(app_rows(txn), SNAPSHOT_ROOM["apps"]),
        "agents": answers.fitting((views.agent_view(row) for _, row in txn.scan(AGENTS)), SNAPSHOT_ROOM["agents"]),
        "calls": answers.fitting((row for _, row in open_calls(txn, None, brief=True)), SNAPSHOT_ROOM["calls"]),
        "interactions": (questions["interactions"], "next" in questions),
        "operations": (shown.operations, shown.more),
        "sessions": (shown.sessions, shown.more),
        "surfaces": (shown.surfaces, shown.more),
        "snapshots": _states(txn, live),
        "grants": answers.fitting(capabilities.grants(txn), SNAPSHOT_ROOM["grants"]),
        "notifications": (told[::-1], more_told),
    }
    return {
        "revision": ctx.meta.projection_revision,
        "boot_id": ctx.meta.boot_id,
        "isolation": ctx.meta.isolation,
        "now": to_rfc3339(ctx.now.wall_ms),
        **answers.parts(lists),
        **({"interactions_next": questions["next"]} if "next" in questions else {}),
    }


class _Shown:
    """The conversations of a snapshot that there is room for, the newest first, with what lives in them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.conversations: list[list[Instance]] = []
        self.sessions: list[dict[str, Any]] = []
        self.surfaces: list[dict[str, Any]] = []
        self.operations: list[dict[str, Any]] = []
        self.more = False


def _shown_conversations(txn: Txn) -> _Shown:
    every = [row for _, row in txn.scan(CONVERSATIONS) if not row.archived]
    every.sort(key=lambda row: row.updated_ms, reverse=True)
    shown, room = _Shown(), Room(SNAPSHOT_ROOM["conversations"])
    for conversation in every[:PAGE_ROWS_MAX]:
        if not _show(txn, shown, room, conversation):
            break
    shown.more = len(shown.rows) < len(every)
    return shown


def _show(txn: Txn, shown: _Shown, room: Room, conversation: Conversation) -> bool:
    """Add one conversation with all that lives in it; False if there is no more room."""
    row = views.conversation_view(conversation)
    live = list(live_instances(txn, conversation.conversation_id))
    sessions = [
        views.session_view(session)
        for instance in live
        if (session := txn.get(SESSIONS, (instance.session_id or "-",))) is not None
    ]
    open_ = [
        surfaces.public(surface)
        for instance in live
        for key, _ in txn.scan(OPEN_SURFACES, (instance.instance_id,))
        if (surface := txn.get(SURFACES, (key[1],))) is not None
    ]
    ran = [operations.public(operation) for instance in live for operation in _newest_operations(txn, instance)]
    if not room.take(row, *map(views.instance_view, live), *sessions, *open_, *ran):
        return False
    shown.rows.append(row)
    shown.conversations.append(live)
    shown.sessions += sessions
    shown.surfaces += open_
    shown.operations += ran
    return True


def _newest_operations(txn: Txn, instance: Instance) -> list[Operation]:
    """Those that go on, and the last ones that are over."""
    scan = txn.scan(OPERATIONS_OF, (instance.instance_id,), reverse=True)
    ids = [str(key[1]) for key, _ in itertools.islice(scan, OPERATIONS_SHOWN_MAX)][::-1]
    if len(ids) == OPERATIONS_SHOWN_MAX:
        focusing = (str(key[2]) for key, _ in txn.scan(FOCUSING, (instance.conversation_id, instance.app_scope)))
        ids += [id_ for id_ in focusing if id_ not in ids]
    found = [txn.get(OPERATIONS, (id_,)) for id_ in ids]
    return [row for row in found if row is not None and row.instance_id == instance.instance_id]


def _waiting_shown(txn: Txn) -> dict[str, Any]:
    """The questions that wait, whole while there is room for large ones, then with their beginning only."""
    room, spare = Room(SNAPSHOT_ROOM["interactions"]), Spare(SNAPSHOT_ROOM["interactions"] // 2)
    found, last = list[dict[str, Any]](), ""
    for key, row in waiting(txn, None, brief=False):
        shown = spare.whole_or(row, answers.short_interaction(row))
        if len(found) >= PAGE_ROWS_MAX or not room.take(shown):
            return {"interactions": _by_age(found), "next": last}
        found.append(shown)
        last = cursor(key)
    return {"interactions": _by_age(found)}


def _by_age(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda record: str(record["created_at"]))


def _states(txn: Txn, live: list[Instance]) -> tuple[list[dict[str, Any]], bool]:
    """What the live instances have saved, as far as there is room: those first that the workspace itself draws."""
    room, kept, more = Room(SNAPSHOT_ROOM["snapshots"]), list[dict[str, Any]](), False
    for instance in sorted(live, key=lambda row: row.kind == "installed"):
        snapshot = txn.get(SNAPSHOTS, (instance.instance_id,))
        if snapshot is None:
            continue
        if not room.has(snapshot.bytes) or not room.take(view := views.snapshot_view(snapshot)):
            more = True
            break
        kept.append(view)
    return kept, more
