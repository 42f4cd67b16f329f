"""`new`, `check` and `dev`: what is made validates as it is, every fault is named, a change is taken up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lineup_hostshell.cli import bundle_commands
from lineup_hostshell.cli.bundle_check import find_tests, fingerprint
from lineup_protocol.bundle import read_bundle
from lineup_protocol.manifest import RESERVED_SCOPES


@pytest.mark.parametrize("options", [(), ("--surface",)], ids=["plain", "surface"])
def test_a_new_bundle_validates_and_bears_its_name_everywhere(run, tmp_path, options):
    directory = tmp_path / "my-notes"
    result = run("new", str(directory), *options)
    assert result.exit_code == 0, result.output
    manifest, _, files = read_bundle(directory)
    assert manifest.app_scope == "my-notes"
    assert all(tool.id.startswith("my-notes.") for tool in manifest.tools)
    assert ("surface/index.html" in files) == bool(options)
    for name, content in files.items():
        assert b"my-miniapp" not in content, name
        assert b"My MiniApp" not in content, name
    assert len(find_tests(directory)) == 1
    checked = run("check", str(directory), "--no-tests")
    assert checked.exit_code == 0
    assert "my-notes is a valid bundle." in checked.output


@pytest.mark.parametrize("options", [(), ("--surface",)], ids=["plain", "surface"])
def test_a_new_bundle_passes_its_own_tests(run, tmp_path, options):
    directory = tmp_path / "my-notes"
    assert run("new", str(directory), *options).exit_code == 0
    done = subprocess.run(
        [sys.executable, "-m", "lineup_hostshell.cli.main", "check", str(directory), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"ok": True, "faults": [], "tests": 1, "tests_passed": True}
    assert not list(directory.rglob("__pycache__"))


def test_the_longest_name_validates(run, tmp_path):
    directory = tmp_path / ("x" * 63)
    assert run("new", str(directory), "--surface").exit_code == 0
    assert run("check", str(directory), "--no-tests").exit_code == 0


@pytest.mark.parametrize("name", sorted(RESERVED_SCOPES))
def test_a_name_of_the_runtimes_own_is_refused(run, tmp_path, name):
    result = run("new", str(tmp_path / name))
    assert result.exit_code == 2
    assert f"{name!r} is a name of the Runtime's own; choose another name." in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["My-Notes", "9lives", "a", "x" * 64, "with space", "ends-"])
def test_a_name_that_cannot_be_a_scope(run, tmp_path, name):
    result = run("new", str(tmp_path / name))
    assert result.exit_code == 2
    assert "cannot be a MiniApp's name" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(run, tmp_path):
    (tmp_path / "my-notes").mkdir()
    result = run("new", str(tmp_path / "my-notes"))
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert list((tmp_path / "my-notes").iterdir()) == []


def test_check_names_every_fault_with_its_path(run, tmp_path):
    directory = tmp_path / "my-notes"
    run("new", str(directory))
    manifest = json.loads((directory / "miniapp.json").read_text())
    manifest["kind"] = "system"
    manifest["tools"][0]["id"] = "other.greet"
    manifest["tools"][0]["input_schema"]["properties"]["name"]["pattern"] = "(a+)+$"
    (directory / "miniapp.json").write_text(json.dumps(manifest))
    result = run("check", str(directory))
    assert result.exit_code == 1
    assert "  /kind: " in result.stderr
    assert "  /tools/0/id: " in result.stderr
    assert "/tools/0/input_schema/properties/name/pattern" in result.stderr
    assert "manifest_invalid: my-notes has 3 faults, listed above" in result.stderr
    report = json.loads(run("check", str(directory), "--json").stdout)
    assert report["ok"] is False
    assert len(report["faults"]) == 3


def test_a_folder_without_a_manifest_is_said_as_that_whatever_else_it_has(run, tmp_path):
    (tmp_path / "big.bin").write_bytes(b"x")
    os.truncate(tmp_path / "big.bin", 1 << 30)
    result = run("check", str(tmp_path))
    assert result.stderr.startswith("  /miniapp.json: is missing: a bundle is a folder with this file\n")
    assert "bigger than" not in result.stderr


@pytest.mark.parametrize("content", [None, "", "{", '{"a": 1, "a": 2}', "[]"])
def test_check_of_no_manifest_at_all(run, tmp_path, content):
    if content is not None:
        (tmp_path / "miniapp.json").write_text(content)
    result = run("check", str(tmp_path))
    assert result.exit_code == 1
    assert "manifest_invalid" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_fails_when_a_test_does(run, tmp_path):
    directory = tmp_path / "my-notes"
    run("new", str(directory))
    (directory / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    done = subprocess.run(
        [sys.executable, "-m", "lineup_hostshell.cli.main", "check", str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "the tests of my-notes do not pass" in done.stderr
    assert "Warning" not in done.stdout + done.stderr


def test_the_fingerprint_changes_with_the_bundle_alone(tmp_path):
    (tmp_path / "app.py").write_text("1")
    before = fingerprint(tmp_path)
    (tmp_path / ".swap").write_text("x")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "app.pyc").write_text("x")
    assert fingerprint(tmp_path) == before
    (tmp_path / "app.py").write_text("22")
    assert fingerprint(tmp_path) != before
    changed = fingerprint(tmp_path)
    (tmp_path / "surface").mkdir()
    (tmp_path / "surface" / "index.html").write_text("x")
    assert fingerprint(tmp_path) != changed


def test_dev_adds_again_at_every_change_and_lives_through_a_broken_one(home: Path, lineup, environment, run, tmp_path):
    directory = tmp_path / "my-notes"
    assert run("new", str(directory)).exit_code == 0
    assert lineup("up", "--detach").returncode == 0
    dev = subprocess.Popen(
        [sys.executable, "-m", "lineup_hostshell.cli.main", "dev", str(directory)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert dev.stdout is not None
        lines = iter(dev.stdout.readline, "")
        assert next(lines) == "x is installed.\n"
        assert next(lines).startswith("Watching ")
        (directory / "app.py").write_text("# changed\n")
        assert next(lines) == "x is installed.\n"
        (directory / "miniapp.json").rename(directory / "away.json")
        assert "has no miniapp.json" in next(lines)
        (directory / "away.json").rename(directory / "miniapp.json")
        assert next(lines) == "x is installed.\n"
        os.kill(dev.pid, signal.SIGINT)
        last = "".join(lines)
        assert "stays installed" in last
        assert "`lineup apps remove x` takes it out" in last
        assert dev.wait(30) == 0
    finally:
        dev.kill()
        dev.communicate()
        assert lineup("down").returncode == 0


def test_dev_says_a_fault_that_stays_once_however_often_it_looks(run, runtime, tmp_path, monkeypatch):
    directory = tmp_path / "my-notes"
    run("new", str(directory))
    runtime.actions["apps.add"] = lambda args: {"app_scope": "my-notes"}
    manifest, away = directory / "miniapp.json", directory / "away.json"
    between_looks = iter(
        [
            lambda: manifest.rename(away),
            lambda: (directory / "app.py").write_text("# changed while that is so\n"),
            lambda: None,
            lambda: (directory / "app.py").write_text("# and again, while that is so\n"),
            lambda: away.rename(manifest),
            lambda: manifest.rename(away),
        ]
    )

    def wait(seconds):
        step = next(between_looks, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(bundle_commands, "time", SimpleNamespace(sleep=wait))
    monkeypatch.setattr("lineup_hostshell.cli.homes.require_runtime", lambda home: None)
    result = run("dev", str(directory))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["my-notes is installed.", "my-notes is installed."]
    said = [line.split(";")[0].removeprefix(f"lineup: {directory} ") for line in result.stderr.splitlines() if line]
    assert [line for line in said if "miniapp.json" in line] == ["has no miniapp.json"] * 2, "once each time it comes"


def test_dev_without_a_runtime(run, tmp_path):
    result = run("dev", str(tmp_path))
    assert result.exit_code == 7


@pytest.mark.parametrize(
    ("name", "source", "rule"),
    [("app.py", b"x = 1\ndef broken(:\n", "line 2: "), ("lib/deep.py", b"return 1\n", "line 1: "), ("z.py", b"\0", "")],
)
def test_a_python_file_that_cannot_be_read_is_a_fault(run, runtime, tmp_path, name, source, rule):
    directory = tmp_path / "my-notes"
    run("new", str(directory))
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_bytes(source)
    checked = run("check", str(directory))
    assert checked.exit_code == 1
    assert f"  /{name}: {rule}" in checked.stderr
    assert "lineup: my-notes has 1 fault, listed above; mend it and check again." in checked.stderr
    assert "valid bundle" not in checked.output
    assert json.loads(run("check", str(directory), "--json").stdout)["faults"][0]["path"] == f"/{name}"
    added = run("apps", "add", str(directory))
    assert added.exit_code == 1
    assert f"  /{name}: {rule}" in added.stderr
    assert runtime.args_of("apps.add") == []


def test_check_without_pytest_names_the_python_that_lacks_it(run, tmp_path, monkeypatch):
    from lineup_hostshell.cli import bundle_check

    directory = tmp_path / "my-notes"
    run("new", str(directory))
    monkeypatch.setattr(bundle_check.importlib.util, "find_spec", lambda name: None)
    result = run("check", str(directory))
    assert result.exit_code == 1
    assert f"`{sys.executable} -m pip install pytest pytest-asyncio`" in result.stderr


def test_what_check_needs_comes_with_the_distribution():
    from importlib.metadata import requires

    assert {"pytest>=8.3", "pytest-asyncio>=1.0"} <= set(requires("lineup-runtime") or ())


def test_the_tests_of_a_bundle_obey_no_folder_above_it(run, lineup, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--strict-config"\nunknown = 1\n')
    (tmp_path / "conftest.py").write_text("raise RuntimeError('not for the bundle')\n")
    directory = tmp_path / "my-notes"
    run("new", str(directory))
    done = lineup("check", str(directory), PYTHONPATH="")
    assert done.returncode == 0, done.stdout + done.stderr
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    assert "no-such-option" in lineup("check", str(directory), PYTHONPATH="").stderr
