"""The repository keeps its own house rules: sizes, words, docstrings, links, scripts, licence, versions."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
LINES_MAX = 600
PASSED_OVER = {
    ".git", ".venv", "node_modules", "__pycache__", "dist", "build", "static", "test-results", ".pytest_cache",
    ".mypy_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache",
}  # fmt: skip
SOURCE = {".py", ".ts", ".tsx", ".js", ".css", ".sh", ".html"}
TEXT = SOURCE | {".md", ".toml", ".json", ".yml", ".yaml", ".txt", ".svg", ""}
# The licence's own text and what a package manager wrote are not ours to word.
NOT_OURS = {"LICENSE", "package-lock.json"}


def whole(*parts: str) -> str:
    """What is looked for, written in pieces, so that this file does not find itself."""
    return "".join(parts)


FORBIDDEN = {
    "unfinished work": whole(r"\b(TO", "DO|FIX", "ME|XX", "X|HA", r"CK)\b|NotImplemented", "Error"),
    "a person's path": whole(r"(?<![\w.~/-])/(wo", "rk|sha", "red|ro", "ot|ho", r"me/\w+|Us", r"ers/\w+)/"),
    "a registry": whole("py", r"pi\.org|python", r"hosted\.org|registry\.", "npmjs|npm", "mirror|art", "ifactory"),
    "a secret": whole("-----BEGIN [A-Z ]*PRIV", "ATE KEY|gh", "p_[A-Za-z0-9]{20}|AK", "IA[A-Z0-9]{16}"),
}
EXAMPLES = {
    "unfinished work": whole("# TO", "DO later"),
    "a person's path": whole("see /ho", "me/ada/x"),
    "a registry": whole("https://py", "pi.org/simple"),
    "a secret": whole("-----BEGIN PRIV", "ATE KEY-----"),
}


def files() -> Iterator[Path]:
    for folder, folders, names in os.walk(REPO):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)
        for name in sorted(names):
            path = Path(folder) / name
            if path.suffix in TEXT and path.is_file() and not name.startswith((".coverage", ".venv", ".chromium")):
                yield path


FILES = list(files())
PYTHON = [path for path in FILES if path.suffix == ".py"]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPO))


def test_the_walk_finds_the_repository():
    names = {name_of(path) for path in FILES}
    assert {"pyproject.toml", "README.md", "protocol/lineup_protocol/messages.py", "scripts/check"} <= names


def test_no_source_file_is_too_long():
    lengths = {
        name_of(path): path.read_text().count("\n") for path in FILES if path.suffix in SOURCE or not path.suffix
    }
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_forbidden_is_written(what):
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:120]}"
        for path in FILES
        if path.name not in NOT_OURS
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_patterns_find_what_they_should(what):
    assert re.search(FORBIDDEN[what], EXAMPLES[what])


def test_every_module_says_what_it_is():
    silent = [
        name_of(path)
        for path in PYTHON
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_links_in_documents_lead_somewhere():
    broken = []
    for path in FILES:
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists():
                broken.append(f"{name_of(path)} → {target}")
    assert broken == []


@pytest.mark.conformance("03-9.14")
def test_scripts_run_and_stop_at_the_first_fault():
    scripts = [path for path in (REPO / "scripts").iterdir() if path.is_file()] + [REPO / ".ci" / "run"]
    assert len(scripts) >= 4
    for path in scripts:
        first = path.read_text().split("\n", 1)[0]
        assert first.startswith("#!/usr/bin/env "), path
        assert os.access(path, os.X_OK), path
        if first.endswith("bash"):
            assert "\nset -euo pipefail\n" in path.read_text(), path
            assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0, path


def test_the_licence_is_the_standard_text():
    text = (REPO / "LICENSE").read_bytes()
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_changelog_knows_this_version():
    version = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    heads = re.findall(r"^## \[([^\]]+)\]", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert version in heads


def commands(name: str) -> list[str]:
    """The command lines in a README's code blocks."""
    text = (REPO / name).read_text()
    blocks = re.findall(r"^```(?:bash|console|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line.split(" #")[0].rstrip() for line in lines if line.startswith(("./", "git ", "cd ", "lineup "))]


def test_both_readmes_give_the_same_commands():
    assert commands("README.md")
    assert commands("README.md") == commands("README.zh-CN.md")


def test_the_readmes_commands_exist():
    from lineup_hostshell.cli.main import COMMANDS

    used = {match for line in commands("README.md") for match in re.findall(r"(?:^|/)lineup ([a-z]+)", line)}
    assert used
    assert used <= set(COMMANDS)
