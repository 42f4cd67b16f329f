"""``lineup new``, ``check`` and ``dev``: what the author of a MiniApp works with."""

from __future__ import annotations

import time
from pathlib import Path

import click

from lineup_hostshell.cli.failure import EXIT_FAILURE, CommandFailure
from lineup_hostshell.cli.group import command, home_option, json_option
from lineup_hostshell.cli.output import note, print_json, safe_line

_POLL_S = 0.3
_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@command("new", "lineup new my-notes", "lineup new my-board --surface")
@click.argument("name", metavar="NAME", type=click.Path(path_type=Path))
@click.option("--surface", is_flag=True, help="With a page of its own that people see in the workspace.")
@json_option
def new(name: Path, surface: bool, as_json: bool) -> None:
    """Make a folder NAME with a working MiniApp and a test for it."""
    from lineup_hostshell.cli.scaffold import make_bundle

    directory = name.absolute()
    made = make_bundle(directory, surface=surface)
    if as_json:
        print_json({"path": str(directory), "files": [str(path.relative_to(directory)) for path in made]})
        return
    for path in made:
        click.echo(f"  {safe_line(path.relative_to(directory.parent))}")
    click.echo(f"\nCheck it with `lineup check {safe_line(name)}`, run it with `lineup dev {safe_line(name)}`.")


@command("check", "lineup check ./my-notes", "lineup check ./my-notes --no-tests --json")
@_DIRECTORY
@click.option("--tests/--no-tests", default=True, show_default=True, help="Run the bundle's own tests as well.")
@json_option
def check(directory: Path, tests: bool, as_json: bool) -> int:
    """Validate the bundle in DIR, naming every fault with its path, and run its tests."""
    from lineup_hostshell.cli.app_commands import faults_failure
    from lineup_hostshell.cli.bundle_check import find_tests, manifest_faults, run_tests, source_faults

    directory = directory.absolute()
    of_manifest = manifest_faults(directory)
    faults = of_manifest + source_faults(directory)
    files = find_tests(directory) if tests and not faults else []
    outcome = run_tests(directory, quiet=as_json) if files else None
    ok = not faults and outcome in (None, 0)
    if as_json:
        print_json({"ok": ok, "faults": faults, "tests": len(files), "tests_passed": None if outcome is None else ok})
        return 0 if ok else EXIT_FAILURE
    if faults:
        what = f"manifest_invalid: {directory.name}" if of_manifest else directory.name
        raise faults_failure(what, faults, "check again")
    click.echo(f"{safe_line(directory.name)} is a valid bundle.")
    if outcome not in (None, 0):
        raise CommandFailure(f"the tests of {directory.name} do not pass", "their output stands above")
    if tests and not files:
        click.echo("It has no tests (tests/test_*.py).")
    return 0


@command("dev", "lineup dev ./my-notes")
@home_option
@_DIRECTORY
def dev(home: Path, directory: Path) -> None:
    """Add the bundle in DIR to the running Runtime, and again at every change, until Ctrl-C.

    Instances that run keep the version that they started with; new calls use the new one.
    """
    from lineup_hostshell.cli.app_commands import add_bundle
    from lineup_hostshell.cli.bundle_check import fingerprint
    from lineup_hostshell.cli.homes import require_runtime

    directory = directory.absolute()
    require_runtime(home)
    seen = fingerprint(directory)  # before it is added: what changes from now on is added again
    scope = add_bundle(home, directory, as_json=False)
    said: list[str] = []
    note(f"Watching {directory}; Ctrl-C ends it. `lineup logs -f` shows what the MiniApp prints.")
    try:
        while True:
            time.sleep(_POLL_S)
            now = fingerprint(directory)
            if now == seen:
                continue
            seen = now
            said, before = _add_again(home, directory), said
            if said and said != before:  # a fault that stays while the author goes on writing is said once
                note("\n".join(said))
    except KeyboardInterrupt:
        note(f"\nThe MiniApp stays installed; `lineup apps remove {safe_line(scope)}` takes it out.")


def _add_again(home: Path, directory: Path) -> list[str]:
    """What is wrong, in lines to be said: a bundle that is broken for the moment is waited for, not given up; a
    Runtime that is gone ends it."""
    from lineup_hostshell.cli.app_commands import add_bundle
    from lineup_hostshell.cli.failure import EXIT_NO_RUNTIME, from_error
    from lineup_protocol.errors import LineUpError

    try:
        add_bundle(home, directory, as_json=False)
    except CommandFailure as failure:
        if failure.exit_code == EXIT_NO_RUNTIME:
            raise
        return [*(f"  {safe_line(line)}" for line in failure.details), f"lineup: {failure.sentence}"]
    except LineUpError as error:
        return [f"lineup: {from_error(error).sentence}"]
    return []
