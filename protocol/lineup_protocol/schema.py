"""The subset of JSON Schema that tools and state snapshots may use, and its validators.

This file owns three things: what a schema may say (an allow-list; everything else is refused with its path), the
verdict on a value (``first_fault``, the reference), and a compiled form that answers the common case fast. It must not
know what a schema is for.

fastjsonschema does the compiling, kept on a short rein: it sees a schema only after the allow-list has passed and only
if every name in it is plain (it writes names into source code), it may only say yes, and each no is decided and worded
by the reference. Where its verdicts differ from ours (``True`` equals 1 in its enums) it is not used.
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.pointers import is_unicode, pointer
from lineup_protocol.shown_text import is_prose
from lineup_protocol.strict_json import canonical_json, copy_json

TYPES = ("object", "string", "number", "integer", "boolean", "array")

# Which keywords may stand beside which type; None stands for a schema without a type.
_ANYWHERE = frozenset(("type", "title", "description", "enum"))
KEYWORDS: dict[str | None, frozenset[str]] = {
    None: _ANYWHERE,
    "object": _ANYWHERE | {"properties", "required", "additionalProperties"},
    "string": _ANYWHERE | {"minLength", "maxLength"},
    "number": _ANYWHERE | {"minimum", "maximum"},
    "integer": _ANYWHERE | {"minimum", "maximum"},
    "boolean": _ANYWHERE,
    "array": _ANYWHERE | {"items", "maxItems"},
}
_ALL_KEYWORDS = frozenset().union(*KEYWORDS.values())
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_ENUM_COMPILED_MAX = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule: where (a JSON pointer) and which, in words."""

    path: str
    rule: str

    def as_dict(self) -> dict[str, str]:
        return {"path": self.path, "rule": self.rule}


def refusal(faults: list[Fault]) -> LineUpError:
    """``manifest_invalid`` with all faults, in order of their paths, each once."""
    unique = sorted({(fault.path, fault.rule) for fault in faults})
    first_path, first_rule = unique[0]
    more = f" (and {len(unique) - 1} more)" if len(unique) > 1 else ""
    return LineUpError(
        "manifest_invalid",
        f"{first_path}: {first_rule}{more}",
        detail={"faults": [{"path": path, "rule": rule} for path, rule in unique[: limits.MANIFEST_FAULTS_MAX]]},
    )


# --- the allow-list ---------------------------------------------------------------------------------------------------


def check_schema(schema: object, path: str = "") -> list[Fault]:
    """Every fault of a schema; an empty list if it is inside the subset."""
    faults = list(_schema_faults(schema, path, 1))
    if not faults:
        size = len(canonical_json(schema))
        if size > limits.SCHEMA_BYTES_MAX:
            faults.append(Fault(path or "/", f"has {size} bytes, at most {limits.SCHEMA_BYTES_MAX} are allowed"))
    return faults


def _schema_faults(schema: object, path: str, depth: int) -> Iterator[Fault]:
    if not isinstance(schema, dict):
        yield Fault(path or "/", "must be an object: a schema")
        return
    if depth > limits.SCHEMA_DEPTH_MAX:
        yield Fault(path or "/", f"is nested deeper than {limits.SCHEMA_DEPTH_MAX}")
        return
    type_ = schema.get("type")
    if "type" in schema and not (isinstance(type_, str) and type_ in TYPES):
        yield Fault(pointer(path, "type"), f"must be one of {', '.join(TYPES)}")
        type_ = None
        allowed = _ALL_KEYWORDS
    else:
        allowed = KEYWORDS[type_]
    for name, value in schema.items():
        place = pointer(path, str(name))
        if name not in _ALL_KEYWORDS:
            yield Fault(place, f"unknown keyword; allowed are {', '.join(sorted(_ALL_KEYWORDS))}")
        elif name not in allowed:
            yield Fault(place, f"has no meaning for type {type_}" if type_ else "needs a type beside it")
        elif name in _KEYWORD_CHECKS:
            yield from _KEYWORD_CHECKS[name](schema, value, place, depth)
    yield from _bound_faults(schema, path)


def _text_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    length_max = limits.TITLE_LENGTH_MAX if place.endswith("/title") else limits.DESCRIPTION_LENGTH_MAX
    if not isinstance(value, str) or not is_unicode(value):
        yield Fault(place, "must be a string")
    elif len(value) > length_max:
        yield Fault(place, f"must have at most {length_max} characters")
    elif not (value.isprintable() if place.endswith("/title") else is_prose(value)):
        yield Fault(place, "must have no control characters and no marks that reorder text")


