"""``lineup call`` and ``lineup cancel``: act as the agent ``cli``.

Owns the course of one call as a person sees it: made once, watched until it is final, watched again after a restart of
the Runtime. The call itself is the Runtime's; leaving this command changes nothing about it.
"""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lineup_hostshell.cli.failure import (
    CALL_EXITS,
    EXIT_CALL_REJECTED,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_NO_RUNTIME,
    EXIT_STILL_RUNNING,
    EXIT_USAGE,
    CommandFailure,
    from_refusal,
)
from lineup_hostshell.cli.group import ID, command, home_option, json_option
from lineup_hostshell.cli.output import note, print_json, safe_line, say, to_json

if TYPE_CHECKING:
    from lineup_hostshell.cli.call_progress import ProgressView

AGENT_ID = "cli"
CONVERSATION_ID = "cli"  # one for all calls of the command line, so that one call finds what another opened
WAIT_S_MAX = 31_536_000.0  # a year; without --timeout it waits for ever


def _a_number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("'nan' is no number of seconds.")
    return value


class _Interrupted(Exception):
    """Ctrl-C while the call was watched."""


@command(
    "call",
    'lineup call task-dashboard.open \'{"task_id": "t1", "title": "Write report"}\'',
    "echo '{\"duration_seconds\": 1500}' | lineup call pomodoro.start - --conversation work",
)
@home_option
@json_option
@click.argument("tool_id", metavar="TOOL_ID")
@click.argument("tool_input", metavar="[JSON|-]", required=False)
@click.option(
    "--conversation",
    "conversation_id",
    default=CONVERSATION_ID,
    show_default=True,
    metavar="ID",
    help="The conversation that the call belongs to.",
)
@click.option("--call-id", metavar="ID", help="Choose the id; the same call under the same id is made only once.")
@click.option("--no-wait", is_flag=True, help="Print the call's id and return once it is accepted.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, WAIT_S_MAX, min_open=True),
    callback=_a_number,
    metavar="S",
    help="Wait at most S seconds; the call itself goes on.",
)
@click.option("--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the call instead of leaving it running.")
def call(
    home: Path,
    as_json: bool,
    tool_id: str,
    tool_input: str | None,
    conversation_id: str,
    call_id: str | None,
    no_wait: bool,
    timeout_s: float | None,
    cancel_on_interrupt: bool,
) -> int:
    """Call a tool as an agent would, show its progress and print its result.

    Exit code: 0 completed, 3 failed, 4 cancelled, 5 expired, 6 rejected, 7 no runtime, 8 still running after --timeout.
    """
    from lineup_hostshell.cli.json_argument import read_argument

    value = read_argument(tool_input, name="the input")
    _check_ids(conversation=conversation_id, **({} if call_id is None else {"call-id": call_id}))
    call_id = call_id or f"cli-{secrets.token_hex(6)}"
    watch = _Watch(home, call_id, timeout_s=timeout_s, as_json=as_json)
    args = {"call_id": call_id, "tool_id": tool_id, "input": value, "conversation_id": conversation_id}
    record = _start(home, args, timeout_s=timeout_s)
    if no_wait or _is_final(record):
        return _finish(record, as_json=as_json, waited=_is_final(record))
    return watch.run(cancel_on_interrupt=cancel_on_interrupt)


def _check_ids(**ids: str) -> None:
    from lineup_protocol.ids import is_id

    for name, value in ids.items():
        if not is_id(value):
            raise CommandFailure(
                f"--{name} {value!r} is not an id",
                "use 1 to 128 characters of A-Z a-z 0-9 . _ : -",
                exit_code=EXIT_USAGE,
            )


