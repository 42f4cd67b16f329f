"""``lineup logs``: the structured logs of the Runtime and its workers, with or without a daemon."""

from __future__ import annotations

from pathlib import Path

import click

from lineup_hostshell.cli.failure import CommandFailure
from lineup_hostshell.cli.group import ID, command, home_option, json_option
from lineup_hostshell.cli.log_files import Follower, LogLine, known_scopes, log_files, read_last
from lineup_hostshell.cli.output import local_time, print_json_line, safe_line, to_json, wall_ms

_LINES_DEFAULT = 200
_SHOWN_FIRST = frozenset({"at", "level", "stream", "app_scope", "instance_id", "event", "text", "note"})
_LEVEL_COLOURS = {"warning": "yellow", "error": "red", "critical": "red", "debug": "bright_black"}


@command("logs", "lineup logs", "lineup logs -f --app task-dashboard")
@home_option
@json_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on; Ctrl-C ends it.")
@click.option(
    "--app", "app_scope", metavar="SCOPE", type=ID, help="Only what belongs to this MiniApp, its own output included."
)
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(0, 1_000_000),
    default=_LINES_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many of the last entries to begin with.",
)
def logs(home: Path, as_json: bool, follow: bool, app_scope: str | None, count: int) -> None:
    """Print the logs, the workers' stdout and stderr included."""
    if not follow and not log_files(home):
        raise CommandFailure(
            f"there are no logs in {home / 'logs'}", "a Runtime writes them from its first `lineup up` on"
        )
    follower = Follower(home, app_scope=app_scope) if follow else None
    lines = read_last(home, count, app_scope=app_scope) if count else []
    if app_scope is not None and not lines:
        _check_scope(home, app_scope)
    for line in lines:
        _print(line, as_json=as_json)
    if follower is None:
        return
    try:
        for line in follower.lines():
            _print(line, as_json=as_json)
    except KeyboardInterrupt:
        pass
    finally:
        follower.close()


def _check_scope(home: Path, app_scope: str) -> None:
    """A MiniApp that has said nothing yet is fine; a name that nobody bears is a mistake."""
    from lineup_hostshell.cli.link import ask
    from lineup_protocol.errors import LineUpError

    known = known_scopes(home)
    try:
        known |= {str(app["app_scope"]) for app in ask(home, "apps", {})["apps"]}
    except (CommandFailure, LineUpError):
        pass  # no Runtime: the logs alone must do
    if app_scope not in known:
        names = f"known are {', '.join(sorted(known))}" if known else "no MiniApp has a log yet"
        raise CommandFailure(f"there is no MiniApp {app_scope} here", names)


def _print(line: LogLine, *, as_json: bool) -> None:
    if as_json:
        print_json_line(line.fields)
    else:
        click.echo(render(line))


def render(line: LogLine) -> str:
    """``time level source: event key=value …`` in one line, every byte of it harmless to a terminal."""
    fields = line.fields
    clock = local_time(line.at) if wall_ms(line.at) is not None else safe_line(line.at) or " " * 19
    level = str(fields.get("level") or "info").lower()
    tag = click.style(f"{safe_line(level):<7}", fg=_LEVEL_COLOURS.get(level))
    source = "/".join(str(part) for part in (_whose(line), fields.get("instance_id")) if part)
    stream = f" {fields['stream']}" if fields.get("stream") else ""
    said = next((fields[name] for name in ("event", "text", "note") if fields.get(name)), "")
    rest = " ".join(f"{name}={_value(value)}" for name, value in fields.items() if name not in _SHOWN_FIRST)
    return f"{clock} {tag} {safe_line(source + stream)}: {safe_line(said)}" + (f"  {safe_line(rest)}" if rest else "")


def _whose(line: LogLine) -> object:
    """A MiniApp's output is its own, whatever the line says of itself."""
    return line.stem if line.of_app else line.fields.get("app_scope") or line.stem


def _value(value: object) -> str:
    text = value if isinstance(value, str) else to_json(value, indent=None)
    return to_json(text) if " " in text and isinstance(value, str) else text
