"""The agent link's envelope, and version negotiation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineup_protocol.envelope import CONVERSATION_REQUIRED, check_envelope, make_envelope, message_id_of
from lineup_protocol.errors import LineUpError
from lineup_protocol.handshake import choose_version
from lineup_protocol.messages import AGENT_LINK

CALL: dict[str, Any] = {
    "type": "lineup.v1.tool.call",
    "message_id": "m-1",
    "conversation_id": "c-1",
    "sent_at": "2026-11-30T08:00:00Z",
    "payload": {"call_id": "k-1", "tool_id": "a.b", "inventory_revision": "r1", "input": {}},
}


def test_the_example_of_the_contract() -> None:
    envelope = check_envelope(CALL)
    assert (envelope.type, envelope.message_id, envelope.conversation_id) == ("lineup.v1.tool.call", "m-1", "c-1")
    assert envelope.payload == CALL["payload"]
    assert envelope.seq is None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"extra": 1}, "/extra"),
        ({"seq": 1}, "/seq"),
        ({"type": None}, "/type"),
        ({"type": "lineup.v1.tool.result"}, "/type"),
        ({"type": "lineup.v2.tool.call"}, "/type"),
        ({"type": ["lineup.v1.tool.call"]}, "/type"),
        ({"message_id": None}, "/message_id"),
        ({"message_id": ""}, "/message_id"),
        ({"message_id": "a b"}, "/message_id"),
        ({"message_id": "x" * 129}, "/message_id"),
        ({"message_id": "m\n"}, "/message_id"),
        ({"message_id": "ｍ"}, "/message_id"),
        ({"message_id": 1}, "/message_id"),
        ({"conversation_id": None}, "/conversation_id"),
        ({"conversation_id": "../x"}, "/conversation_id"),
        ({"conversation_id": 7}, "/conversation_id"),
        ({"sent_at": None}, "/sent_at"),
        ({"sent_at": "2026-11-30T08:00:00"}, "/sent_at"),
        ({"sent_at": "2026-11-30T08:00:00+01:00"}, "/sent_at"),
        ({"sent_at": "٢026-11-30T08:00:00Z"}, "/sent_at"),
        ({"sent_at": 1}, "/sent_at"),
        ({"payload": None}, "/payload"),
        ({"payload": []}, "/payload"),
        ({"payload": {**CALL["payload"], "owner": "x"}}, "/payload/owner"),
        ({"payload": {**CALL["payload"], "call_id": "a/b"}}, "/payload/call_id"),
        ({"payload": {**CALL["payload"], "tool_id": 1}}, "/payload/tool_id"),
        ({"payload": {"call_id": "k-1"}}, "/payload/input"),
    ],
)
def test_refused_with_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(LineUpError) as refused:
        check_envelope({**CALL, **change})
    assert refused.value.code == "message_invalid"
    assert isinstance(refused.value.detail, dict)
    assert refused.value.detail["path"] == path


HELLO = {"type": "lineup.v1.hello", "message_id": "m-1", "sent_at": "2026-11-30T08:00:00Z"}


def test_a_whole_number_counts_as_an_integer_however_it_is_written() -> None:
    """JSON has one kind of number; a peer whose language has floats alone writes 1.0."""
    payload = {"agent_id": "a-1", "protocol": 1.0, "acked_seq": 0.0}
    checked = check_envelope({**HELLO, "payload": payload}).payload
    assert checked == {"agent_id": "a-1", "protocol": 1, "acked_seq": 0}
    assert [type(checked[name]) for name in ("protocol", "acked_seq")] == [int, int]
    assert type(payload["protocol"]) is float, "the sender's own value is left alone"


@pytest.mark.parametrize("seq", [1.5, 2.0**53, -(2.0**60), float("nan"), float("inf"), True, "1", None])
def test_what_is_no_integer_is_refused_with_its_path(seq: object) -> None:
    with pytest.raises(LineUpError, match=r"^message_invalid: /payload/seq: must be an integer$"):
        check_envelope({**HELLO, "type": "lineup.v1.ack", "payload": {"seq": seq}})


@pytest.mark.parametrize("frame", [None, 1, "x", [], [CALL]])
def test_a_frame_that_is_no_object(frame: object) -> None:
    with pytest.raises(LineUpError, match="must be an object"):
        check_envelope(frame)


@pytest.mark.parametrize("name", ["type", "message_id", "conversation_id", "sent_at", "payload"])
def test_every_field_of_a_call_is_required(name: str) -> None:
    with pytest.raises(LineUpError) as refused:
        check_envelope({key: value for key, value in CALL.items() if key != name})
    assert isinstance(refused.value.detail, dict)
    assert refused.value.detail["path"] == f"/{name}"


PAYLOADS: dict[str, dict[str, Any]] = {
    "hello": {"agent_id": "a", "protocol": 1},
    "tool.cancel": {"call_id": "k"},
    "tool.get": {"call_id": "k"},
    "ack": {"seq": 1},
    "ping": {},
}


@pytest.mark.parametrize("name", list(PAYLOADS))
def test_conversation_may_be_absent_or_null_where_none_is_concerned(name: str) -> None:
    frame = {**CALL, "type": f"lineup.v1.{name}", "payload": PAYLOADS[name]}
    assert check_envelope(frame).conversation_id == "c-1"
    assert check_envelope({**frame, "conversation_id": None}).conversation_id is None
    del frame["conversation_id"]
    assert check_envelope(frame).conversation_id is None


def test_every_message_of_an_agent_is_decided() -> None:
    from_agent = {m.type for m in AGENT_LINK if m.source == "agent"}
    assert CONVERSATION_REQUIRED | {f"lineup.v1.{name}" for name in PAYLOADS} == from_agent


def test_made_and_checked() -> None:
    result = {"call_id": "k", "status": "completed", "result": {}, "at": "2026-11-30T08:00:00Z"}
    frame = make_envelope("lineup.v1.tool.result", result, message_id="m", wall_ms=0, conversation_id="c", seq=3)
    envelope = check_envelope(frame, from_runtime=True)
    assert (envelope.seq, envelope.conversation_id, envelope.sent_at) == (3, "c", "1970-01-01T00:00:00.000Z")
    pong = make_envelope("lineup.v1.pong", {}, message_id="m", wall_ms=0)
    assert set(pong) == {"type", "message_id", "sent_at", "payload"}
    assert check_envelope(pong, from_runtime=True).seq is None


@pytest.mark.parametrize("seq", [None, 0, -1, True, "1", 1.0, 2**53])
def test_durable_messages_carry_a_seq(seq: object) -> None:
    frame = {**CALL, "type": "lineup.v1.message.text", "payload": {"text": "x", "at": CALL["sent_at"]}, "seq": seq}
    with pytest.raises(LineUpError) as refused:
        check_envelope(frame, from_runtime=True)
    assert isinstance(refused.value.detail, dict)
    assert refused.value.detail["path"] == "/seq"


def test_other_messages_carry_none() -> None:
    frame = {**make_envelope("lineup.v1.pong", {}, message_id="m", wall_ms=0), "seq": 1}
    with pytest.raises(LineUpError, match="not durable"):
        check_envelope(frame, from_runtime=True)


def test_the_id_that_an_answer_may_name() -> None:
    assert message_id_of({"message_id": "m-1"}) == "m-1"
    for frame in (None, {}, {"message_id": 1}, {"message_id": "a b"}, ["message_id"]):
        assert message_id_of(frame) is None


@given(
    st.dictionaries(st.sampled_from([*CALL, "seq", "x"]), st.none() | st.text(max_size=5) | st.integers() | st.just({}))
)
def test_only_typed_refusals(change: dict[str, Any]) -> None:
    before = {**CALL, **change}
    frame = dict(before)
    try:
        check_envelope(frame)
    except LineUpError as error:
        code = error.code
    else:
        code = "message_invalid"
    assert code == "message_invalid"
    assert frame == before


class TestVersion:
    @pytest.mark.parametrize(("offered", "supported"), [([1], (1,)), (1, (1,)), ([1, 2, 3], (1,)), ([0, 1], (1, 2))])
    def test_the_highest_common_one(self, offered: object, supported: tuple[int, ...]) -> None:
        assert choose_version(offered, supported=supported) == 1

    def test_order_does_not_matter(self) -> None:
        assert choose_version([3, 1, 2], supported=(2, 1, 3)) == 3

    @pytest.mark.parametrize("offered", [[], [2], [0], [-1], 2, [10**30]])
    def test_none_in_common_names_both_sides(self, offered: object) -> None:
        with pytest.raises(LineUpError) as refused:
            choose_version(offered)
        assert refused.value.code == "protocol_unsupported"
        assert refused.value.detail == {
            "offered": offered if isinstance(offered, list) else [offered],
            "supported": [1],
        }

    @pytest.mark.parametrize("offered", [None, "1", [True], ["1"], [1.0], [[1]], {"1": 1}, [1] * 17])
    def test_malformed(self, offered: object) -> None:
        with pytest.raises(LineUpError) as refused:
            choose_version(offered)
        assert refused.value.code == "message_invalid"
