"""Prints a story: the causal chain of one object, in the order of time, as text that a person can follow.

Owns the wording and the indentation. What happened is the audit's to say; a kind that has no words here is printed
by its own name, so that nothing is ever left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lineup_hostshell.cli.output import duration, local_time, safe_line, to_json, wall_ms
from lineup_hostshell.cli.story_words import ACTORS, KINDS

_DETAIL_LENGTH_MAX = 160  # one line of a terminal, twice; `--json` has the whole
_INDENT = "  "
_DIGEST = re.compile(r"[0-9a-f]{16,64}")  # of what was said; the story is told without the words

Entry = Mapping[str, Any]


def language() -> str:
    """``zh`` in a Chinese locale, else ``en``; the order of the variables is POSIX's."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def story_lines(entries: Iterable[Entry], *, about: str, lang: str) -> Iterator[str]:
    """One line per entry: how long after the first, who, what. What one cause did stands under its first entry; the
    actor is named where it is another one or a later moment."""
    ordered = sorted(entries, key=lambda entry: entry["seq"])
    if not ordered:
        return
    start_ms = _at_ms(ordered[0])
    began = local_time(start_ms)
    yield f"{about} 的经过，始于 {began}" if lang == "zh" else f"The story of {about}, from {began}"
    yield ""
    clocks = [_after(_at_ms(entry) - start_ms) for entry in ordered]
    width = max(len(clock) for clock in clocks)
    causes: set[str] = set()
    before: tuple[object, object] | None = None
    for entry, clock in zip(ordered, clocks, strict=True):
        follows = entry["cause"] in causes
        now = (entry["actor"], _at_ms(entry))
        who = "" if follows and now == before else _actor(str(entry["actor"]), lang)
        yield f"{clock:>{width}}  {_INDENT if follows else ''}{who}{_happening(entry, about=about, lang=lang)}"
        causes.add(entry["cause"])
        before = now


def _at_ms(entry: Entry) -> int:
    return wall_ms(entry["at"]) or 0


def _after(passed_ms: int) -> str:
    return f"+{duration(passed_ms)}" if passed_ms > 0 else "0"


def _actor(actor: str, lang: str) -> str:
    """``agent:demo`` → ``Agent demo: ``; a role alone becomes its word."""
    role, _, name = actor.partition(":")
    word = ACTORS[lang].get(role, role)
    return safe_line(f"{word} {name}" if name else word) + ("：" if lang == "zh" else ": ")


def _happening(entry: Entry, *, about: str, lang: str) -> str:
    kind = str(entry["kind"])
    text = safe_line(KINDS[lang].get(kind, kind))
    if detail := _detail(entry["detail"]):
        text += f", {detail}" if lang == "en" else f"，{detail}"
    others = [safe_line(subject) for subject in entry["subjects"] if subject != about]
    return f"{text}  [{', '.join(others)}]" if others else text


def _detail(detail: Mapping[str, Any]) -> str:
    known = {name: value for name, value in detail.items() if not _is_digest(value)}
    if "before" in known and "state" in known:
        known = {"": f"{known.pop('before')} → {known.pop('state')}", **known}
    text = ", ".join(
        f"{name} {_value(name, value)}".strip() for name, value in known.items() if value not in (None, "")
    )
    return text if len(text) <= _DETAIL_LENGTH_MAX else f"{text[: _DETAIL_LENGTH_MAX - 1]}…"


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _value(name: str, value: object) -> str:
    if name == "progress" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.0%}"
    return safe_line(value) if isinstance(value, str) else to_json(value, indent=None)
