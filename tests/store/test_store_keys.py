"""The key encoding: order, prefixes, limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineup_supervisor.edges.store_keys import BadKey, decode_key, encode_key, encode_prefix, prefix_end

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
number = st.integers(0, 2**63 - 1)
keys = st.lists(text | number, min_size=1, max_size=5).map(tuple)


def tuple_order(key: tuple[str | int, ...]) -> list[tuple[int, str | int]]:
    return [(isinstance(part, str), part) for part in key]


@given(keys)
def test_a_key_comes_back(key: tuple[str | int, ...]) -> None:
    assert decode_key(encode_key(key)) == key


@given(keys, keys)
def test_byte_order_is_tuple_order(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    assert (encode_key(one) < encode_key(other)) == (tuple_order(one) < tuple_order(other))


@given(keys, keys)
def test_a_prefix_in_bytes_is_a_prefix_of_the_tuple(prefix: tuple[str | int, ...], key: tuple[str | int, ...]) -> None:
    for whole in (key, prefix + key):
        assert encode_key(whole).startswith(encode_prefix(prefix)) == (whole[: len(prefix)] == prefix)


@given(keys, keys)
def test_the_end_of_a_prefix_bounds_it_tightly(prefix: tuple[str | int, ...], key: tuple[str | int, ...]) -> None:
    start = encode_prefix(prefix)
    end = prefix_end(start)
    assert end is not None
    assert (start <= encode_key(key) < end) == encode_key(key).startswith(start)


def test_the_empty_prefix_has_no_end() -> None:
    assert prefix_end(encode_prefix(())) is None


def test_three_longest_ids_fit_and_a_fourth_does_not() -> None:
    assert len(encode_key(("x" * 128,) * 3 + (2**63 - 1,))) <= 511
    with pytest.raises(BadKey, match="1 to 511 bytes"):
        encode_key(("x" * 128,) * 4)


@pytest.mark.parametrize(
    "key", [(), ("a\0b",), (-1,), (2**63,), (True,), (1.0,), (None,), (b"a",), ("\ud800",), ("x" * 600,)]
)
def test_what_no_key_may_be(key: tuple[object, ...]) -> None:
    with pytest.raises(BadKey):
        encode_key(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("raw", [b"\x03", b"\x02abc", b"\x01\0\0", b"\x02\xff\0", b"\0"])
def test_bytes_that_are_no_key(raw: bytes) -> None:
    with pytest.raises(BadKey):
        decode_key(raw)
