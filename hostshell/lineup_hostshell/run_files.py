"""Small files in the run directory that are this user's alone. Owns their modes; must not know what they hold.

The directory itself (0700, own uid) is checked by ``host_session.endpoint`` before anything here is trusted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from lineup_protocol.errors import LineUpError

PRIVATE_BYTES_MAX = 1024

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_private(path: Path) -> bytes:
    """The first ``PRIVATE_BYTES_MAX`` bytes of a regular file of ours that nobody else can open.

    Raises:
        LineUpError: ``home_unusable``, also if it is missing.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise LineUpError("home_unusable", f"{path} cannot be read: {error.strerror}") from None
    info = os.fstat(descriptor)
    if stat.S_ISDIR(info.st_mode):  # ``open`` refuses it without closing it
        os.close(descriptor)
        raise LineUpError("home_unusable", f"{path} is a folder; remove it, the file is made anew")
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise LineUpError("home_unusable", f"{path} must be a file of yours that others cannot read (chmod 600)")
        return file.read(PRIVATE_BYTES_MAX)


def write_private(path: Path, content: bytes) -> None:
    """Put a file of mode 0600 in place, whole or not at all, whatever stood there before. Raises OSError."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, _CREATE, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.rename(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
