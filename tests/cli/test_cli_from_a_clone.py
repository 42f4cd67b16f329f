"""`scripts/lineup`, the command out of a clone: what it refuses before it installs anything."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TOOLS = ("bash", "cat", "cksum", "dirname", "tr", "env")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone without an environment, and a path without a Python: an install that begins ends at once, and says so."""
    root = tmp_path / "clone"
    (root / "scripts" / "lib").mkdir(parents=True)
    for name in ("lineup", "lib/env.sh"):
        shutil.copy(SCRIPTS / name, root / "scripts" / name)
    (root / "pyproject.toml").write_text("")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return root


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def lineup(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(clone / "scripts" / "lineup"), *arguments],
        env={"PATH": str(clone.parent / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("form", ["--port {}", "--port={}", "--detach --port {}", "--home /x --port {} --no-open"])
def test_a_port_that_is_taken_is_refused_before_anything_is_installed(clone: Path, taken: int, form: str) -> None:
    done = lineup(clone, "up", *form.format(taken).split())
    assert done.returncode == 1
    assert done.stderr == (
        f"lineup: port_unusable: port {taken} is in use; choose another with --port, 0 takes any free one.\n"
    )


@pytest.mark.parametrize("line", ["up", "up --port 0", "up --port", "up --port x", "tools"])
def test_everything_else_goes_on_to_the_install(clone: Path, line: str) -> None:
    done = lineup(clone, *line.split())
    assert done.returncode == 1
    assert "no Python of 3.11 or newer" in done.stderr
