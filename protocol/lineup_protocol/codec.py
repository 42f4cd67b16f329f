"""Strict msgpack, for the worker and host links.

This file owns what bytes are a message: one msgpack map, checked before anything is built from it. It must not know
what a message means (see ``messages``) or where it came from. The verdicts are those of ``protocol/SPEC.md`` §3.

Bytes are walked token by token first (see ``token_walk``), which costs about as much as decoding them, so that depth,
lengths and counts are known to be within the limits before the C decoder reserves memory for them.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn, cast

import msgpack

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.messages import Link, check_body, find
from lineup_protocol.pointers import find_flaw, keep_duplicates, pointer
from lineup_protocol.shapes import shape
from lineup_protocol.strict_json import canonical_json, decode_json
from lineup_protocol.token_walk import walk

# Where bytes may stand: (link, from_runtime, type) → the pointer below which they may. Everything else is JSON.
BYTES_ALLOWED: dict[tuple[Link, bool, str], str] = {
    ("worker", False, "artifact.submit"): "/body/content",
    ("host", False, "host.action"): "/body/args",
    ("host", True, "host.result"): "/body/detail",
    ("host", True, "agent.send"): "/body/frames",
}

__all__ = [
    "BYTES_ALLOWED",
    "CAPS",
    "Caps",
    "canonical_json",
    "check_frame",
    "decode",
    "decode_json",
    "decode_message",
    "encode",
    "encode_checked",
    "encode_message",
]


class Caps(NamedTuple):
    """How much one message may be: its bytes, its values (keys count too), its containers inside one another."""

    bytes_max: int
    nodes_max: int
    depth_max: int


# By link and whether the Runtime sends it: what it sends itself may be larger than what it takes, as it carries on what
# was taken, with more around it. Whoever reads must take all that the other side may send.
CAPS: dict[tuple[Link, bool], Caps] = {
    ("agent", False): Caps(limits.AGENT_FRAME_BYTES_MAX, limits.NODES_MAX, limits.AGENT_DEPTH_MAX),
    ("agent", True): Caps(limits.AGENT_FRAME_BYTES_MAX, limits.HOST_NODES_MAX, limits.DEPTH_MAX),
    ("worker", False): Caps(limits.WORKER_MESSAGE_BYTES_MAX, limits.NODES_MAX, limits.INCOMING_DEPTH_MAX),
    ("worker", True): Caps(limits.RUNTIME_MESSAGE_BYTES_MAX, limits.HOST_NODES_MAX, limits.DEPTH_MAX),
    ("host", False): Caps(
        limits.HOST_MESSAGE_BYTES_MAX,
        limits.NODES_MAX + limits.HOST_WRAP_NODES,
        limits.AGENT_DEPTH_MAX + limits.HOST_WRAP_DEPTH,
    ),
    ("host", True): Caps(limits.HOST_MESSAGE_BYTES_MAX, limits.HOST_NODES_MAX, limits.DEPTH_MAX),
}


_BYTES_MARK = re.compile(rb"[\xc4-\xc6]")  # how msgpack's bytes begin


def encode(value: object, caps: Caps) -> bytes:
    """One value as msgpack, by the same rules as ``decode`` (bytes allowed), so that a mistake shows at its author.

    Raises:
        LineUpError: ``message_invalid`` or ``message_too_large``.
    """
    data = _packed(value, caps)
    walk(data, caps.nodes_max, caps.depth_max, allow_bytes=True)
    return data


def encode_checked(value: object, caps: Caps) -> bytes:
    """``encode`` for a message made of what a decoder has taken: good values, but perhaps too many of them.

    Raises:
        LineUpError: as ``encode``.
    """
    data = _packed(value, caps)
    nodes, depth = shape(value)
    if nodes > caps.nodes_max or depth > caps.depth_max:
        walk(data, caps.nodes_max, caps.depth_max, allow_bytes=True)  # it names the place
    return data


def _packed(value: object, caps: Caps) -> bytes:
    try:
        data = cast(bytes, msgpack.packb(value))
    except UnicodeEncodeError:
        raise _invalid("/", "has a string with a lone surrogate, which is not UTF-8") from None
    except MemoryError:
        raise
    except Exception as error:  # of whatever class: a value may be an object whose own methods raise
        raise _invalid("/", f"cannot be encoded: {type(error).__name__}: {error}") from None
    _check_size(len(data), caps.bytes_max)
    return data


def decode(data: bytes, caps: Caps, *, allow_bytes: bool = False) -> object:
    """The one value in ``data``.

    Raises:
        LineUpError: ``message_too_large`` (detail ``{bytes, bytes_max}``), or ``message_invalid`` (detail
            ``{path, rule}``). Nothing else leaves, and a refusal costs memory in proportion to ``len(data)`` at most.
    """
    value, _ = _decode(data, caps, allow_bytes)
    return value


def decode_message(data: bytes, link: Link, *, from_runtime: bool) -> tuple[str, str | None, dict[str, Any]]:
    """One message of the worker or host link as ``(type, id, body)``, checked against the table of messages.

    Raises:
        LineUpError: as ``decode``; also for an unknown type, direction or field.
    """
    frame, has_bytes = _decode(data, CAPS[link, from_runtime], allow_bytes=True)
    type_, message_id, body = check_frame(frame, link, from_runtime=from_runtime)
    if has_bytes:
        _check_bytes(frame, BYTES_ALLOWED.get((link, from_runtime, type_)))
    return type_, message_id, body


def check_frame(frame: object, link: Link, *, from_runtime: bool) -> tuple[str, str | None, dict[str, Any]]:
    """``{type, id?, body}`` of a decoded frame, taken apart and checked. Raises ``message_invalid``."""
    if not isinstance(frame, dict):
        raise _invalid("/", "must be a map {type, id?, body}")
    for name in frame:
        if name not in ("type", "id", "body"):
            raise _invalid(pointer("", str(name)), "unknown field")
    type_ = frame.get("type")
    if not isinstance(type_, str):
        raise _invalid("/type", "must be a string")
    message = find(link, type_, from_runtime=from_runtime)
    if message is None:
        raise _invalid("/type", f"no such message here: {type_[:64]!r}")
    message_id = frame.get("id")
    if message_id is not None and not is_id(message_id):
        raise _invalid("/id", "must be an id: 1 to 128 characters of A-Z a-z 0-9 . _ : -")
    return type_, message_id, cast("dict[str, Any]", check_body(message, frame.get("body"), path="/body"))


def encode_message(
    type_: str,
    body: dict[str, Any],
    *,
    link: Link,
    from_runtime: bool,
    message_id: str | None = None,
    checked: bool = False,
) -> bytes:
    """``{type, id?, body}`` as bytes, within what may be sent so on this link. The body is the caller's to get right,
    but bytes where only JSON values may stand are refused here: the peer would end the link for them. ``checked`` as
    for ``encode_checked``.

    Raises:
        LineUpError: as ``encode``.
    """
    frame: dict[str, Any] = {"type": type_, "body": body}
    if message_id is not None:
        frame["id"] = message_id
    data = (encode_checked if checked else encode)(frame, CAPS[link, from_runtime])
    if _BYTES_MARK.search(data) is not None:  # perhaps, or the same octet within a string or a number
        _check_bytes(frame, BYTES_ALLOWED.get((link, from_runtime, type_)))
    return data


def _decode(data: bytes, caps: Caps, allow_bytes: bool) -> tuple[object, bool]:
    """The value, and whether it has bytes in it."""
    _check_size(len(data), caps.bytes_max)
    if not data:
        raise _invalid("/", "is empty")
    nodes, has_bytes = walk(data, caps.nodes_max, caps.depth_max, allow_bytes=allow_bytes)
    try:
        value: object = msgpack.unpackb(data)
    except UnicodeDecodeError:
        _name_the_place(data)
    except ValueError as error:
        raise _invalid("/", f"is not msgpack of this protocol: {error}") from None
    if nodes != shape(value)[0]:  # some are missing: a map has one key twice
        _name_the_place(data)
    return value, has_bytes


# --- naming the place of a fault that the C decoder found -------------------------------------------------------------


def _name_the_place(data: bytes) -> NoReturn:
    """Decode once more, leniently, and look for what was refused. Only for data whose lengths and depth are checked."""
    value = msgpack.unpackb(data, object_pairs_hook=keep_duplicates, unicode_errors="surrogateescape")
    path, rule = find_flaw(value, "") or ("/", "is not valid")
    raise _invalid(path, rule)


def _check_bytes(frame: object, allowed: str | None) -> None:
    stack: list[tuple[object, str]] = [(frame, "")]
    while stack:
        value, path = stack.pop()
        if isinstance(value, bytes):
            if allowed is None or not (path == allowed or path.startswith(allowed + "/")):
                raise _invalid(path or "/", "has bytes where only JSON values may stand")
        elif isinstance(value, dict):
            stack.extend((item, pointer(path, key)) for key, item in value.items())
        elif isinstance(value, list):
            stack.extend((item, f"{path}/{index}") for index, item in enumerate(value))


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise LineUpError(
            "message_too_large",
            f"the message has {size} bytes, at most {bytes_max} are allowed",
            detail={"bytes": size, "bytes_max": bytes_max},
        )


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
