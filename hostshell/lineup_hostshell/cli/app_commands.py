"""``lineup apps`` and ``lineup tools``: what is installed, and what an agent may call just now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.failure import CommandFailure
from lineup_hostshell.cli.group import ExampleGroup, command, home_option, json_option
from lineup_hostshell.cli.output import print_json, print_table, safe_line
from lineup_hostshell.cli.status_commands import app_state


@click.group(
    "apps",
    cls=ExampleGroup,
    invoke_without_command=True,
    examples=("lineup apps", "lineup apps add ./my-app", "lineup apps disable whiteboard"),
)
@home_option
@json_option
@click.pass_context
def apps(ctx: click.Context, home: Path, as_json: bool) -> None:
    """List the installed MiniApps, or add, remove, enable or disable one."""
    if ctx.invoked_subcommand is None:
        _print_apps(home, as_json=as_json)


def _under_apps(name: str, *examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    def declare(function: Callable[..., Any]) -> click.Command:
        declared = command(name, *examples)(home_option(json_option(function)))
        apps.add_command(declared)
        return declared

    return declare


def _print_apps(home: Path, *, as_json: bool) -> None:
    from lineup_hostshell.cli.link import ask

    answer = ask(home, "apps", {})
    found = answer.get("apps", []) if isinstance(answer, dict) else answer
    if as_json:
        print_json(found)
        return
    print_table(
        ("app", "version", "kind", "tools", "state"),
        [
            (app.get("app_scope"), app.get("version"), app.get("kind"), _tool_names(app), app_state(app))
            for app in found
        ],
        empty="No MiniApp is installed. `lineup apps add DIR` installs one, `lineup new NAME` makes one.",
    )


def _tool_names(app: dict[str, Any]) -> str:
    tools = app.get("tools") or []
    return ", ".join(str(tool.get("id") if isinstance(tool, dict) else tool) for tool in tools)


@_under_apps("list", "lineup apps list --json")
def list_apps(home: Path, as_json: bool) -> None:
    """List the installed MiniApps."""
    _print_apps(home, as_json=as_json)


@_under_apps("add", "lineup apps add ./my-app")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def add(home: Path, as_json: bool, directory: Path) -> None:
    """Install the bundle in DIR, or its new version; every fault of its manifest is named with its path."""
    add_bundle(home, directory, as_json=as_json)


def add_bundle(home: Path, directory: Path, *, as_json: bool) -> None:
    from lineup_hostshell.cli.link import act
    from lineup_protocol.errors import LineUpError

    directory = directory.absolute()
    if not (directory / "miniapp.json").is_file():
        raise CommandFailure(f"{directory} has no miniapp.json", "`lineup new NAME` makes a folder that has one")
    try:
        answer = act(home, "apps.add", {"path": str(directory)})
    except LineUpError as error:
        if error.code == "manifest_invalid":
            raise manifest_failure(error) from error
        raise
    _print_change(answer, f"{directory.name} is installed.", as_json=as_json)


def manifest_failure(error: Any) -> CommandFailure:
    """One sentence for the whole, each fault on its own line before it."""
    faults = faults_of(error.detail)
    for fault in faults:
        click.echo(safe_line(f"  {fault['path']}: {fault['rule']}"), err=True)
    if not faults:
        return CommandFailure(f"manifest_invalid: {error.message}", "`lineup check DIR` looks closer")
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return CommandFailure(f"manifest_invalid: miniapp.json has {count}, listed above", "mend them and add it again")


def faults_of(detail: Any) -> list[dict[str, str]]:
    """``[{path, rule}]`` out of an error's detail, in whichever of its forms it came."""
    if isinstance(detail, dict):
        detail = detail.get("faults", [detail] if "path" in detail else [])
    if not isinstance(detail, list):
        return []
    return [
        {"path": str(item.get("path", "/")), "rule": str(item.get("rule") or item.get("message") or "is wrong")}
        for item in detail
        if isinstance(item, dict)
    ]


def _print_change(answer: Any, sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(safe_line(sentence))


def _change(verb: str, done: str, words: str) -> None:
    """One of the three commands that take a SCOPE."""

    @_under_apps(verb, f"lineup apps {verb} whiteboard")
    @click.argument("app_scope", metavar="SCOPE")
    def change(home: Path, as_json: bool, app_scope: str) -> None:
        from lineup_hostshell.cli.link import act

        answer = act(home, f"apps.{verb}", {"app_scope": app_scope})
        _print_change(answer, f"{app_scope} is {done}.", as_json=as_json)

    change.help = words


_change("remove", "removed", "Remove a MiniApp; its open calls settle under the version they were made for.")
_change("enable", "enabled", "Offer a MiniApp's tools again; lifts a quarantine too.")
_change("disable", "disabled", "Take a MiniApp's tools out of the inventory.")


@command("tools", "lineup tools", "lineup tools --json")
@home_option
@json_option
def tools(home: Path, as_json: bool) -> None:
    """Print the inventory that agents see, with its revision."""
    from lineup_hostshell.cli.link import ask

    inventory = ask(home, "tools", {})
    if as_json:
        print_json(inventory)
        return
    click.echo(f"Inventory {safe_line(inventory['revision'])}")
    print_table(
        ("tool", "handling", "what it is for"),
        [
            (tool.get("id"), tool.get("handling"), tool.get("description") or tool.get("title"))
            for tool in inventory["tools"]
        ],
        empty="No tool is offered just now. `lineup apps` shows why.",
    )
