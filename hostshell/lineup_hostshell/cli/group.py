"""The command tree: loads a command's module only when that command runs, and turns every failure into one sentence.

This file owns how commands are declared (``command``, ``home_option``, ``json_option``) and how they fail. It must not
know what any of them does.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from lineup_hostshell.cli.failure import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailure,
    from_error,
)
from lineup_hostshell.cli.hints import name_home
from lineup_protocol.errors import LineUpError

F = TypeVar("F", bound=Callable[..., Any])


class ExampleCommand(click.Command):
    """A command whose help ends with examples, printed as they are typed."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


class ExampleGroup(click.Group):
    """A group below the root, whose help ends with examples too."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params.append(debug_option())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its whole first sentence, wrapped instead of cut."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(limit=400)) for name, found in commands if found])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if not examples:
        return
    formatter.write("\nExample:\n" if len(examples) == 1 else "\nExamples:\n")
    for example in examples:
        formatter.write(f"  {example}\n")


class LineUpGroup(ExampleGroup):
    """The root group: ``lazy`` maps a command's name to ``module:attribute`` below this package."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.lazy.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        found = getattr(importlib.import_module(f"lineup_hostshell.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run, and exit with a code; whatever goes wrong becomes one sentence on stderr."""
        name_home(None)
        asked_debug = "--debug" in (sys.argv[1:] if args is None else args)
        try:
            result = super().main(args, prog_name, standalone_mode=False, **extra)
        except BaseException as problem:
            if asked_debug and not isinstance(problem, SystemExit | click.exceptions.Exit | click.UsageError):
                raise
            sys.exit(_report(problem))
        sys.exit(result if isinstance(result, int) and not isinstance(result, bool) else EXIT_OK)


def _report(problem: BaseException) -> int:
    """Say what went wrong on stderr and return the exit code; SystemExit passes through."""
    match problem:
        case SystemExit():
            raise problem
        case click.exceptions.Exit():
            return problem.exit_code
        case click.exceptions.NoArgsIsHelpError():
            click.echo(problem.format_message(), err=True)
            return EXIT_USAGE
        case click.UsageError():
            hint = f"`{problem.ctx.command_path} --help` shows how" if problem.ctx else "`lineup --help` shows how"
            return _say(CommandFailure(problem.format_message(), hint, exit_code=EXIT_USAGE))
        case click.ClickException():
            return _say(CommandFailure(problem.format_message()))
        case CommandFailure():
            return _say(problem)
        case LineUpError():
            return _say(from_error(problem))
        case KeyboardInterrupt() | click.Abort():
            return EXIT_INTERRUPTED
        case OSError() if problem.errno == errno.EPIPE:
            # The reader of our output has left (`lineup logs | head`); that is no fault, but there is nowhere to write.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            return EXIT_FAILURE
        case OSError():
            where = f" ({problem.filename})" if problem.filename else ""
            return _say(CommandFailure(f"{problem.strerror or problem}{where}"))
        case _:
            cause = f"a fault inside the command: {type(problem).__name__}: {problem}"
            return _say(CommandFailure(cause, "run it again with --debug and report what it prints"))


def _say(failure: CommandFailure) -> int:
    from lineup_hostshell.cli.output import note, safe_line

    for line in failure.details:
        note(f"  {safe_line(line)}")
    note(f"lineup: {failure.sentence}")
    return failure.exit_code


def command(name: str, *examples: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command with its examples; each takes --debug."""

    def declare(function: Callable[..., Any]) -> click.Command:
        declared = click.command(name, cls=ExampleCommand, examples=examples, **settings)(function)
        declared.params.append(debug_option())
        return declared

    return declare


def debug_option() -> click.Option:
    """--debug: looked for by the root group, wherever on the line it stands."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks.")


class _Home(click.Path):
    """A directory. Nothing at all (`--home "$UNSET"`) is a mistake, and not the directory where one happens to be."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; name a directory, or leave --home out", parameter, ctx)
        return super().convert(value, parameter, ctx)


def home_option(function: F) -> F:
    """``home``: an absolute path, from --home, $LINEUP_HOME or the platform's user data directory."""
    return click.option(
        "--home",
        type=_Home(file_okay=True, path_type=Path),
        envvar="LINEUP_HOME",
        metavar="DIR",
        callback=_absolute_home,
        help="Where this Runtime keeps everything (else $LINEUP_HOME, else the user data directory).",
    )(function)


class _Id(click.types.StringParamType):
    """The id of a record or a scope, as the protocol has it; what cannot be one is a mistake on the command line."""

    name = "id"

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        from lineup_protocol.ids import is_id

        if not is_id(value):
            self.fail(f"{value!r} is not an id (1 to 128 characters of A-Z a-z 0-9 . _ : -)", parameter, ctx)
        return value


ID = _Id()


def _inherited(ctx: click.Context, name: str) -> Any:
    """What the group above was told (`lineup apps --home DIR list`), unless this command was told itself."""
    if ctx.parent is None or ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        return None
    return ctx.parent.params.get(name)


def _absolute_home(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    inherited = _inherited(ctx, "home")
    if isinstance(inherited, Path):
        return inherited
    import platformdirs

    usual = Path(os.path.abspath(platformdirs.user_data_dir("lineup", appauthor=False)))
    home = usual if value is None else Path(os.path.abspath(value.expanduser()))
    name_home(None if home == usual else home)
    return home


def json_option(function: F) -> F:
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=lambda ctx, parameter, value: value or bool(_inherited(ctx, "as_json")),
        help="Print JSON instead of text.",
    )(function)