def _properties_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault(place, "must be an object: names and their schemas")
        return
    if len(value) > limits.SCHEMA_PROPERTIES_MAX:
        yield Fault(place, f"must have at most {limits.SCHEMA_PROPERTIES_MAX} properties")
        return
    for name, inner in value.items():
        if not isinstance(name, str) or not is_unicode(name) or not 1 <= len(name) <= limits.TITLE_LENGTH_MAX:
            yield Fault(place, f"has a name that is not 1 to {limits.TITLE_LENGTH_MAX} characters of Unicode")
        else:
            yield from _schema_faults(inner, pointer(place, name), depth + 1)


def _required_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield Fault(place, "must be a list of property names")
        return
    properties = schema.get("properties")
    seen: set[str] = set()
    for index, name in enumerate(value[: limits.SCHEMA_PROPERTIES_MAX + 1]):
        if not isinstance(name, str):
            yield Fault(pointer(place, index), "must be a string")
        elif name in seen:
            yield Fault(pointer(place, index), "is named twice")
        elif not isinstance(properties, dict) or name not in properties:
            yield Fault(pointer(place, index), "is not declared in properties")
        else:
            seen.add(name)


def _additional_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    if value is not False:
        yield Fault(place, "must be false")


def _enum_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    if not isinstance(value, list) or not value:
        yield Fault(place, "must be a list of at least one value")
        return
    if len(value) > limits.SCHEMA_ENUM_MAX:
        yield Fault(place, f"must have at most {limits.SCHEMA_ENUM_MAX} values")
        return
    type_ = schema.get("type")
    seen: list[object] = []
    for index, item in enumerate(value):
        if not _is_scalar(item):
            yield Fault(pointer(place, index), "must be a string, a finite number, true, false or null")
        elif type_ in ("object", "array") or (type_ in TYPES and not _TYPE_CHECKS[type_](item)):
            yield Fault(pointer(place, index), f"is not of type {type_}")
        elif any(_equal(item, other) for other in seen):
            yield Fault(pointer(place, index), "is there twice")
        else:
            seen.append(item)


def _count_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limits.INTEGER_ABS_MAX:
        yield Fault(place, "must be an integer from 0")


def _limit_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    if not _is_number(value):
        yield Fault(place, "must be a finite number of at most 2^53−1 if it is an integer")


def _items_faults(schema: dict[str, object], value: object, place: str, depth: int) -> Iterator[Fault]:
    yield from _schema_faults(value, place, depth + 1)


def _bound_faults(schema: dict[str, object], path: str) -> Iterator[Fault]:
    for low, high in (("minLength", "maxLength"), ("minimum", "maximum")):
        least, most = schema.get(low), schema.get(high)
        if _is_number(least) and _is_number(most) and cast(float, least) > cast(float, most):
            yield Fault(pointer(path, low), f"must not be above {high}: nothing could satisfy it")
            return
    if schema.get("type") == "integer":
        yield from _empty_range_faults(schema, path)


def _empty_range_faults(schema: dict[str, object], path: str) -> Iterator[Fault]:
    """Of integers: none lies between 0.2 and 0.8, nor beyond 2^53−1."""
    given = {name: cast(float, schema[name]) for name in ("minimum", "maximum") if _is_number(schema.get(name))}
    least = math.ceil(max(given.get("minimum", -math.inf), -limits.INTEGER_ABS_MAX))
    most = math.floor(min(given.get("maximum", math.inf), limits.INTEGER_ABS_MAX))
    if least > most:
        name = "minimum" if given.get("minimum", 0) > 0 or "maximum" not in given else "maximum"
        yield Fault(pointer(path, name), "leaves no integer within ±(2^53−1): nothing could satisfy it")


_KeywordCheck = Callable[[dict[str, object], object, str, int], Iterator[Fault]]
_KEYWORD_CHECKS: dict[str, _KeywordCheck] = {
    "title": _text_faults,
    "description": _text_faults,
    "properties": _properties_faults,
    "required": _required_faults,
    "additionalProperties": _additional_faults,
    "enum": _enum_faults,
    "minLength": _count_faults,
    "maxLength": _count_faults,
    "maxItems": _count_faults,
    "minimum": _limit_faults,
    "maximum": _limit_faults,
    "items": _items_faults,
}


# --- the verdict ------------------------------------------------------------------------------------------------------


def first_fault(schema: dict[str, Any], value: object, path: str = "") -> Fault | None:
    """The reference verdict on one value: None, or the first broken rule. ``schema`` has passed ``check_schema``.

    Its time grows with the value and not with the schema: a MiniApp writes both, and everybody waits for the verdict.
    """
    return _told(_first_broken(schema, value, _enums_of(schema)), path)


@dataclass(slots=True)
class _Broken:
    """A broken rule; ``outward`` is the way to it, innermost first, so that nobody pays for the paths of what holds."""

    rule: str
    outward: list[str | int]


