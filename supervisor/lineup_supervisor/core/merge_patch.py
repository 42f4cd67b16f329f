"""JSON Merge Patch (RFC 7386) on states that are kept in parts, so that a patch costs what it touches and not what
the state weighs.

Owns the rows of ``SURFACE_PARTS``: the root object, and every larger object below it, is a row that only counts its
members; each member is a row of its own. Knows nothing of surfaces, revisions or caps. A change is planned first, by
reads alone; nothing is written before ``commit``.

Laws:
    1. ``load`` after ``patch`` equals ``merge`` of the RFC on what ``load`` gave before.
    2. A patch is refused if and only if the whole state after it breaks the schema.
    3. ``bytes`` and ``nodes`` of the root are those of the whole state, always.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.pointers import pointer
from lineup_protocol.schema import first_fault
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import SURFACE_PARTS, SurfacePart
from lineup_supervisor.core.txn import Key, Txn

replace = msgspec.structs.replace
Schema = dict[str, Any] | None

_PLAIN_NAME_LENGTH_MAX = (
    40  # with LEVELS_MAX of them and an id of 128 characters a key stays below the store's 511 bytes
)


def merge(target: Any, patch: Any) -> Any:
    """What the RFC's ``MergePatch(Target, Patch)`` gives; neither argument is changed, untouched parts are shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def shape(value: Any) -> tuple[int, int]:
    """How many values and keys are in ``value``, itself included, and how many containers stand inside one another."""
    nodes, depth, level = 1, 0, [value] if isinstance(value, dict | list) else []
    while level:
        depth += 1
        below: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            nodes += len(items) if items is container else 2 * len(items)
            below.extend(item for item in items if isinstance(item, dict | list))
        level = below
    return nodes, depth


def part_key(name: str) -> str:
    """A member's name as one component of a key: itself if that is safe and short, else a digest of it."""
    if len(name) <= _PLAIN_NAME_LENGTH_MAX and name.isascii() and "\0" not in name:
        return "=" + name
    return "#" + hashlib.sha256(name.encode()).hexdigest()[:_PLAIN_NAME_LENGTH_MAX]


def load(txn: Txn, state_id: str) -> dict[str, Any]:
    """The whole state. The order of members is not kept, as JSON has none."""
    root = txn.get(SURFACE_PARTS, (state_id,))
    assert root is not None, f"the state of {state_id} is missing"
    state: dict[str, Any] = {}
    parents = [state]  # by depth: the object that a key of this length goes into
    for key, part in txn.scan(SURFACE_PARTS, (state_id,), after=(state_id,)):
        depth = len(key) - 1
        del parents[depth:]
        value = {} if part.split else _copy(part.value)
        parents[-1][part.name] = value
        if part.split:
            parents.append(value)
    return state


def _copy(value: Any) -> Any:
    """Rows are never handed out: whoever gets a state may change it."""
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def root_of(txn: Txn, state_id: str) -> SurfacePart:
    """The root's row: how much the whole state is."""
    root = txn.get(SURFACE_PARTS, (state_id,))
    assert root is not None, f"the state of {state_id} is missing"
    return root


