"""The laws of ``core.merge_patch``, held against the RFC's own words and against a full check of the schema."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.schema import check_schema, first_fault
from lineup_protocol.shapes import shape
from lineup_supervisor.core import merge_patch
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import Now, Wake
from lineup_supervisor.core.schema import META, SURFACE_PARTS
from lineup_supervisor.edges.store_keys import encode_key
from lineup_supervisor.edges.store_memory import MemoryStore


def rfc(target: Any, patch: Any) -> Any:
    """RFC 7386 §2, word by word."""
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = rfc(target.get(name), value)
        return target
    return patch


class Kept:
    """One state in a store of its own."""

    def __init__(self, state: dict[str, Any], schema: dict[str, Any] | None = None) -> None:
        self.store = MemoryStore((META, SURFACE_PARTS), encoded=True)
        self.schema = schema
        with self.store.write() as txn:
            change = merge_patch.Change.create(txn, "f-1", state, schema)
            change.commit(Ctx(txn, Wake(event_id="e"), Now(0, 0)))

    def patch(self, patch: dict[str, Any]) -> None:
        with self.store.write() as txn:
            change = merge_patch.Change.patch(txn, "f-1", patch, self.schema)
            change.commit(Ctx(txn, Wake(event_id="e"), Now(0, 0)))

    def state(self) -> dict[str, Any]:
        with self.store.read() as txn:
            return merge_patch.load(txn, "f-1")

    def check(self, expected: dict[str, Any]) -> None:
        with self.store.read() as txn:
            state, root = merge_patch.load(txn, "f-1"), merge_patch.root_of(txn, "f-1")
        assert state == expected
        assert canonical_json(state) == canonical_json(expected)
        assert root.bytes == len(msgspec.json.encode(expected))
        assert root.nodes == shape(expected)[0]
        assert root.count == len(expected)
        self.check_rows()

    def check_rows(self) -> None:
        """Each row counts what lies in it or below it, members lie where they are looked for, and there are few."""
        with self.store.read() as txn:
            rows = dict(txn.scan(SURFACE_PARTS))
        for key, row in rows.items():
            if not row.split:
                names = [merge_patch.part_key(name) for name in row.value]
                beyond = [other[len(key) - 1] for other in rows if other[:-1] == key[:-1] and other > key]
                assert names
                assert (row.count, row.rows, row.direct) == (len(names), 1, 0)
                assert key[-1] <= min(names)
                assert not beyond or max(names) < min(beyond)
                continue
            assert len(key) == 1 or row.bytes > limits.SURFACE_PART_BYTES // 2
            direct = [rows[other] for other in rows if other[:-1] == key]
            spare, per_part = merge_patch.SPARE_ROWS, merge_patch.ROWS_PER_PART
            assert row.direct == len(direct) <= spare + per_part * row.bytes // max(1, limits.SURFACE_PART_BYTES)
            assert row.rows == sum(1 for other in rows if other[: len(key)] == key)
            assert row.count == sum(1 if each.split else each.count for each in direct)

    def rows(self) -> int:
        with self.store.read() as txn:
            return sum(1 for _ in txn.scan(SURFACE_PARTS))

    def drop(self, room: int) -> tuple[int, bool]:
        with self.store.write() as txn:
            return merge_patch.drop(Ctx(txn, Wake(event_id="e"), Now(0, 0)), "f-1", room)


# Names that a key of the store cannot hold as they are, or that imitate the form in which others are held.
NAMES = ["", "a", "b", "a/b", "~1", "nul\0", "=a", "#", "x" * 40, "x" * 41, "y" * 300, "\u00e9", "\U0001f600", " "]
names = st.sampled_from(NAMES)
scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["", "s", "a longer one"])


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
    )


states = st.dictionaries(names, trees(scalars), max_size=6)
patches = st.dictionaries(names, trees(scalars | st.none()), max_size=5)
part_bytes = st.sampled_from([0, 8, 40, 100, limits.SURFACE_PART_BYTES])
levels = st.sampled_from([1, 2, 3, limits.SURFACE_PART_LEVELS_MAX])


@settings(max_examples=120, deadline=None)
@given(state=states, changes=st.lists(patches, min_size=1, max_size=5), size=part_bytes, deepest=levels)
def test_patches_are_those_of_the_rfc(
    state: dict[str, Any], changes: list[dict[str, Any]], size: int, deepest: int
) -> None:
    with pytest.MonkeyPatch.context() as lowered:
        lowered.setattr(merge_patch, "SPARE_ROWS", 2)
        lowered.setattr(limits, "SURFACE_PART_BYTES", size)
        lowered.setattr(limits, "SURFACE_PART_LEVELS_MAX", deepest)
        kept, expected = Kept(state), copy.deepcopy(state)
        kept.check(expected)
        for change in changes:
            expected = rfc(expected, copy.deepcopy(change))
            kept.patch(change)
            kept.check(expected)
        assert not kept.drop(kept.rows() - 1)[1]
        assert kept.drop(2) == (1, True)
        assert kept.store.dump()[SURFACE_PARTS.name] == []


@settings(max_examples=100, deadline=None)
@given(target=trees(scalars), patch=trees(scalars))
def test_merge_is_that_of_the_rfc_and_leaves_its_arguments_alone(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    assert merge_patch.merge(target, patch) == rfc(copy.deepcopy(target), copy.deepcopy(patch))
    assert (target, patch) == before


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": {"b": {}}}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": {"b": {}}}, {"a": {"b": {}}}),
        ({"a": {}}, {"a": {}}, {"a": {}}),
        ({"a": 1}, {"a": {}}, {"a": {}}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": None}}, {"a": {}}),
    ],
)
@pytest.mark.parametrize("size", [0, limits.SURFACE_PART_BYTES])
def test_examples_of_the_rfc(
    target: dict[str, Any], patch: dict[str, Any], result: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The RFC's appendix, as far as root is an object, and type changes at each level."""
    monkeypatch.setattr(limits, "SURFACE_PART_BYTES", size)
    kept = Kept(target)
    kept.patch(patch)
    kept.check(result)


SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "minimum": -2, "maximum": 2},
                    "b": {"type": "string", "maxLength": 3},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
            "b": {"type": "array", "items": {"type": "number", "maximum": 1}, "maxItems": 2},
            "a/b": {"enum": ["s", 1]},
        },
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "object", "properties": {"a": {}}}}}},
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"x": {"type": "boolean"}, "nul\0": {"type": "object", "additionalProperties": False}},
        "required": ["x"],
    },
]
VALID: list[dict[str, Any]] = [{"a": {"a": 1}, "b": [0, 1], "a/b": "s"}, {"a": {"b": {"a": 3, "x": {}}}}, {"x": True}]
few = st.sampled_from(["", "a", "b", "a/b", "nul\0", "x"])
near = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "s", "long"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(few, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(which=st.sampled_from([0, 1, 2]), changes=st.lists(st.dictionaries(few, near, max_size=3)), size=part_bytes)
def test_a_patch_is_refused_if_and_only_if_the_whole_state_would_be(
    which: int, changes: list[dict[str, Any]], size: int
) -> None:
    schema = SCHEMAS[which]
    assert check_schema(schema) == []
    with pytest.MonkeyPatch.context() as lowered:
        lowered.setattr(limits, "SURFACE_PART_BYTES", size)
        kept, now = Kept(VALID[which], schema), VALID[which]
        for change in changes:
            after = rfc(copy.deepcopy(now), copy.deepcopy(change))
            if first_fault(schema, after) is None:
                kept.patch(change)
                now = after
            else:
                with pytest.raises(LineUpError) as refused:
                    kept.patch(change)
                assert refused.value.code == "state_invalid"
                assert set(refused.value.detail) == {"path", "rule"}  # type: ignore[call-overload]
            kept.check(now)


def test_a_refusal_names_the_place_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SURFACE_PART_BYTES", 0)
    kept = Kept(VALID[0], SCHEMAS[0])
    for patch, path in [
        ({"a": {"a": 9}}, "/a/a"),
        ({"a": {"a": None}}, "/a/a"),
        ({"a": {"zz": 1}}, "/a/zz"),
        ({"a": None}, "/a"),
        ({"b": [0, 0, 0]}, "/b"),
        ({"a/b": "t"}, "/a~1b"),
    ]:
        with pytest.raises(LineUpError) as refused:
            kept.patch(patch)
        assert refused.value.detail["path"] == path  # type: ignore[index, call-overload]


def test_every_key_fits_the_store() -> None:
    """The longest key: a surface id as long as an id may be, and as many long names as there are levels."""
    surface_id = "f" * 128
    longest = (surface_id, *(merge_patch.part_key("\u00e9" * 500) for _ in range(limits.SURFACE_PART_LEVELS_MAX)))
    plain = (surface_id, *(merge_patch.part_key("x" * 40) for _ in range(limits.SURFACE_PART_LEVELS_MAX)))
    assert max(len(encode_key(longest)), len(encode_key(plain))) <= 511
    assert len({merge_patch.part_key(name) for name in NAMES}) == len(NAMES)


def test_nobody_can_change_a_row_through_what_load_gave() -> None:
    kept = Kept({"a": {"b": [1]}})
    kept.state()["a"]["b"].append(2)
    kept.check({"a": {"b": [1]}})


def test_very_deep_objects_stay_within_what_a_message_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SURFACE_PART_BYTES", 0)
    monkeypatch.setattr(limits, "SURFACE_PART_LEVELS_MAX", 1)
    monkeypatch.setattr(limits, "MAP_LENGTH_MAX", 8)
    kept = Kept({"a": {}})
    kept.patch({"a": {str(n): n for n in range(3)}})
    with pytest.raises(LineUpError, match="state_too_large"):
        kept.patch({"a": {"x": 1}})
    wide = Kept({str(n): n for n in range(8)})
    with pytest.raises(LineUpError, match="state_too_large"):
        wide.patch({"x": 1})


# cost


def _board(elements: int) -> dict[str, Any]:
    def element(n: int) -> dict[str, Any]:
        return {"kind": "rect", "x": n, "y": 2 * n, "w": 10, "h": 20, "color": "#aabbcc", "points": [n, n + 1]}

    return {"title": "board", "elements": {f"e{n}": element(n) for n in range(elements)}}


class Counting:
    """A transaction that counts what goes through it, in rows and in bytes."""

    def __init__(self, txn: Any) -> None:
        self.txn, self.rows, self.bytes = txn, 0, 0

    def _count(self, row: Any) -> Any:
        self.rows += 1
        self.bytes += len(canonical_json(row.value)) if row is not None else 0
        return row

    def get(self, table: Any, key: Any) -> Any:
        return self._count(self.txn.get(table, key))

    def put(self, table: Any, key: Any, row: Any) -> None:
        self.txn.put(table, key, self._count(row))

    def delete(self, table: Any, key: Any) -> bool:
        self._count(None)
        return bool(self.txn.delete(table, key))

    def first(self, table: Any, prefix: Any = (), **bounds: Any) -> Any:
        return self.txn.first(table, prefix, **bounds)

    def scan(self, table: Any, prefix: Any = (), **bounds: Any) -> Any:
        for key, row in self.txn.scan(table, prefix, **bounds):
            yield key, self._count(row)


def test_a_state_is_no_more_rows_than_its_bytes_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it came to be: by many at once, one by one from either end, and by taking most of it away again."""
    monkeypatch.setattr(limits, "SURFACE_PART_BYTES", 64)
    tiny = {f"{n:04}": n % 10 for n in range(600)}
    kept = Kept({"m": tiny})
    most = len(canonical_json({"m": tiny})) // 32
    assert kept.rows() <= most
    for names in (list(tiny), list(reversed(tiny)), sorted(tiny, key=lambda name: name[::-1])):
        kept.patch({"m": None, "n": {}})
        for name in names:
            kept.patch({"m": {name: tiny[name]}})
        kept.check({"m": tiny, "n": {}})
        assert kept.rows() <= most
    for start in range(1, 20):
        kept.patch({"m": dict.fromkeys(list(tiny)[start::20])})
        kept.check_rows()
    left = {name: tiny[name] for name in list(tiny)[::20]}
    kept.check({"m": left, "n": {}})
    assert kept.rows() <= 20
    kept.patch({"m": dict.fromkeys(list(left)[1:])})
    kept.check({"m": {"0000": 0}, "n": {}})
    assert kept.rows() == 3, "what has become small is a member as others are"


def test_one_change_divides_few_rows_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SURFACE_PART_BYTES", 64)
    monkeypatch.setattr(merge_patch, "LAID_OUT_MAX", 2)
    state: dict[str, Any] = {f"{n:04}": "x" * 8 for n in range(40)}
    kept = Kept(state)
    before = kept.rows()
    more = {f"{n:04}+": "y" * 16 for n in range(40)}
    kept.patch(more)
    kept.check(state | more)
    assert before < kept.rows() <= before + 6, "two of them were divided"
    for _ in range(20):
        kept.patch(dict.fromkeys(state, "z"))
    state = dict.fromkeys(state, "z") | more
    kept.check(state)
    with kept.store.read() as txn:
        assert max(row.bytes for _, row in txn.scan(SURFACE_PARTS) if not row.split) < 128
    kept.patch({f"0000{n:04}": "w" * 16 for n in range(40)})  # far too large: at once, whatever was divided before
    with kept.store.read() as txn:
        assert max(row.bytes for _, row in txn.scan(SURFACE_PARTS) if not row.split) < 4 * 64


def test_one_change_touches_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects in objects are many rows for few bytes of a patch; to let go of them is one."""
    monkeypatch.setattr(limits, "SURFACE_PARTS_PER_PATCH_MAX", 20)
    nested: dict[str, Any] = {"x": "x" * limits.SURFACE_PART_BYTES}
    touched: dict[str, Any] = {"y": 1}
    for _ in range(6):
        nested, touched = {"i": nested}, {"i": touched}
    kept = Kept({f"n{i}": nested for i in range(4)})
    kept.patch({f"n{i}": touched for i in range(2)})
    kept.check({f"n{i}": rfc(copy.deepcopy(nested), touched) if i < 2 else nested for i in range(4)})
    with pytest.raises(LineUpError, match="message_invalid: /patch: must not change more than 20 parts"):
        kept.patch({f"n{i}": touched for i in range(3)})
    kept.patch({f"n{i}": None for i in range(4)})
    kept.check({})


def _cost(elements: int, patch: dict[str, Any]) -> tuple[int, int]:
    kept = Kept(_board(elements))
    with kept.store.write() as txn:
        counting = Counting(txn)
        change = merge_patch.Change.patch(counting, "f-1", patch, None)
        ctx = Ctx(txn, Wake(event_id="e"), Now(0, 0))
        ctx.txn, ctx.get = counting, counting.get
        change.commit(ctx)
    kept.check(rfc(_board(elements), patch))
    return counting.rows, counting.bytes


@pytest.mark.parametrize(
    "patch",
    [
        {"elements": {"e3": {"x": 99}}},
        {"elements": {"e3": None}},
        {"elements": {"new": {"kind": "line"}}},
        {"title": "other"},
    ],
)
def test_a_patch_of_one_element_costs_the_same_on_a_board_of_ten_thousand(patch: dict[str, Any]) -> None:
    """A row is read and written beside the one member, and the object that counts it: no more on a large board."""
    for elements in (100, 10_000):
        rows, size = _cost(elements, patch)
        assert rows <= 8
        assert size <= 4 * limits.SURFACE_PART_BYTES
