"""What may stand in a text that people, terminals and agents read as the Runtime's own words: titles and descriptions.

A control character, an escape sequence for a terminal, a mark that reorders or hides what stands around it, makes a
name look like another one. Values keep such characters (see SPEC.md, section 3); names of things do not have them.
"""

from __future__ import annotations


def is_title(text: str, length_max: int) -> bool:
    """One line of 1 to ``length_max`` printable characters, not all of them spaces."""
    return len(text) <= length_max and bool(text.strip()) and text.isprintable()


def is_prose(text: str) -> bool:
    """Printable characters, spaces of every script, line breaks and tabs; so a description may have paragraphs."""
    return all(char.isprintable() or char in "\n\t" or (char.isspace() and char not in _NO_SPACES) for char in text)


# What Python counts as space although it is a control character or a separator of lines.
_NO_SPACES = frozenset("\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029")
