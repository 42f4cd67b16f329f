"""The canonical JSON of what was checked before: the bytes of ``strict_json.canonical_json``, made fast.

Owns nothing. It must only be given JSON values: where that one refuses, this one may not. Digests and the audit are
most of the canonical JSON that an event needs, and both are made of values that have passed the checks.
"""

from __future__ import annotations

import re

import msgspec

from lineup_protocol.strict_json import canonical_json, whole_floats_as_integers

_CONTAINERS = (dict, list, tuple)
_encoder = msgspec.json.Encoder(order="sorted")
# Where an item is a number with a form of its own: a whole float is an integer, an exponent is written as Python does.
# What looks like one within a string is a false alarm, which only costs time.
_OWN_FORM = re.compile(rb"[:,\[]-?[0-9]+(?:\.0[,\]}]|(?:\.[0-9]+)?[eE])")
_EXPONENT = re.compile(rb"[:,\[]-?[0-9]+(?:\.[0-9]+)?[eE]")


def canonical(value: object) -> bytes:
    """The canonical bytes of a JSON value.

    Raises:
        LineUpError: ``message_invalid`` for what cannot be encoded at all.
    """
    try:
        encoded = _encoder.encode(value)
        if not isinstance(value, _CONTAINERS):
            return canonical_json(value) if isinstance(value, float) else encoded
        if (b"." in encoded or b"e" in encoded) and _OWN_FORM.search(encoded):
            if _EXPONENT.search(encoded):
                return canonical_json(value)
            encoded = _encoder.encode(whole_floats_as_integers(value))
    except (TypeError, ValueError, RecursionError):  # UnicodeEncodeError, for a lone surrogate, is a ValueError
        return canonical_json(value)
    return encoded
