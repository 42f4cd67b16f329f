"""Read-only questions of Hosts and the operator. Nothing here writes; long lists come in pages.

A list ends where its rows have filled their room (``answers.Room``), however many were asked for, and has one row at
least if there is any. It then says where it goes on: ``next``, to be given as ``after``; without ``next`` it is whole.
Lists that have no pages name themselves in ``truncated``. Rows marked ``cut`` are shown without what was large.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import (
    answers,
    artifacts,
    audit,
    calls,
    capabilities,
    history,
    inventory,
    overview,
    surfaces,
    views,
)
from lineup_supervisor.core.answers import PAGE_ROWS_MAX, Room, cursor
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import HostQuery
from lineup_supervisor.core.schema import (
    AGENTS,
    ARTIFACTS,
    AUDIT,
    AUDIT_BY_SUBJECT,
    CALLS,
    CALLS_BY_TIME,
    INSTANCES,
    INTERACTIONS,
    OPERATIONS,
    SURFACES,
)
from lineup_supervisor.core.tables import CALL, CallState
from lineup_supervisor.core.txn import Table, Txn

PAGE_ROWS_DEFAULT = 100
AUDIT_PAGE_ROWS_MAX = 100  # it is read from end to end, page after page: nobody is to wait for a long one each time
STORY_ROWS_MAX = 2_000
CALLS_LOOKED_AT_MAX = 1_000  # of those that may not be in the wanted state
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


def _apps(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """By scope; ``next`` goes on."""
    rows = overview.app_rows(txn, answers.after(args, str))
    return answers.paged("apps", (((row["app_scope"],), row) for row in rows))


def _tools(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    return {"revision": ctx.meta.inventory_revision, "tools": inventory.visible_tools(txn)}


def _calls(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """The newest first; ``state: open``: those that have no result yet; ``brief``: without what may be large.

    Open ones are the newest first within a page only. A page of another state may be empty and have a ``next``: so many
    calls in other states have been looked at.
    """
    state, limit = args.get("state"), _limit(args)
    if state == "open":
        after = answers.after(args, str, str, str)
        page = answers.paged("calls", overview.open_calls(txn, after, brief=bool(args.get("brief"))), limit)
        page["calls"].sort(key=lambda record: str(record["created_at"]), reverse=True)
        return page
    room, found, last = Room(), list[dict[str, Any]](), answers.after(args, int, str, str)
    for looked_at, (key, _) in enumerate(txn.scan(CALLS_BY_TIME, after=last, reverse=True)):
        call = txn.get(CALLS, key[1:])
        if call is not None and (state is None or call.status == state):
            record = overview.listed(call, brief=bool(args.get("brief")))
            if len(found) >= limit or not room.take(record):
                return {"calls": found, "next": cursor(last or key)}
            found.append(record)
        elif looked_at >= CALLS_LOOKED_AT_MAX:
            return {"calls": found, "next": cursor(key)}
        last = key
    return {"calls": found}


def _call(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    agent_id = "" if args.get("agent_id") is None else _id(args, "agent_id")
    return calls.record(calls.one(txn, _id(args, "call_id"), agent_id))


def _interactions(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """Those that wait for a person, the oldest first within a page; with ``state: all``, every one, the newest page
    first. ``brief``: with the beginning of each question only (``cut``); ``interaction`` has all of it."""
    brief = bool(args.get("brief"))
    if args.get("state") == "all":
        after = answers.after(args, str)
        found = (overview.asked(row, brief=brief) for _, row in txn.scan(INTERACTIONS, after=after, reverse=True))
        page = answers.paged("interactions", (((row["interaction_id"],), row) for row in found), _limit(args))
        page["interactions"].reverse()
        return page
    page = answers.paged("interactions", overview.waiting(txn, answers.after(args, str, str), brief=brief))
    page["interactions"].sort(key=lambda record: str(record["created_at"]))
    return page


def _story(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """Every audit row of one object and of the causes that it had a part in, in order; ``after``: those behind a row.

    ``truncated`` says that there are more, ``next`` from where.
    """
    subject, after = _id(args, "id"), max(0, _number(args, "after", 0))
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
    told = sorted(seq for seq in wanted if seq > after)
    entries, more = answers.fitting(_told(txn, seq) for seq in told[:STORY_ROWS_MAX])
    truncated = more or len(told) > STORY_ROWS_MAX
    rest = {"next": entries[-1]["seq"]} if truncated else {}
    return {"id": subject, "entries": entries, "truncated": truncated, **rest}


def _told(txn: Txn, seq: int) -> dict[str, Any]:
    row = txn.get(AUDIT, (seq,))
    assert row is not None
    return {
        "seq": row.seq,
        "at": to_rfc3339(row.at_ms),
        "actor": row.actor,
        "kind": row.kind,
        "subjects": list(row.subjects),
        "cause": row.cause,
        "detail": row.detail,
    }


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
    """Rows behind ``after``; the last of them and ``head`` say whether there are more."""
    after, limit = max(0, _number(args, "after", 0)), _limit(args, AUDIT_PAGE_ROWS_MAX)
    found = (audit.public(row) for _, row in txn.scan(AUDIT, after=(after,)))
    rows, _ = answers.fitting(itertools.islice(found, limit))
    return {
        "rows": rows,
        "head": {"seq": ctx.meta.audit_seq, "hash": ctx.meta.audit_hash or audit.NO_HASH},
        "anchor": {"seq": ctx.meta.audit_anchor_seq, "hash": ctx.meta.audit_anchor_hash or audit.NO_HASH},
    }


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
    """The newest page first, the oldest first within it; of one conversation, if it is named."""
    wanted = args.get("conversation_id")
    scan = txn.scan(ARTIFACTS, after=answers.after(args, str), reverse=True)
    rows = ((key, artifacts.public(row)) for key, row in scan if wanted in (None, row.conversation_id))
    page = answers.paged("artifacts", rows, _limit(args))
    page["artifacts"].reverse()
    return page


def _agents(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """By id; ``next`` goes on."""
    scan = txn.scan(AGENTS, after=answers.after(args, str))
    return answers.paged("agents", ((key, views.agent_view(row)) for key, row in scan))


def _notifications(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """The newest, the oldest of them first; ``truncated`` if there are more: dismissing some shows the others."""
    rows, more = answers.fitting(reversed(capabilities.notifications(txn)))
    return {"notifications": rows[::-1], "truncated": more}


def _grants(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    """Few for each MiniApp, and MiniApps are few; ``truncated`` if they were not."""
    rows, more = answers.fitting(capabilities.grants(txn))
    return {"grants": rows, "truncated": more}


def _timeline(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    before = max(0, _number(args, "before", limits.INTEGER_ABS_MAX))
    return history.timeline(txn, _id(args, "conversation_id"), before, _limit(args))


def _session(txn: Txn, ctx: Ctx, args: dict[str, Any]) -> dict[str, Any]:
    return history.session(ctx, _id(args, "session_id"), answers.after(args, int))


_QUERIES: dict[str, Callable[[Txn, Ctx, dict[str, Any]], Any]] = {
    "status": overview.status,
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
    "snapshot": overview.snapshot,
    "timeline": _timeline,
    "session": _session,
    "surface": _surface,
    "artifact": _artifact,
    "artifacts": _artifacts,
    "grants": _grants,
    "agents": _agents,
    "notifications": _notifications,
}
