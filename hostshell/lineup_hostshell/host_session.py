"""The hostshell's and the CLI's half of the host link, without I/O: ids, the handshake, pairing answers with requests.

This file owns what is said on the link (`HOST_LINK` of the protocol). It must not know sockets, loops or clocks;
`runtime_link` carries its bytes.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lineup_protocol.codec import decode_message, encode_message
from lineup_protocol.errors import CODES, LineUpError
from lineup_protocol.handshake import SUPPORTED_VERSIONS

Role = Literal["hostshell", "cli"]

SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux without its NUL


@dataclass(frozen=True)
class Welcome:
    """The Runtime's first words: the negotiated protocol, this boot, and what the peer needs to know to work."""

    protocol: int
    boot_id: str
    version: str
    settings: dict[str, Any]


class HostSession:
    """Makes the bytes to send and makes sense of those that arrive. One per connection."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self._next = 0

    def hello(self) -> bytes:
        return self.note("host.hello", {"protocols": list(SUPPORTED_VERSIONS), "role": self.role, "pid": os.getpid()})

    def note(self, type_: str, body: dict[str, Any]) -> bytes:
        """A message that is not answered by id.

        Raises:
            LineUpError: ``message_invalid`` if the body has a value that the wire cannot carry.
        """
        return encode_message(type_, body, link="host", from_runtime=False)

    def request(self, type_: str, body: dict[str, Any]) -> tuple[str, bytes]:
        """A message whose ``host.result`` names the returned id."""
        self._next += 1
        id_ = f"r{self._next}"
        return id_, encode_message(type_, body, link="host", from_runtime=False, message_id=id_)

    @staticmethod
    def read(data: bytes) -> tuple[str, dict[str, Any]]:
        """``(type, body)`` of one message of the Runtime.

        Raises:
            LineUpError: ``message_invalid`` for anything that the message table does not know.
        """
        type_, _, body = decode_message(data, "host", from_runtime=True)
        return type_, body

    @staticmethod
    def welcome(type_: str, body: dict[str, Any]) -> Welcome:
        """The answer to hello.

        Raises:
            LineUpError: the Runtime's refusal, or ``protocol_unsupported``.
        """
        if type_ == "host.refuse":
            raise refusal(body)
        if type_ != "host.welcome" or body["protocol"] not in SUPPORTED_VERSIONS:
            raise LineUpError("protocol_unsupported", f"the Runtime answered hello with {type_}")
        return Welcome(body["protocol"], body["boot_id"], body["version"], body["settings"])


def refusal(body: dict[str, Any]) -> LineUpError:
    """The error that a ``host.result`` or ``host.refuse`` carries; a code of a newer Runtime becomes a generic one."""
    code, message = body.get("code") or "internal_error", body.get("message") or "no reason was given"
    if code not in CODES:
        code, message = "internal_error", f"{code}: {message}"
    return LineUpError(code, message, detail=body.get("detail"))


def new_action_id(purpose: str) -> str:
    """An id for one durable action, unique over processes and machines."""
    return f"{purpose}-{secrets.token_hex(8)}"


def endpoint(run_dir: Path) -> str:
    """The ZeroMQ address of the Runtime in this run directory, after making sure that it is ours alone.

    Raises:
        LineUpError: ``no_runtime`` if there is no socket; ``home_unusable`` if somebody else could have put it there.
    """
    path = run_dir / "host.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise LineUpError(
            "home_unusable", f"{path} is longer than {SOCKET_PATH_BYTES_MAX} bytes; choose a shorter home"
        )
    try:
        directory, entry = os.stat(run_dir, follow_symlinks=False), os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        raise LineUpError("no_runtime", f"there is no Runtime in {run_dir.parent}") from None
    if not stat.S_ISDIR(directory.st_mode) or not stat.S_ISSOCK(entry.st_mode):
        raise LineUpError("home_unusable", f"{path} is not a socket in a directory")
    if directory.st_uid != os.geteuid() or entry.st_uid != os.geteuid() or directory.st_mode & 0o077:
        raise LineUpError("home_unusable", f"{run_dir} must belong to you and be closed to others (chmod 700)")
    return f"ipc://{path}"
