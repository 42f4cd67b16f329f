"""Finds the Runtime of a home: where its agent link is, and the token. Reads files, never writes one.

The token goes to nobody but the Runtime: a port in ``runtime.json`` that another user's process listens on (an impostor
that took it after a crash) is not used.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lineup_agent.errors import NoRuntime

_FILE_BYTES_MAX = 65_536
_LISTEN = "0A"  # tcp_states.h


@dataclass(frozen=True)
class Target:
    """Where to connect, and the proof of who we are."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Target(url={self.url!r})"


Find = Callable[[], Target]


def default_home() -> Path:
    """``$LINEUP_HOME``, else the platform's user data directory."""
    if given := os.environ.get("LINEUP_HOME"):
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_data_dir("lineup"))


def in_home(home: Path) -> Find:
    """A function that looks into this home each time it is asked, because a restart changes port and token."""

    def find() -> Target:
        run_dir = home / "run"
        try:
            runtime = json.loads(_read_own(run_dir / "runtime.json"))
            url = runtime["agent_url"]
        except (ValueError, KeyError, TypeError):
            raise NoRuntime(f"{run_dir / 'runtime.json'} is damaged; restart the Runtime") from None
        if not isinstance(url, str) or not url.startswith("ws://"):
            raise NoRuntime(f"the Runtime in {home} has no agent link; it was started without one")
        if not listens_for_us(url):
            raise NoRuntime(f"the Runtime in {home} is not running; what it left names a port that is not its own")
        return Target(url, _read_own(run_dir / "agent.token").strip())

    return find


def listens_for_us(url: str) -> bool:
    """False if the URL's loopback port is known to be closed or held by another user. Linux only; elsewhere True."""
    port = urlsplit(url).port
    try:
        table = Path("/proc/net/tcp").read_text("ascii")
    except OSError:
        return True
    for line in table.splitlines()[1:]:
        fields = line.split()
        address, _, port_hex = fields[1].partition(":")
        if fields[3] == _LISTEN and int(port_hex, 16) == port and address in ("0100007F", "00000000"):
            return int(fields[7]) == os.geteuid()
    return False


def _read_own(path: Path) -> str:
    """A small regular file of this user's. Raises NoRuntime."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NoRuntime(f"no Runtime is running in {path.parent.parent}; start it with `lineup up`") from None
    except OSError as error:
        raise NoRuntime(f"{path} cannot be read: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise NoRuntime(f"{path} is not a file that only you can write; it is not trusted")
        return file.read(_FILE_BYTES_MAX).decode("utf-8", "replace")
