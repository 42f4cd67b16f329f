"""Prints a story: the causal chain of one object, in the order of time, as text that a person can follow.

Owns the wording and the indentation. What happened is the audit's to say; a kind that has no words here is printed
by its own name, so that nothing is ever left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lineup_hostshell.cli.output import duration, local_time, safe_line, to_json, wall_ms
from lineup_hostshell.cli.story_words import ACTORS, KINDS

_DETAIL_LENGTH_MAX = 160  # one line of a terminal, twice; `--json` has the whole
_INDENT = "  "
_HIDDEN = frozenset({"input_digest", "argument_digest", "digest"})


def language() -> str:
    """``zh`` in a Chinese locale, else ``en``; the order of the variables is POSIX's."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def story_lines(entries: Iterable[Mapping[str, Any]], *, about: str, lang: str) -> Iterator[str]:
    """One line per entry: how long after the first, who, what; entries of one cause stand under its first entry."""
    ordered = sorted(
        entries, key=lambda entry: (wall_ms(entry.get("at", entry.get("at_ms"))) or 0, entry.get("seq", 0))
    )
    if not ordered:
        return
    start_ms = _at_ms(ordered[0])
    began = local_time(ordered[0].get("at", start_ms))
    yield f"{about} 的经过，始于 {began}" if lang == "zh" else f"The story of {about}, from {began}"
    yield ""
    clocks = [_after(_at_ms(entry) - start_ms) for entry in ordered]
    width = max(len(clock) for clock in clocks)
    depths = _depths(ordered)
    for entry, clock, depth in zip(ordered, clocks, depths, strict=True):
        yield f"{clock:>{width}}  {_INDENT * depth}{_sentence(entry, about=about, lang=lang)}"


def _at_ms(entry: Mapping[str, Any]) -> int:
    return wall_ms(entry.get("at", entry.get("at_ms"))) or 0


def _after(passed_ms: int) -> str:
    return f"+{duration(passed_ms)}" if passed_ms else "0"


def _depths(entries: list[Mapping[str, Any]]) -> list[int]:
    """The first entry of each cause stands at the left; what else that same cause did stands under it."""
    seen: set[str] = set()
    depths = []
    for entry in entries:
        cause = str(entry.get("cause") or "")
        depths.append(1 if cause and cause in seen else 0)
        seen.add(cause)
    return depths


def _sentence(entry: Mapping[str, Any], *, about: str, lang: str) -> str:
    actor = _actor(str(entry.get("actor", "")), lang)
    kind = str(entry.get("kind", ""))
    words = KINDS[lang].get(kind, kind)
    detail = _detail(entry.get("detail"))
    others = [
        safe_line(subject) for subject in entry.get("subjects") or () if subject not in (about, entry.get("actor"))
    ]
    text = f"{actor} {words}"
    if others:
        text += f" [{', '.join(others)}]"
    return f"{text}: {detail}" if detail else text


def _actor(actor: str, lang: str) -> str:
    """``agent:demo`` → ``agent demo``; a role alone becomes its word."""
    role, _, name = actor.partition(":")
    word = ACTORS[lang].get(role, role)
    return safe_line(f"{word} {name}" if name else word)


def _detail(detail: object) -> str:
    if not isinstance(detail, Mapping):
        return _cut(safe_line(detail)) if detail else ""
    parts = [
        f"{name} {_value(value)}" for name, value in detail.items() if name not in _HIDDEN and value not in (None, "")
    ]
    return _cut(", ".join(parts))


def _value(value: object) -> str:
    if isinstance(value, str):
        return safe_line(value)
    return to_json(value, indent=None)


def _cut(text: str) -> str:
    return text if len(text) <= _DETAIL_LENGTH_MAX else f"{text[: _DETAIL_LENGTH_MAX - 1]}…"
