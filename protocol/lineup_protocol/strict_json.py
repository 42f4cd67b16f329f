"""Strict JSON, for the agent link, the command line and manifests; and the one canonical form that digests are made of.

The verdicts are those of ``protocol/SPEC.md`` §3, the same as for msgpack: what one link refuses, all refuse.
"""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.pointers import Flaw, find_flaw, is_unicode, keep_duplicates, pointer

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_DIGITS = re.compile(r"[0-9]{16}")
# Of a text without escaped quotes. An unterminated string counts to the end, so that nothing is scanned twice.
_STRINGS = re.compile(r'"[^"]*(?:"|\Z)')
_ROUND = bytes.maketrans(b"[{]}", b"(())")
_NO_BRACKETS = bytes(octet for octet in range(256) if octet not in b"[{]}")
# Where an item begins and is a float; an id or a time within a string is none. A false alarm only costs time.
_FLOAT_IN_TEXT = re.compile(r"[:,\[]-?[0-9]+[.eE]")


_SAME = frozenset((str, int, bool, type(None)))  # no float is in them


class _Refused(ValueError):
    """Something that JSON's grammar or Python's parser allows and this protocol does not."""


def decode_json(
    text: str | bytes, *, bytes_max: int, nodes_max: int | None = None, depth_max: int = limits.DEPTH_MAX
) -> object:
    """The one JSON value in ``text``.

    Refused beyond plain grammar: duplicate keys, ``NaN`` and ``Infinity``, numbers that overflow a double, integers
    beyond ±(2^53−1), lone surrogates, a byte order mark, more than ``depth_max`` levels or ``nodes_max`` values.

    Raises:
        LineUpError: ``message_too_large``, or ``message_invalid`` with ``detail = {path, rule}``.
    """
    text = _as_text(text, bytes_max)
    _check_measure(text, nodes_max, depth_max)
    decoder = _STRICT_LONG if _LONG_DIGITS.search(text) else _STRICT
    try:
        value: object = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _invalid("/", f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except _Refused:
        _name_the_place(text)
    if _SURROGATE_ESCAPE.search(text) and find_flaw(value) is not None:
        _name_the_place(text)
    return value


def canonical_json(value: object) -> bytes:
    """The canonical bytes of a JSON value: sorted keys, no spaces, UTF-8, whole floats up to 2^53 as integers.

    Two values that this protocol counts as equal (``1`` and ``1.0``) have the same bytes.

    Raises:
        LineUpError: ``message_invalid`` with the place for anything that is no JSON value.
    """
    try:
        text = _CANONICAL.encode(value)
        if isinstance(value, float) or _FLOAT_IN_TEXT.search(text):
            text = _CANONICAL.encode(whole_floats_as_integers(value))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        copy_json(value)  # it names the place, where it refuses the same
        raise _invalid("/", f"is no JSON value: {error}") from None


def whole_floats_as_integers(value: object) -> object:
    """A copy in which ``1.0`` is ``1`` and ``-0.0`` is ``0``; floats beyond ±(2^53−1) stay what they are."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= limits.INTEGER_ABS_MAX else value
    if isinstance(value, dict):
        return {key: item if type(item) in _SAME else whole_floats_as_integers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in _SAME else whole_floats_as_integers(item) for item in value]
    return value


def copy_json(value: object, path: str = "") -> object:
    """A deep copy of a JSON value, so that whoever gave it keeps his own.

    Raises:
        LineUpError: ``message_invalid`` for what is no JSON value of this protocol (NaN, bytes, a tuple, …).
    """
    try:
        return _copy(value, 1)
    except _NoValue as fault:
        place = path
        for segment in reversed(fault.outward):
            place = pointer(place, segment)
        raise _invalid(place or "/", fault.rule) from None


class _NoValue(Exception):
    """Something in the tree is no JSON value; ``outward`` gathers the way to it, innermost first."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.outward: list[str | int] = []


def _copy(value: object, depth: int) -> object:
    if isinstance(value, str):
        if not is_unicode(value):
            raise _NoValue("is not valid Unicode")
    elif isinstance(value, bool) or value is None:
        pass
    elif isinstance(value, int):
        if abs(value) > limits.INTEGER_ABS_MAX:
            raise _NoValue(_TOO_BIG)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _NoValue(_NOT_FINITE)
    elif isinstance(value, dict | list):
        if depth > limits.DEPTH_MAX:
            raise _NoValue(f"is nested deeper than {limits.DEPTH_MAX}")
        return _copy_map(value, depth + 1) if isinstance(value, dict) else _copy_list(value, depth + 1)
    else:
        raise _NoValue(f"is no JSON value but {type(value).__name__}")
    return value


def _copy_map(value: dict[object, object], depth: int) -> dict[str, object]:
    copied: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str) or not is_unicode(key):
            raise _NoValue("has a key that is no valid string")
        try:
            copied[key] = _copy(item, depth)
        except _NoValue as fault:
            fault.outward.append(key)
            raise
    return copied


