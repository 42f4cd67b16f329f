"""Every message of every link, as one table.

This file owns the vocabulary of the three links: their message types, who may send them, what answers
them, and the shape of their bodies. It must not know how a message is carried (see ``codec``) or what it
does (see ``lineup_supervisor.core``). ``protocol/SPEC.md`` prints the same table; a test holds the two together.

Links:
    ``agent``   agent and Runtime, JSON text frames on one WebSocket.
    ``worker``  MiniApp worker and Runtime, one msgpack map per ZeroMQ message.
    ``host``    hostshell or CLI and Runtime, one msgpack map per ZeroMQ message.

Field kinds (``FieldKind``): ``id`` 1-128 characters of the plain alphabet; ``name``, ``reason`` and ``text`` any string
of what a name, a sentence or a conversation's text may have (``LENGTHS``); ``int`` an integer (no bool; on the agent
link ``1.0`` is one); ``num`` a finite number; ``bool``; ``obj`` a map with string keys; ``list``; ``any``; ``time``
RFC 3339 UTC; ``ids`` a list of ids; or a tuple of the allowed strings.

There is no kind for a string of any length: what a peer says is kept, sent on, audited and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.limits import INTEGER_ABS_MAX, NAME_LENGTH_MAX, REASON_LENGTH_MAX, TEXT_LENGTH_MAX
from lineup_protocol.times import is_rfc3339_utc

Link = Literal["agent", "worker", "host"]
Party = Literal["agent", "worker", "host", "runtime"]
FieldKind = str | tuple[str, ...]

PROTOCOL_VERSION = 1

# The most characters of a string, and the code of the refusal. The Runtime judges by it what it takes, see
# ``check_lengths``; what it sends itself is made of that, and may add a few words.
LENGTHS: dict[str, tuple[int, str]] = {
    "name": (NAME_LENGTH_MAX, "message_invalid"),
    "reason": (REASON_LENGTH_MAX, "message_too_large"),
    "text": (TEXT_LENGTH_MAX, "message_too_large"),
}


@dataclass(frozen=True)
class Field:
    """One body field: its kind, and whether it may be left out."""

    kind: FieldKind
    required: bool = True


@dataclass(frozen=True)
class Message:
    """One row of the table."""

    type: str
    link: Link
    source: Party
    target: Party
    answered_by: tuple[str, ...]
    fields: Mapping[str, Field]
    durable: bool = False
    note: str = ""
    # Body fields that name a Runtime object; the Runtime checks each against the sender's own instance.
    references: tuple[str, ...] = field(default=())


def _fields(spec: dict[str, FieldKind]) -> dict[str, Field]:
    return {name.removesuffix("?"): Field(kind, required=not name.endswith("?")) for name, kind in spec.items()}


def _agent_in(type_: str, answered_by: tuple[str, ...], note: str, **spec: FieldKind) -> Message:
    return Message(f"lineup.v1.{type_}", "agent", "agent", "runtime", answered_by, _fields(_opt(spec)), note=note)


def _agent_out(type_: str, note: str, *, durable: bool = False, **spec: FieldKind) -> Message:
    return Message(f"lineup.v1.{type_}", "agent", "runtime", "agent", (), _fields(_opt(spec)), durable, note)


def _opt(spec: dict[str, FieldKind]) -> dict[str, FieldKind]:
    """``name_`` in keyword form stands for an optional field ``name?``."""
    return {(f"{name[:-1]}?" if name.endswith("_") else name): kind for name, kind in spec.items()}


_REFERENCES = ("call_id", "parent_call_id", "interaction_id", "surface_id", "artifact_id", "operation_id")


def _worker_in(type_: str, answered_by: tuple[str, ...], note: str, **spec: FieldKind) -> Message:
    fields = _fields(_opt(spec))
    references = tuple(name for name in fields if name in _REFERENCES)
    return Message(type_, "worker", "worker", "runtime", answered_by, fields, note=note, references=references)


def _worker_out(type_: str, note: str, *, durable: bool = False, **spec: FieldKind) -> Message:
    return Message(type_, "worker", "runtime", "worker", (), _fields(_opt(spec)), durable, note)


def _host_in(type_: str, answered_by: tuple[str, ...], note: str, **spec: FieldKind) -> Message:
    return Message(type_, "host", "host", "runtime", answered_by, _fields(_opt(spec)), note=note)


def _host_out(type_: str, note: str, **spec: FieldKind) -> Message:
    return Message(type_, "host", "runtime", "host", (), _fields(_opt(spec)), note=note)


TOOL_RESULT_STATUSES = ("completed", "failed", "cancelled", "expired", "rejected")
INTERACTION_KINDS = ("notice", "choice", "confirm", "input")
PRESENTATIONS = ("default", "inline", "modal")
DELIVERY_KINDS = (
    "tool.call",
    "tool.cancel",
    "interaction.result",
    "message.text",
    "surface.event",
    "surface.submit",
    "capability.result",
    "close.request",
)

_RECEIPT = ("lineup.v1.receipt",)

AGENT_LINK: tuple[Message, ...] = (
    _agent_in(
        "hello",
        ("lineup.v1.welcome", "lineup.v1.client.inventory"),
        "first frame; version before anything else",
        agent_id="id",
        protocol="int",
        acked_seq_="int",
    ),
    _agent_in(
        "tool.call",
        ("lineup.v1.receipt", "lineup.v1.tool.result"),
        "with `tool_id` the revision is needed; the older form has `tool` in its place and no revision",
        call_id="id",
        tool_id_="name",
        tool_=("choice", "confirm", "input"),
        inventory_revision_="name",
        input="any",
    ),
    _agent_in("tool.cancel", _RECEIPT, "asks; the call's result says what came of it", call_id="id", reason_="reason"),
    _agent_in("tool.get", ("lineup.v1.receipt", "lineup.v1.tool.state"), "reads one record", call_id="id"),
    _agent_in("message.text", _RECEIPT, "shown in Interact", text="text", format_=("markdown", "plain")),
    _agent_in("ack", (), "everything up to seq has been taken over", seq="int"),
    _agent_in("ping", ("lineup.v1.pong",), "liveness"),
    _agent_out("welcome", "the link is open", boot_id="id", protocol="int", acked_seq="int"),
    _agent_out("client.inventory", "after welcome and at every change", revision="text", tools="list"),
    _agent_out(
        "receipt", "after the commit", reply_to="id", accepted="bool", code_="text", message_="text", detail_="any"
    ),
    _agent_out(
        "tool.progress",
        "newest replaces one not yet sent",
        durable=True,
        call_id="id",
        progress="num",
        message_="text",
        at="time",
    ),
    _agent_out(
        "tool.result",
        "exactly one per call_id",
        durable=True,
        call_id="id",
        status=TOOL_RESULT_STATUSES,
        result_="obj",
        error_="obj",
        at="time",
    ),
    _agent_out("message.text", "what the person wrote", durable=True, text="text", at="time"),
    _agent_out("tool.state", "answer to tool.get", call_id="id", record="obj"),
    _agent_out("pong", "answer to ping"),
    _agent_out("error", "a frame that could not be taken", reply_to_="id", code="text", message="text"),
)

_WORKER_RECEIPT = ("receipt",)

WORKER_LINK: tuple[Message, ...] = (
    _worker_in(
        "worker.hello",
        ("worker.welcome", "worker.refuse"),
        "first message; version before anything else",
        protocols="list",
        sdk_version="name",
    ),
    _worker_in("worker.ready", (), "the app is loaded and takes deliveries"),
    _worker_in("worker.failed", (), "the app could not be loaded; the worker exits", code="name", message="reason"),
    _worker_in("worker.pong", (), "answer to ping", nonce="int"),
    _worker_in("inbox.ack", _WORKER_RECEIPT, "the item has been taken over", seq="int"),
    _worker_in(
        "tool.progress", _WORKER_RECEIPT, "progress from 0 to 1", call_id="id", progress="num", message_="reason"
    ),
    _worker_in("tool.complete", _WORKER_RECEIPT, "result must satisfy the output schema", call_id="id", result="obj"),
    _worker_in(
        "tool.fail",
        _WORKER_RECEIPT,
        "the app's own failure",
        call_id="id",
        code="name",
        message="reason",
        detail_="any",
    ),
    _worker_in(
        "tool.cancel",
        _WORKER_RECEIPT,
        "the app gives the call up, or confirms a cancel",
        call_id="id",
        reason_="reason",
    ),
    _worker_in(
        "ui.request",
        _WORKER_RECEIPT,
        "owner is stamped by the Runtime; `key` makes a repeat find the same record; under a call and without one it "
        "ends with the attempt that asked",
        request="obj",
        parent_call_id_="id",
        presentation_=PRESENTATIONS,
        expires_at_="time",
        key_="id",
    ),
    _worker_in("ui.cancel", _WORKER_RECEIPT, "own interactions only", interaction_id="id", reason_="reason"),
    _worker_in("lifecycle.foreground", _WORKER_RECEIPT, "a request, never a command"),
    _worker_in("lifecycle.background", _WORKER_RECEIPT, "a request, never a command"),
    _worker_in("lifecycle.close", _WORKER_RECEIPT, "a request, never a command", reason_="reason"),
    _worker_in(
        "surface.open", _WORKER_RECEIPT, "one surface of the bundle", entry="reason", title_="reason", state_="obj"
    ),
    _worker_in(
        "surface.update", _WORKER_RECEIPT, "JSON Merge Patch", surface_id="id", patch="obj", base_revision_="int"
    ),
    _worker_in("surface.close", _WORKER_RECEIPT, "own surfaces only", surface_id="id"),
    _worker_in(
        "capability.request",
        _WORKER_RECEIPT,
        "policy, consent and Host support decide",
        capability="name",
        reason="reason",
        arguments="obj",
    ),
    _worker_in(
        "state.save",
        _WORKER_RECEIPT,
        "instance snapshot against the manifest's schema",
        state="obj",
        base_revision_="int",
    ),
    _worker_in(
        "artifact.submit", _WORKER_RECEIPT, "content is bytes", title="reason", media_type="name", content="any"
    ),
    _worker_in("conversation.send_text", _WORKER_RECEIPT, "chat alone", text="text", key_="id"),
    _worker_out(
        "worker.welcome",
        "identity, limits and what to load; comes from the Runtime alone",
        protocol="int",
        context="obj",
        entry="text",
        limits="obj",
        state_="any",
        state_revision="int",
        operations="list",
        interactions="list",
        calls="list",
        surfaces="list",
    ),
    _worker_out("worker.refuse", "the worker exits", code="text", message="text"),
    _worker_out("worker.ping", "no answer within the limit counts as a crash", nonce="int"),
    _worker_out("worker.stop", "finish and exit within grace_ms", reason="text", grace_ms="int"),
    _worker_out(
        "inbox.deliver",
        "in order, again until acknowledged",
        durable=True,
        seq="int",
        kind=DELIVERY_KINDS,
        message_id="id",
        body="obj",
    ),
    _worker_out(
        "receipt",
        "answers one message by its id; after the commit",
        re="id",
        accepted="bool",
        code_="text",
        message_="text",
        detail_="any",
    ),
    _worker_out("context.changed", "projection", state=("starting", "foreground", "background", "suspended")),
    _worker_out("operation.changed", "projection", operation="obj"),
    _worker_out("interaction.changed", "projection", interaction="obj"),
    _worker_out(
        "surface.changed", "projection: a patch made on the other side", surface_id="id", revision="int", patch="obj"
    ),
)

_RESULT = ("host.result",)

HOST_LINK: tuple[Message, ...] = (
    _host_in(
        "host.hello",
        ("host.welcome", "host.refuse"),
        "first message; version before anything else",
        protocols="list",
        role=("hostshell", "cli"),
        pid="int",
    ),
    _host_in("host.query", _RESULT, "read only", name="name", args="obj"),
    _host_in(
        "host.action",
        _RESULT,
        "a durable action; the same action_id again has no second effect",
        action_id="id",
        name="name",
        args="obj",
    ),
    _host_in("host.subscribe", _RESULT, "snapshot now, then host.delta at every change"),
    _host_in(
        "host.watch", _RESULT, "host.watched at every change of one call, until final", call_id="id", agent_id="id"
    ),
    _host_in("agent.frame", (), "one frame of an agent's WebSocket", link_id="id", frame="any"),
    _host_in("agent.closed", (), "the WebSocket is gone", link_id="id"),
    _host_out("host.welcome", "the link is open", protocol="int", boot_id="id", version="text", settings="obj"),
    _host_out("host.refuse", "the peer gives up", code="text", message="text"),
    _host_out(
        "host.result",
        "answers one message by its id",
        re="id",
        accepted="bool",
        code_="text",
        message_="text",
        detail_="any",
    ),
    _host_out(
        "host.delta",
        "what changed for people, in one revision; without changes it is too much for a message: subscribe anew",
        revision="int",
        changes_="list",
    ),
    _host_out("host.watched", "the record of one watched call", call_id="id", record="obj"),
    _host_out("agent.send", "frames for one WebSocket, in order, as bytes of JSON", link_id="id", frames="list"),
    _host_out("agent.close", "close one WebSocket", link_id="id", code="int", reason="text"),
)

MESSAGES: tuple[Message, ...] = AGENT_LINK + WORKER_LINK + HOST_LINK

_BY_KEY = {(m.link, m.source == "runtime", m.type): m for m in MESSAGES}


def find(link: Link, type_: str, *, from_runtime: bool) -> Message | None:
    """The table's row for one message type in one direction, or None."""
    return _BY_KEY.get((link, from_runtime, type_))


