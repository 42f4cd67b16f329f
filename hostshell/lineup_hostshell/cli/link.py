"""One question or one action to the Runtime of a home. Owns nothing but the choice of the home's run directory.

Asking needs no look at ``runtime.json``: a Runtime that is not there is noticed at its socket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lineup_hostshell.cli.failure import EXIT_NO_RUNTIME, CommandFailure, no_runtime
from lineup_hostshell.cli.homes import run_dir
from lineup_hostshell.runtime_link import RuntimeClient
from lineup_protocol.errors import LineUpError


def open_link(home: Path) -> RuntimeClient:
    """A client to be used as a context manager; entering it raises like ``ask``."""
    return RuntimeClient(run_dir(home), role="cli")


def ask(home: Path, name: str, args: dict[str, Any]) -> Any:
    """The detail of one query.

    Raises:
        CommandFailure: exit 7 if no Runtime is running for this home.
        LineUpError: the Runtime's refusal.
    """
    try:
        with open_link(home) as link:
            return link.query(name, args)
    except LineUpError as error:
        raise translated(error, home) from error


def act(home: Path, name: str, args: dict[str, Any]) -> Any:
    """The detail of one durable action. Raises like ``ask``."""
    try:
        with open_link(home) as link:
            return link.action(name, args)
    except LineUpError as error:
        raise translated(error, home) from error


def translated(error: LineUpError, home: Path) -> Exception:
    """``no_runtime`` in the words of the command line; every other error as it is."""
    if error.code != "no_runtime":
        return error
    if "did not answer" in error.message:  # there is one, but it hangs
        return CommandFailure(
            error.message, "look at `lineup logs`, or stop it with `lineup down`", exit_code=EXIT_NO_RUNTIME
        )
    return no_runtime(home)
