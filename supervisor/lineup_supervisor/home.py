"""The home directory: where everything is, and that it is ours alone.

This file owns paths, modes and owners, checked on open descriptors so that a name cannot be swapped in between. It must
not know what the files hold.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges.file_faults import FULL_ERRNOS, file_fault

SOCKET_PATH_BYTES_MAX = 107  # sun_path holds 108 bytes, one of them the final NUL
_LONGEST_SOCKET = "run/w/0123456789abcdef/s"  # a socket per worker incarnation, in a directory of its own
_DIRECTORIES = ("data", "artifacts", "apps", "logs", "run")
_TOKEN_BYTES = 32
_ARCHIVE = re.compile(r"audit-\d{12}-\d{12}\.jsonl", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}(\..*)?", re.ASCII)  # a bundle's copy, or an artifact


@dataclass(frozen=True)
class Home:
    """Paths of one home; all directories exist, are 0700 and belong to this user."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def apps(self) -> Path:
        return self.root / "apps"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def app_logs(self) -> Path:
        """What MiniApps print, in a folder of its own: no name of theirs can be that of a file of the Runtime."""
        return self.root / "logs" / "apps"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def runtime_json(self) -> Path:
        return self.run / "runtime.json"

    @property
    def host_socket(self) -> Path:
        return self.run / "host.sock"

    @property
    def worker_sockets(self) -> Path:
        return self.run / "w"

    @property
    def agent_token(self) -> Path:
        return self.run / "agent.token"


def default_home() -> Path:
    """``$LINEUP_HOME``, else the platform's user data directory."""
    given = os.environ.get("LINEUP_HOME")
    if given:
        return Path(given)
    from platformdirs import user_data_dir

    return Path(user_data_dir("lineup"))


def open_home(root: Path) -> Home:
    """Make what is missing and check what is there.

    Raises:
        LineUpError: ``home_unusable`` with the path, the cause and the way out.
    """
    root = Path(os.path.abspath(root))
    longest = len(os.fsencode(root / _LONGEST_SOCKET))
    if longest > SOCKET_PATH_BYTES_MAX:
        raise _unusable(
            f"{root} is too long: its sockets would need {longest} of at most {SOCKET_PATH_BYTES_MAX} bytes",
            "choose a shorter one with --home DIR",
        )
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FULL_ERRNOS:
            raise file_fault(error, root.parent) from error
        raise _unusable(f"{root.parent} cannot be made ({error.strerror})") from error
    home = Home(root)
    own_directory(root)
    for name in _DIRECTORIES:
        own_directory(root / name)
    return home


def trace_of_past(home: Home) -> Path | None:
    """What a home has only once its store was made, and would lose its meaning with another one."""
    for folder, name in ((home.logs, _ARCHIVE), (home.artifacts, _DIGEST), (home.apps, _DIGEST)):
        with contextlib.suppress(OSError):
            for entry in sorted(os.listdir(folder)):
                if name.fullmatch(entry):
                    return folder / entry
    return None


def own_directory(path: Path) -> None:
    """Make ``path`` 0700, or make sure that it is a directory of ours that nobody else can write to, and close it.

    Raises:
        LineUpError: ``home_unusable``.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link or no directory" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        if error.errno in FULL_ERRNOS:
            raise file_fault(error, path) from error
        raise _unusable(f"{path} cannot be used ({why})") from error
    try:
        status = os.fstat(fd)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid():
            raise _unusable(f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}")
        if mode & 0o022:
            raise _unusable(
                f"{path} can be written by others (mode {mode:04o})", f"run `chmod 700 {path}` or choose another one"
            )
        if mode != 0o700:
            os.fchmod(fd, 0o700)
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd):
            raise _unusable(f"{path} cannot be written")
    except OSError as error:
        raise file_fault(error, path) from error
    finally:
        os.close(fd)


def write_private(path: Path, content: bytes) -> None:
    """Put a file of mode 0600 in place, whole or not at all. Raises OSError."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def ensure_agent_token(home: Home) -> None:
    """Keep the token that is there if it is a file of ours for us alone; make one if there is none."""
    path = home.agent_token
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        write_private(path, secrets.token_urlsafe(_TOKEN_BYTES).encode() + b"\n")
        return
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        raise _unusable(f"{path} is not a file of yours", "remove it")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise _unusable(f"{path} could be read by others", "remove it; a new one is made, agents must read it again")
    if status.st_size == 0:
        write_private(path, secrets.token_urlsafe(_TOKEN_BYTES).encode() + b"\n")


def remove_leftovers(home: Home) -> None:
    """What a killed predecessor left in ``run/``. Only under the store's lock: there is no predecessor any more."""
    for path in (home.runtime_json, home.host_socket):
        _remove(path)
    for path in home.run.glob(".runtime.json.*"):
        _remove(path)
    remove_tree_of_sockets(home.worker_sockets)
    if not home.worker_sockets.is_dir():
        _remove(home.worker_sockets)


def remove_tree_of_sockets(directory: Path, levels: int = 2) -> None:
    """Remove ``directory`` and the sockets in it and in its own folders; nothing else is touched. What a worker could
    write to lies deeper, of any depth and size: it is for whoever starts workers to remove.
    """
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if levels > 1:
                remove_tree_of_sockets(path, levels - 1)
        elif stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
            _remove(path)
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def _remove(path: Path) -> None:
    """Also an empty folder in its place. Raises LineUpError ``home_unusable`` for one that holds something."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except IsADirectoryError as error:
        try:
            os.rmdir(path)
        except OSError:
            raise _unusable(
                f"{path} cannot be used (it is a folder)", "remove it, everything is kept: the file is made anew"
            ) from error


def _unusable(what: str, remedy: str = "choose another one with --home DIR") -> LineUpError:
    return LineUpError("home_unusable", f"{what}; {remedy}")
