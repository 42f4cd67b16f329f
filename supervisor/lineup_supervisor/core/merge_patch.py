"""JSON Merge Patch (RFC 7386) on states that are kept in parts, so that a patch costs what it touches and not what
the state weighs, and no state is more rows than its bytes are worth.

Owns the rows of ``SURFACE_PARTS``. The root object, and every larger object below it, is a row that only counts; its
members lie beside one another in rows of their own: small ones together, in the order of their keys, a larger object
alone and split in turn. Knows nothing of surfaces, revisions or caps. A change is planned first, by reads alone;
nothing is written before ``commit``.

Laws:
    1. ``load`` after ``patch`` equals ``merge`` of the RFC on what ``load`` gave before.
    2. A patch is refused if and only if the whole state after it breaks the schema.
    3. ``bytes`` (of its JSON, numbers as they were given), ``nodes`` and ``rows`` of the root are those of the whole
       state, always.
    4. Members lie in the last row of their object whose key is not beyond theirs.
    5. An object has at most ``SPARE_ROWS`` rows for its members and ``ROWS_PER_PART`` more for each
       ``SURFACE_PART_BYTES`` that it has; what deleting has torn is laid together again.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection
from operator import itemgetter
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.pointers import pointer
from lineup_protocol.schema import first_fault
from lineup_protocol.shapes import shape
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import SURFACE_PARTS, SurfacePart
from lineup_supervisor.core.txn import Key, Txn

replace = msgspec.structs.replace
Schema = dict[str, Any] | None

SPARE_ROWS = 8
ROWS_PER_PART = 6  # as many as laying out can make at worst: larger objects of half a part between single small members
LAID_OUT_MAX = 64  # rows that one change divides, as each of their members has to be looked at for that
MANY = 8  # from this part of a row's members on it is cheaper to count all of them than those that change
LARGE_PARTS = 4  # a row of so many times a part's size is divided at once; there are never many
_PLAIN_NAME_LENGTH_MAX = (
    40  # with LEVELS_MAX of them and an id of 128 characters a key stays below the store's 511 bytes
)
_CONTAINERS = (dict, list)
_PAST = "\x01"  # behind a component: beyond it and all below it, before any other

_first = itemgetter(0)
_measured = msgspec.json.Encoder().encode
_packed = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder().decode


def merge(target: Any, patch: Any) -> Any:
    """What the RFC's ``MergePatch(Target, Patch)`` gives; neither argument is changed, untouched parts are shared."""
    if not isinstance(patch, dict):
        return patch
    if not patch:
        return target if isinstance(target, dict) else {}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def part_key(name: str) -> str:
    """A member's name as one component of a key: itself if that is safe and short, else a digest of it."""
    if len(name) <= _PLAIN_NAME_LENGTH_MAX and name.isascii() and name.isprintable():
        return "=" + name
    return "#" + hashlib.sha256(name.encode()).hexdigest()[:_PLAIN_NAME_LENGTH_MAX]


def load(txn: Txn, state_id: str) -> dict[str, Any]:
    """The whole state. The order of members is not kept, as JSON has none."""
    root_of(txn, state_id)
    return _load(txn, (state_id,))


def _load(txn: Txn, key: Key) -> dict[str, Any]:
    """The whole of one split object. Rows are never handed out: whoever gets a state may change it."""
    whole: dict[str, Any] = {}
    parents = [whole]  # by depth: the object that the row of a key of this length goes into
    for below, part in txn.scan(SURFACE_PARTS, key, after=key):
        del parents[len(below) - len(key) :]
        if part.split:
            value: dict[str, Any] = {}
            parents[-1][part.name] = value
            parents.append(value)
        else:
            parents[-1].update(_copy(part.value))
    return whole


def _copy(members: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(value, _CONTAINERS) for value in members.values()):
        copied: dict[str, Any] = _unpacked(_packed(members))
        return copied
    return members


def root_of(txn: Txn, state_id: str) -> SurfacePart:
    """The root's row: how much the whole state is."""
    root = txn.get(SURFACE_PARTS, (state_id,))
    assert root is not None, f"the state of {state_id} is missing"
    return root


def drop(ctx: Ctx, state_id: str, room: int) -> tuple[int, bool]:
    """Delete up to ``room`` rows of a state that nobody reads again: how many, and whether that was the last one."""
    for dropped in range(room):
        key = ctx.txn.first(SURFACE_PARTS, (state_id,))
        if key is None:
            return dropped, True
        ctx.delete(SURFACE_PARTS, key)
    return max(0, room), ctx.txn.first(SURFACE_PARTS, (state_id,)) is None


