"""Strict JSON and the canonical form."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineup_protocol import codec
from lineup_protocol.codec import CAPS, canonical_json, decode, encode
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import AGENT_FRAME_BYTES_MAX
from lineup_protocol.strict_json import copy_json

FROM_RUNTIME = CAPS["worker", True]


def decode_json(text: str | bytes, *, bytes_max: int = AGENT_FRAME_BYTES_MAX, nodes_max: int | None = None) -> object:
    return codec.decode_json(text, bytes_max=bytes_max, nodes_max=nodes_max)


@pytest.mark.parametrize(
    ("text", "path", "rule"),
    [
        ('{"a":1,"b":{"a":1,"a":1}}', "/b", "has the key 'a' twice"),
        ('{"a":1,"\\u0061":1}', "/", "has the key 'a' twice"),
        ("[0,NaN]", "/1", "is not a finite number"),
        ('{"x":Infinity}', "/x", "is not a finite number"),
        ('{"x":[-Infinity]}', "/x/0", "is not a finite number"),
        ('{"x":[1,1e999]}', "/x/1", "is not a finite number"),
        ("[-1e999]", "/0", "is not a finite number"),
        ('["\\ud800"]', "/0", "is not valid Unicode"),
        ('["\\udc00\\ud800"]', "/0", "is not valid Unicode"),
        ('{"\\uD800":1}', "/", "has a key that is not valid Unicode"),
        ("[9007199254740993]", "/0", "is an integer beyond ±(2^53−1); send it as a string"),
        ("[-9223372036854775809]", "/0", "is an integer beyond ±(2^53−1); send it as a string"),
        ("[18446744073709551615]", "/0", "is an integer beyond ±(2^53−1); send it as a string"),
        ("[" + "9" * 5000 + "]", "/0", "is an integer beyond ±(2^53−1); send it as a string"),
        ("[" * 33 + "]" * 33, "/", "is nested deeper than 32"),
        ("[" * 100_000, "/", "is nested deeper than 32"),
        ('{"a":' * 33 + "1" + "}" * 33, "/", "is nested deeper than 32"),
        ("\ufeff1", "/", "is not JSON: it starts with a byte order mark"),
        ("", "/", "is not JSON: Expecting value at line 1, column 1"),
        ("1 2", "/", "is not JSON: Extra data at line 1, column 3"),
        ("[1,]", "/", None),
        ("{'a':1}", "/", None),
        ("[01]", "/", None),
        ('["\t"]', "/", None),
        ("[1] // no", "/", None),
    ],
)
def test_refused_with_its_place(text: str, path: str, rule: str | None) -> None:
    for form in (text, text.encode()):
        with pytest.raises(LineUpError) as refused:
            decode_json(form)
        assert refused.value.code == "message_invalid"
        assert isinstance(refused.value.detail, dict)
        assert refused.value.detail["path"] == path
        assert rule is None or refused.value.detail["rule"] == rule


@pytest.mark.parametrize("text", ["[1,\udc80]", b"\xff", b'["\xed\xa0\x80"]', b'"\xc0\x80"'])
def test_text_that_is_no_utf8(text: str | bytes) -> None:
    with pytest.raises(LineUpError, match="not valid UTF-8"):
        decode_json(text)


def test_size_is_measured_in_bytes() -> None:
    assert decode_json('"éé"', bytes_max=6) == "éé"
    for form in ('"éé"', '"éé"'.encode()):
        with pytest.raises(LineUpError) as refused:
            decode_json(form, bytes_max=5)
        assert refused.value.code == "message_too_large"
        assert refused.value.detail == {"bytes": 6, "bytes_max": 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[" * 32 + "]" * 32, None),
        ('"' + "[{" * 50 + '"', "[{" * 50),
        ('["\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\\\\"]', None),
        ('["\\ud83d\\ude00"]', ["😀"]),
        ('["\\\\ud800"]', ["\\ud800"]),
        ("9007199254740991", 2**53 - 1),
        ("1e18", 1e18),
        ("1.0", 1.0),
        ("-0.0", -0.0),
        (' {"a" : null}\n', {"a": None}),
        ('"\\u0000"', "\0"),
    ],
)
def test_accepted(text: str, value: object) -> None:
    result = decode_json(text)
    assert value is None or result == value


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 400_000, '"\\' * 300_000, "{" * 40 + '"' + "a" * 900_000, '["' + "\\\\" * 400_000]
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(LineUpError):
        decode_json(text)
    assert time.perf_counter() - started < 2


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
def test_round_trip_and_same_verdict_as_msgpack(value: object) -> None:
    assert decode_json(json.dumps(value)) == value
    assert decode_json(json.dumps(value, ensure_ascii=False)) == value
    assert decode(encode(value, FROM_RUNTIME), FROM_RUNTIME) == value


@given(st.text(alphabet='[]{}",:\\u0d8a91e-.NI \t', max_size=60))
def test_any_text_gives_a_value_or_a_typed_refusal(text: str) -> None:
    try:
        decode_json(text)
    except LineUpError as error:
        code = error.code
    else:
        code = "message_invalid"
    assert code == "message_invalid"


@given(json_values)
def test_canonical_form_is_stable_and_means_the_same(value: object) -> None:
    data = canonical_json(value)
    assert json.loads(data) == value
    assert canonical_json(json.loads(data)) == data


def test_canonical_form() -> None:
    value = {"b": 1.0, "a": [-0.0, 1e300, 1.5, 2**53 - 1, "é\n", True], "B": {}}
    assert canonical_json(value) == '{"B":{},"a":[0,1e+300,1.5,9007199254740991,"é\\n",true],"b":1}'.encode()
    assert canonical_json({"x": 1}) == canonical_json({"x": 1.0})
    assert canonical_json({"x": True}) != canonical_json({"x": 1})
    assert canonical_json("1.0") == b'"1.0"'


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": object()}, "\ud800", b"x"])
def test_canonical_form_of_no_json_value(value: object) -> None:
    with pytest.raises(LineUpError) as refused:
        canonical_json(value)
    assert refused.value.code == "message_invalid"


@given(json_values)
def test_a_copy_is_equal_and_shares_no_container(value: object) -> None:
    copy = copy_json(value)
    assert copy == value
    if isinstance(value, list | dict):
        assert copy is not value
        value.clear()
        assert copy_json(copy) == copy


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, "/a/1"),
        ({"a": b"x"}, "/a"),
        ([(1,)], "/0"),
        ({1: 2}, "/"),
        ([2**53], "/0"),
        (["\ud800"], "/0"),
    ],
)
def test_what_is_no_value_of_the_protocol_cannot_be_copied(value: object, path: str) -> None:
    with pytest.raises(LineUpError) as refused:
        copy_json(value)
    assert isinstance(refused.value.detail, dict)
    assert refused.value.detail["path"] == path


@pytest.mark.parametrize("text", ['{"a": 1e999, "b" 1}', '{"a": 1e999}, 1', "[9007199254740993,, 1]", '{"a": NaN'])
def test_a_refused_value_before_a_fault_of_grammar_is_a_refusal_like_any_other(text: str) -> None:
    with pytest.raises(LineUpError) as caught:
        decode_json(text)
    assert caught.value.code == "message_invalid"


def test_too_many_values_for_one_message() -> None:
    """Counted as on the other links, keys included; what stands inside strings counts for nothing."""
    for text, values in (
        ("[0,0,0]", 4),
        ('{"a":[1,2],"b":{}}', 7),
        ('["a,b:c[d{e","[]{}"]', 3),
        ('[[],[],{"k":[{}]}]', 7),
    ):
        decode_json(text, nodes_max=values)
        with pytest.raises(LineUpError, match=f"more than {values - 1} values"):
            decode_json(text, nodes_max=values - 1)


def test_a_lower_depth_is_kept_to() -> None:
    text = "[" * 5 + "]" * 5
    assert codec.decode_json(text, bytes_max=99, depth_max=5) is not None
    with pytest.raises(LineUpError, match="nested deeper than 4"):
        codec.decode_json(text, bytes_max=99, depth_max=4)
