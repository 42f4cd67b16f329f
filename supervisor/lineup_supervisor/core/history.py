"""What was: pages of a conversation's timeline and of one app session, with what their entries refer to. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import answers, calls, interactions, operations, views
from lineup_supervisor.core.answers import PAGE_ROWS_MAX, Room, Spare, cursor
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    CALLS,
    INSTANCES,
    INTERACTIONS,
    SESSION_ENTRIES,
    SESSIONS,
    SNAPSHOTS,
    TIMELINE,
    Entry,
)
from lineup_supervisor.core.txn import Key, Txn


def timeline(txn: Txn, conversation_id: str, before: int, limit: int) -> dict[str, Any]:
    """One page of a conversation, newest first from ``before``, with what its entries refer to.

    ``more``: there are older ones, before the first entry.
    """
    after: Key = (conversation_id, before)
    entries = (row for _, row in txn.scan(TIMELINE, (conversation_id,), after=after, reverse=True))
    page, more = _page_of(txn, entries, limit)
    page["entries"].reverse()
    return page | {"more": more}


def session(ctx: Ctx, session_id: str, after: Key | None) -> dict[str, Any]:
    """One app session with its entries: the read-only history after its end.

    ``next``: there are more entries. Of the operations the newest are shown, ``truncated`` if those are not all; pages
    that go on have neither them nor the saved state.
    """
    txn, session = ctx.txn, ctx.get(SESSIONS, (session_id,))
    if session is None:
        raise LineUpError("not_found", f"no app session {session_id}")
    behind = None if after is None else (session.session_id, *after)
    keys = txn.scan(SESSION_ENTRIES, (session.session_id,), after=behind)
    entries = (row for key, _ in keys if (row := txn.get(TIMELINE, (session.conversation_id, key[1]))) is not None)
    page, more = _page_of(txn, entries, PAGE_ROWS_MAX)
    instance = txn.get(INSTANCES, (session.instance_id,))
    snapshot = txn.get(SNAPSHOTS, (session.instance_id,)) if after is None else None
    ran: tuple[list[dict[str, Any]], bool] = ([], False)
    if after is None:
        ran = answers.fitting(
            operations.public(row) for row in reversed(operations.of_instance(ctx, session.instance_id))
        )
    return {
        "session": views.session_view(session),
        "instance": views.instance_view(instance) if instance is not None else None,
        "snapshot": views.snapshot_view(snapshot) if snapshot is not None else None,
        "operations": ran[0][::-1],
        "truncated": ["operations"] if ran[1] else [],
        **page,
        **({"next": cursor((page["entries"][-1]["n"],))} if more else {}),
    }


def _page_of(txn: Txn, rows: Iterable[Entry], limit: int) -> tuple[dict[str, Any], bool]:
    """As many entries as there is room for with the interactions, sessions and calls that they point at, and whether
    there are more. What is large of those is cut when there is much of it."""
    page: dict[str, list[dict[str, Any]]] = {"entries": [], "interactions": [], "sessions": [], "calls": []}
    room, spare, seen = Room(), Spare(), set[str]()
    for row in rows:
        referred = _referred(txn, row, spare) if row.ref and row.ref not in seen else None
        entry = views.entry_view(row)
        if len(page["entries"]) >= limit or not room.take(entry, *(referred[1:] if referred else ())):
            return page, True
        page["entries"].append(entry)
        if referred:
            seen.add(row.ref)
            page[referred[0]].append(referred[1])
    return page, False


def _referred(txn: Txn, row: Entry, spare: Spare) -> tuple[str, dict[str, Any]] | None:
    """What a timeline entry points at, and the list that it belongs to."""
    if row.kind == "interaction" and (question := txn.get(INTERACTIONS, (row.ref,))):
        asked = interactions.public(question)
        return "interactions", spare.whole_or(asked, answers.short_interaction(asked))
    if row.kind in ("session", "continue") and (session := txn.get(SESSIONS, (row.ref,))):
        return "sessions", views.session_view(session)
    if row.kind == "call" and row.action_id and (call := txn.get(CALLS, (row.action_id, row.ref))):
        record = calls.record(call)
        return "calls", spare.whole_or(record, answers.short_call(record))
    return None
