"""``lineup apps`` and ``lineup tools``: what is installed, and what an agent may call just now."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.failure import CommandFailure
from lineup_hostshell.cli.group import ID, ExampleGroup, command, home_option, json_option
from lineup_hostshell.cli.output import print_facts, print_json, print_table, safe_line, to_json
from lineup_hostshell.cli.status_commands import app_state

_HOW_TO_TELL = "`lineup apps` shows it, and the same command again does no harm"


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
    from lineup_hostshell.cli.link import read_rows

    found = read_rows(home, "apps", {})
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


def add_bundle(home: Path, directory: Path, *, as_json: bool) -> str:
    """The scope of the MiniApp that is installed now.

    Raises:
        CommandFailure: the bundle has faults, all of them in its details; or no Runtime is running.
        LineUpError: the Runtime's refusal.
    """
    from lineup_hostshell.cli.bundle_check import source_faults
    from lineup_hostshell.cli.link import commit
    from lineup_protocol.errors import LineUpError

    directory = directory.absolute()
    if not (directory / "miniapp.json").is_file():
        raise CommandFailure(f"{directory} has no miniapp.json", "`lineup new NAME` makes a folder that has one")
    if faults := source_faults(directory):
        raise faults_failure(directory.name, faults, "add it again")
    try:
        answer = commit(
            home, "apps.add", {"path": str(directory)}, what=f"{directory.name} was installed", then=_HOW_TO_TELL
        )
    except LineUpError as error:
        if error.code == "manifest_invalid":
            raise _manifest_failure(error) from error
        raise
    scope = str((answer.get("app_scope") if isinstance(answer, dict) else None) or directory.name)
    _print_change(answer, f"{scope} is installed.", as_json=as_json)
    return scope


def _manifest_failure(error: Any) -> CommandFailure:
    faults = faults_of(error.detail)
    if not faults:
        return CommandFailure(f"manifest_invalid: {error.message}", "`lineup check DIR` looks closer")
    return faults_failure("manifest_invalid: miniapp.json", faults, "add it again")


def faults_failure(what: str, faults: list[dict[str, str]], and_then: str) -> CommandFailure:
    """One sentence for the whole, each fault on its own line before it."""
    count, them = ("1 fault", "it") if len(faults) == 1 else (f"{len(faults)} faults", "them")
    return CommandFailure(
        f"{what} has {count}, listed above",
        f"mend {them} and {and_then}",
        details=[f"{fault['path']}: {fault['rule']}" for fault in faults],
    )


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
    @click.argument("app_scope", metavar="SCOPE", type=ID)
    def change(home: Path, as_json: bool, app_scope: str) -> None:
        from lineup_hostshell.cli.link import commit

        args = {"app_scope": app_scope}
        answer = commit(home, f"apps.{verb}", args, what=f"{app_scope} was {done}", then=_HOW_TO_TELL)
        _print_change(answer, f"{app_scope} is {done}.", as_json=as_json)

    change.help = words


_change("remove", "removed", "Remove a MiniApp; its open calls settle under the version they were made for.")
_change("enable", "enabled", "Offer a MiniApp's tools again; lifts a quarantine too.")
_change("disable", "disabled", "Take a MiniApp's tools out of the inventory.")


@command("tools", "lineup tools", "lineup tools task-dashboard.open", "lineup tools --json")
@home_option
@json_option
@click.argument("tool_id", metavar="[TOOL_ID]", required=False)
def tools(home: Path, as_json: bool, tool_id: str | None) -> None:
    """Print the inventory that agents see, with its revision; or one tool of it, with what goes in and comes out."""
    from lineup_hostshell.cli.link import ask

    inventory = ask(home, "tools", {})
    if tool_id is not None:
        _print_tool(_tool(inventory["tools"], tool_id), as_json=as_json)
    elif as_json:
        print_json(inventory)
    else:
        _print_inventory(inventory)


def _tool(offered: list[dict[str, Any]], tool_id: str) -> dict[str, Any]:
    for tool in offered:
        if tool.get("id") == tool_id:
            return tool
    near = difflib.get_close_matches(tool_id, [str(tool.get("id")) for tool in offered], n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise CommandFailure(f"no tool {tool_id or repr(tool_id)} is offered just now", f"{meant}`lineup tools` lists them")


def _print_tool(tool: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(tool)
        return
    click.echo(safe_line(" ".join(str(tool[name]) for name in ("id", "title") if tool.get(name))))
    if tool.get("description"):
        click.echo(safe_line(tool["description"]))
    shown = ("id", "title", "description", "input_schema", "output_schema")
    rest = {name: value for name, value in tool.items() if name not in shown and value not in (None, "", [], {})}
    click.echo()
    print_facts(
        (name, value if isinstance(value, str) else to_json(value, indent=None)) for name, value in rest.items()
    )
    for name, words in (("input_schema", "Input"), ("output_schema", "Output")):
        if tool.get(name) is not None:
            click.echo(f"\n{words}:\n{to_json(tool[name])}")


def _print_inventory(inventory: dict[str, Any]) -> None:
    click.echo(f"Inventory {safe_line(inventory['revision'])}")
    print_table(
        ("tool", "handling", "what it is for"),
        [
            (tool.get("id"), tool.get("handling"), tool.get("description") or tool.get("title"))
            for tool in inventory["tools"]
        ],
        empty="No tool is offered just now. `lineup apps` shows why.",
    )
