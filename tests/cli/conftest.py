"""The command line in-process (``run``) and, where processes matter, as the installed command (``lineup``)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lineup_hostshell.cli.main import cli

FAKES = Path(__file__).parent / "fake_supervisor"
PROCESS_S_MAX = 60


def _fake_runtime_class() -> Any:
    spec = importlib.util.spec_from_file_location("cli_fake_runtime", FAKES / "lineup_supervisor" / "fake.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FakeRuntime


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: a socket's path has 107 bytes at most. For the commands it is the platform's own, which no hint
    has to name.
    """
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        yield Path(directory) / "lineup"


def _environment(home: Path) -> dict[str, str]:
    return {"LINEUP_HOME": str(home), "XDG_DATA_HOME": str(home.parent), "LANG": "C.UTF-8"}


@pytest.fixture
def runtime(home: Path) -> Iterator[Any]:
    """A stand-in Runtime that listens in ``home``; the test says what it answers."""
    with _fake_runtime_class()(home) as fake:
        yield fake


@pytest.fixture
def run(home: Path) -> Callable[..., Result]:
    """``run("call", "x", "{}", input=...)`` in this process, for this home."""

    def invoke(*args: str, input: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
        environment = {**_environment(home), "LC_ALL": None, "LC_MESSAGES": None, **(env or {})}
        return CliRunner(env=environment).invoke(cli, list(args), input=input, prog_name="lineup")

    return invoke


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """For processes: the stand-in supervisor comes before the real one."""
    return {**os.environ, **_environment(home), "PYTHONPATH": str(FAKES)}


@pytest.fixture
def lineup(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command as a process of its own."""

    def invoke(*args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lineup_hostshell.cli.main", *args],
            env={**environment, **extra},
            capture_output=True,
            text=True,
            timeout=PROCESS_S_MAX,
            check=False,
        )

    return invoke
