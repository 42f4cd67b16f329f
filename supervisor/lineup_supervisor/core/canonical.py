"""The canonical JSON of what was checked before: the bytes of ``strict_json.canonical_json``, made fast.

Owns nothing. It must only be given JSON values: where that one refuses, this one may not. Digests and the audit are
most of the canonical JSON that an event needs, and both are made of values that have passed the checks.
"""

from __future__ import annotations

import re

import msgspec

from lineup_protocol.strict_json import canonical_json

_encoder = msgspec.json.Encoder(order="sorted")
# Where an item begins and is a float: those have a form of their own. A false alarm only costs time.
_FLOAT = re.compile(rb"[:,\[]-?[0-9]+[.eE]")


def canonical(value: object) -> bytes:
    """The canonical bytes of a JSON value.

    Raises:
        LineUpError: ``message_invalid`` for what cannot be encoded at all.
    """
    try:
        encoded = _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):  # UnicodeEncodeError, for a lone surrogate, is a ValueError
        return canonical_json(value)
    return canonical_json(value) if _FLOAT.search(encoded) or type(value) is float else encoded
