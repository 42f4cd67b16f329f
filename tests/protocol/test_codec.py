"""Strict msgpack: catalogue C1 to C6, and that what is refused costs nothing."""

from __future__ import annotations

import math
import resource
import struct
import time
import tracemalloc
from functools import partial
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineup_protocol import codec, limits
from lineup_protocol.codec import CAPS, Caps, decode_message, encode_message
from lineup_protocol.errors import LineUpError

RUNTIME = CAPS["worker", True]
SMALL = Caps(limits.WORKER_MESSAGE_BYTES_MAX, limits.NODES_MAX, limits.DEPTH_MAX)


def decode(data: bytes, caps: Caps = SMALL, *, allow_bytes: bool = False) -> Any:
    return codec.decode(data, caps, allow_bytes=allow_bytes)


def encode(value: object) -> bytes:
    return codec.encode(value, RUNTIME)


def refusal(data: bytes, **options: Any) -> LineUpError:
    with pytest.raises(LineUpError) as refused:
        decode(data, **options)
    return refused.value


def outcome(data: bytes) -> tuple[object, LineUpError | None]:
    """The value or the refusal; anything else that is raised fails the test."""
    try:
        return decode(data, allow_bytes=True), None
    except LineUpError as error:
        return None, error


def rule_of(data: bytes, **options: Any) -> tuple[str, str]:
    error = refusal(data, **options)
    assert error.code == "message_invalid"
    assert isinstance(error.detail, dict)
    return error.detail["path"], error.detail["rule"]


def nested(depth: int) -> bytes:
    return b"\x91" * (depth - 1) + b"\x90"


class TestDepth:
    def test_32_levels_are_accepted_and_33_refused(self) -> None:
        assert decode(nested(32)) is not None
        path, rule = rule_of(nested(33))
        assert rule == "is nested deeper than 32"
        assert path == "/0" * 32

    @pytest.mark.parametrize("count", [33, 511, 1025, 3000, 10**6])
    def test_bombs_of_open_arrays(self, count: int) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        refusal(b"\x91" * count)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024

    def test_an_empty_container_is_a_level_wherever_it_stands(self) -> None:
        for empty in (b"\x90", b"\x80"):
            for before in (b"", b"\x07", b"\x91\x07"):  # after something that has been left again
                inner = bytes([0x91 + (before != b"")]) + before
                assert decode(b"\x91" * 30 + inner + empty) is not None
                assert "deeper" in rule_of(b"\x91" * 31 + inner + empty)[1]

    def test_maps_count_too(self) -> None:
        assert "deeper" in rule_of(b"\x81\xa1a" * 33 + b"\x01")[1]

    def test_siblings_are_no_depth(self) -> None:
        value = [[[i]] for i in range(1000)]
        assert decode(encode(value)) == value