def check_body(message: Message, body: object, *, path: str = "") -> dict[str, object]:
    """Check a body against its row. Returns it unchanged, but for the agent link's integers: JSON has one kind of
    number, so that a whole one counts however it is written, and is handed on as an integer.

    Raises:
        LineUpError: ``message_invalid`` with ``detail = {path, rule}``; unknown fields are refused.
    """
    if not isinstance(body, dict):
        raise _invalid(path or "/", "must be an object")
    for name in body:
        if name not in message.fields:
            raise _invalid(f"{path}/{name}", f"unknown field of {message.type}")
    for name, spec in message.fields.items():
        if name not in body:
            if spec.required:
                raise _invalid(f"{path}/{name}", "is required")
        elif (fault := _fault(spec.kind, body[name])) is not None:
            if message.link != "agent" or spec.kind != "int" or (whole := whole_number(body[name])) is None:
                raise _invalid(f"{path}/{name}", fault)
            body = {**body, name: whole}
    return body


def check_lengths(message: Message, body: Mapping[str, object], *, path: str = "") -> None:
    """Refuse a string that is longer than its kind allows. Only for a body that ``check_body`` has taken: what is said
    in too many words breaks no rule of the link, and is refused like any other request.

    Raises:
        LineUpError: ``message_invalid`` for a name, ``message_too_large`` for prose, ``detail = {path, rule}``.
    """
    for name, value in body.items():
        kind = message.fields[name].kind
        if isinstance(value, str) and isinstance(kind, str) and kind in LENGTHS:
            length_max, code = LENGTHS[kind]
            if len(value) > length_max:
                rule = f"must have at most {length_max} characters"
                raise LineUpError(code, f"{path}/{name}: {rule}", detail={"path": f"{path}/{name}", "rule": rule})


