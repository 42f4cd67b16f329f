"""The laws of ``core.merge_patch``, held against the RFC's own words and against a full check of the schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.schema import check_schema, first_fault
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
        assert root.bytes == len(canonical_json(expected))
        assert root.nodes == merge_patch.shape(expected)[0]
        assert root.count == len(expected)

    def drop(self) -> None:
        with self.store.write() as txn:
            merge_patch.Change.drop(txn, "f-1").commit(Ctx(txn, Wake(event_id="e"), Now(0, 0)))


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
part_bytes = st.sampled_from([0, 8, 40, limits.SURFACE_PART_BYTES])
levels = st.sampled_from([1, 2, 3, limits.SURFACE_PART_LEVELS_MAX])


@settings(max_examples=120, deadline=None)
@given(state=states, changes=st.lists(patches, min_size=1, max_size=5), size=part_bytes, deepest=levels)
def test_patches_are_those_of_the_rfc(
    state: dict[str, Any], changes: list[dict[str, Any]], size: int, deepest: int
) -> None:
    with pytest.MonkeyPatch.context() as lowered:
        lowered.setattr(limits, "SURFACE_PART_BYTES", size)
        lowered.setattr(limits, "SURFACE_PART_LEVELS_MAX", deepest)
        kept, expected = Kept(state), copy.deepcopy(state)
        kept.check(expected)
        for change in changes:
            expected = rfc(expected, copy.deepcopy(change))
            kept.patch(change)
            kept.check(expected)
        kept.drop()
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

    def scan(self, table: Any, prefix: Any = (), **bounds: Any) -> Any:
        for key, row in self.txn.scan(table, prefix, **bounds):
            yield key, self._count(row)


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
    few_rows, few_bytes = _cost(100, patch)
    many_rows, many_bytes = _cost(10_000, patch)
    assert (many_rows, many_bytes) == (few_rows, few_bytes)
    ten_rows, ten_bytes = _cost(10, patch)
    assert many_rows <= 2 * ten_rows
    assert many_bytes <= 2 * ten_bytes
