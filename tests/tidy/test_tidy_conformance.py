"""``docs/conformance.md`` against the suite, both ways: each line is shown by tests that exist, each claim is there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
TEXT = (REPO / "docs" / "conformance.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)+)`")
ROW = re.compile(r"^\| (\d\d-[\d.]+) \| (.+) \| (.+) \|$", re.MULTILINE)
# How many numbered lines each list has: the fourteen aims of both definitions, and what the second one had to cover.
LISTS = {"03-9": 14, "04-6": 14, "04-4.5": 11}

Test = tuple[str, str]  # file and dotted name


def functions_of(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each test of a file with the lines that it claims; methods by the name of their class."""
    for node in ast.parse(path.read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                yield prefix + each.name, [line for mark in each.decorator_list if (line := claimed(mark))]


def claimed(mark: ast.expr) -> str:
    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.conformance":
        (line,) = mark.args
        return str(ast.literal_eval(line))
    return ""


FILES = {path.relative_to(REPO).as_posix(): path for path in sorted((REPO / "tests").rglob("test_*.py"))}
CLAIMS = [(line, (name, test)) for name, path in FILES.items() for test, lines in functions_of(path) for line in lines]
ROWS: dict[str, set[Test]] = {
    line: {(file, test.removeprefix("::")) for file, test in NAMED.findall(shown)}
    for line, _, shown in ROW.findall(TEXT)
}


def test_every_line_stands_there_once() -> None:
    expected = [f"{name}.{n}" for name, count in LISTS.items() for n in range(1, count + 1)]
    assert Counter(line for line, _, _ in ROW.findall(TEXT)) == Counter(expected)


@pytest.mark.parametrize("line", sorted(ROWS))
def test_every_line_is_shown_by_a_test_or_a_command(line: str) -> None:
    assert ROWS[line]


def test_every_test_that_is_named_exists() -> None:
    known = {(name, test) for name, path in FILES.items() for test, _ in functions_of(path)}
    assert {(file, test.removeprefix("::")) for file, test in NAMED.findall(TEXT)} - known == set()


@pytest.mark.parametrize(("line", "test"), CLAIMS, ids=[f"{line} {test[1]}" for line, test in CLAIMS])
def test_every_claim_stands_in_its_line(line: str, test: Test) -> None:
    assert test in ROWS.get(line, set())


def test_commands_that_are_named_exist() -> None:
    named = re.findall(r"`\./(scripts/[\w-]+)((?: [\w./-]+)*)`", TEXT)
    assert {script for script, _ in named} >= {"scripts/test", "scripts/check", "scripts/bench"}
    for script, arguments in named:
        assert (REPO / script).is_file(), script
        for argument in arguments.split():
            assert not argument.startswith("tests") or (REPO / argument).exists(), argument