_Enums = dict[int, frozenset[tuple[bool, object]]]  # by the id of the schema's list, as long as the schema lives


def _told(broken: _Broken | None, path: str) -> Fault | None:
    if broken is None:
        return None
    for segment in reversed(broken.outward):
        path = pointer(path, segment)
    return Fault(path or "/", broken.rule)


def _enums_of(schema: dict[str, Any]) -> _Enums:
    """The values of every enum inside, for a look-up: ``1`` equals ``1.0``, never ``true``."""
    found: _Enums = {}
    left = [schema]
    while left:
        each = left.pop()
        if "enum" in each:
            found[id(each["enum"])] = frozenset((isinstance(value, bool), value) for value in each["enum"])
        left += each.get("properties", {}).values()
        left += [each["items"]] if "items" in each else []
    return found


def _first_broken(schema: dict[str, Any], value: object, enums: _Enums) -> _Broken | None:
    type_ = schema.get("type")
    if type_ is not None and not _TYPE_CHECKS[type_](value):
        return _Broken(_TYPE_WORDS[type_], [])
    if "enum" in schema:
        enum = schema["enum"]
        if isinstance(value, dict | list) or (isinstance(value, bool), value) not in enums[id(enum)]:
            return _Broken(f"must be one of {', '.join(_shown(allowed) for allowed in enum[:16])}", [])
    if type_ == "string":
        return _length_broken(schema, cast(str, value))
    if type_ in ("number", "integer"):
        return _range_broken(schema, cast(float, value))
    if type_ == "object":
        return _object_broken(schema, cast("dict[str, object]", value), enums)
    if type_ == "array":
        return _array_broken(schema, cast("list[object]", value), enums)
    return None


def _length_broken(schema: dict[str, Any], value: str) -> _Broken | None:
    # Unicode code points, as JSON Schema has it: an emoji of several code points counts as several.
    if len(value) < schema.get("minLength", 0):
        return _Broken(f"must have at least {schema['minLength']} characters", [])
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        return _Broken(f"must have at most {schema['maxLength']} characters", [])
    return None


def _range_broken(schema: dict[str, Any], value: float) -> _Broken | None:
    if "minimum" in schema and value < schema["minimum"]:
        return _Broken(f"must be at least {schema['minimum']}", [])
    if "maximum" in schema and value > schema["maximum"]:
        return _Broken(f"must be at most {schema['maximum']}", [])
    return None


def _object_broken(schema: dict[str, Any], value: dict[str, object], enums: _Enums) -> _Broken | None:
    for name in schema.get("required", ()):
        if name not in value:
            return _Broken("is required", [name])
    properties: dict[str, Any] = schema.get("properties", {})
    for name, item in value.items():
        if name in properties:
            if (broken := _first_broken(properties[name], item, enums)) is not None:
                broken.outward.append(name)
                return broken
        elif "additionalProperties" in schema:
            return _Broken("is not allowed here", [name])
    return None


def _array_broken(schema: dict[str, Any], value: list[object], enums: _Enums) -> _Broken | None:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        return _Broken(f"must have at most {schema['maxItems']} items", [])
    if "items" in schema:
        for index, item in enumerate(value):
            if (broken := _first_broken(schema["items"], item, enums)) is not None:
                broken.outward.append(index)
                return broken
    return None


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= limits.INTEGER_ABS_MAX
    return isinstance(value, float) and math.isfinite(value)


def _is_integer(value: object) -> bool:
    # JSON knows no integers: 1.0 is 1. A whole float beyond 2^53 is not exact and therefore no integer.
    return _is_number(value) and cast(float, value) == int(cast(float, value)) and abs(cast(float, value)) < 2**53


def _is_scalar(value: object) -> bool:
    return (
        value is None or isinstance(value, bool) or (isinstance(value, str) and is_unicode(value)) or _is_number(value)
    )


_TYPE_CHECKS: dict[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
}

_TYPE_WORDS = {
    "object": "must be an object",
    "string": "must be a string",
    "number": "must be a number",
    "integer": "must be an integer within ±(2^53−1)",
    "boolean": "must be true or false",
    "array": "must be a list",
}


