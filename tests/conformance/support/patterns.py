"""What a scenario expects, compared with what came. Pure functions over JSON values.

In an expected value ``"<any>"``, ``"<time>"`` and ``"<id>"`` stand for any such value, ``"$name"`` for what was
bound to the name before, or binds it now.
"""

from __future__ import annotations

import re
from typing import Any

from lineup_protocol.ids import is_id
from lineup_protocol.times import is_rfc3339_utc

NAME = re.compile(r"\$[a-z][a-z_0-9]*")
KINDS: dict[str, Any] = {"<any>": lambda value: True, "<time>": is_rfc3339_utc, "<id>": is_id}


def difference(expected: Any, came: Any, names: dict[str, Any], *, exact: bool, path: str = "") -> str | None:
    """Where the two differ, None if nowhere. Unless ``exact``, objects may have more than is expected.

    ``names`` gains what was bound on the way; look at a copy first if the comparison may fail.
    """
    if isinstance(expected, str) and expected in KINDS:
        return None if KINDS[expected](came) else f"{path}: {came!r} is not {expected}"
    if isinstance(expected, str) and NAME.fullmatch(expected):
        known = names.setdefault(expected, came)
        return None if known == came else f"{path}: {came!r}, but {expected} is {known!r}"
    if isinstance(expected, dict) and isinstance(came, dict):
        return _objects(expected, came, names, exact, path)
    if isinstance(expected, list) and isinstance(came, list):
        if len(expected) != len(came):
            return f"{path}: {len(came)} of them, not {len(expected)}: {came!r}"
        pairs = zip(expected, came, strict=True)
        found = (difference(e, c, names, exact=exact, path=f"{path}/{n}") for n, (e, c) in enumerate(pairs))
        return next((fault for fault in found if fault), None)
    same = type(expected) is type(came) or {type(expected), type(came)} <= {int, float}
    return None if same and expected == came else f"{path}: {came!r}, not {expected!r}"


def _objects(
    expected: dict[str, Any], came: dict[str, Any], names: dict[str, Any], exact: bool, path: str
) -> str | None:
    if missing := sorted(set(expected) - set(came)):
        return f"{path}: has no {missing[0]}: {came!r}"
    if exact and (more := sorted(set(came) - set(expected))):
        return f"{path}/{more[0]}: {came[more[0]]!r} was not expected"
    for name, value in expected.items():
        if fault := difference(value, came[name], names, exact=exact, path=f"{path}/{name}"):
            return fault
    return None


def filled(value: Any, names: dict[str, Any]) -> Any:
    """The value with every ``"$name"`` in it replaced. Raises ``KeyError`` for a name that is not bound."""
    if isinstance(value, str) and NAME.fullmatch(value):
        return names[value]
    if isinstance(value, dict):
        return {key: filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, names) for each in value]
    return value


def own(value: Any, tag: str) -> Any:
    """The value with every ``"@name"`` in it made this play's own, so that plays of one Runtime do not meet."""
    if isinstance(value, str) and value.startswith("@"):
        words = value.split(" ")
        return " ".join([f"{words[0][1:]}-{tag}", *words[1:]])
    if isinstance(value, dict):
        return {key: own(each, tag) for key, each in value.items()}
    if isinstance(value, list):
        return [own(each, tag) for each in value]
    return value
