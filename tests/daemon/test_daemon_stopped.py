"""What the command line tells of a Runtime that has stopped: the same as while it ran, and that it does not run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def lineup(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lineup_hostshell.cli.main", *arguments, "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def told(home: Path, *arguments: str) -> str:
    done = lineup(home, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_records_and_audit_are_read_while_no_runtime_runs(daemon: Any) -> None:
    home = daemon.home
    daemon.start()
    for n in (1, 2):
        assert lineup(home, "call", "nobody.home", "--call-id", f"c-{n}").returncode == 6
    commands = [
        ("calls", "--json"),
        ("calls", "--state", "rejected", "--limit", "1", "--json"),
        ("story", "c-1"),
        ("story", "c-1", "--json"),
        ("interactions",),
        ("apps", "list", "--json"),
    ]
    running = [told(home, *command) for command in commands]
    exported = told(home, "audit", "export")
    assert daemon.stop()[0] == 0

    for command, before in zip(commands, running, strict=True):
        done = lineup(home, *command)
        assert (done.returncode, done.stdout) == (0, before)
        assert done.stderr == f"No Runtime is running for {home}; this is what its store says.\n"
    rows = told(home, "audit", "export")
    assert rows.startswith(exported), "its own end has been added"
    assert json.loads(rows.splitlines()[-1])["kind"] == "runtime.stopped"
    report = json.loads(told(home, "audit", "verify", "--json"))
    assert (report["ok"], report["rows"]) == (True, rows.count("\n"))
    assert lineup(home, "story", "c-404").returncode == 1
    assert lineup(home, "tools").returncode == 7, "nothing is offered"
    daemon.start()
    assert daemon.stop()[0] == 0


def test_what_is_broken_is_said_of_a_stopped_one_too(daemon: Any) -> None:
    daemon.start()
    assert daemon.stop()[0] == 0
    path = daemon.home / "data" / "data.mdb"
    kept = path.read_bytes()
    word = b"runtime.stopped"
    assert kept.count(word) >= 1
    path.write_bytes(kept.replace(word, b"runtime.stooped"))
    done = lineup(daemon.home, "audit", "verify")
    assert done.returncode == 1
    assert "the audit is broken at row" in done.stderr


def test_what_hangs_is_not_read_behind_its_back(daemon: Any) -> None:
    """The store is locked by whoever has it open, and no answer is made up."""
    daemon.start()
    (daemon.home / "run" / "host.sock").rename(daemon.home / "run" / "away.sock")
    try:
        done = lineup(daemon.home, "calls")
    finally:
        (daemon.home / "run" / "away.sock").rename(daemon.home / "run" / "host.sock")
    assert done.returncode == 7
    assert done.stdout == ""
    assert done.stderr == f"lineup: the Runtime of {daemon.home} is starting or stopping just now; try again.\n"
