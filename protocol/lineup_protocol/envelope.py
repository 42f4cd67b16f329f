"""The agent link's envelope: what surrounds every payload, in both directions.

This file owns the five fields of a frame (six from the Runtime) and which messages need a conversation. It must not
know what a payload does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.limits import INTEGER_ABS_MAX
from lineup_protocol.messages import Message, check_body, find
from lineup_protocol.pointers import pointer
from lineup_protocol.times import is_rfc3339_utc, to_rfc3339

_FIELDS = frozenset(("type", "message_id", "conversation_id", "sent_at", "payload"))
_FIELDS_FROM_RUNTIME = _FIELDS | {"seq"}

# Messages of an agent that happen in a conversation. In all others conversation_id may be absent or null.
CONVERSATION_REQUIRED = frozenset(("lineup.v1.tool.call", "lineup.v1.message.text"))

_ID_WORDS = "must be an id: 1 to 128 characters of A-Z a-z 0-9 . _ : -"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One checked frame. ``seq`` is set on durable messages from the Runtime alone."""

    type: str
    message_id: str
    conversation_id: str | None
    sent_at: str
    payload: dict[str, Any]
    seq: int | None = None


def check_envelope(frame: object, *, from_runtime: bool = False) -> Envelope:
    """Check one decoded frame: envelope first, then the payload against the table of messages.

    Raises:
        LineUpError: ``message_invalid`` with ``detail = {path, rule}``, path ``/type``, ``/payload/call_id``, ….
    """
    if not isinstance(frame, dict):
        raise _invalid("/", "must be an object: one envelope")
    for name in frame:
        if name not in (_FIELDS_FROM_RUNTIME if from_runtime else _FIELDS):
            raise _invalid(pointer("", str(name)), "unknown field of the envelope")
    message = _message(frame.get("type"), from_runtime)
    if not is_id(frame.get("message_id")):
        raise _invalid("/message_id", "is required" if "message_id" not in frame else _ID_WORDS)
    conversation_id = _conversation(frame.get("conversation_id"), message, from_runtime)
    sent_at = frame.get("sent_at")
    if not isinstance(sent_at, str) or not is_rfc3339_utc(sent_at):
        raise _invalid("/sent_at", "must be an RFC 3339 time in UTC, for example 2026-11-30T08:00:00Z")
    seq = _seq(frame, message) if from_runtime else None
    payload = check_body(message, frame.get("payload"), path="/payload")
    return Envelope(message.type, frame["message_id"], conversation_id, sent_at, cast("dict[str, Any]", payload), seq)


def make_envelope(
    type_: str,
    payload: dict[str, Any],
    *,
    message_id: str,
    wall_ms: int,
    conversation_id: str | None = None,
    seq: int | None = None,
) -> dict[str, Any]:
    """A frame ready for JSON; ``conversation_id`` and ``seq`` are left out where there is none."""
    frame: dict[str, Any] = {"type": type_, "message_id": message_id}
    if conversation_id is not None:
        frame["conversation_id"] = conversation_id
    frame["sent_at"] = to_rfc3339(wall_ms)
    if seq is not None:
        frame["seq"] = seq
    frame["payload"] = payload
    return frame


def message_id_of(frame: object) -> str | None:
    """The id that an answer to a refused frame may name, if the frame has a usable one."""
    candidate = frame.get("message_id") if isinstance(frame, dict) else None
    return candidate if is_id(candidate) else None


def _message(type_: object, from_runtime: bool) -> Message:
    if not isinstance(type_, str):
        raise _invalid("/type", "must be a string")
    message = find("agent", type_, from_runtime=from_runtime)
    if message is None:
        raise _invalid("/type", f"no such message: {type_[:64]!r}")
    return message


def _conversation(value: object, message: Message, from_runtime: bool) -> str | None:
    if value is None:
        if not from_runtime and message.type in CONVERSATION_REQUIRED:
            raise _invalid("/conversation_id", f"is required for {message.type}")
        return None
    if not is_id(value):
        raise _invalid("/conversation_id", _ID_WORDS)
    return value


def _seq(frame: dict[str, object], message: Message) -> int | None:
    seq = frame.get("seq")
    if not message.durable:
        if "seq" in frame:
            raise _invalid("/seq", f"{message.type} is not durable and carries none")
        return None
    if isinstance(seq, bool) or not isinstance(seq, int) or not 1 <= seq <= INTEGER_ABS_MAX:
        raise _invalid("/seq", "must be an integer from 1")
    return seq


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
