"""How a store of an older version is brought up to date, step by step, while it is opened.

This file owns what older rows looked like; whoever works with rows knows only those of today.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_supervisor.core import merge_patch, retention
from lineup_supervisor.core.schema import (
    CALLS,
    CONVERSATIONS,
    INSTANCES,
    INTERACTIONS,
    META,
    OVER,
    RETIRED,
    SNAPSHOTS,
    SURFACE_PARTS,
    SURFACES,
    Over,
    Retired,
)
from lineup_supervisor.core.txn import Key, Table
from lineup_supervisor.edges.store import Migration, RawTxn


def lay_states_out(txn: RawTxn) -> None:
    """Version 1 kept each member of a larger object in a row of its own, of which a state might have a hundred
    thousand.
    """
    for state_id in sorted({str(key[0]) for key, _ in txn.scan(SURFACE_PARTS.name)}):
        state: dict[str, Any] = {}
        parents = [state]  # by depth: the object that the row of a key of this length goes into
        for key, row in list(txn.scan(SURFACE_PARTS.name, (state_id,))):
            txn.delete(SURFACE_PARTS.name, key)
            if len(key) == 1:
                continue
            del parents[len(key) - 1 :]
            value: Any = {} if row.get("split") else row.get("value")
            parents[-1][row.get("name", "")] = value
            if row.get("split"):
                parents.append(value)
        for key, part in merge_patch.laid_out(state_id, state).items():
            txn.put(SURFACE_PARTS.name, key, msgspec.to_builtins(part))


_RETIRED_FROM: dict[str, Table[Any]] = {
    retention.CALL: CALLS,
    retention.INTERACTION: INTERACTIONS,
    retention.INSTANCE: INSTANCES,
    retention.SURFACE: SURFACES,
}


def give_what_is_over_to_owners(txn: RawTxn) -> None:
    """Version 1 had one queue for everybody, and counted no bytes."""
    agents = {str(key[0]): row["agent_id"] for key, row in txn.scan(CONVERSATIONS.name)}
    over: dict[tuple[str, str], Over] = {}
    for key, _ in list(txn.scan(RETIRED.name)):
        kind, since_ms, *ref = key
        txn.delete(RETIRED.name, key)
        owner, size = _owner_and_size(txn, agents, str(kind), tuple(ref))
        txn.put(RETIRED.name, (kind, owner, since_ms, *ref), msgspec.to_builtins(Retired(bytes=size)))
        had = over.get((str(kind), owner), Over())
        over[str(kind), owner] = Over(rows=had.rows + 1, bytes=had.bytes + size)
    for (kind, owner), row in over.items():
        txn.put(OVER.name, (kind, owner), msgspec.to_builtins(row))
    for key, meta in list(txn.scan(META.name)):
        sizes = {f"{kind}s_over_bytes": 0 for kind, _ in over}
        for (kind, _), row in over.items():
            sizes[f"{kind}s_over_bytes"] += row.bytes
        txn.put(META.name, key, meta | sizes)


def _owner_and_size(txn: RawTxn, agents: dict[str, str], kind: str, ref: Key) -> tuple[str, int]:
    """What ``core.retention`` says of it."""
    row = _row(txn, _RETIRED_FROM[kind], ref) or {}
    if kind == retention.CALL:
        return str(ref[0]), len(msgspec.msgpack.encode(row))
    owner = f"{agents.get(row.get('conversation_id', ''), '')} {row.get('app_scope', '')}"
    if kind == retention.INTERACTION:
        return owner, len(msgspec.msgpack.encode(row))
    saved = _row(txn, SNAPSHOTS, ref) if kind == retention.INSTANCE else None
    return owner, saved["bytes"] if saved else 0


def _row(txn: RawTxn, table: Table[Any], key: Key) -> dict[str, Any] | None:
    return next((row for found, row in txn.scan(table.name, key) if found == key), None)


def from_version_1(txn: RawTxn) -> None:
    lay_states_out(txn)
    give_what_is_over_to_owners(txn)


MIGRATIONS = (Migration(1, from_version_1),)
