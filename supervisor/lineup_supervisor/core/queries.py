"""Read-only questions of Hosts and the operator. Nothing here writes; long lists come in pages."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import (
    artifacts,
    audit,
    calls,
    capabilities,
    interactions,
    inventory,
    operations,
    surfaces,
    views,
)
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import HostQuery
from lineup_supervisor.core.schema import (
    AGENTS,
    APPS,
    ARTIFACTS,
    AUDIT,
    AUDIT_BY_SUBJECT,
    BUNDLES,
    CALLS,
    CALLS_BY_TIME,
    CONVERSATIONS,
    INSTANCES,
    INTERACTIONS,
    LIVE_INSTANCES,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    OPEN_SURFACES,
    OPERATIONS,
    OUTBOX_ITEMS,
    SESSION_ENTRIES,
    SESSIONS,
    SNAPSHOTS,
    SURFACES,
    TIMELINE,
    WORKERS,
    Call,
    Entry,
    Instance,
)
from lineup_supervisor.core.tables import CALL, CallState
from lineup_supervisor.core.txn import Key, Table, Txn

PAGE_ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 1_000
AUDIT_PAGE_ROWS_MAX = 100  # it is read from end to end, page after page: nobody is to wait for a long one each time
STORY_ROWS_MAX = 2_000
# What happens to a process, whoever is the cause of it; a story of a call has it from the call's making to its end.
_WORKER_KINDS = frozenset(
    f"worker.{what}"
    for what in (
        "starting", "started", "ready", "start_timeout", "load_failed",
        "throttled", "denied", "violation", "stopping", "exited",
    )
)  # fmt: skip
_STORY_LOOKED_AT_MAX = 20_000  # rows of the instance: Interact's calls may wait for days beside thousands of others
_CALL_ENDS = frozenset(f"call.{state}" for state in CallState if CALL.is_final(state))


def handle(ctx: Ctx, event: HostQuery) -> None:
    rule = _QUERIES.get(event.name)
    try:
        if rule is None:
            raise LineUpError("message_invalid", f"/name: no query {event.name!r}", detail={"path": "/name"})
        ctx.reply_host(event.reply_to, True, detail=rule(ctx.txn, ctx, event.args))
    except LineUpError as error:
        ctx.reply_host(event.reply_to, False, code=error.code, message=error.message, detail=error.detail)


def _id(args: dict[str, Any], name: str) -> str:
    value = args.get(name)
    if not is_id(value):
        raise LineUpError("message_invalid", f"/args/{name}: must be an id", detail={"path": f"/args/{name}"})
    return value


def _limit(args: dict[str, Any], most: int = PAGE_ROWS_MAX) -> int:
    value = _number(args, "limit", PAGE_ROWS_DEFAULT) or PAGE_ROWS_DEFAULT
    if value < 1:
        raise LineUpError("message_invalid", "/args/limit: must be an integer from 1", detail={"path": "/args/limit"})
    return min(value, most)


def _number(args: dict[str, Any], name: str, default: int) -> int:
    """A whole number that a key can hold."""
    value = args.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > limits.INTEGER_ABS_MAX:
        raise LineUpError("message_invalid", f"/args/{name}: must be an integer", detail={"path": f"/args/{name}"})
    return value


def _live_instances(txn: Txn) -> list[Instance]:
    found = []
    for key, _ in txn.scan(LIVE_INSTANCES):
        instance = txn.get(INSTANCES, (key[2],))
        assert instance is not None
        found.append(instance)
    return found


def _status(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for instance in _live_instances(txn)[:PAGE_ROWS_MAX]:
        worker = txn.get(WORKERS, (instance.instance_id,))
        rows.append(
            {
                "instance_id": instance.instance_id,
                "app_scope": instance.app_scope,
                "conversation_id": instance.conversation_id,
                "state": str(instance.state),
                "worker_pid": worker.pid if worker is not None else None,
                "incarnation": instance.incarnation,
            }
        )
    agents = [views.agent_view(row) for _, row in txn.scan(AGENTS)]
    return {
        "boot_id": ctx.meta.boot_id,
        "isolation": ctx.meta.isolation,
        "stopping": ctx.meta.stopping,
        "inventory_revision": ctx.meta.inventory_revision,
        "instances": rows,
        "apps": _apps(txn, ctx, args)["apps"],
        "agents": agents,
        "open_calls": sum(agent["in_flight"] for agent in agents),
        "outbox": sum(1 for _ in txn.scan(OUTBOX_ITEMS)),
        "workers": {"live": ctx.meta.workers_live, "starting": ctx.meta.workers_starting},
        "audit_rows": ctx.meta.audit_seq,
    }


def _apps(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    found = []
    for _, app in txn.scan(APPS):
        bundle = txn.get(BUNDLES, (app.digest,))
        manifest = bundle.manifest if bundle is not None else {}
        row = views.view(APPS, app) or {}
        row |= {
            "version": manifest.get("version", ""),
            "title": manifest.get("title") or app.app_scope,
            "tools": [tool["id"] for tool in manifest.get("tools", ())],
            "surfaces": manifest.get("surfaces") or [],
        }
        found.append(row)
    return {"apps": found}


def _tools(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    return {"revision": ctx.meta.inventory_revision, "tools": inventory.visible_tools(txn)}


def _calls(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """The newest first; ``state: open``: those that have no result yet; ``brief``: without what may be large."""
    state, limit = args.get("state"), _limit(args)
    listed = _brief if args.get("brief") else calls.record
    found: list[dict[str, Any]] = []
    if state == "open":
        for key, _ in txn.scan(OPEN_CALLS):
            call = txn.get(CALLS, key[1:])
            if call is not None and len(found) < limit:
                found.append(listed(call))
        return {"calls": sorted(found, key=lambda record: str(record["created_at"]), reverse=True)}
    for key, _ in txn.scan(CALLS_BY_TIME, reverse=True):
        call = txn.get(CALLS, key[1:])
        if call is not None and (state is None or call.status == state):
            found.append(listed(call))
            if len(found) >= limit:
                break
    return {"calls": found}


def _brief(call: Call) -> dict[str, Any]:
    return {name: value for name, value in calls.record(call).items() if name not in ("input", "result", "error")}


def _call(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    found = calls.find(txn, _id(args, "call_id"))
    if not found:
        raise LineUpError("call_not_found", f"no call {args['call_id']}")
    return calls.record(found[-1])


def _interactions(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """Those that wait for a person; with ``state: all``, every one."""
    if args.get("state") == "all":
        rows = [interactions.public(row) for _, row in txn.scan(INTERACTIONS)][-_limit(args) :]
        return {"interactions": rows}
    found = []
    for key, _ in txn.scan(OPEN_INTERACTIONS):
        row = txn.get(INTERACTIONS, (key[1],))
        if row is not None and row.status in ("pending", "presented"):
            found.append(interactions.public(row))
    return {"interactions": sorted(found, key=lambda record: str(record["created_at"]))}


def _story(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """Every audit row of one object and of the causes that it had a part in, in order."""
    subject = _id(args, "id")
    seqs = [int(key[1]) for key, _ in txn.scan(AUDIT_BY_SUBJECT, (subject,))]
    if not seqs:
        raise LineUpError("not_found", f"nothing is known of {subject}")
    causes = {subject}
    for seq in seqs[:STORY_ROWS_MAX]:
        row = txn.get(AUDIT, (seq,))
        assert row is not None
        causes.add(row.cause)
    wanted = set(seqs)
    for cause in causes:
        wanted.update(int(key[1]) for key, _ in txn.scan(AUDIT_BY_SUBJECT, (cause,)))
    wanted.update(_of_its_worker(txn, subject, seqs[0]))
    entries = []
    for seq in sorted(wanted)[:STORY_ROWS_MAX]:
        row = txn.get(AUDIT, (seq,))
        assert row is not None
        entries.append(
            {
                "seq": row.seq,
                "at": to_rfc3339(row.at_ms),
                "actor": row.actor,
                "kind": row.kind,
                "subjects": list(row.subjects),
                "cause": row.cause,
                "detail": row.detail,
            }
        )
    return {"id": subject, "entries": entries, "truncated": len(wanted) > STORY_ROWS_MAX}


def _of_its_worker(txn: Txn, call_id: str, first_seq: int) -> list[int]:
    """What befell the process of a call's instance while the call was open: a crash, a kill, a limit, a new start."""
    found: list[int] = []
    for call in calls.find(txn, call_id):
        if call.instance_id is None:
            continue
        of_instance = txn.scan(AUDIT_BY_SUBJECT, (call.instance_id,), after=(call.instance_id, first_seq))
        for key, _ in itertools.islice(of_instance, _STORY_LOOKED_AT_MAX):
            row = txn.get(AUDIT, (int(key[1]),))
            assert row is not None
            if row.kind in _WORKER_KINDS:
                found.append(row.seq)
            if (row.kind in _CALL_ENDS and call_id in row.subjects) or len(found) == STORY_ROWS_MAX:
                break
    return found