def laid_out(state_id: str, state: dict[str, Any]) -> dict[Key, SurfacePart]:
    """The rows of a whole state."""
    writes: _Writes = {}
    _split((state_id,), "", state, writes)
    return {key: part for key, part in writes.items() if part is not None}


_Item = tuple[str, str, Any]  # the key, name and value of one member
_Writes = dict[Key, SurfacePart | None]
_Rows = dict[str, SurfacePart]  # the rows of one object's members, by the last component of their keys


class Change:
    """A planned change of one state. ``before`` and ``root`` are the root's row before and after it."""

    def __init__(self, txn: Txn, state_id: str) -> None:
        self._txn = txn
        self._key: Key = (state_id,)
        self._writes: _Writes = {}
        self._laid_out = 0
        self._touched = 0
        self.before = self.root = SurfacePart(split=True, bytes=2, nodes=1, rows=1)

    @classmethod
    def create(cls, txn: Txn, state_id: str, state: dict[str, Any], schema: Schema) -> Change:
        """Plan a new state.

        Raises:
            LineUpError: ``state_invalid`` with ``{path, rule}``, ``state_too_large``.
        """
        change = cls(txn, state_id)
        _check(schema, state, "")
        change.root = _split(change._key, "", state, change._writes)
        return change

    @classmethod
    def patch(cls, txn: Txn, state_id: str, patch: dict[str, Any], schema: Schema) -> Change:
        """Plan a merge patch of an existing state.

        Raises:
            LineUpError: ``state_invalid`` with ``{path, rule}``, ``state_too_large``, ``message_invalid``.
        """
        change = cls(txn, state_id)
        change.before = root_of(txn, state_id)
        change.root = change._merge(change._key, change.before, patch, schema, "", change._writes)
        return change

    def commit(self, ctx: Ctx) -> None:
        """Write what was planned."""
        for key, part in self._writes.items():
            if part is None:
                ctx.delete(SURFACE_PARTS, key)
            else:
                ctx.put(SURFACE_PARTS, key, part)

    def _merge(
        self, key: Key, part: SurfacePart, patch: dict[str, Any], schema: Schema, path: str, writes: _Writes
    ) -> SurfacePart:
        """Merge into a split object; returns its new row. ``writes`` takes what has to be written for that."""
        was: _Rows = {}
        now: _Rows = {}
        todo = _keyed(patch)
        at = 0
        while at < len(todo):
            self._touch()
            component, row = self._place_of(key, todo[at][0])
            if row is not None:
                was[component] = row
            if row is not None and row.split:
                name = todo[at][1]
                assert row.name == name, f"two names share the key {(*key, component)}"
                self._merge_larger((*key, component), row, patch[name], schema, path, now, writes)
                at += 1
                continue
            first = min(component, todo[at][0])
            end = self._next(key, component)
            to = len(todo) if end is None else bisect_left(todo, (end, ""), at)
            some = patch if to - at == len(patch) else {name: patch[name] for _, name in todo[at:to]}
            members, nodes = _merged(row, some, schema, path)
            at = to
            if (
                len(members) > limits.SURFACE_PART_BYTES
            ):  # each of them takes some bytes: far too many, without counting
                _lay(key, _items(members), now, writes)
                continue
            row = _row_of(members, nodes)
            if row.bytes > limits.SURFACE_PART_BYTES and self._may_lay_out(row.bytes):
                _lay(key, _items(members), now, writes)
            elif members:
                now[first] = row
        after = _counted(part, was, now)
        if after.direct > SPARE_ROWS + ROWS_PER_PART * after.bytes // max(1, limits.SURFACE_PART_BYTES):
            self._lay_together(key, was, now, writes)
            after = _counted(part, was, now)
        if after.count > limits.MAP_LENGTH_MAX:
            raise LineUpError("state_too_large", f"{path or '/'}: at most {limits.MAP_LENGTH_MAX} members")
        _write(writes, key, after, was, now)
        return after

    def _merge_larger(
        self, key: Key, part: SurfacePart, value: Any, schema: Schema, path: str, now: _Rows, writes: _Writes
    ) -> None:
        """Merge into a member that is a split object; one that has become small is split no more."""
        name, component = part.name, str(key[-1])
        place = pointer(path, name)
        if value is None:
            _check_may_go(schema, name, path)
            self._remove_below(key, writes)
            return
        inner = _inner(schema, name, place)
        if isinstance(value, dict):
            below: _Writes = {}
            after = self._merge(key, part, value, inner, place, below)
            if after.bytes > limits.SURFACE_PART_BYTES // 2:
                now[component] = after
                writes.update(below)
                return
            value = merge(_load(self._txn, key), value)
        else:
            _check(inner, value, place)
        self._remove_below(key, writes)
        _lay(key[:-1], [(component, name, value)], now, writes)

    def _place_of(self, key: Key, component: str) -> tuple[str, SurfacePart | None]:
        """The row of the object ``key`` that a member belongs to, with the last component of its key; no row if it has
        to get one of its own.
        """
        found = self._txn.first(SURFACE_PARTS, key, after=(*key, component + _PAST), reverse=True)
        if found is not None and len(found) > len(key):
            before = str(found[len(key)])
            row = self._row(key, before)
            if not row.split or before == component:
                return before, row
        after = self._next(key, component)
        if after is not None and not (row := self._row(key, after)).split:
            return after, row
        return component, None

    def _next(self, key: Key, component: str) -> str | None:
        """The last component of the key of the object's next row beyond ``component``."""
        found = self._txn.first(SURFACE_PARTS, key, after=(*key, component + _PAST))
        return None if found is None else str(found[len(key)])

    def _touch(self) -> None:
        """One row more is read and written for this change."""
        self._touched += 1
        if self._touched > limits.SURFACE_PARTS_PER_PATCH_MAX:
            rule = (
                f"must not change more than {limits.SURFACE_PARTS_PER_PATCH_MAX} parts of the state; say it in several"
            )
            raise LineUpError("message_invalid", f"/patch: {rule}", detail={"path": "/patch", "rule": rule})

    def _may_lay_out(self, size: int) -> bool:
        """True for some of many rows that have become too large in one change: the others are next time."""
        self._laid_out += 1
        return self._laid_out <= LAID_OUT_MAX or size > LARGE_PARTS * limits.SURFACE_PART_BYTES

    def _row(self, key: Key, component: str) -> SurfacePart:
        row = self._txn.get(SURFACE_PARTS, (*key, component))
        assert row is not None, f"there is no row {(*key, component)}, but rows below it"
        return row

    def _lay_together(self, key: Key, was: _Rows, now: _Rows, writes: _Writes) -> None:
        """Lay all small members of an object out anew."""
        kept: _Rows = {}
        found = self._next(key, "")
        while found is not None:
            if found not in was:
                kept[found] = self._row(key, found)
            found = self._next(key, found)
        items: list[_Item] = []
        for component, row in sorted((kept | now).items()):
            if row.split:
                _lay(key, items, now, writes)
                items = []
                continue
            items += _items(row.value)
            if component in kept:
                was[component] = row
            else:
                del now[component]
        _lay(key, items, now, writes)

    def _remove_below(self, key: Key, writes: _Writes) -> None:
        below = self._txn.first(SURFACE_PARTS, key, after=key)
        while below is not None:  # their keys alone: what is in them has no say
            writes[below] = None
            below = self._txn.first(SURFACE_PARTS, key, after=below)


