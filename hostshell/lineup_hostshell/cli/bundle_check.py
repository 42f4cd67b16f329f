"""Looks at a bundle in a folder the way the Runtime will: its files and manifest, then its own tests.

Owns no rule: the rules are the protocol's (``lineup_protocol.bundle``), so that what passes here is taken there.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

from lineup_hostshell.cli.app_commands import faults_of
from lineup_hostshell.cli.failure import CommandFailure
from lineup_protocol.errors import LineUpError

_PYTEST_CONFIGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_NO_TESTS_COLLECTED = 5  # pytest's own exit code

Fingerprint = tuple[tuple[str, int, int], ...]


def manifest_faults(directory: Path) -> list[dict[str, str]]:
    """Every fault as ``{path, rule}``; empty for a bundle that would be taken."""
    from lineup_protocol.bundle import read_bundle

    try:
        read_bundle(directory)
    except LineUpError as error:
        return faults_of(error.detail) or [{"path": "/", "rule": error.message}]
    return []


def source_faults(directory: Path) -> list[dict[str, str]]:
    """Every Python file of the bundle that the worker's Python could not even read. Nothing of it is run."""
    from lineup_protocol.bundle import read_folder

    try:
        files = read_folder(directory)
    except LineUpError:
        return []  # what the folder itself lacks is said by the reading of the bundle
    found = []
    for name in sorted(files):
        if name.endswith(".py") and (rule := _source_fault(name, files[name])):
            found.append({"path": f"/{name}", "rule": rule})
    return found


def _source_fault(name: str, source: bytes) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
    except (ValueError, RecursionError, MemoryError) as error:  # a zero byte; nesting beyond the compiler's bounds
        return str(error) or "is nested too deeply"
    return ""


def find_tests(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("test_*.py") if _belongs(path.relative_to(directory)))


def run_tests(directory: Path, *, quiet: bool) -> int:
    """Run the bundle's tests in a process of their own; pytest's exit code. ``quiet`` keeps their output to stderr."""
    if importlib.util.find_spec("pytest") is None:
        raise CommandFailure(
            "the bundle has tests but pytest is not installed",
            f"install it with `{shlex.quote(sys.executable)} -m pip install pytest pytest-asyncio`, or pass --no-tests",
        )
    argv = [sys.executable, "-m", "pytest", "--quiet", "--import-mode=importlib", "-p", "no:cacheprovider"]
    argv += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    own = (directory / name for name in _PYTEST_CONFIGS)
    config = next((path for path in own if path.is_file()), Path(os.devnull))  # never that of a folder above
    argv += ["-c", str(config), "--rootdir", str(directory), "--confcutdir", str(directory), str(directory)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # nothing of a test run may end up in the bundle
    sys.stdout.flush()
    done = subprocess.run(argv, cwd=directory, env=environment, stdout=sys.stderr if quiet else None, check=False)
    return 0 if done.returncode == _NO_TESTS_COLLECTED else done.returncode


def fingerprint(directory: Path) -> Fingerprint:
    """Changes whenever a file of the bundle does: path, size and time of change of each."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if _is_part(name))
        for name in sorted(name for name in names if _is_part(name)):
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # an editor replaces files by renaming
                continue
            found.append((path, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _belongs(path: Path) -> bool:
    return all(_is_part(part) for part in path.parts)


def _is_part(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"