def _start(home: Path, args: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
    """The record once the Runtime has taken the call; made under the inventory of that moment.

    Raises:
        CommandFailure: exit 6 for a refusal that left no record, 7 without a Runtime, or if it ended just then.
    """
    from lineup_hostshell.cli.link import commit
    from lineup_protocol.errors import LineUpError

    call_id = args["call_id"]
    then = f"`lineup story {call_id}` shows it, and the same command with --call-id {call_id} makes it only once"
    try:
        detail = commit(home, "call.start", args, what=f"the call {call_id} was made", then=then, wait_s=timeout_s)
    except LineUpError as error:
        raise _refusal(error) from error
    return {"call_id": args["call_id"], **detail["record"]}


def _refusal(error: Any) -> CommandFailure:
    failure = from_refusal(error.code, error.message, exit_code=EXIT_CALL_REJECTED)
    failure.cause += _place(error.detail, failure.cause)
    return failure


def _place(detail: Any, said: str) -> str:
    """`` (at /title: is required)`` out of an error's detail, unless it was said already."""
    if not isinstance(detail, dict) or "path" not in detail or str(detail["path"]) in said:
        return ""
    return f" (at {detail['path']}: {detail.get('rule', 'is wrong')})"


def _is_final(record: dict[str, Any]) -> bool:
    return record.get("status") in CALL_EXITS


class _Watch:
    """Watches one call until it is final, over restarts of the Runtime."""

    def __init__(self, home: Path, call_id: str, *, timeout_s: float | None, as_json: bool) -> None:
        self.home = home
        self.call_id = call_id
        self.as_json = as_json
        self.timeout_s = timeout_s
        self.ends_at = None if timeout_s is None else time.monotonic() + timeout_s

    def run(self, *, cancel_on_interrupt: bool) -> int:
        from lineup_hostshell.cli.call_progress import ProgressView

        try:
            with ProgressView(self.call_id, quiet=self.as_json) as view:
                record = self._until_final(view)
        except _Interrupted:
            if not cancel_on_interrupt:
                return self._leave()
            record = self._cancel()
        if record is None:
            waited = f"{self.timeout_s:g} s"
            raise CommandFailure(
                f"{self.call_id} is still running after {waited} and goes on",
                f"`lineup story {self.call_id}` shows it, `lineup cancel {self.call_id}` ends it",
                exit_code=EXIT_STILL_RUNNING,
            )
        return _finish(record, as_json=self.as_json, waited=True)

    def _until_final(self, view: ProgressView) -> dict[str, Any] | None:
        """The final record, or None when ``timeout_s`` is over."""
        try:
            for record in self._records():
                view.show(record)
                if _is_final(record):
                    return record
        except KeyboardInterrupt:
            raise _Interrupted from None
        return None

    def _records(self) -> Iterator[dict[str, Any]]:
        from lineup_hostshell.cli.link import RETRY_S, RUNTIME_BACK_WITHIN_S, open_link
        from lineup_protocol.errors import LineUpError

        back_by: float | None = None
        while not self._over():
            try:
                with open_link(self.home) as link:
                    for record in link.watch(self.call_id, AGENT_ID, timeout_s=self._left_s()):
                        back_by = None
                        yield record
                return
            except LineUpError as error:
                if error.code != "no_runtime":
                    raise
                if back_by is None:
                    back_by = time.monotonic() + RUNTIME_BACK_WITHIN_S
                    note("The Runtime is gone; the call is kept. Waiting for the next one.")
                if time.monotonic() > back_by:
                    raise CommandFailure(
                        f"the Runtime did not come back within {RUNTIME_BACK_WITHIN_S:.0f} s; {self.call_id} is kept",
                        f"start it with `lineup up`, then look with `lineup story {self.call_id}`",
                        exit_code=EXIT_NO_RUNTIME,
                    ) from error
                time.sleep(RETRY_S)

    def _left_s(self) -> float | None:
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())

    def _over(self) -> bool:
        return self.ends_at is not None and time.monotonic() >= self.ends_at

    def _leave(self) -> int:
        note(
            f"\nThe call {self.call_id} goes on. Look at it with `lineup story {self.call_id}`, "
            f"end it with `lineup cancel {self.call_id}`."
        )
        return EXIT_INTERRUPTED

    def _cancel(self) -> dict[str, Any] | None:
        """Ask for the cancel and wait for what came of it; a second Ctrl-C leaves."""
        from lineup_hostshell.cli.call_progress import ProgressView
        from lineup_protocol.errors import LineUpError

        note("\nCancelling; press Ctrl-C again to leave without waiting.")
        try:
            _ask_to_cancel(self.home, self.call_id, AGENT_ID, "interrupted at the terminal")
        except LineUpError as error:
            if error.code != "call_already_final":  # its result came first and is printed
                raise
        try:
            with ProgressView(self.call_id, quiet=self.as_json) as view:
                return self._until_final(view)
        except _Interrupted:
            sys.exit(self._leave())


def _finish(record: dict[str, Any], *, as_json: bool, waited: bool) -> int:
    """Print what there is; the exit code says how the call ended."""
    if not waited:
        if as_json:
            print_json(record)
        else:
            click.echo(record["call_id"])
        return 0
    status = str(record.get("status"))
    if as_json:
        print_json(record)
    elif status == "completed":
        click.echo(to_json(record.get("result")))
    else:
        note(f"lineup: {_ending(record, status)}")
    return CALL_EXITS.get(status, EXIT_FAILURE)


def _ending(record: dict[str, Any], status: str) -> str:
    call_id, error = record["call_id"], record.get("error")
    ended = f"the call {call_id} {status}" if status == "failed" else f"the call {call_id} was {status}"
    if not isinstance(error, dict):
        return f"{ended}; `lineup story {call_id}` shows why."
    failure = from_refusal(str(error.get("code")), safe_line(error.get("message")))
    failure.cause += _place(error.get("detail"), failure.cause)
    failure.next_step = failure.next_step or f"`lineup story {call_id}` shows how it came to it"
    return f"{ended}: {failure.sentence}"


@command("cancel", "lineup cancel cli-5f0c1d2e3a4b")
@home_option
@json_option
@click.argument("call_id", metavar="CALL_ID", type=ID)
@click.option("--reason", metavar="TEXT", help="Why; the MiniApp and the audit get to know it.")
@click.option(
    "--agent",
    "agent_id",
    default=AGENT_ID,
    show_default=True,
    type=ID,
    metavar="ID",
    help="Whose call it is: ids of calls are unique for each agent only.",
)
def cancel(home: Path, as_json: bool, call_id: str, reason: str | None, agent_id: str) -> None:
    """Ask that a call be cancelled, made by `lineup call` or by an agent; its result says what came of it."""
    detail = _ask_to_cancel(home, call_id, agent_id, reason)
    if as_json:
        print_json(detail)
    else:
        say(safe_line(f"Asked. `lineup story {call_id}` shows what comes of it."))


def _ask_to_cancel(home: Path, call_id: str, agent_id: str, reason: str | None) -> Any:
    """Raises like ``commit``."""
    from lineup_hostshell.cli.link import commit

    args = {"call_id": call_id, "agent_id": agent_id, **({"reason": reason} if reason else {})}
    then = f"`lineup story {call_id}` shows what came of it, and asking again does no harm"
    return commit(home, "call.cancel", args, what=f"the call {call_id} was asked to end", then=then)
