"""One question or one action to the Runtime of a home; what only asks for records asks the store if there is none.

Owns nothing but that choice. Asking needs no look at ``runtime.json``: a Runtime that is not there is noticed at its
socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

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


class Reader(Protocol):
    """Who answers queries."""

    def query(self, name: str, args: dict[str, Any] | None = None) -> Any: ...


@contextmanager
def open_reader(home: Path) -> Iterator[Reader]:
    """The Runtime of this home; its store, read by the supervisor's own program, while it does not run.

    Raises:
        CommandFailure: exit 7 if there is no Runtime and never was one, or it hangs.
        LineUpError: a refusal.
    """
    with ExitStack() as stack:
        reader: Reader
        try:
            reader = stack.enter_context(open_link(home))
        except LineUpError as error:
            if not _is_absent(error):
                raise translated(error, home) from error
            reader = stack.enter_context(_stopped(home))
        try:
            yield reader
        except LineUpError as error:
            raise translated(error, home) from error


@contextmanager
def _stopped(home: Path) -> Iterator[Reader]:
    from lineup_hostshell.cli.output import note
    from lineup_hostshell.cli.supervisor_process import StoppedHome

    with StoppedHome(home) as store:
        note(f"No Runtime is running for {home}; this is what its store says.")
        yield store


def read(home: Path, name: str, args: dict[str, Any]) -> Any:
    """The detail of one query about records, of a stopped Runtime too. Raises like ``open_reader``."""
    with open_reader(home) as reader:
        return reader.query(name, args)


def read_rows(home: Path, name: str, args: dict[str, Any], most: int | None = None) -> list[dict[str, Any]]:
    """The rows of one list, page after page: all of them, or the first ``most``. Raises like ``open_reader``."""
    with open_reader(home) as reader:
        rows: list[dict[str, Any]] = []
        after: Any = None
        while True:
            left = {} if most is None else {"limit": most - len(rows)}
            page = reader.query(name, {**args, **left} if after is None else {**args, **left, "after": after})
            rows += page[name]
            after = page.get("next")
            if after is None or (most is not None and len(rows) >= most):
                return rows


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
    if not _is_absent(error):
        return CommandFailure(
            error.message, "look at `lineup logs`, or stop it with `lineup down`", exit_code=EXIT_NO_RUNTIME
        )
    return no_runtime(home)


def _is_absent(error: LineUpError) -> bool:
    """False too if there is one that hangs."""
    return error.code == "no_runtime" and "did not answer" not in error.message
