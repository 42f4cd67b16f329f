"""Makes the commands that are named to a person (`` `lineup up` ``) work as they stand: with the --home of this one.

Owns the one fact that it needs, which home this command has. Only the platform's own needs no naming: one out of the
environment may have been set for this command alone.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_HINT = re.compile(r"`lineup ([a-z][^`\n]*)`")
_HOMELESS = ("new", "check", "restore")  # a backup goes into another home than the one that is damaged

_named: Path | None = None


def name_home(home: Path | None) -> None:
    """None at the start of a command line and for the platform's own, else the home."""
    global _named
    _named = home


def with_home(text: str) -> str:
    return text if _named is None else _HINT.sub(_completed, text)


def _completed(match: re.Match[str]) -> str:
    words = match[1]
    if words.split()[0] in _HOMELESS or "--home" in words or "--help" in words:
        return match[0]
    return f"`lineup {words} --home {shlex.quote(str(_named))}`"
