"""Copies of what a decoder of the protocol has read, made by C codecs: members are not looked at one by one.

Owns nothing. What was not decoded is for ``strict_json.copy_json``, which looks at everything.
"""

from __future__ import annotations

import re

import msgspec

from lineup_protocol.shapes import has_bytes
from lineup_protocol.strict_json import copy_json

_BYTES_MARK = re.compile(rb"[\xc4-\xc6]")  # how bytes begin in msgpack, or an octet of something else
_packed = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder().decode


def copy_decoded(value: object, path: str = "") -> object:
    """A deep copy of a value; it is only looked for bytes, which some messages may have somewhere.

    Raises:
        LineUpError: ``message_invalid`` with the place of the bytes, as ``copy_json``.
    """
    packed = _packed(value)
    if _BYTES_MARK.search(packed) and has_bytes(value):
        return copy_json(value, path)
    copied: object = _unpacked(packed)
    return copied
