"""``lineup open``, and the link that ``lineup up`` prints: a way into the workspace that works once.

Owns no authority: whoever may write into the home's run directory may make such a link, and nobody else.
"""

from __future__ import annotations

from pathlib import Path

import click

from lineup_hostshell.cli.failure import CommandFailure
from lineup_hostshell.cli.group import command, home_option, json_option
from lineup_hostshell.cli.homes import RuntimeInfo, has_desktop, require_runtime, run_dir
from lineup_hostshell.cli.output import note, print_json, safe_line


@command("open", "lineup open", "lineup open --print")
@home_option
@click.option("--print", "only_print", is_flag=True, help="Print the link and open no browser.")
@json_option
def open_workspace(home: Path, only_print: bool, as_json: bool) -> None:
    """Open the workspace in the browser, by a fresh link that works once within ten minutes."""
    info = require_runtime(home)
    if not info.workspace_url:
        raise CommandFailure("this Runtime runs without a workspace", "start it again without --no-web")
    url = fresh_link(home, info, info.workspace_url)
    if as_json:
        from lineup_hostshell.workspace_auth import LAUNCH_KEY_S

        print_json({"url": url, "expires_in_s": int(LAUNCH_KEY_S)})
        return
    click.echo(f"Workspace: {safe_line(url)}")
    if not only_print and has_desktop():
        show_in_browser(home, info, url)


def fresh_link(home: Path, info: RuntimeInfo, workspace_url: str) -> str:
    """Raises LineUpError ``home_unusable``."""
    from lineup_hostshell.workspace_auth import LaunchKeys, launch_url

    return launch_url(workspace_url, LaunchKeys(run_dir(home), info.boot_id).mint())


def show_in_browser(home: Path, info: RuntimeInfo, url: str) -> None:
    """By way of a file of ours, since a program's arguments can be read by every user of the machine."""
    from lineup_hostshell.workspace_auth import LaunchKeys

    try:
        page = LaunchKeys(run_dir(home), info.boot_id).leave_redirect(url)
        click.launch(page.as_uri())
    except Exception as problem:
        note(f"The browser could not be opened ({problem}); open the link above by hand.")
