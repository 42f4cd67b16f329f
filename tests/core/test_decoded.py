"""The quick copy of decoded values is the copy of ``strict_json``, and bytes are refused as there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import copy_json
from lineup_supervisor.core.decoded import copy_decoded

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=60,
)


@given(json_values)
def test_the_quick_copy_is_the_copy(value: object) -> None:
    copy = copy_decoded(value)
    assert repr(copy) == repr(copy_json(value)), "numbers keep their kinds, members their order"
    if isinstance(value, list | dict):
        assert copy is not value
        value.clear()
        assert copy_json(copy) == copy


@pytest.mark.parametrize(
    ("value", "path"),
    [(b"x", "/x"), ({"a": b"x"}, "/x/a"), ({"a": [b""]}, "/x/a/0"), ([[], {"b": [1, "\u0100", b"y"]}], "/x/1/b/2")],
)
def test_bytes_are_all_that_the_quick_copy_looks_for(value: object, path: str) -> None:
    with pytest.raises(LineUpError) as refused:
        copy_decoded(value, "/x")
    assert isinstance(refused.value.detail, dict)
    assert refused.value.detail["path"] == path