def _audit_page(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    after, limit = max(0, _number(args, "after", 0)), _limit(args, AUDIT_PAGE_ROWS_MAX)
    rows = []
    for _, row in txn.scan(AUDIT, after=(after,)):
        rows.append(audit.public(row))
        if len(rows) >= limit:
            break
    return {
        "rows": rows,
        "head": {"seq": ctx.meta.audit_seq, "hash": ctx.meta.audit_hash or audit.NO_HASH},
        "anchor": {"seq": ctx.meta.audit_anchor_seq, "hash": ctx.meta.audit_anchor_hash or audit.NO_HASH},
    }


def _snapshot(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """What a workspace starts from; the timelines of the conversations come in pages."""
    conversations = [views.conversation_view(row) for _, row in txn.scan(CONVERSATIONS) if not row.archived]
    conversations.sort(key=lambda row: str(row["updated_at"]), reverse=True)
    live = _live_instances(txn)
    shown = {row.instance_id for row in live}
    return {
        "revision": ctx.meta.projection_revision,
        "boot_id": ctx.meta.boot_id,
        "isolation": ctx.meta.isolation,
        "now": to_rfc3339(ctx.now.wall_ms),
        "conversations": conversations[:PAGE_ROWS_MAX],
        "instances": [views.instance_view(row) for row in live],
        "workers": [views.worker_view(row) for _, row in txn.scan(WORKERS)],
        "apps": _apps(txn, ctx, args)["apps"],
        "agents": [views.agent_view(row) for _, row in txn.scan(AGENTS)],
        "calls": _calls(txn, ctx, {"state": "open", "limit": PAGE_ROWS_MAX})["calls"],
        "interactions": _interactions(txn, ctx, {})["interactions"],
        "operations": [
            operations.public(operation) for row in live for operation in operations.of_instance(ctx, row.instance_id)
        ],
        "sessions": [
            views.session_view(session) for row in live if (session := txn.get(SESSIONS, (row.session_id or "-",)))
        ],
        "surfaces": [
            surfaces.public(row)
            for key, _ in txn.scan(OPEN_SURFACES)
            if (row := txn.get(SURFACES, (key[1],))) is not None
        ],
        "snapshots": [views.snapshot_view(s) for i in sorted(shown) if (s := txn.get(SNAPSHOTS, (i,)))],
        "grants": capabilities.grants(txn),
        "notifications": capabilities.notifications(txn),
    }


def _timeline(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """One page of a conversation, newest first from ``before``, with what its entries refer to."""
    conversation_id, limit = _id(args, "conversation_id"), _limit(args)
    before = max(0, _number(args, "before", limits.INTEGER_ABS_MAX))
    after: Key = (conversation_id, before)
    rows: list[Entry] = []
    for _, row in txn.scan(TIMELINE, (conversation_id,), after=after, reverse=True):
        rows.append(row)
        if len(rows) >= limit:
            break
    rows.reverse()
    return {"entries": [views.entry_view(row) for row in rows], **_referred(txn, rows)}


def _session(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """One app session with its entries: the read-only history after its end."""
    session = txn.get(SESSIONS, (_id(args, "session_id"),))
    if session is None:
        raise LineUpError("not_found", f"no app session {args['session_id']}")
    rows: list[Entry] = []
    for key, _ in txn.scan(SESSION_ENTRIES, (session.session_id,)):
        row = txn.get(TIMELINE, (session.conversation_id, key[1]))
        if row is not None and len(rows) < PAGE_ROWS_MAX:
            rows.append(row)
    instance = txn.get(INSTANCES, (session.instance_id,))
    snapshot = txn.get(SNAPSHOTS, (session.instance_id,))
    return {
        "session": views.session_view(session),
        "entries": [views.entry_view(row) for row in rows],
        "instance": views.instance_view(instance) if instance is not None else None,
        "snapshot": views.snapshot_view(snapshot) if snapshot is not None else None,
        "operations": [operations.public(row) for row in operations.of_instance(ctx, session.instance_id)],
        **_referred(txn, rows),
    }


def _referred(txn: Txn, rows: list[Any]) -> dict[str, Any]:
    """The interactions, sessions and calls that timeline entries point at."""
    found: dict[str, list[Any]] = {"interactions": [], "sessions": [], "calls": []}
    seen: set[str] = set()
    for row in rows:
        if not row.ref or row.ref in seen:
            continue
        seen.add(row.ref)
        if row.kind == "interaction" and (question := txn.get(INTERACTIONS, (row.ref,))):
            found["interactions"].append(interactions.public(question))
        elif row.kind in ("session", "continue") and (session := txn.get(SESSIONS, (row.ref,))):
            found["sessions"].append(views.session_view(session))
        elif row.kind == "call" and row.action_id and (call := txn.get(CALLS, (row.action_id, row.ref))):
            found["calls"].append(calls.record(call))
    return found


def _one(table: Table[Any], name: str) -> Callable[[Txn, Ctx, dict[str, Any]], dict[str, Any]]:
    def query(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
        row = txn.get(table, (_id(args, name),))
        if row is None:
            raise LineUpError("not_found", f"no {name.removesuffix('_id')} {args[name]}")
        view = views.view(table, row)
        assert view is not None
        return view

    return query


def _surface(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    row = txn.get(SURFACES, (_id(args, "surface_id"),))
    if row is None:
        raise LineUpError("surface_not_found", f"no surface {args['surface_id']}")
    return surfaces.public(row) | {"state": surfaces.full_state(txn, row.surface_id), "digest": row.digest}


def _artifact(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    agent_id = args.get("agent_id")
    row, content = artifacts.read(txn, _id(args, "artifact_id"), agent_id if isinstance(agent_id, str) else None)
    return artifacts.public(row) | {"content": content}


def _artifacts(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    wanted = args.get("conversation_id")
    rows = [row for _, row in txn.scan(ARTIFACTS) if wanted in (None, row.conversation_id)]
    return {"artifacts": [artifacts.public(row) for row in rows[-_limit(args) :]]}


def _bundle(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    row = txn.get(BUNDLES, (_id(args, "digest"),))
    if row is None:
        raise LineUpError("not_found", f"no bundle {args['digest']}")
    return {"digest": row.digest, "path": row.path, "manifest": row.manifest}


def _agents(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    return {"agents": [views.agent_view(row) for _, row in txn.scan(AGENTS)]}


def _notifications(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    return {"notifications": capabilities.notifications(txn)}


def _grants(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    return {"grants": capabilities.grants(txn)}


_QUERIES: dict[str, Callable[[Txn, Ctx, dict[str, Any]], Any]] = {
    "status": _status,
    "apps": _apps,
    "tools": _tools,
    "calls": _calls,
    "call": _call,
    "interactions": _interactions,
    "interaction": _one(INTERACTIONS, "interaction_id"),
    "instance": _one(INSTANCES, "instance_id"),
    "operation": _one(OPERATIONS, "operation_id"),
    "story": _story,
    "audit.page": _audit_page,
    "snapshot": _snapshot,
    "timeline": _timeline,
    "session": _session,
    "surface": _surface,
    "artifact": _artifact,
    "artifacts": _artifacts,
    "bundle": _bundle,
    "grants": _grants,
    "agents": _agents,
    "notifications": _notifications,
}
