"""``lineup backup`` and ``lineup restore``: one consistent file of a home, and a home out of such a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.failure import CommandFailure
from lineup_hostshell.cli.group import command, home_option, json_option
from lineup_hostshell.cli.homes import find_runtime
from lineup_hostshell.cli.output import print_json, safe_line, say, size


@command("backup", "lineup backup lineup-monday.backup")
@home_option
@json_option
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def backup(home: Path, as_json: bool, file: Path) -> None:
    """Write a consistent backup of everything in the home to FILE, while the Runtime goes on."""
    file = file.absolute()
    if file.exists():
        raise CommandFailure(f"{file} exists already", "name a file that does not exist; a backup never overwrites")
    if not file.parent.is_dir():
        raise CommandFailure(f"there is no folder {file.parent}", "make it first or name another place")
    if find_runtime(home) is not None:
        from lineup_hostshell.cli.link import act

        act(home, "runtime.backup", {"path": str(file)}, takes_its_time=True)
    else:
        from lineup_hostshell.cli.supervisor_process import run_job

        run_job("backup", str(file), home=home)
    _print(file, f"{file} holds the backup ({size(_bytes(file))}).", as_json=as_json)


@command("restore", "lineup restore lineup-monday.backup --home ./restored")
@home_option
@json_option
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def restore(home: Path, as_json: bool, file: Path) -> None:
    """Put a backup back; only into a home that is empty or not there yet."""
    file = file.absolute()
    if not file.exists():
        raise CommandFailure(f"there is no backup {file}", "check the name; `lineup backup FILE` writes one")
    if find_runtime(home) is not None:
        raise CommandFailure(f"a Runtime is running for {home}", "choose an empty home with --home DIR")
    if home.is_dir() and any(home.iterdir()):
        raise CommandFailure(f"{home} is not empty", "choose an empty home with --home DIR; nothing was changed")
    from lineup_hostshell.cli.supervisor_process import run_job

    run_job("restore", str(file), home=home)
    _print(home, f"{home} holds what was in the backup. Start it with `lineup up`.", as_json=as_json)


def _bytes(path: Path) -> int:
    if path.is_dir():
        return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
    return path.stat().st_size


def _print(path: Path, sentence: str, *, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Any] = {"path": str(path), "bytes": _bytes(path)}
        print_json(facts)
    else:
        say(safe_line(sentence))