def _split(key: Key, name: str, value: dict[str, Any], writes: _Writes) -> SurfacePart:
    """Plan an object whose members are kept in rows of their own; returns its row."""
    now: _Rows = {}
    _lay(key, _items(value), now, writes)
    part = _counted(SurfacePart(name=name, split=True, bytes=2, nodes=1, rows=1), {}, now)
    _write(writes, key, part, {}, now)
    return part


def _lay(key: Key, items: list[_Item], now: _Rows, writes: _Writes) -> None:
    """Plan the rows of members that lie beside one another: about equally full, and no more than it takes."""
    values, names = map(itemgetter(2), items), map(itemgetter(1), items)
    sizes = [value + name + 4 for value, name in zip(map(len, map(_measured, values)), map(len, names), strict=True)]
    most, total = limits.SURFACE_PART_BYTES, sum(sizes)
    enough = total / max(1, -(-total // max(1, most)))
    begin, size = 0, 0
    for at, more in enumerate(sizes):
        if at > begin and (size >= enough or size + more > most):
            _lay_one(key, items[begin:at], now, writes)
            begin, size = at, 0
        size += more
    if items:
        _lay_one(key, items[begin:], now, writes)


def _lay_one(key: Key, items: list[_Item], now: _Rows, writes: _Writes) -> None:
    component, name, value = items[0]
    if len(items) == 1 and isinstance(value, dict):
        if len(key) < limits.SURFACE_PART_LEVELS_MAX:
            if len(_measured(value)) > limits.SURFACE_PART_BYTES:
                now[component] = _split((*key, component), name, value, writes)
                return
        elif shape(value)[0] > limits.MAP_LENGTH_MAX:
            rule = f"an object {len(key)} levels deep may have {limits.MAP_LENGTH_MAX} values and keys"
            raise LineUpError("state_too_large", f"/{name}: {rule}", detail={"path": f"/{name}", "rule": rule})
    now[component] = _row_of({name: value for _, name, value in items})


def _row_of(members: dict[str, Any], nodes: int | None = None) -> SurfacePart:
    if nodes is None:
        nodes = shape(members)[0]
    return SurfacePart(value=members, count=len(members), bytes=len(_measured(members)), nodes=nodes, rows=1)


def _items(members: dict[str, Any]) -> list[_Item]:
    if _are_plain(members):
        return [("=" + name, name, value) for name, value in sorted(members.items(), key=_first)]
    return [(component, name, members[name]) for component, name in _keyed(members)]


def _keyed(names: Collection[str]) -> list[tuple[str, str]]:
    """Names with their keys, in the order of these."""
    if _are_plain(names):
        return [("=" + name, name) for name in sorted(names)]
    return sorted((part_key(name), name) for name in names)


def _are_plain(names: Collection[str]) -> bool:
    """Whether each of them is its own key."""
    whole = "".join(names)
    return whole.isascii() and whole.isprintable() and max(map(len, names), default=0) <= _PLAIN_NAME_LENGTH_MAX


def _merged(
    row: SurfacePart | None, patch: dict[str, Any], schema: Schema, path: str
) -> tuple[dict[str, Any], int | None]:
    """The members of a row, merged with a patch of some of them, and the row's nodes if they were counted."""
    members = dict(row.value) if row is not None else {}
    if row is None or len(patch) * MANY > len(members):
        _set(members, patch, schema, path)
        return members, None
    was = shape({name: members[name] for name in patch if name in members})[0]
    _set(members, patch, schema, path)
    now = shape({name: members[name] for name in patch if name in members})[0]
    return members, row.nodes - was + now


def _set(members: dict[str, Any], patch: dict[str, Any], schema: Schema, path: str) -> None:
    for name, value in patch.items():
        if value is None:
            if name in members:
                _check_may_go(schema, name, path)
                del members[name]
            continue
        merged = merge(members.get(name), value) if isinstance(value, dict) else value
        if schema is not None:
            place = pointer(path, name)
            _check(_inner(schema, name, place), merged, place)
        members[name] = merged


def _write(writes: _Writes, key: Key, part: SurfacePart, was: _Rows, now: _Rows) -> None:
    for component in was:
        writes[*key, component] = None
    for component, row in now.items():
        writes[*key, component] = row
    writes[key] = part


def _counted(part: SurfacePart, was: _Rows, now: _Rows) -> SurfacePart:
    """The row of a split object when ``was`` has gone from the rows of its members and ``now`` has come."""
    inside = part.bytes - 2 - max(0, part.count - 1)
    nodes, count, rows, direct = part.nodes, part.count, part.rows, part.direct
    for sign, changed in ((-1, was), (1, now)):
        direct += sign * len(changed)
        for row in changed.values():
            members = 1 if row.split else row.count
            own = len(_measured(row.name)) + 1 + row.bytes if row.split else row.bytes - 2 - max(0, members - 1)
            inside += sign * own
            nodes += sign * (row.nodes + 1 if row.split else row.nodes - 1)
            count += sign * members
            rows += sign * row.rows
    size = 2 + inside + max(0, count - 1)
    return replace(part, bytes=size, nodes=nodes, count=count, rows=rows, direct=direct)


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


def _check_may_go(schema: Schema, name: str, path: str) -> None:
    if schema is not None and name in schema.get("required", ()):
        raise _invalid(pointer(path, name), "is required")


def _check(schema: Schema, value: Any, path: str) -> None:
    if schema is not None and (fault := first_fault(schema, value, path)) is not None:
        raise _invalid(fault.path, fault.rule)


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("state_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