class TestLengths:
    @pytest.mark.parametrize(
        "data",
        [
            "ddffffffff",
            "dfffffffff",
            "c6ffffffff",
            "c9ffffffff01",
            "9ffd74f7dd74fffdbd",
            "dbffffffff",
            "dcffff",
            "deffff",
        ],
    )
    def test_declared_lengths_beyond_the_data_cost_nothing(self, data: str) -> None:
        tracemalloc.start()
        try:
            started = time.perf_counter()
            refusal(bytes.fromhex(data), allow_bytes=True)
            elapsed = time.perf_counter() - started
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert elapsed < 0.1
        assert peak < 256 * 1024

    def test_nested_headers_cannot_multiply_their_reservations(self) -> None:
        # Each of the 1,000 arrays claims a million entries, "covered" by the bytes of the others.
        data = b"\xdd\x00\x0f\x42\x40" * 1000 + b"\xc0" * 1_000_000
        tracemalloc.start()
        try:
            refusal(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1024 * 1024

    def test_a_legal_length_whose_entries_are_missing_deeper_down(self) -> None:
        data = (b"\xdc\xff\xff" * 31) + b"\xc0" * 65_600
        tracemalloc.start()
        try:
            refusal(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1024 * 1024

    def test_too_many_values_in_all(self) -> None:
        assert "more than 32768 values" in rule_of(encode([[0] * 6_600] * 5))[1]
        assert decode(encode([[0] * 6_500] * 5)) == [[0] * 6_500] * 5

    def test_too_many_entries_in_one(self) -> None:
        data = b"\xdd\x00\x01\x00\x01" + b"\xc0" * 65_537
        with pytest.raises(LineUpError, match="too many"):
            decode(data, RUNTIME)
        data = b"\xdd\x00\x01\x00\x00" + b"\xc0" * 65_536
        assert decode(data, RUNTIME) == [None] * 65_536

    def test_long_keys_and_strings(self) -> None:
        assert "a key of 1025 bytes" in rule_of(msgpack.packb({"k" * 1025: 1}))[1]
        assert decode(msgpack.packb({"k" * 1024: 1})) == {"k" * 1024: 1}
        path, rule = rule_of(msgpack.packb({"a": ["x" * (limits.STRING_BYTES_MAX + 1)]}))
        assert path == "/a/0"
        assert "is a string of" in rule

    def test_the_whole_message(self) -> None:
        error = refusal(b"\xa3abc", caps=SMALL._replace(bytes_max=3))
        assert error.code == "message_too_large"
        assert error.detail == {"bytes": 4, "bytes_max": 3}


class TestKinds:
    def test_duplicate_keys(self) -> None:
        assert rule_of(bytes.fromhex("82a16101a16102")) == ("/", "has the key 'a' twice")
        assert rule_of(b"\x92\x01\x81\xa1x\x82\xa1a\x01\xa1a\x01") == ("/1/x", "has the key 'a' twice")
        # The same key in two encodings is the same key.
        assert "twice" in rule_of(b"\x82\xa1a\x01\xd9\x01a\x02")[1]

    @pytest.mark.parametrize(
        "key", [b"\xc0", b"\x01", b"\xcb" + b"\0" * 8, b"\xc4\x01a", b"\xc3", b"\x90", b"\xd4\x01\0"]
    )
    def test_keys_that_are_no_strings(self, key: bytes) -> None:
        assert rule_of(b"\x81\xa1m\x82\xa1a\x01" + key + b"\x02", allow_bytes=True) == (
            "/m",
            "has a key that is no string",
        )

    @pytest.mark.parametrize(
        "data", ["d40100", "d6ff00000000", "d7ff" + "00" * 8, "c70cff" + "7f" * 12, "c70105aa", "c8000105aa"]
    )
    def test_extension_types_and_timestamps(self, data: str) -> None:
        assert rule_of(b"\x91" + bytes.fromhex(data)) == ("/0", "has an extension type, which is not allowed")

    def test_c1_is_no_msgpack(self) -> None:
        assert rule_of(b"\xc1") == ("/", "is not msgpack")

    def test_bytes_only_where_allowed(self) -> None:
        assert rule_of(encode({"a": b"x"})) == ("/a", "has bytes where only JSON values may stand")
        assert decode(encode({"a": b"x"}), allow_bytes=True) == {"a": b"x"}

    @pytest.mark.parametrize(
        "data", [b"", b"\xc0\xc0", b"\x91", b"\xa2a", b"\xcd\x01", b"\xcb\x00", b"\x81\xa1a", b"\x81", b"\xd9"]
    )
    def test_too_much_or_too_little(self, data: bytes) -> None:
        assert rule_of(data)[0] == "/"


class TestNumbers:
    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("form", [">Bd", ">Bf"])
    def test_not_finite(self, number: float, form: str) -> None:
        packed = struct.pack(form, 0xCB if form == ">Bd" else 0xCA, number)
        assert rule_of(b"\x81\xa1x" + packed) == ("/x", "is not a finite number")

    @pytest.mark.parametrize("number", [2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**53), -(2**63)])
    def test_integers_that_a_browser_cannot_hold(self, number: int) -> None:
        assert "send it as a string" in rule_of(msgpack.packb([number]))[1]

    @pytest.mark.parametrize("number", [2**53 - 1, -(2**53 - 1), 0, 1.5, -0.0, 5e-324, 1.7976931348623157e308, 1e18])
    def test_accepted_unchanged(self, number: float) -> None:
        result = decode(encode(number))
        assert result == number
        assert type(result) is type(number)
        assert math.copysign(1, result) == math.copysign(1, number)


class TestText:
    @pytest.mark.parametrize(
        "bad", [b"\xff", b"\xc0\x80", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"]
    )
    def test_invalid_utf8_as_value_and_key(self, bad: bytes) -> None:
        text = bytes([0xA0 + len(bad)]) + bad
        assert rule_of(b"\x81\xa1k\x92\x01" + text) == ("/k/1", "is not valid Unicode")
        assert rule_of(b"\x81" + text + b"\x01") == ("/", "has a key that is not valid Unicode")

    @pytest.mark.parametrize("text", ["\0", "\u202e", "é", "e\u0301", "👩‍👩‍👧‍👦" * 16, "\uffff", "\U0010ffff"])
    def test_odd_values_round_trip_unchanged(self, text: str) -> None:
        assert decode(encode({text: text})) == {text: text}


class TestEncode:
    @pytest.mark.parametrize("value", [math.nan, math.inf, 2**53, 2**70, "\ud800", {1: 2}, object(), {"a": {b"k": 1}}])
    def test_refuses_what_the_other_side_would(self, value: object) -> None:
        with pytest.raises(LineUpError) as refused:
            encode([value])
        assert refused.value.code == "message_invalid"

    def test_refuses_what_contains_itself(self) -> None:
        loop: list[object] = []
        loop.append(loop)
        with pytest.raises(LineUpError):
            encode(loop)


class TestCaps:
    """What each side sends, the other takes; what is handed on fits with what is put around it."""

    @pytest.mark.parametrize(("link", "from_runtime"), [key for key in CAPS if key[0] != "agent"])  # that one is JSON
    def test_one_message_at_each_bound_and_one_beyond(self, link: Any, from_runtime: bool) -> None:
        caps = CAPS[link, from_runtime]
        deep: Any = []
        for _ in range(caps.depth_max - 1):
            deep = [deep]
        full, left = [], caps.nodes_max - 1
        while left > 0:
            full.append([0] * min(left - 1, 60_000))
            left -= len(full[-1]) + 1
        texts = ["x" * min(caps.bytes_max // 20, limits.STRING_BYTES_MAX)] * 19
        texts.append("x" * (caps.bytes_max - len(encode([*texts, ""])) - 4))
        for value in (deep, full, texts):
            data = codec.encode(value, caps)
            assert codec.encode_checked(value, caps) == data
            assert codec.decode(data, caps) == value
        assert len(data) == caps.bytes_max
        for value in ([deep], [*full, 0], [*texts, 0]):
            refusals = []
            for refused in (
                lambda value=value: codec.encode(value, caps),
                lambda value=value: codec.encode_checked(value, caps),
                lambda value=value: codec.decode(msgpack.packb(value), caps),
            ):
                with pytest.raises(LineUpError) as error:
                    refused()
                refusals.append(str(error.value))
            assert len(set(refusals)) == 1

    def test_what_is_taken_fits_into_what_the_runtime_sends_on(self) -> None:
        most = CAPS["host", False]
        assert most.nodes_max >= CAPS["agent", False].nodes_max + limits.HOST_WRAP_NODES
        assert most.depth_max >= CAPS["agent", False].depth_max + limits.HOST_WRAP_DEPTH
        assert CAPS["agent", False].nodes_max > limits.TOOL_INPUT_NODES_MAX + 500
        assert CAPS["agent", False].depth_max > limits.VALUE_DEPTH_MAX + 2
        assert CAPS["worker", False].depth_max == limits.VALUE_DEPTH_MAX + 2
        for sent in (CAPS["worker", True], CAPS["host", True]):
            assert sent.bytes_max > 2 * CAPS["worker", False].bytes_max
            assert sent.nodes_max > 2 * CAPS["worker", False].nodes_max
            assert sent.depth_max == limits.VALUE_DEPTH_MAX + 8


class TestMessages:
    def test_a_good_one(self) -> None:
        body = {"call_id": "c-1", "result": {"n": 1}}
        data = encode_message("tool.complete", body, link="worker", from_runtime=False, message_id="w-1")
        assert decode_message(data, "worker", from_runtime=False) == ("tool.complete", "w-1", body)

    @pytest.mark.parametrize(
        ("frame", "path"),
        [
            ([], "/"),
            ({}, "/type"),
            ({"type": 1, "body": {}}, "/type"),
            ({"type": "no.such", "body": {}}, "/type"),
            ({"type": "worker.welcome", "body": {}}, "/type"),  # the other direction
            ({"type": "worker.ready"}, "/body"),
            ({"type": "worker.ready", "body": []}, "/body"),
            ({"type": "worker.ready", "body": {}, "version": 2}, "/version"),
            ({"type": "worker.ready", "body": {"x": 1}}, "/body/x"),
            ({"type": "worker.ready", "body": {}, "id": "a b"}, "/id"),
            ({"type": "worker.ready", "body": {}, "id": 1}, "/id"),
            ({"type": "inbox.ack", "body": {"seq": True}}, "/body/seq"),
            ({"type": "inbox.ack", "body": {}}, "/body/seq"),
            ({"type": "tool.progress", "body": {"call_id": "а", "progress": 1}}, "/body/call_id"),
        ],
    )
    def test_bad_ones_name_the_place(self, frame: object, path: str) -> None:
        with pytest.raises(LineUpError) as refused:
            decode_message(msgpack.packb(frame), "worker", from_runtime=False)
        assert refused.value.code == "message_invalid"
        assert refused.value.detail["path"] == path

    def test_bytes_in_an_artifact_and_nowhere_else(self) -> None:
        artifact = {"title": "t", "media_type": "image/png", "content": b"\x89PNG"}
        data = encode_message("artifact.submit", artifact, link="worker", from_runtime=False)
        assert decode_message(data, "worker", from_runtime=False)[2] == artifact
        for type_, body, path in (
            ("artifact.submit", {**artifact, "content": {"deep": [b"x"]}}, None),
            ("tool.complete", {"call_id": "c", "result": {"x": [b"x"]}}, "/body/result/x/0"),
            ("state.save", {"state": {"x": b"x"}}, "/body/state/x"),
            ("tool.fail", {"call_id": "c", "code": "x", "message": "m", "detail": b"x"}, "/body/detail"),
        ):
            data = encode({"type": type_, "body": body})
            if path is None:
                assert encode_message(type_, body, link="worker", from_runtime=False)
                decode_message(data, "worker", from_runtime=False)
                continue
            for attempt in (
                partial(
                    encode_message, type_, body, link="worker", from_runtime=False
                ),  # a mistake shows at its author
                partial(decode_message, data, "worker", from_runtime=False),
            ):
                with pytest.raises(LineUpError) as refused:
                    attempt()
                assert refused.value.detail["path"] == path


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=60,
)


@given(json_values)
def test_what_is_encoded_is_decoded(value: object) -> None:
    assert decode(encode(value), allow_bytes=True) == value


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_give_a_value_or_a_typed_refusal_with_a_place(data: bytes) -> None:
    value, error = outcome(data)
    if error is None:
        assert decode(encode(value), allow_bytes=True) == value
    else:
        assert error.code == "message_invalid"
        assert isinstance(error.detail, dict)
        assert error.detail["path"].startswith("/")


@given(json_values, st.data())
@settings(max_examples=300)
def test_a_changed_byte_gives_a_value_or_a_typed_refusal(value: object, data: st.DataObject) -> None:
    packed = bytearray(encode(value))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    _, error = outcome(bytes(packed))
    assert error is None or error.code == "message_invalid"


@given(json_values, st.integers(0, 2000))
def test_a_cut_message_is_always_refused(value: object, at: int) -> None:
    packed = encode(value)
    if at < len(packed):
        refusal(packed[:at], allow_bytes=True)


@given(st.lists(st.sampled_from([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF, 0, 1, 0xA1, 0x61, 0xC0]), max_size=400))
@settings(max_examples=300)
def test_the_walk_and_the_decoder_agree(tokens: list[int]) -> None:
    """Whatever the walk lets through, the C decoder takes: else lengths were judged differently."""
    _, error = outcome(bytes(tokens))
    assert error is None or "of this protocol" not in error.message
