"""How people see rows: the public form of each projected table. Derived, never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import msgspec

from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import apps, artifacts, calls, capabilities, interactions, operations, surfaces
from lineup_supervisor.core.schema import (
    AGENTS,
    APPS,
    ARTIFACTS,
    CALLS,
    CONVERSATIONS,
    GRANTS,
    INSTANCES,
    INTERACTIONS,
    NOTIFICATIONS,
    OPERATIONS,
    SESSIONS,
    SNAPSHOTS,
    SURFACES,
    TIMELINE,
    WORKERS,
    Agent,
    Conversation,
    Entry,
    Instance,
    Session,
    Snapshot,
    Worker,
)
from lineup_supervisor.core.txn import Key, Table


class Changes(Sequence[dict[str, Any]]):
    """The changes of one event in their public form, made at the first look. Rows never change, so a late look sees
    what an early one would have.
    """

    def __init__(self, rows: Mapping[tuple[Table[Any], Key], Any], more: Sequence[dict[str, Any]]) -> None:
        self._rows = rows
        self._more = more
        self._made: list[dict[str, Any]] | None = None

    def _all(self) -> list[dict[str, Any]]:
        if self._made is None:
            self._made = [change(table, key, row) for (table, key), row in self._rows.items()] + list(self._more)
        return self._made

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._all()[at]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._rows) + len(self._more)

    def __repr__(self) -> str:
        return repr(tuple(self._all()))


def change(table: Table[Any], key: Key, row: Any) -> dict[str, Any]:
    """One change of a ``host.delta``: ``{kind, id, row}``; ``row`` is null when it is gone."""
    assert table.projected is not None
    return {"kind": table.projected, "id": "/".join(str(part) for part in key), "row": view(table, row)}


def view(table: Table[Any], row: Any) -> dict[str, Any] | None:
    return None if row is None else _VIEWS[table.name](row)


def conversation_view(row: Conversation) -> dict[str, Any]:
    return {
        "conversation_id": row.conversation_id,
        "agent_id": row.agent_id,
        "title": row.title,
        "opened_by": row.opened_by,
        "created_at": to_rfc3339(row.created_ms),
        "updated_at": to_rfc3339(row.updated_ms),
        "focus": list(row.focus),
        "chat_instance_id": row.chat_instance_id,
        "entries": row.next_entry - 1,
    }


def entry_view(row: Entry) -> dict[str, Any]:
    body: dict[str, Any] = {
        "conversation_id": row.conversation_id,
        "n": row.n,
        "kind": row.kind,
        "author": row.author,
        "at": to_rfc3339(row.at_ms),
    }
    optional = {
        "text": row.text,
        "format": row.format,
        "ref": row.ref,
        "session_id": row.session_id,
        "action_id": row.action_id,
    }
    return body | {name: value for name, value in optional.items() if value}


def instance_view(row: Instance) -> dict[str, Any]:
    body: dict[str, Any] = {
        "instance_id": row.instance_id,
        "app_scope": row.app_scope,
        "conversation_id": row.conversation_id,
        "kind": row.kind,
        "state": str(row.state),
        "incarnation": row.incarnation,
        "session_id": row.session_id,
        "digest": row.digest,
        "created_at": to_rfc3339(row.created_ms),
        "crashes": len(row.crashes),
    }
    if row.closed_ms is not None:
        body |= {"closed_at": to_rfc3339(row.closed_ms), "close_code": row.close_code, "close_reason": row.close_reason}
    return body


def worker_view(row: Worker) -> dict[str, Any]:
    return {"instance_id": row.instance_id, "incarnation": row.incarnation, "state": str(row.state), "pid": row.pid}


def session_view(row: Session) -> dict[str, Any]:
    body: dict[str, Any] = {
        "session_id": row.session_id,
        "instance_id": row.instance_id,
        "app_scope": row.app_scope,
        "conversation_id": row.conversation_id,
        "state": str(row.state),
        "title": row.title,
        "created_at": to_rfc3339(row.created_ms),
    }
    if row.ended_ms is not None:
        body |= {"ended_at": to_rfc3339(row.ended_ms), "outcome": row.outcome}
    if row.continues:
        body["continues"] = row.continues
    return body


def agent_view(row: Agent) -> dict[str, Any]:
    return {
        "agent_id": row.agent_id,
        "connected": row.link_id is not None,
        "last_hello_at": to_rfc3339(row.last_hello_ms),
        "outbox": row.next_seq - 1 - row.acked_seq,
        "in_flight": row.in_flight,
    }


def snapshot_view(row: Snapshot) -> dict[str, Any]:
    return {
        "instance_id": row.instance_id,
        "state": row.state,
        "revision": row.revision,
        "saved_at": to_rfc3339(row.saved_ms),
        "read_only": row.read_only,
    }


def plain(row: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(row)


_VIEWS: dict[str, Callable[[Any], dict[str, Any]]] = {
    AGENTS.name: agent_view,
    APPS.name: apps.public,
    ARTIFACTS.name: artifacts.public,
    CALLS.name: calls.record,
    CONVERSATIONS.name: conversation_view,
    GRANTS.name: capabilities.public,
    INSTANCES.name: instance_view,
    INTERACTIONS.name: interactions.public,
    NOTIFICATIONS.name: capabilities.notification_public,
    OPERATIONS.name: operations.public,
    SESSIONS.name: session_view,
    SNAPSHOTS.name: snapshot_view,
    SURFACES.name: surfaces.public,
    TIMELINE.name: entry_view,
    WORKERS.name: worker_view,
}
