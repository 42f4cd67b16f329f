"""The ``lineup`` command: the list of its commands and where each one lives."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from lineup_hostshell.cli.group import LineUpGroup

COMMANDS = {
    "up": "run_commands:up",
    "down": "run_commands:down",
    "open": "open_command:open_workspace",
    "status": "status_commands:status",
    "apps": "app_commands:apps",
    "tools": "app_commands:tools",
    "call": "call_commands:call",
    "calls": "record_commands:calls",
    "cancel": "call_commands:cancel",
    "story": "record_commands:story",
    "answer": "record_commands:answer",
    "interactions": "record_commands:interactions",
    "logs": "log_commands:logs",
    "audit": "audit_commands:audit",
    "backup": "backup_commands:backup",
    "restore": "backup_commands:restore",
    "doctor": "doctor_commands:doctor",
    "new": "bundle_commands:new",
    "dev": "bundle_commands:dev",
    "check": "bundle_commands:check",
}


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"lineup {version('lineup-runtime')}")
    ctx.exit()


@click.command(
    "lineup",
    cls=LineUpGroup,
    lazy=COMMANDS,
    examples=(
        "lineup up --demo",
        "lineup tools",
        'lineup call task-dashboard.open \'{"task_id": "t1", "title": "Write report"}\'',
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """MiniApps for an AI agent on your own machine: start the Runtime, call tools, see what happened."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the ``lineup`` command; exits the process."""
    cli.main(args=None if argv is None else list(argv), prog_name="lineup")


if __name__ == "__main__":
    main(sys.argv[1:])
