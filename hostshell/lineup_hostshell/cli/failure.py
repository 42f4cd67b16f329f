"""What a command says when it cannot do its work: one sentence with the cause and the next step, and an exit code.

This file owns the exit codes and the words. It must not know any command, nor how it reached the Runtime.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lineup_protocol.errors import LineUpError

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_CALL_FAILED = 3
EXIT_CALL_CANCELLED = 4
EXIT_CALL_EXPIRED = 5
EXIT_CALL_REJECTED = 6
EXIT_NO_RUNTIME = 7
EXIT_STILL_RUNNING = 8  # `call --timeout` is over, the call itself goes on
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

CALL_EXITS = {
    "completed": EXIT_OK,
    "failed": EXIT_CALL_FAILED,
    "cancelled": EXIT_CALL_CANCELLED,
    "expired": EXIT_CALL_EXPIRED,
    "rejected": EXIT_CALL_REJECTED,
}

_NEXT_STEPS = {
    "no_runtime": "start one with `lineup up`",
    "inventory_revision_mismatch": "read `lineup tools` and call again",
    "tool_not_advertised": "`lineup tools` lists what can be called",
    "tool_input_invalid": "`lineup tools TOOL_ID` shows its input schema",
    "app_disabled": "`lineup apps enable SCOPE` switches it on",
    "app_quarantined": "read `lineup logs --app SCOPE`, then lift it with `lineup apps enable SCOPE`",
    "app_crashed": "`lineup logs --app SCOPE` has the MiniApp's own output",
    "app_not_found": "`lineup apps` lists what is installed",
    "call_id_conflict": "use another --call-id",
    "call_not_found": "`lineup calls` lists the calls",
    "isolation_insufficient": "`lineup doctor` names the cause and the fix",
    "manifest_invalid": "`lineup check DIR` lists every fault with its path",
    "message_too_large": "send less in one message",
    "rate_limited": "try again in a moment",
    "storage_full": "free disk space",
    "interaction_not_found": "`lineup interactions` lists the open ones",
    "interaction_already_final": "the first answer stands, see `lineup story ID`",
    "interaction_invalid": "`lineup interactions --json` has the request",
    "runtime_stopping": "send it again once the next Runtime is up",
    "not_found": "check the id with `lineup calls` or `lineup status`",
    "internal_error": "`lineup logs` has the story",
    "store_newer": "use the version of LineUp that wrote it",
    "store_damaged": "restore a backup into an empty home with `lineup restore FILE`",
    "store_locked": "stop the other one with `lineup down`",
    "home_unusable": "choose another with --home DIR",
    "file_unusable": "name another place",
    "config_invalid": "correct config.toml and start again",
    "outcome_unknown": "`lineup story ID` shows how far it came",
    "tool_failed": "`lineup logs` has the MiniApp's traceback",
    "protocol_unsupported": "use the `lineup` command of the version that runs",
    "worker_unresponsive": "`lineup logs` has the MiniApp's own output",
}

_COMMAND = re.compile(r"`lineup [a-z -]+")  # up to what it is about, which the message knows by name


class CommandFailure(Exception):
    """A command that could not do its work. ``cause`` is a clause, ``next_step`` what the person can do about it;
    ``details`` are lines to be shown before the sentence."""

    def __init__(
        self, cause: str, next_step: str = "", *, exit_code: int = EXIT_FAILURE, details: Sequence[str] = ()
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.next_step = next_step
        self.exit_code = exit_code
        self.details = tuple(details)

    @property
    def sentence(self) -> str:
        cause = self.cause.rstrip().rstrip(".;")
        return f"{cause}; {self.next_step}." if self.next_step else f"{cause}."


def no_runtime(home: object) -> CommandFailure:
    return CommandFailure(f"no Runtime is running for {home}", _NEXT_STEPS["no_runtime"], exit_code=EXIT_NO_RUNTIME)


def from_error(error: LineUpError, *, exit_code: int | None = None) -> CommandFailure:
    """The sentence for a registered error; its code leads, because people search for it."""
    if exit_code is None:
        exit_code = EXIT_NO_RUNTIME if error.code == "no_runtime" else EXIT_FAILURE
    return CommandFailure(f"{error.code}: {error.message}", _next_step(error.code, error.message), exit_code=exit_code)


def from_refusal(code: str | None, message: str | None, *, exit_code: int = EXIT_FAILURE) -> CommandFailure:
    """The same for a refusal that came over a link, whose code this version may not know."""
    code = code or "internal_error"
    message = message or "no reason was given"
    return CommandFailure(f"{code}: {message}", _next_step(code, message), exit_code=exit_code)


def _next_step(code: str, message: str) -> str:
    """What is left of the step for ``code``, once the clauses are gone whose command the message names itself."""
    clauses = _NEXT_STEPS.get(code, "").split(", then ")
    return ", then ".join(clause for clause in clauses if not _is_named(clause, message))


def _is_named(clause: str, message: str) -> bool:
    commands = _COMMAND.findall(clause)
    return clause in message or (bool(commands) and all(command in message for command in commands))
