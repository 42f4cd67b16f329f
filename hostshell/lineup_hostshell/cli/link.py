"""One question or one action to the Runtime of a home; what only asks for records asks the store if there is none.

Owns that choice, and what becomes of an action whose answer was lost. Asking needs no look at ``runtime.json``: a
Runtime that is not there is noticed at its socket.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from lineup_hostshell.cli.failure import EXIT_INTERRUPTED, EXIT_NO_RUNTIME, CommandFailure, no_runtime
from lineup_hostshell.cli.homes import run_dir
from lineup_hostshell.host_session import new_action_id
from lineup_hostshell.runtime_link import RuntimeClient
from lineup_protocol.errors import LineUpError

RUNTIME_BACK_WITHIN_S = 30.0  # a Runtime that is restarted meanwhile keeps what it had taken; wait that long for it
RETRY_S = 0.2


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


def act(home: Path, name: str, args: dict[str, Any], *, takes_its_time: bool = False) -> Any:
    """The detail of one action of the Runtime's own process (``runtime.…``): the next one must not hear of it. See
    ``RuntimeClient.action``. Raises like ``ask``."""
    try:
        with open_link(home) as link:
            return link.action(name, args, takes_its_time=takes_its_time)
    except LineUpError as error:
        raise translated(error, home) from error


def commit(home: Path, name: str, args: dict[str, Any], *, what: str, then: str, wait_s: float | None = None) -> Any:
    """The detail of one action that the Runtime commits, and carries out once whatever becomes of the link: once it was
    sent, a Runtime that ends is waited for (``wait_s`` at most), and asked again under the same id.

    ``what`` says in a clause what may have been done if no answer comes, ``then`` how to find out.

    Raises:
        CommandFailure: exit 7 if no Runtime is running for this home, or none says what came of it; 130 if a person
            does not wait for that.
        LineUpError: the Runtime's refusal.
    """
    from lineup_hostshell.cli.output import note

    def in_doubt(cause: str, step: str, exit_code: int = EXIT_NO_RUNTIME) -> CommandFailure:
        return CommandFailure(f"{cause}, so it is not known whether {what}", f"{step}{then}", exit_code=exit_code)

    wait_s = min(RUNTIME_BACK_WITHIN_S, wait_s or RUNTIME_BACK_WITHIN_S)
    action_id = new_action_id(name)
    back_by: float | None = None  # since it was sent and the Runtime went
    is_sent = False
    try:
        while True:
            is_sent = False
            try:
                with open_link(home) as link:
                    is_sent = True
                    return link.action(name, args, action_id=action_id)
            except LineUpError as error:
                if is_sent and error.code != "no_runtime":
                    raise
                if not is_sent and back_by is None:
                    raise translated(error, home) from error
                if not _is_absent(error):
                    raise in_doubt(error.message, "look at `lineup logs`, or stop it with `lineup down`; ") from error
                if back_by is None:
                    back_by = time.monotonic() + wait_s
                    note("The Runtime is gone and has not answered. Waiting for the next one, to ask that one.")
                elif time.monotonic() > back_by:
                    cause = f"the Runtime ended before it answered and was not back within {wait_s:g} s"
                    raise in_doubt(cause, "start it with `lineup up`; ") from error
            time.sleep(RETRY_S)
    except KeyboardInterrupt:
        if not is_sent and back_by is None:
            raise
        raise in_doubt("interrupted before the Runtime answered", "", EXIT_INTERRUPTED) from None


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
