"""``docs/guarantees.md`` and ``docs/operator.md`` against the repository: what they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lineup_protocol.errors import CODES
from lineup_supervisor.config import RULES, Config

REPO = Path(__file__).parents[2]
GUARANTEES = (REPO / "docs" / "guarantees.md").read_text()
OPERATOR = (REPO / "docs" / "operator.md").read_text()
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUARANTEES)
SCRIPTS = re.findall(r"`\.?/?(scripts/[\w-]+)[ `]", GUARANTEES + OPERATOR)


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("path", "name"), sorted(set(TESTS)))
def test_each_named_test_exists(path: str, name: str) -> None:
    assert (REPO / path).is_file(), path
    assert name in functions_of(REPO / path)


def test_each_named_script_exists() -> None:
    assert {name for name in SCRIPTS if not (REPO / name).is_file()} == set()
    assert {"scripts/endurance", "scripts/simulate", "scripts/soak", "scripts/mutate"} <= set(SCRIPTS)


def test_each_promise_has_something_that_shows_it() -> None:
    rows = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 20
    assert [row[:60] for row in rows if not re.search(r"\| `[^|]+` \|$", row)] == []


def test_every_setting_stands_in_the_operators_guide_with_its_default() -> None:
    defaults = Config()
    for table, settings in RULES.items():
        assert f"`[{table}]`" in OPERATOR, table
        for name in settings:
            default = getattr(defaults, f"{table}_{name}")
            shown = {True: "true", False: "false"}.get(default, str(default)) if isinstance(default, bool) else default
            text = f'"{shown}"' if isinstance(default, str) else str(shown)
            row = re.search(rf"\| `{name}` \| `([^`]+)` \|", section_of(table))
            assert row is not None, f"{table}.{name} is missing"
            assert row[1] == text, f"{table}.{name}: {row[1]} stands there, {text} is the default"


def section_of(table: str) -> str:
    return OPERATOR.split(f"`[{table}]`", 1)[1].split("\n### ", 1)[0].split("\n## ", 1)[0]


def test_every_error_that_an_operator_can_meet_is_explained() -> None:
    met = {
        "home_unusable",
        "store_locked",
        "store_damaged",
        "store_newer",
        "storage_full",
        "config_invalid",
        "port_unusable",
        "isolation_insufficient",
        "app_quarantined",
        "manifest_invalid",
        "no_runtime",
        "internal_error",
        "rate_limited",
        "runtime_stopping",
        "unauthorized",
    }
    assert met <= CODES.keys()
    assert {code for code in met if f"| `{code}` |" not in OPERATOR} == set()
