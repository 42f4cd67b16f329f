"""Keys as bytes: an encoding whose byte order is the order of the tuples.

This file owns the form of every key in the store and its limits; both stores use it, so that they refuse the same
keys and sort alike. It must not know what a key means.

Form, component after component: an integer is ``01`` and 8 bytes, big-endian; a string is ``02``, its UTF-8, ``00``.
UTF-8 keeps the order of code points, the closing NUL sorts a string before its continuations, and it makes the bytes
of a tuple a prefix of the bytes of exactly those tuples that it is a prefix of. Integers sort before strings.
"""

from __future__ import annotations

import functools

from lineup_supervisor.core.txn import Key

KEY_BYTES_MAX = 511  # what LMDB was built for; three ids of 128 characters fit, a fourth does not
INT_END = 1 << 63  # integers are below it: 8 bytes with room for a sign that is never used

_INT = 0x01
_STR = 0x02


class BadKey(ValueError):
    """Our own misuse: a key that the store cannot hold. Nothing was read or written."""


def encode_key(key: Key) -> bytes:
    """The bytes of a whole key.

    Raises:
        BadKey: empty, too long, a NUL in a string, an integer out of range, or another type.
    """
    encoded = encode_prefix(key)
    if not 0 < len(encoded) <= KEY_BYTES_MAX:
        raise BadKey(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(encoded)}: {key!r}")
    return encoded


def encode_prefix(prefix: Key) -> bytes:
    """The bytes that the key of every tuple starting with ``prefix`` starts with; ``()`` gives none."""
    encoded = b""
    for part in prefix:
        if type(part) is str:
            encoded += _string(part)
        elif type(part) is int and 0 <= part < INT_END:
            encoded += b"\x01" + part.to_bytes(8, "big")
        else:
            encoded += _other(part)
    return encoded


@functools.lru_cache(maxsize=2048)  # the same ids come again and again: half of the keys of an event are known
def _string(part: str) -> bytes:
    if "\0" in part:
        raise BadKey(f"NUL in key component {part!r}")
    try:
        return b"\x02%b\0" % part.encode()
    except UnicodeEncodeError as error:
        raise BadKey(f"lone surrogate in key component {part!r}") from error


def _other(part: object) -> bytes:
    if isinstance(part, str):  # an enum's member, say
        return _string(str.__str__(part))
    if isinstance(part, int) and not isinstance(part, bool):
        if not 0 <= part < INT_END:
            raise BadKey(f"integer out of range in key: {part}")
        return b"\x01" + int(part).to_bytes(8, "big")
    raise BadKey(f"{type(part).__name__} in key")


def decode_key(encoded: bytes) -> Key:
    """The inverse of ``encode_key``. Raises BadKey for bytes that it never made."""
    parts: list[str | int] = []
    at = 0
    while at < len(encoded):
        tag = encoded[at]
        if tag == _STR:
            end = encoded.find(b"\0", at)
            if end < 0:
                raise BadKey(f"string without end in key {encoded!r}")
            try:
                parts.append(encoded[at + 1 : end].decode())
            except UnicodeDecodeError as error:
                raise BadKey(f"bad UTF-8 in key {encoded!r}") from error
            at = end + 1
        elif tag == _INT and at + 9 <= len(encoded):
            parts.append(int.from_bytes(encoded[at + 1 : at + 9], "big"))
            at += 9
        else:
            raise BadKey(f"unknown component in key {encoded!r}")
    return tuple(parts)


def prefix_end(prefix: bytes) -> bytes | None:
    """The smallest bytes above everything that starts with ``prefix``; None if there is no such end (empty prefix).

    No encoded byte string consists of ``ff`` alone: a component starts with a tag.
    """
    return None if not prefix else _successor(prefix)


def _successor(prefix: bytes) -> bytes:
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,))
