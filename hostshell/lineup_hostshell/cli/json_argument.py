"""Reads JSON that a person typed or piped in, by the protocol's own strict rules, and names the place of a fault."""

from __future__ import annotations

import sys

from lineup_hostshell.cli.failure import EXIT_USAGE, CommandFailure
from lineup_protocol import limits
from lineup_protocol.codec import decode_json
from lineup_protocol.errors import LineUpError


def read_argument(argument: str | None, *, name: str) -> object:
    """The value of an argument; ``-`` reads standard input; None stands for ``{}``.

    Raises:
        CommandFailure: exit 2, with the place of the fault (line and column, or the path inside the value).
    """
    if argument is None:
        return {}
    text: str | bytes = argument
    if argument == "-":
        text = sys.stdin.buffer.read(limits.AGENT_FRAME_BYTES_MAX + 1)
    try:
        return decode_json(text, bytes_max=limits.AGENT_FRAME_BYTES_MAX)
    except LineUpError as error:
        detail = error.detail if isinstance(error.detail, dict) else {}
        place = f" at {detail['path']}" if detail.get("path", "/") != "/" else ""
        raise CommandFailure(
            f"{name}{place} {detail.get('rule') or f'cannot be read: {error.message}'}",
            "quote it as one shell word, or pass - and give it on standard input",
            exit_code=EXIT_USAGE,
        ) from error