class Change:
    """A planned change of one state. ``root`` is the root's row after it."""

    def __init__(self, txn: Txn, state_id: str, schema: Schema) -> None:
        self._txn = txn
        self._key: Key = (state_id,)
        self._schema = schema
        self._writes: dict[Key, SurfacePart | None] = {}
        self.root = SurfacePart(split=True, bytes=2, nodes=1)

    @classmethod
    def create(cls, txn: Txn, state_id: str, state: dict[str, Any], schema: Schema) -> Change:
        """Plan a new state.

        Raises:
            LineUpError: ``state_invalid`` with ``{path, rule}``.
        """
        change = cls(txn, state_id, schema)
        _check(schema, state, "")
        change.root = change._place(change._key, "", state)
        return change

    @classmethod
    def patch(cls, txn: Txn, state_id: str, patch: dict[str, Any], schema: Schema) -> Change:
        """Plan a merge patch of an existing state.

        Raises:
            LineUpError: ``state_invalid`` with ``{path, rule}``, ``state_too_large``.
        """
        change = cls(txn, state_id, schema)
        change.root = change._merge(change._key, root_of(txn, state_id), patch, schema, "")
        return change

    @classmethod
    def drop(cls, txn: Txn, state_id: str) -> Change:
        """Plan the end of a state."""
        change = cls(txn, state_id, None)
        change._remove(change._key, root_of(txn, state_id))
        return change

    def commit(self, ctx: Ctx) -> None:
        """Write what was planned."""
        for key, part in self._writes.items():
            if part is None:
                ctx.delete(SURFACE_PARTS, key)
            else:
                ctx.put(SURFACE_PARTS, key, part)

    def _merge(self, key: Key, part: SurfacePart, patch: dict[str, Any], schema: Schema, path: str) -> SurfacePart:
        """Merge into a split object; returns its new row."""
        inside, nodes, count = _inside(part), part.nodes, part.count
        for name, value in patch.items():
            child_key, place = (*key, part_key(name)), pointer(path, name)
            before = self._txn.get(SURFACE_PARTS, child_key)
            assert before is None or before.name == name, f"two names share the key {child_key}"
            if value is None:
                if before is None:
                    continue
                if schema is not None and name in schema.get("required", ()):
                    raise _invalid(place, "is required")
                self._remove(child_key, before)
                after = None
            else:
                after = self._member(child_key, name, before, value, _inner(schema, name, place), place)
            inside += _weight(name, after) - _weight(name, before)
            nodes += _nodes(after) - _nodes(before)
            count += (after is not None) - (before is not None)
        if count > limits.MAP_LENGTH_MAX:
            raise LineUpError("state_too_large", f"{path or '/'}: at most {limits.MAP_LENGTH_MAX} members")
        part = replace(part, count=count, nodes=nodes, bytes=2 + inside + max(0, count - 1))
        self._writes[key] = part
        return part

    def _member(
        self, key: Key, name: str, before: SurfacePart | None, value: Any, schema: Schema, path: str
    ) -> SurfacePart:
        if before is not None and before.split and isinstance(value, dict):
            return self._merge(key, before, value, schema, path)
        merged = merge(before.value if before is not None else None, value)
        _check(schema, merged, path)
        if before is not None and before.split:
            self._remove(key, before)
        return self._place(key, name, merged)

    def _place(self, key: Key, name: str, value: Any) -> SurfacePart:
        """Plan the rows of a new value; returns the first of them."""
        level = len(key) - 1
        if level == 0:
            return self._split(key, name, value)
        size = len(canonical_json(value))
        if isinstance(value, dict) and size > limits.SURFACE_PART_BYTES and level < limits.SURFACE_PART_LEVELS_MAX:
            return self._split(key, name, value)
        part = SurfacePart(name=name, value=value, bytes=size, nodes=shape(value)[0])
        if level >= limits.SURFACE_PART_LEVELS_MAX and isinstance(value, dict) and part.nodes > limits.MAP_LENGTH_MAX:
            rule = f"an object {level} levels deep may have {limits.MAP_LENGTH_MAX} values and keys"
            raise LineUpError("state_too_large", f"/{name}: {rule}", detail={"path": f"/{name}", "rule": rule})
        self._writes[key] = part
        return part

    def _split(self, key: Key, name: str, value: dict[str, Any]) -> SurfacePart:
        """Plan an object whose members are rows of their own."""
        inside, nodes = 0, 1
        for child, item in value.items():
            part = self._place((*key, part_key(child)), child, item)
            inside, nodes = inside + _weight(child, part), nodes + _nodes(part)
        size = 2 + inside + max(0, len(value) - 1)
        whole = SurfacePart(name=name, split=True, count=len(value), bytes=size, nodes=nodes)
        self._writes[key] = whole
        return whole

    def _remove(self, key: Key, part: SurfacePart) -> None:
        self._writes[key] = None
        if part.split:
            for below, _ in self._txn.scan(SURFACE_PARTS, key, after=key):
                self._writes[below] = None


def _inside(part: SurfacePart) -> int:
    """Bytes of a split object's members without braces and commas."""
    return part.bytes - 2 - max(0, part.count - 1)


def _weight(name: str, part: SurfacePart | None) -> int:
    return 0 if part is None else len(canonical_json(name)) + 1 + part.bytes


def _nodes(part: SurfacePart | None) -> int:
    return 0 if part is None else 1 + part.nodes


def _inner(schema: Schema, name: str, path: str) -> Schema:
    """The schema of one member of an object that satisfies ``schema``."""
    if schema is None:
        return None
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    if name in properties:
        return properties[name]
    if "additionalProperties" in schema:
        raise _invalid(path, "is not allowed here")
    return None


def _check(schema: Schema, value: Any, path: str) -> None:
    if schema is not None and (fault := first_fault(schema, value, path)) is not None:
        raise _invalid(fault.path, fault.rule)


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("state_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
