"""How a store of an older version is brought up to date, step by step, while it is opened.

This file owns what older rows looked like; whoever works with rows knows only those of today. A row that looks like
none of its version's, or refers to one that is not there, is damage and said as BadRow; no other exception is.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
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
from lineup_supervisor.edges.store_keys import BadKey
from lineup_supervisor.edges.store_migration import BadRow, Migration, RawTxn

_S = TypeVar("_S")


class _Part(msgspec.Struct):
    """Of version 1: one member of an object, or an object whose members are rows of their own."""

    name: str = ""
    value: Any = None
    split: bool = False


class _Conversation(msgspec.Struct):
    agent_id: str


class _Owned(msgspec.Struct):
    conversation_id: str
    app_scope: str


class _Snapshot(msgspec.Struct):
    bytes: Annotated[int, msgspec.Meta(ge=0)]


def _read(table: Table[Any], key: Key, row: dict[str, Any], kind: type[_S]) -> _S:
    """What of a row matters here. Raises BadRow."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise BadRow(table.name, key, error) from error


def _write(txn: RawTxn, table: Table[Any], key: Key, row: msgspec.Struct) -> None:
    """Raises BadRow for a key that is none: its parts are those of older rows."""
    try:
        txn.put(table.name, key, msgspec.to_builtins(row))
    except BadKey as error:
        raise BadRow(table.name, key, error) from error


def lay_states_out(txn: RawTxn) -> None:
    """Version 1 kept each member of a larger object in a row of its own, of which a state might have a hundred
    thousand.
    """
    state_ids: dict[str, None] = {}
    for key, _ in txn.scan(SURFACE_PARTS.name):
        if not all(isinstance(part, str) for part in key):
            raise BadRow(SURFACE_PARTS.name, key, "its key has a number")
        state_ids[str(key[0])] = None
    for state_id in state_ids:
        state = _take_state(txn, state_id)
        try:
            parts = merge_patch.laid_out(state_id, state)
        except LineUpError as error:  # beyond what a state may ever have been
            raise BadRow(SURFACE_PARTS.name, (state_id,), error) from error
        for key, part in parts.items():
            _write(txn, SURFACE_PARTS, key, part)


def _take_state(txn: RawTxn, state_id: str) -> dict[str, Any]:
    """The whole of a state, whose rows are deleted."""
    state: dict[str, Any] = {}
    parents: list[dict[str, Any]] = []  # by depth: the object that the row of a key of this length goes into
    for key, row in list(txn.scan(SURFACE_PARTS.name, (state_id,))):
        part = _read(SURFACE_PARTS, key, row, _Part)
        txn.delete(SURFACE_PARTS.name, key)
        depth = len(key) - 1
        if len(parents) < depth or (depth == 0 and not part.split):
            raise BadRow(SURFACE_PARTS.name, key, "it belongs to no object")
        if not _is_json(part.value, limits.DEPTH_MAX - depth):
            raise BadRow(SURFACE_PARTS.name, key, "its value is no JSON")
        del parents[depth:]
        value: Any = ({} if parents else state) if part.split else part.value
        if parents:
            parents[-1][part.name] = value
        if part.split:
            parents.append(value)
    return state


def _is_json(value: Any, depth_max: int) -> bool:
    if isinstance(value, dict):
        return depth_max > 0 and all(
            isinstance(name, str) and _is_json(of, depth_max - 1) for name, of in value.items()
        )
    if isinstance(value, list):
        return depth_max > 0 and all(_is_json(of, depth_max - 1) for of in value)
    return value is None or isinstance(value, str | int | float)


_RETIRED_FROM: dict[str, tuple[Table[Any], int]] = {  # with the length of their keys
    retention.CALL: (CALLS, 2),
    retention.INTERACTION: (INTERACTIONS, 1),
    retention.INSTANCE: (INSTANCES, 1),
    retention.SURFACE: (SURFACES, 1),
}


def give_what_is_over_to_owners(txn: RawTxn) -> None:
    """Version 1 had one queue for everybody, and counted no bytes."""
    agents = {key: _read(CONVERSATIONS, key, row, _Conversation) for key, row in txn.scan(CONVERSATIONS.name)}
    over: dict[tuple[str, str], Over] = {}
    for key, _ in list(txn.scan(RETIRED.name)):
        kind, since_ms, ref = _of_queue(key)
        txn.delete(RETIRED.name, key)
        owner, size = _owner_and_size(txn, agents, kind, ref)
        _write(txn, RETIRED, (kind, owner, since_ms, *ref), Retired(bytes=size))
        had = over.get((kind, owner), Over())
        over[kind, owner] = Over(rows=had.rows + 1, bytes=had.bytes + size)
    for (kind, owner), row in over.items():
        _write(txn, OVER, (kind, owner), row)
    for key, meta in list(txn.scan(META.name)):
        sizes = {f"{kind}s_over_bytes": 0 for kind, _ in over}
        for (kind, _), row in over.items():
            sizes[f"{kind}s_over_bytes"] += row.bytes
        txn.put(META.name, key, meta | sizes)


def _of_queue(key: Key) -> tuple[str, int, tuple[str, ...]]:
    """A key of version 1: what it is, since when it is over, and its own key. Raises BadRow."""
    match key:
        case (str(kind), int(since_ms), *ref) if kind in _RETIRED_FROM and len(ref) == _RETIRED_FROM[kind][1]:
            if all(isinstance(part, str) for part in ref):
                return kind, since_ms, tuple(map(str, ref))
    raise BadRow(RETIRED.name, key, "it is none of this table")


def _owner_and_size(txn: RawTxn, agents: dict[Key, _Conversation], kind: str, ref: Key) -> tuple[str, int]:
    """What ``core.retention`` says of it. Raises BadRow."""
    table, _ = _RETIRED_FROM[kind]
    row = _row(txn, table, ref)
    if row is None:
        raise BadRow(table.name, ref, "it is gone, and retired refers to it")
    if kind == retention.CALL:
        return str(ref[0]), len(msgspec.msgpack.encode(row))
    owned = _read(table, ref, row, _Owned)
    conversation = agents.get((owned.conversation_id,))
    if conversation is None:
        raise BadRow(table.name, ref, f"its conversation {owned.conversation_id!r} is gone")
    owner = f"{conversation.agent_id} {owned.app_scope}"
    if kind == retention.INTERACTION:
        return owner, len(msgspec.msgpack.encode(row))
    saved = _row(txn, SNAPSHOTS, ref) if kind == retention.INSTANCE else None
    return owner, 0 if saved is None else _read(SNAPSHOTS, ref, saved, _Snapshot).bytes


def _row(txn: RawTxn, table: Table[Any], key: Key) -> dict[str, Any] | None:
    return next((row for found, row in txn.scan(table.name, key) if found == key), None)


def from_version_1(txn: RawTxn) -> None:
    lay_states_out(txn)
    give_what_is_over_to_owners(txn)


MIGRATIONS = (Migration(1, from_version_1),)
