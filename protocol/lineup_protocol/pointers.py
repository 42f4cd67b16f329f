"""How every refusal names the place: JSON pointers (RFC 6901), and the search for a fault that a decoder met.

The C decoders say what is wrong, but not where. So on a refusal, and only then, the codecs decode once more into a tree
in which a ``Flaw`` stands where the fault was, and look for it here.
"""

from __future__ import annotations

from collections.abc import Iterable

SEGMENT_LENGTH_MAX = 64


class Flaw:
    """Stands in a decoded tree for a value that is refused."""

    def __init__(self, rule: str) -> None:
        self.rule = rule


def pointer(base: str, segment: str | int) -> str:
    """``base`` extended by one key or index. Long keys are cut and odd characters escaped: a path is read by people."""
    text = str(segment)
    if len(text) > SEGMENT_LENGTH_MAX:
        text = text[:SEGMENT_LENGTH_MAX] + "…"
    text = text.replace("~", "~0").replace("/", "~1")
    if not text.isprintable():
        text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return f"{base}/{text}"


def join(segments: Iterable[str | int]) -> str:
    """A pointer from its segments; the root is ``/``, since an empty string names nothing to a reader."""
    path = ""
    for segment in segments:
        path = pointer(path, segment)
    return path or "/"


def keep_duplicates(pairs: list[tuple[str, object]]) -> object:
    """For ``object_pairs_hook``: a dict, or a ``Flaw`` if a key comes twice."""
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return Flaw(f"has the key {key[:64]!a} twice")
        seen.add(key)
    return result


def find_flaw(value: object, path: str = "") -> tuple[str, str] | None:
    """The first ``Flaw``, or string that is no valid Unicode, in ``value``, as ``(path, rule)``."""
    if isinstance(value, Flaw):
        return path or "/", value.rule
    if isinstance(value, str):
        return None if is_unicode(value) else (path or "/", "is not valid Unicode")
    if isinstance(value, list):
        for index, item in enumerate(value):
            if (flaw := find_flaw(item, f"{path}/{index}")) is not None:
                return flaw
    elif isinstance(value, dict):
        for key, item in value.items():
            if not is_unicode(key):
                return path or "/", "has a key that is not valid Unicode"
            if (flaw := find_flaw(item, pointer(path, key))) is not None:
                return flaw
    return None


def is_unicode(text: str) -> bool:
    """False if ``text`` has a lone surrogate, which no UTF-8 can carry."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