def _copy_list(value: list[object], depth: int) -> list[object]:
    copied: list[object] = []
    for index, item in enumerate(value):
        try:
            copied.append(_copy(item, depth))
        except _NoValue as fault:
            fault.outward.append(index)
            raise
    return copied


# --- the decoders -----------------------------------------------------------------------------------------------------

_TOO_BIG = "is an integer beyond ±(2^53−1); send it as a string"
_NOT_FINITE = "is not a finite number"


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Refused
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise _Refused


def _strict_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _Refused
    return number


def _strict_int(digits: str) -> int:
    # Measured by length first: turning 5,000 digits into a number is slow, and Python refuses it in its own words.
    if len(digits) > 17 or abs(number := int(digits)) > limits.INTEGER_ABS_MAX:
        raise _Refused
    return number


def _kept_float(digits: str) -> object:
    number = float(digits)
    return Flaw(_NOT_FINITE) if math.isinf(number) else number


def _kept_int(digits: str) -> object:
    return Flaw(_TOO_BIG) if len(digits) > 17 or abs(int(digits)) > limits.INTEGER_ABS_MAX else int(digits)


_STRICT = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_strict_float
)
_STRICT_LONG = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates,
    parse_constant=_refuse_constant,
    parse_float=_strict_float,
    parse_int=_strict_int,
)
_KEEPING = json.JSONDecoder(
    object_pairs_hook=keep_duplicates,
    parse_constant=lambda name: Flaw(_NOT_FINITE),
    parse_float=_kept_float,
    parse_int=_kept_int,
)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _as_text(text: str | bytes, bytes_max: int) -> str:
    try:
        data = text.encode() if isinstance(text, str) else text
        size = len(data)
        decoded = text if isinstance(text, str) else (text.decode() if size <= bytes_max else "")
    except UnicodeError:
        raise _invalid("/", "is not valid UTF-8") from None
    if size > bytes_max:
        raise LineUpError(
            "message_too_large",
            f"the text has {size} bytes, at most {bytes_max} are allowed",
            detail={"bytes": size, "bytes_max": bytes_max},
        )
    if decoded.startswith("\ufeff"):
        raise _invalid("/", "is not JSON: it starts with a byte order mark")
    return decoded


def _check_measure(text: str, nodes_max: int | None, depth_max: int) -> None:
    """Refuse too many values or levels before anything is built, at a cost that goes by the text's length alone."""
    is_deep = text.count("[") + text.count("{") > depth_max
    is_much = nodes_max is not None and _values_most(text) > nodes_max
    if not is_deep and not is_much:
        return
    # Each string has one quote or two without a backslash before them, so these are more strings than there may be.
    if nodes_max is not None and text.count('"') - text.count('\\"') > 2 * nodes_max:
        raise _too_much(nodes_max)
    bare = _STRINGS.sub('""', text.replace("\\\\", "").replace('\\"', ""))  # in pairs from the left, as they are read
    if is_deep and _is_deeper(bare, depth_max):
        raise _invalid("/", f"is nested deeper than {depth_max}")
    if nodes_max is not None and is_much and _values_most(bare) > nodes_max:
        raise _too_much(nodes_max)


def _is_deeper(bare: str, depth_max: int) -> bool:
    """Whether containers in a text without strings stand deeper in one another: each round takes the innermost away."""
    brackets = bare.encode("ascii", "replace").translate(_ROUND, _NO_BRACKETS)
    for _ in range(depth_max):
        fewer = brackets.replace(b"()", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    return b"()" in brackets or brackets.count(b"(") > depth_max  # what is left of another kind is not even JSON


def _values_most(text: str) -> int:
    """Keys are counted like values, as on the other links. Never fewer than there are, and in a text whose strings are
    empty no more, but for empty containers with a space inside.
    """
    commas_and_colons = text.count(",") + text.count(":")
    containers = text.count("[") + text.count("{") - text.count("[]") - text.count("{}")
    return 1 + commas_and_colons + max(0, containers)


def _too_much(nodes_max: int) -> LineUpError:
    return _invalid("/", f"is in a message of more than {nodes_max} values")


def _name_the_place(text: str) -> NoReturn:
    try:
        value = _KEEPING.decode(text)
    except json.JSONDecodeError as error:  # behind what was refused it is not even JSON
        raise _invalid("/", f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    path, rule = find_flaw(value) or ("/", "is not valid")
    raise _invalid(path, rule)


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
