"""``lineup open`` and the link that ``lineup up`` prints: a way in for whoever may write into the run directory."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import pytest
from click.testing import CliRunner, Result

from lineup_hostshell.cli import homes, open_command, run_commands
from lineup_hostshell.cli.homes import RuntimeInfo
from lineup_hostshell.cli.main import cli
from lineup_hostshell.workspace_auth import LaunchKeys

URL = "http://127.0.0.1:4990/"


def info(workspace_url: str | None = URL) -> RuntimeInfo:
    return RuntimeInfo(1234, "b-1", workspace_url, None, "0.1.0", "S3", {})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was handed to the desktop."""
    seen: list[str] = []
    monkeypatch.setattr(click, "launch", lambda url: seen.append(url) or 0)
    return seen


def run(home: Path, *args: str) -> Result:
    return CliRunner(env={"LINEUP_HOME": str(home)}).invoke(cli, list(args), prog_name="lineup")


def key_in(output: str) -> str:
    link = next(line for line in output.splitlines() if line.startswith("Workspace: ")).removeprefix("Workspace: ")
    assert link.startswith(URL + "#launch=")
    return link.partition("#launch=")[2]


def test_the_printed_link_works_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    monkeypatch.setattr(open_command, "require_runtime", lambda home: info())
    result = run(run_dir.parent, "open")
    assert result.exit_code == 0, result.output
    keys = LaunchKeys(run_dir, "b-1")
    key = key_in(result.output)
    assert keys.redeem(key)
    assert not keys.redeem(key)
    assert opened == [], "there is no desktop here"


def test_d4_the_key_is_not_in_the_arguments_of_the_browser(run_dir: Path, opened: list[str]) -> None:
    """Every user of the machine can read them; the browser is sent to a file that only we can."""
    open_command.show_in_browser(run_dir.parent, info(), URL + "#launch=the-key")
    (target,) = opened
    assert "the-key" not in target
    page = Path(unquote(urlsplit(target).path))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f"url={URL}#launch=the-key" in page.read_text()


def test_a_desktop_gets_the_page(run_dir: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    monkeypatch.setattr(open_command, "require_runtime", lambda home: info())
    monkeypatch.setattr(open_command, "has_desktop", lambda: True)
    assert run(run_dir.parent, "open", "--print").exit_code == 0
    assert opened == []
    assert run(run_dir.parent, "open").exit_code == 0
    assert len(opened) == 1


def test_a_browser_that_fails_is_said(run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail(url: str) -> int:
        raise OSError("no display")

    monkeypatch.setattr(click, "launch", fail)
    open_command.show_in_browser(run_dir.parent, info(), URL)
    assert "could not be opened (no display)" in capsys.readouterr().err


def test_up_prints_a_link_that_works(run_dir: Path, capsys: Any, opened: list[str]) -> None:
    run_commands.announce(run_dir.parent, info(), open_browser=True)
    assert LaunchKeys(run_dir, "b-1").redeem(key_in(capsys.readouterr().out))
    assert len(opened) == 1


def test_up_without_a_workspace_prints_none(run_dir: Path, capsys: Any) -> None:
    run_commands.announce(run_dir.parent, info(None), open_browser=True)
    assert "Workspace" not in capsys.readouterr().out


def test_no_runtime_and_no_workspace_are_said(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(run_dir.parent, "open").exit_code == 7
    monkeypatch.setattr(open_command, "require_runtime", lambda home: info(None))
    result = run(run_dir.parent, "open")
    assert result.exit_code == 1
    assert "without a workspace" in result.stderr


def test_a_run_directory_that_is_not_ours_makes_no_link(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_command, "require_runtime", lambda home: info())
    (run_dir / "launch").mkdir()
    (run_dir / "launch").chmod(0o777)
    result = run(run_dir.parent, "open")
    assert result.exit_code == 1
    assert "home_unusable" in result.stderr


def test_a_pipe_is_no_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    assert not homes.has_desktop()
