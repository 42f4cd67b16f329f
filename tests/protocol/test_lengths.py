"""What a peer may say has a length, message by message and field by field, straight from the table."""

from __future__ import annotations

import pytest

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.messages import LENGTHS, MESSAGES, Message, check_body, check_lengths

INBOUND = [message for message in MESSAGES if message.target == "runtime"]
STRINGS = [
    pytest.param(message, name, field.kind, id=f"{message.type}-{name}")
    for message in INBOUND
    for name, field in message.fields.items()
    if field.kind in LENGTHS
]

# Every field that may hold more than a text, and the limit that whoever takes it keeps to. A new one has to be named
# here, and needs a test of its own where it is taken.
LARGE = {
    "lineup.v1.tool.call": {"input": "TOOL_INPUT_BYTES_MAX"},
    "worker.hello": {"protocols": "HELLO_VERSIONS_MAX"},
    "tool.complete": {"result": "TOOL_RESULT_BYTES_MAX"},
    "tool.fail": {"detail": "DETAIL_BYTES_MAX"},
    "ui.request": {"request": "INTERACTION_BYTES_MAX"},
    "surface.open": {"state": "SURFACE_STATE_BYTES_MAX"},
    "surface.update": {"patch": "SURFACE_PATCH_BYTES_MAX"},
    "capability.request": {"arguments": "NOTIFICATION_BODY_LENGTH_MAX"},
    "state.save": {"state": "STATE_BYTES_MAX"},
    "artifact.submit": {"content": "ARTIFACT_BYTES_MAX"},
    "host.hello": {"protocols": "HELLO_VERSIONS_MAX"},
    "host.query": {"args": "HOST_MESSAGE_BYTES_MAX"},
    "host.action": {"args": "HOST_MESSAGE_BYTES_MAX"},
    "agent.frame": {"frame": "AGENT_FRAME_BYTES_MAX"},
}


@pytest.mark.parametrize(("message", "name", "kind"), STRINGS)
def test_a_string_has_a_length(message: Message, name: str, kind: str) -> None:
    length_max, code = LENGTHS[kind]
    check_lengths(message, {name: "é" * length_max})
    with pytest.raises(LineUpError) as refused:
        check_lengths(message, {name: "é" * (length_max + 1)}, path="/body")
    rule = f"must have at most {length_max} characters"
    assert (refused.value.code, refused.value.message) == (code, f"/body/{name}: {rule}")
    assert refused.value.detail == {"path": f"/body/{name}", "rule": rule}


@pytest.mark.parametrize("message", INBOUND, ids=lambda message: message.type)
def test_every_field_is_short_by_its_kind_or_named_as_large(message: Message) -> None:
    short = {"id", "time", "int", "num", "bool", *LENGTHS}
    large = {name for name, field in message.fields.items() if isinstance(field.kind, str) and field.kind not in short}
    assert large == set(LARGE.get(message.type, {}))
    for limit in LARGE.get(message.type, {}).values():
        assert hasattr(limits, limit)


@pytest.mark.parametrize("kind", ["id", "time", ("one", "two")])
def test_the_other_kinds_of_strings_are_short_by_their_form(kind: str | tuple[str, ...]) -> None:
    seen = 0
    for message in INBOUND:
        for name, field in message.fields.items():
            if field.kind == kind or (isinstance(kind, tuple) and isinstance(field.kind, tuple)):
                with pytest.raises(LineUpError, match="message_invalid"):
                    check_body(Message("x", message.link, "host", "runtime", (), {name: field}), {name: "x" * 200})
                seen += 1
    assert seen