def _equal(one: object, other: object) -> bool:
    """JSON equality of scalars: ``1`` equals ``1.0``, never ``true``."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def _shown(value: object) -> str:
    return canonical_json(value).decode()[:64]


# --- compiled validators ----------------------------------------------------------------------------------------------


class Validator:
    """A checked schema, ready for use. Safe to share between threads."""

    def __init__(self, schema: dict[str, Any], digest: str) -> None:
        self.schema = schema
        self.digest = digest
        self._says_yes: Callable[[object], bool] | None = None  # compiled at the first use
        self._enums = _enums_of(schema)
        self._has_integers = _has_integers(schema)

    def validate(self, value: object, *, code: str, path: str = "") -> Any:
        """A deep copy of ``value`` in which whole floats are ints where the schema asks for an integer.

        Raises:
            LineUpError: ``code`` with ``detail = {path, rule}``. ``value`` itself is never changed.
        """
        try:
            copy = copy_json(value, path)
        except LineUpError as error:
            raise LineUpError(code, error.message, detail=error.detail) from None
        if self._says_yes is None:
            self._says_yes = _compiled(self.schema)
        if not self._says_yes(copy) and (
            (fault := _told(_first_broken(self.schema, copy, self._enums), path)) is not None
        ):
            raise LineUpError(code, f"{fault.path}: {fault.rule}", detail=fault.as_dict())
        return _with_integers(self.schema, copy) if self._has_integers else copy


_cache: OrderedDict[str, Validator] = OrderedDict()
_cache_lock = threading.Lock()


def compile_schema(schema: object, *, digest: str | None = None) -> Validator:
    """The validator of a schema, cached by the sha256 of its canonical JSON (pass ``digest`` if you have it already).

    Raises:
        LineUpError: ``manifest_invalid`` with ``detail = {faults: [{path, rule}]}`` if it is outside the subset.
    """
    if digest is not None:
        with _cache_lock:
            if (known := _cache.get(digest)) is not None:
                _cache.move_to_end(digest)
                return known
    faults = check_schema(schema)
    if faults:
        raise LineUpError(
            "manifest_invalid",
            f"the schema has {len(faults)} faults, the first at {faults[0].path}: {faults[0].rule}",
            detail={"faults": [fault.as_dict() for fault in faults[: limits.MANIFEST_FAULTS_MAX]]},
        )
    digest = schema_digest(schema)
    with _cache_lock:
        validator = _cache.get(digest)
        if validator is None:
            validator = _cache[digest] = Validator(cast("dict[str, Any]", copy_json(schema)), digest)
        _cache.move_to_end(digest)
        while len(_cache) > limits.SCHEMA_VALIDATORS_CACHED_MAX:
            _cache.popitem(last=False)
    return validator


def schema_digest(schema: object) -> str:
    """sha256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(schema)).hexdigest()


def _compiled(schema: dict[str, Any]) -> Callable[[object], bool]:
    """A quick test that never wrongly says True; False means that the reference has to look."""
    reduced = _reduced(schema)
    if reduced is None:
        return lambda value: False
    import fastjsonschema  # here, since the SDK's and the daemon's start should not pay for it

    check = fastjsonschema.compile(reduced, use_default=False, use_formats=False, detailed_exceptions=False)

    def says_yes(value: object) -> bool:
        try:
            check(value)
        except fastjsonschema.JsonSchemaException:
            return False
        return True

    return says_yes


def _reduced(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema for fastjsonschema: without prose; None if it has anything that must not become source code."""
    result: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#"}
    for name, value in schema.items():
        if name in ("title", "description"):
            continue
        if name == "enum" and not _is_plain_enum(value):
            return None
        if name == "properties":
            if not all(_PLAIN_NAME.fullmatch(key) for key in value):
                return None
            value = {key: _reduced(inner) for key, inner in value.items()}
            if None in value.values():
                return None
        elif name == "items" and (value := _reduced(value)) is None:
            return None
        result[name] = value
    if schema.get("type") == "integer":
        # It takes any whole float for an integer; ours end where floats stop being exact.
        result["minimum"] = max(schema.get("minimum", -limits.INTEGER_ABS_MAX), -limits.INTEGER_ABS_MAX)
        result["maximum"] = min(schema.get("maximum", limits.INTEGER_ABS_MAX), limits.INTEGER_ABS_MAX)
    return result


def _is_plain_enum(values: list[object]) -> bool:
    """Names, and few: it looks them through one by one for every value."""
    return len(values) <= _ENUM_COMPILED_MAX and all(
        isinstance(item, str) and _PLAIN_NAME.fullmatch(item) for item in values
    )


def _has_integers(schema: dict[str, Any]) -> bool:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return schema.get("type") == "integer" or any(_has_integers(each) for each in inner)


def _with_integers(schema: dict[str, Any], value: object) -> object:
    """``value``, a valid copy, changed in place: ``1.0`` becomes ``1`` wherever the schema asks for an integer."""
    if isinstance(value, float):
        return int(value) if schema.get("type") == "integer" else value
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                value[name] = _with_integers(inner, value[name])
    elif isinstance(value, list) and "items" in schema:
        value[:] = [_with_integers(schema["items"], item) for item in value]
    return value