def whole_number(value: object) -> int | None:
    """The integer that a float is (``1.0`` is 1), as far as floats count exactly; else None."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= INTEGER_ABS_MAX:
        return int(value)
    return None


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})


def _fault(kind: FieldKind, value: object) -> str | None:
    """What is wrong with a value of this kind, or None."""
    if isinstance(kind, tuple):
        return None if isinstance(value, str) and value in kind else f"must be one of {', '.join(kind)}"
    ok = _KIND_CHECKS[kind](value)
    return None if ok else _KIND_WORDS[kind]


def _is_finite_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or (value == value and value not in (float("inf"), float("-inf")))


_KIND_CHECKS: dict[str, Callable[[Any], bool]] = {
    "id": is_id,
    "name": lambda v: isinstance(v, str),
    "reason": lambda v: isinstance(v, str),
    "text": lambda v: isinstance(v, str),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "num": _is_finite_number,
    "bool": lambda v: isinstance(v, bool),
    "obj": lambda v: isinstance(v, dict) and all(issubclass(kind, str) for kind in set(map(type, v))),
    "list": lambda v: isinstance(v, list),
    "any": lambda v: True,
    "time": lambda v: isinstance(v, str) and is_rfc3339_utc(v),
    "ids": lambda v: isinstance(v, list) and all(is_id(x) for x in v),
}

_KIND_WORDS = {
    "id": "must be an id: 1 to 128 characters of A-Z a-z 0-9 . _ : -",
    "name": "must be a string",
    "reason": "must be a string",
    "text": "must be a string",
    "int": "must be an integer",
    "num": "must be a finite number",
    "bool": "must be true or false",
    "obj": "must be an object",
    "list": "must be a list",
    "any": "",
    "time": "must be an RFC 3339 time in UTC, for example 2026-11-30T08:00:00Z",
    "ids": "must be a list of ids",
}
