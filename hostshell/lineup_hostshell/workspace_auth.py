"""Who a page is: one-time launch keys, and the session tokens that they are exchanged for.

Owns both kinds of secret and where they are kept. It must not know HTTP, sockets or what a session may do.

A *launch key* is good for one exchange. Whoever may write into the run directory may make one: its hash is the name of
a file in ``run/launch``, and using the key up is removing that file, which succeeds once, whoever crashes in between.
A *session token* is ``<id>.<secret>``, the secret an HMAC of the id under ``run/workspace.key``: nothing is stored per
session, and pages go on after a crash of hostshell or a restart of the Runtime. Removing that key ends all sessions.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import hmac
import html
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lineup_hostshell.run_files import read_private, write_private
from lineup_protocol.errors import LineUpError

LAUNCH_KEY_S = 600.0  # long enough to find the browser, short enough to be gone when the terminal is read by others
CLOCK_SLACK_S = 5.0  # a file's time and the process's clock may differ by a tick
SESSION_S = 7 * 86_400
KEY_BYTES = 32
KEY_NAME = "workspace.key"
LAUNCH_NAME = "launch"

_LAUNCH_KEY = re.compile(r"[A-Za-z0-9_-]{32}", re.ASCII)
_SESSION_ID = re.compile(r"lws1\.([0-9]{10,12})\.[A-Za-z0-9_-]{16}", re.ASCII)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logging.getLogger("lineup.hostshell.workspace")

Clock = Callable[[], float]


class LaunchKeys:
    """The one-time keys of one boot of the Runtime: ``mint`` is for the command line, ``redeem`` for hostshell."""

    def __init__(self, run_dir: Path, boot_id: str, clock: Clock = time.time) -> None:
        self._path = run_dir / LAUNCH_NAME
        self._boot_id = boot_id
        self._clock = clock

    def mint(self) -> str:
        """A new key, good for ``LAUNCH_KEY_S``. Raises LineUpError ``home_unusable``."""
        key = secrets.token_urlsafe(24)
        self._put(self._name(key), b"")
        return key

    def leave_redirect(self, url: str) -> Path:
        """A page of ours that sends the browser to ``url``: a key in a program's arguments could be read by everybody.

        Raises LineUpError ``home_unusable``.
        """
        name = f"{secrets.token_hex(8)}.html"
        page = f'<!doctype html><title>LineUp</title><meta http-equiv="refresh" content="0;url={html.escape(url)}">'
        self._put(name, page.encode())
        return self._path / name

    def redeem(self, key: str) -> bool:
        """True for a key of this boot that is neither used nor too old; it is used from now on."""
        if not _LAUNCH_KEY.fullmatch(key):
            return False
        try:
            with self._opened() as directory:
                name = self._name(key)
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                os.unlink(name, dir_fd=directory)
        except (OSError, LineUpError):
            return False
        return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and self._is_fresh(status)

    def sweep(self) -> None:
        """Remove what is too old to be used."""
        with contextlib.suppress(OSError, LineUpError), self._opened() as directory:
            for name in os.listdir(directory):
                with contextlib.suppress(OSError):
                    if not self._is_fresh(os.stat(name, dir_fd=directory, follow_symlinks=False)):
                        os.unlink(name, dir_fd=directory)

    def _put(self, name: str, content: bytes) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._path, 0o700)
            self.sweep()
            with self._opened() as directory:
                descriptor = os.open(name, _CREATE, 0o600, dir_fd=directory)
                with open(descriptor, "wb") as file:
                    file.write(content)
        except OSError as error:
            code = "storage_full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else "home_unusable"
            raise LineUpError(code, f"{self._path} cannot be used: {error.strerror}") from None

    def _name(self, key: str) -> str:
        return hashlib.sha256(f"{self._boot_id}\n{key}".encode()).hexdigest()

    def _is_fresh(self, status: os.stat_result) -> bool:
        return -CLOCK_SLACK_S <= self._clock() - status.st_mtime <= LAUNCH_KEY_S

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        directory = os.open(self._path, _DIRECTORY)
        try:
            status = os.fstat(directory)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise LineUpError("home_unusable", f"{self._path} must belong to you and be closed to others")
            yield directory
        finally:
            os.close(directory)


class SessionTokens:
    """Issues and checks session tokens; compares in constant time."""

    def __init__(self, key: bytes, clock: Clock = time.time) -> None:
        self._key = key
        self._clock = clock

    def issue(self) -> tuple[str, int]:
        """A new token and the second (Unix time) at which it ends."""
        expires_s = int(self._clock()) + SESSION_S
        id_ = f"lws1.{expires_s}.{secrets.token_urlsafe(12)}"
        return f"{id_}.{self._secret(id_)}", expires_s

    def check(self, token: str) -> bool:
        id_, _, secret = token.rpartition(".")
        return hmac.compare_digest(secret.encode(), self._secret(id_).encode()) and self._is_current(id_)

    def check_proof(self, id_: str, proof: str, host: str, nonce: str) -> bool:
        """Whoever knows the secret has signed this nonce for this very address; the secret itself was not shown."""
        message = f"lineup-workspace {host} {nonce}".encode()
        expected = hmac.new(self._secret(id_).encode(), message, "sha256").digest()
        return hmac.compare_digest(_unpadded(proof), expected) and self._is_current(id_)

    def _is_current(self, id_: str) -> bool:
        found = _SESSION_ID.fullmatch(id_)
        return found is not None and self._clock() < int(found[1])

    def _secret(self, id_: str) -> str:
        return _b64(hmac.new(self._key, id_.encode("utf-8", "replace"), "sha256").digest())


def session_key(run_dir: Path) -> bytes:
    """The key that signs sessions; a new one if there is none, or one that others could have read.

    One that cannot be kept (a full disk, a folder in its place) is good until the end of this process.
    """
    path = run_dir / KEY_NAME
    with contextlib.suppress(LineUpError, OSError, ValueError):
        key = bytes.fromhex(read_private(path).decode("ascii", "replace").strip())
        if len(key) == KEY_BYTES:
            return key
    key = secrets.token_bytes(KEY_BYTES)
    try:
        write_private(path, key.hex().encode() + b"\n")
    except OSError as error:
        _log.warning("%s cannot be written (%s): pages sign in again after the next start", path, error.strerror)
    return key


def launch_url(workspace_url: str, key: str) -> str:
    """The link for a person: the key stands in the fragment, which no browser sends to any server."""
    return f"{workspace_url}#launch={key}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unpadded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
