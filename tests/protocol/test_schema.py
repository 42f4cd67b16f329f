"""The schema subset and its validators: catalogue C9 and C10."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineup_protocol import limits, schema
from lineup_protocol.errors import LineUpError
from lineup_protocol.schema import check_schema, compile_schema, first_fault

POMODORO = {
    "type": "object",
    "additionalProperties": False,
    "required": ["duration_seconds"],
    "properties": {
        "duration_seconds": {"type": "integer", "minimum": 1},
        "activity": {"type": "string", "maxLength": 256},
    },
}


MOST_256 = "must have at most 256 characters"

FOREIGN_KEYWORDS = [
    "$ref",
    "$schema",
    "$id",
    "$defs",
    "$dynamicRef",
    "$comment",
    "definitions",
    "pattern",
    "patternProperties",
    "format",
    "default",
    "examples",
    "const",
    "multipleOf",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "uniqueItems",
    "contains",
    "prefixItems",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "requried",
    "Type",
    "additionalItems",
    "readOnly",
    "x-own",
]


def faults(value: object) -> dict[str, str]:
    return {fault.path: fault.rule for fault in check_schema(value)}


def verdict(of: dict[str, Any], value: object) -> tuple[str, str] | None:
    """None, or the (path, rule) of the refusal."""
    before = copy.deepcopy(value)
    try:
        compile_schema(of).validate(value, code="tool_input_invalid")
    except LineUpError as error:
        detail = error.detail
    else:
        detail = None
    assert repr(value) == repr(before)  # by repr, since NaN equals nothing
    if detail is None:
        return None
    assert isinstance(detail, dict)
    return detail["path"], detail["rule"]


class TestAllowList:
    def test_the_schemas_of_the_seeds_are_inside(self) -> None:
        assert faults(POMODORO) == {}
        assert faults({"type": "object", "properties": {"state": {"enum": ["completed", "interrupted"]}}}) == {}
        assert faults({}) == {}
        assert faults({"type": "array", "items": {"type": "array", "items": {}, "maxItems": 3}}) == {}
        assert (
            faults(
                {"type": "number", "minimum": -1.5, "maximum": 2, "title": "t", "description": "d", "enum": [1, 2.5]}
            )
            == {}
        )

    @pytest.mark.parametrize("keyword", FOREIGN_KEYWORDS)
    def test_anything_else_is_refused_with_its_path(self, keyword: str) -> None:
        inner = {"type": "string", keyword: "#"}
        assert set(faults({"type": "object", "properties": {"a": inner}})) == {f"/properties/a/{keyword}"}
        with pytest.raises(LineUpError) as refused:
            compile_schema({"type": "object", "properties": {"a": inner}})
        assert refused.value.code == "manifest_invalid"

    @pytest.mark.parametrize(
        ("bad", "path"),
        [
            (None, "/"),
            (True, "/"),
            ([], "/"),
            ({"type": "null"}, "/type"),
            ({"type": ["string", "null"]}, "/type"),
            ({"type": None}, "/type"),
            ({"type": "object", "properties": []}, "/properties"),
            ({"type": "object", "properties": {"a": True}}, "/properties/a"),
            ({"type": "object", "properties": {"": {}}}, "/properties"),
            ({"type": "object", "additionalProperties": True}, "/additionalProperties"),
            ({"type": "object", "additionalProperties": {}}, "/additionalProperties"),
            ({"type": "object", "additionalProperties": 0}, "/additionalProperties"),
            ({"type": "object", "required": "a"}, "/required"),
            ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, "/required/0"),
            ({"type": "object", "properties": {"a": {}}, "required": ["a", "a"]}, "/required/1"),
            ({"type": "object", "properties": {"a": {}}, "required": [1]}, "/required/0"),
            ({"type": "object", "required": ["a"]}, "/required/0"),
            ({"type": "string", "minLength": -1}, "/minLength"),
            ({"type": "string", "minLength": True}, "/minLength"),
            ({"type": "string", "maxLength": 1.5}, "/maxLength"),
            ({"type": "string", "maxLength": "3"}, "/maxLength"),
            ({"type": "string", "minLength": 3, "maxLength": 2}, "/minLength"),
            ({"type": "number", "minimum": math.nan}, "/minimum"),
            ({"type": "number", "maximum": math.inf}, "/maximum"),
            ({"type": "number", "minimum": 2**53}, "/minimum"),
            ({"type": "number", "minimum": "0"}, "/minimum"),
            ({"type": "number", "minimum": 2, "maximum": 1}, "/minimum"),
            ({"type": "integer", "minimum": 1e300}, "/minimum"),
            ({"type": "integer", "maximum": -1e300}, "/maximum"),
            ({"type": "integer", "minimum": 9007199254740991.5}, "/minimum"),
            ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "/minimum"),
            ({"type": "integer", "minimum": -0.8, "maximum": -0.2}, "/maximum"),
            ({"type": "integer", "minLength": 1}, "/minLength"),
            ({"type": "string", "minimum": 1}, "/minimum"),
            ({"type": "array", "items": [{}]}, "/items"),
            ({"type": "array", "maxItems": -1}, "/maxItems"),
            ({"minLength": 1}, "/minLength"),
            ({"enum": []}, "/enum"),
            ({"enum": "ab"}, "/enum"),
            ({"enum": [1, 1.0]}, "/enum/1"),
            ({"enum": [math.nan]}, "/enum/0"),
            ({"enum": [{}]}, "/enum/0"),
            ({"type": "string", "enum": ["a", 1]}, "/enum/1"),
            ({"type": "boolean", "enum": [1]}, "/enum/0"),
            ({"type": "integer", "enum": [1.5]}, "/enum/0"),
            ({"type": "object", "enum": ["a"]}, "/enum/0"),
            ({"title": 1}, "/title"),
            ({"description": None}, "/description"),
            ({"title": "x" * 129}, "/title"),
        ],
    )
    def test_wrong_keywords(self, bad: object, path: str) -> None:
        assert set(faults(bad)) == {path}

    @pytest.mark.parametrize(
        "good",
        [
            {"type": "integer", "minimum": -1e300, "maximum": 1e300},
            {"type": "integer", "minimum": 0.2, "maximum": 1.0},
            {"type": "integer", "minimum": 2**53 - 1},
            {"type": "number", "minimum": 1e300},
            {"type": "number", "minimum": 0.2, "maximum": 0.8},
        ],
    )
    def test_bounds_that_something_satisfies(self, good: object) -> None:
        assert faults(good) == {}

    def test_all_faults_at_once(self) -> None:
        bad = {
            "type": "object",
            "requried": [],
            "properties": {"a": {"pattern": "(a+)+$"}, "b": {"type": "string", "format": "x"}},
        }
        assert set(faults(bad)) == {"/requried", "/properties/a/pattern", "/properties/b/format"}

    def test_depth_and_size(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(limits.SCHEMA_DEPTH_MAX - 1):
            deep = {"type": "array", "items": deep}
        assert faults(deep) == {}
        assert "/items" * limits.SCHEMA_DEPTH_MAX in faults({"type": "array", "items": deep})
        wide = {"type": "object", "properties": {f"p{i}": {"description": "x" * 200} for i in range(100)}}
        assert "bytes" in faults(wide)["/"]
        assert "/properties" in faults({"type": "object", "properties": {f"p{i}": {} for i in range(257)}})
        assert "/enum" in faults({"enum": list(range(257))})
        loop: dict[str, Any] = {"type": "array"}
        loop["items"] = loop
        assert faults(loop)

    def test_enum_keeps_true_and_one_apart(self) -> None:
        assert faults({"enum": [1, True, 0, False, None, "1"]}) == {}


class TestVerdicts:
    @pytest.mark.parametrize(
        ("value", "path"),
        [
            (0, "/duration_seconds"),
            (-1, "/duration_seconds"),
            (1.5, "/duration_seconds"),
            ("60", "/duration_seconds"),
            ("٣", "/duration_seconds"),
            (True, "/duration_seconds"),
            (None, "/duration_seconds"),
            ([1], "/duration_seconds"),
            (math.nan, "/duration_seconds"),
            (math.inf, "/duration_seconds"),
            (1e18, "/duration_seconds"),
            (2**53, "/duration_seconds"),
            (2.0**53, "/duration_seconds"),
        ],
    )
    def test_integer_refused_with_its_path(self, value: object, path: str) -> None:
        refused = verdict(POMODORO, {"duration_seconds": value})
        assert refused is not None
        assert refused[0] == path

    def test_a_whole_float_counts_as_the_integer_and_arrives_as_one(self) -> None:
        sent = {"duration_seconds": 60.0}
        got = compile_schema(POMODORO).validate(sent, code="tool_input_invalid")
        assert got == {"duration_seconds": 60}
        assert type(got["duration_seconds"]) is int
        assert type(sent["duration_seconds"]) is float
        nested = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
        assert repr(compile_schema(nested).validate([[1.0, -0.0], [2]], code="state_invalid")) == "[[1, 0], [2]]"

    def test_a_number_stays_what_it_is(self) -> None:
        got = compile_schema({"type": "number"}).validate(1.0, code="state_invalid")
        assert type(got) is float

    @pytest.mark.parametrize(
        ("of", "value", "refused"),
        [
            (POMODORO, {}, ("/duration_seconds", "is required")),
            (POMODORO, {"duration_seconds": 1, "x": 1}, ("/x", "is not allowed here")),
            (POMODORO, [], ("/", "must be an object")),
            (POMODORO, {"duration_seconds": 1, "activity": "x" * 257}, ("/activity", MOST_256)),
            ({"type": "object", "properties": {"a": {}}}, {"b": 1}, None),
            ({"type": "object", "additionalProperties": False}, {}, None),
            ({"type": "object", "additionalProperties": False}, {"x": 1}, ("/x", "is not allowed here")),
            ({"type": "string", "minLength": 2}, "👍", ("/", "must have at least 2 characters")),
            ({"type": "string", "maxLength": 1}, "👍", None),
            ({"type": "string", "maxLength": 1}, "e\u0301", ("/", "must have at most 1 characters")),
            ({"type": "number"}, True, ("/", "must be a number")),
            ({"type": "number", "maximum": 3}, 3.0, None),
            ({"type": "number", "maximum": 3}, 3.0000001, ("/", "must be at most 3")),
            ({"type": "boolean"}, 1, ("/", "must be true or false")),
            ({"type": "array", "maxItems": 1}, [1, 2], ("/", "must have at most 1 items")),
            ({"type": "array", "items": {"type": "string"}}, ["a", 1], ("/1", "must be a string")),
            ({"type": "array"}, (1,), ("/", "is no JSON value but tuple")),
            ({"enum": [1]}, True, ("/", "must be one of 1")),
            ({"enum": [True]}, 1, ("/", "must be one of true")),
            ({"enum": [0]}, False, ("/", "must be one of 0")),
            ({"enum": [1]}, 1.0, None),
            ({"enum": [None]}, None, None),
            ({"enum": ["a"]}, ["a"], ("/", 'must be one of "a"')),
            ({}, {"any": ["thing", 1, None]}, None),
            ({}, {"any": [math.nan]}, ("/any/0", "is not a finite number")),
            ({}, {1: 2}, ("/", "has a key that is no valid string")),
            (
                {"type": "object", "properties": {"a.[0]": {"type": "array"}}},
                {"a.[0]": 1},
                ("/a.[0]", "must be a list"),
            ),
            ({"type": "object", "properties": {"a/b": {"type": "string"}}}, {"a/b": 1}, ("/a~1b", "must be a string")),
        ],
    )
    def test_declared_verdicts(self, of: dict[str, Any], value: object, refused: tuple[str, str] | None) -> None:
        assert verdict(of, value) == refused

    def test_the_code_is_the_callers_and_the_path_may_have_a_base(self) -> None:
        with pytest.raises(LineUpError) as refused:
            compile_schema(POMODORO).validate({"duration_seconds": 0}, code="state_invalid", path="/state")
        assert refused.value.code == "state_invalid"
        assert refused.value.detail == {"path": "/state/duration_seconds", "rule": "must be at least 1"}

    def test_the_copy_shares_nothing_with_the_callers_value(self) -> None:
        sent = {"a": [{"b": 1}]}
        got = compile_schema({}).validate(sent, code="state_invalid")
        got["a"][0]["b"] = 2
        assert sent == {"a": [{"b": 1}]}

    def test_changing_the_schema_later_changes_no_validator(self) -> None:
        mine = {"type": "object", "properties": {"only_here": {"type": "string"}}}
        validator = compile_schema(mine)
        mine["properties"]["only_here"]["type"] = "integer"  # type: ignore[index]
        assert validator.validate({"only_here": "x"}, code="state_invalid") == {"only_here": "x"}

    @pytest.mark.parametrize("name", ['"', "'", "\\", "{x}", "{variable}", "a\nb", '"]; import os #', "%s", "é"])
    def test_odd_names_never_become_source_code(self, name: str) -> None:
        of = {
            "type": "object",
            "properties": {name: {"type": "integer", "enum": [1, 2]}, "plain": {"enum": [name, "x"]}},
            "required": [name],
            "additionalProperties": False,
        }
        assert schema._reduced({"type": "object", "properties": {name: {}}}) is None
        assert schema._reduced({"type": "array", "items": {"enum": [name]}}) is None
        assert verdict(of, {name: 2, "plain": name}) is None
        assert verdict(of, {name: 3}) is not None
        assert verdict(of, {}) is not None


class TestCache:
    def test_one_validator_per_content(self) -> None:
        one = compile_schema({"type": "string", "maxLength": 77})
        assert compile_schema({"maxLength": 77, "type": "string"}) is one
        assert compile_schema(None, digest=one.digest) is one

    def test_bounded_and_the_least_recently_used_goes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "SCHEMA_VALIDATORS_CACHED_MAX", 3)
        kept = compile_schema({"type": "string", "maxLength": 1000})
        for length in range(1001, 1010):
            compile_schema({"type": "string", "maxLength": length})
            assert compile_schema({"type": "string", "maxLength": 1000}) is kept
        assert len(schema._cache) == 3


names = st.sampled_from(["a", "b", "c", "d.e", 'q"'])
scalars = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.just(1e18) | st.text("ab1é👍", max_size=4)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def build(properties: dict[str, Any], needed: set[str], closed: bool) -> dict[str, Any]:
        made: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": sorted(needed & set(properties)),
        }
        return {**made, "additionalProperties": False} if closed else made

    return st.builds(build, st.dictionaries(names, inner, max_size=3), st.sets(names, max_size=2), st.booleans())


def bounded_list(of: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": of, "maxItems": most}


schemas = st.recursive(
    st.one_of(
        st.just({}),
        st.builds(lambda kind: {"type": kind}, st.sampled_from(schema.TYPES)),
        st.builds(lambda low: {"type": "integer", "minimum": low}, st.integers(-3, 3)),
        st.builds(lambda high: {"type": "number", "maximum": high}, st.floats(-3, 3)),
        st.builds(lambda low: {"type": "string", "minLength": low, "maxLength": low + 1}, st.integers(0, 3)),
        st.builds(lambda of: {"enum": of}, st.lists(st.text("ab1", max_size=2), min_size=1, max_size=3, unique=True)),
        st.sampled_from([{"enum": [1, True]}, {"enum": [0]}, {"enum": [None, "a"]}, {"type": "integer", "enum": [1]}]),
    ),
    lambda inner: objects(inner) | st.builds(bounded_list, inner, st.integers(0, 3)),
    max_leaves=6,
)


@given(schemas, values)
@settings(max_examples=400, deadline=None)
def test_the_compiled_form_and_the_reference_agree(of: dict[str, Any], value: object) -> None:
    assert check_schema(of) == []
    says_yes = schema._compiled(of)
    fault = first_fault(of, value)
    if says_yes(value):
        assert fault is None
    refused = verdict(of, value)
    assert refused == (None if fault is None else (fault.path, fault.rule))


keywords = st.sampled_from([*schema.KEYWORDS["object"], "maxLength", "minimum", "items", "maxItems", "$ref", "x"])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4), max_leaves=12
)


@given(anything)
@settings(max_examples=300, deadline=None)
def test_any_schema_is_checked_or_refused_and_never_raises(candidate: object) -> None:
    found = check_schema(candidate)
    assert all(fault.path.startswith("/") and fault.rule for fault in found)
    if not found:
        assert isinstance(candidate, dict)
        verdict(candidate, {})


def test_a_long_enum_is_looked_up_and_not_gone_through() -> None:
    """A MiniApp writes the schema and the value; its verdict's time must go by the value alone."""
    compared = 0

    class Counted(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    schema = {"type": "array", "items": {"enum": [Counted(f"v{n}") for n in range(256)]}}
    assert first_fault(schema, ["v255"] * 1_000) is None
    assert compared < 3_000
    fault = first_fault({"type": "object", "properties": {"a/b": schema}}, {"a/b": ["v0", "v1", "w"]})
    assert fault is not None
    assert (fault.path, fault.rule[:20]) == ("/a~1b/2", 'must be one of "v0",')


@pytest.mark.parametrize(
    ("enum", "value", "holds"),
    [
        ([1, "1", None], 1.0, True),
        ([1], True, False),
        ([True], 1, False),
        ([0, False], -0.0, True),
        ([None], None, True),
        ([None], 0, False),
        (["a"], ["a"], False),
        ([1.5], 1.5, True),
        (["1"], 1, False),
    ],
)
def test_an_enum_compares_as_json_does(enum: list[Any], value: object, holds: bool) -> None:
    assert (first_fault({"enum": enum}, value) is None) is holds
    validator = compile_schema({"type": "object", "properties": {"x": {"enum": enum}}})
    if holds:
        validator.validate({"x": value}, code="state_invalid")
    else:
        with pytest.raises(LineUpError):
            validator.validate({"x": value}, code="state_invalid")
