"""``docs/catalogue.md`` against the suite, both ways: each line has tests, what is named exists, claims stand there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CLAIM = re.compile(r"test_([aefghij]\d+)_")
LINES = {"A": 9, "E": 7, "F": 11, "G": 7, "H": 7, "I": 5, "J": 5}

FOUND = ROW.findall((REPO / "docs" / "catalogue.md").read_text())
ROWS = {line: set(NAMED.findall(shown)) for line, _, _, shown in FOUND}


def functions_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


FILES = {path.relative_to(REPO).as_posix(): functions_of(path) for path in sorted((REPO / "tests").rglob("test_*.py"))}
CLAIMS = [
    (found[1].upper(), (name, test)) for name, tests in FILES.items() for test in tests if (found := CLAIM.match(test))
]


def test_every_line_stands_there_once() -> None:
    expected = [f"{letter}{n}" for letter, count in LINES.items() for n in range(1, count + 1)]
    assert Counter(line for line, *_ in FOUND) == Counter(expected)


@pytest.mark.parametrize("line", sorted(ROWS))
def test_every_line_is_shown_by_tests_that_exist(line: str) -> None:
    assert ROWS[line]
    assert {(path, test) for path, test in ROWS[line] if test not in FILES.get(path, ())} == set()


def test_every_test_that_carries_a_lines_name_stands_in_it() -> None:
    assert len(CLAIMS) > 20
    assert [(line, test) for line, test in CLAIMS if test not in ROWS.get(line, ())] == []
