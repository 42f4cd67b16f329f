"""The quick canonical form gives the bytes of the one that ``SPEC.md`` defines, for every value that was checked."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import canonical_json
from lineup_supervisor.core.canonical import canonical

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5).map(float)
scalars = (
    st.none() | st.booleans() | numbers | st.text() | st.sampled_from(["1.5", ":1.5", "[2e3", "\x00\b\f\x7f\u2028😀"])
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)


@given(values)
def test_the_same_bytes(value: Any) -> None:
    assert canonical(value) == canonical_json(value)


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        -0.0,
        1e16,
        1e22,
        5e-324,
        [1.0],
        {"a": 1.0},
        {"a": [0, -2.5]},
        2**53,
        2**80,
        (1, "x"),
        Colour.RED,
        {"b": 1, "a": 2},
    ],
)
def test_numbers_and_kinds_with_a_form_of_their_own(value: Any) -> None:
    assert canonical(value) == canonical_json(value)


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}, object()])
def test_what_cannot_be_encoded_is_refused_as_ever(value: Any) -> None:
    with pytest.raises(LineUpError) as ours:
        canonical(value)
    with pytest.raises(LineUpError) as theirs:
        canonical_json(value)
    assert str(ours.value) == str(theirs.value)
