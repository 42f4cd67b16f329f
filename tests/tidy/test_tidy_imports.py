"""What a module may import beyond what import-linter can say: the core's purity, the SDK's lightness, known codes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lineup_protocol.errors import CODES

REPO = Path(__file__).resolve().parents[2]
CORE = sorted((REPO / "supervisor" / "lineup_supervisor" / "core").rglob("*.py"))
SDK = sorted((REPO / "sdk" / "lineup_sdk").rglob("*.py"))
WORKERS = sorted((REPO / "workers" / "lineup_workers").rglob("*.py"))

# Clock, chance, I/O, concurrency: all of it comes into the core with the event, or leaves it as an effect.
IMPURE = {
    "asyncio", "concurrent", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
    "uuid", "lmdb", "psutil", "uvloop", "zmq", "structlog",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "id", "hash"}  # the last two differ between runs
HEAVY = {
    "pydantic",
    "msgspec",
    "fastjsonschema",
    "lmdb",
    "psutil",
    "starlette",
    "uvicorn",
    "structlog",
    "rich",
    "click",
}


def imports(path: Path) -> set[str]:
    """The top-level names of every module that a file imports, at whatever place."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


def name(path: Path) -> str:
    return path.name


def test_the_folders_are_there():
    assert len(CORE) > 5
    assert len(SDK) > 5


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_has_no_clock_no_chance_and_no_io(path):
    assert imports(path) & IMPURE == set()
    tree = ast.parse(path.read_text())
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert called & IMPURE_CALLS == set()
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert attributes & {"now_utc", "utcnow", "today"} == set()


@pytest.mark.parametrize("path", SDK, ids=name)
def test_the_sdk_imports_nothing_heavy(path):
    assert imports(path) & HEAVY == set()


@pytest.mark.conformance("03-9.2")
@pytest.mark.parametrize("path", WORKERS, ids=lambda path: str(path.relative_to(REPO)))
def test_miniapps_import_nothing_of_ours_but_the_sdk(path):
    own = {found for found in imports(path) if found.startswith("lineup_")}
    allowed = {"lineup_sdk", "lineup_testkit"} if path.name.startswith(("test_", "conftest")) else {"lineup_sdk"}
    assert own <= allowed


def test_loading_the_sdk_loads_nothing_heavy():
    program = f"import sys, lineup_sdk; sys.exit(' '.join(sorted({HEAVY!r} & set(sys.modules))) or 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def python_files() -> list[Path]:
    places = ("protocol", "sdk", "supervisor", "hostshell/lineup_hostshell", "workers")
    return [path for place in places for path in sorted((REPO / place).rglob("*.py"))]


def test_every_error_code_that_is_raised_is_registered():
    raised = {
        code
        for path in python_files()
        for code in re.findall(r"(?:LineUpError|Refuse)\(\s*\"([a-z_]+)\"", path.read_text())
    }
    assert len(raised) > 20
    assert raised <= set(CODES)


def audit_kinds(path: Path) -> set[str]:
    """The kinds of the rows that a file of the core writes, as far as they are written out."""
    return {
        node.args[1].value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) == "audit"
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    }


def test_every_kind_of_audit_row_has_its_words():
    from lineup_hostshell.cli.story_words import KINDS
    from lineup_supervisor.core.tables import CALL, INTERACTION, OPERATION

    kinds = {kind for path in CORE for kind in audit_kinds(path)}
    assert len(kinds) > 20
    for machine in (CALL, INTERACTION, OPERATION):
        kinds |= {f"{machine.name}.{state}" for state in machine.final}
    assert kinds - set(KINDS["en"]) == set()


def test_every_next_step_is_for_a_code_that_exists():
    from lineup_hostshell.cli import failure

    assert set(failure._NEXT_STEPS) <= set(CODES)
