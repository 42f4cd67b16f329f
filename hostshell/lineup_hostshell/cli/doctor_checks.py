"""What can be known about this machine without the Runtime: home, socket paths, disk, ports, clock.

Each check gives a name, a verdict, what was found and, if something is wrong, how to mend it. Isolation is probed by
the supervisor alone, because only a worker that tries to escape can tell.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lineup_hostshell.cli.output import size

Verdict = Literal["ok", "warning", "fault"]

SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux without its NUL
_LONGEST_SOCKET = "run/w/0123456789abcdef/s"
DISK_FREE_BYTES_MIN = 256 * 1024 * 1024
_YEAR_MIN, _YEAR_MAX = 2025, 2100  # outside of them the clock was never set
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})


@dataclass(frozen=True)
class Check:
    name: str
    verdict: Verdict
    found: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def local_checks(home: Path) -> Iterator[Check]:
    yield check_home(home)
    yield check_socket_path(home)
    yield check_file_system(home)
    yield check_disk(home)
    yield check_ports()
    yield check_clock(time.time())


def check_home(home: Path) -> Check:
    try:
        status = home.stat()
    except FileNotFoundError:
        return Check("home", "ok", f"{home} does not exist yet; `lineup up` makes it")
    except OSError as error:
        return Check("home", "fault", f"{home}: {error.strerror}", "choose another with --home DIR")
    if not stat.S_ISDIR(status.st_mode):
        return Check("home", "fault", f"{home} is not a folder", "choose another with --home DIR")
    if status.st_uid != os.geteuid():
        return Check("home", "fault", f"{home} belongs to another user", "choose another with --home DIR")
    if stat.S_IMODE(status.st_mode) & 0o077:
        return Check("home", "warning", f"{home} is open to other users", f"chmod 700 {home}")
    if not os.access(home, os.W_OK | os.X_OK):
        return Check("home", "fault", f"{home} cannot be written", f"chmod 700 {home}")
    return Check("home", "ok", f"{home} is yours alone")


def check_socket_path(home: Path) -> Check:
    length = len(os.fsencode(home / _LONGEST_SOCKET))
    if length > SOCKET_PATH_BYTES_MAX:
        found = f"the path of a worker's socket has {length} bytes, the system allows {SOCKET_PATH_BYTES_MAX}"
        return Check("socket paths", "fault", found, "choose a shorter home with --home DIR")
    return Check("socket paths", "ok", f"{length} of {SOCKET_PATH_BYTES_MAX} bytes")


def check_file_system(home: Path) -> Check:
    import psutil

    place = _existing(home)
    mounts = [part for part in psutil.disk_partitions(all=True) if place.is_relative_to(part.mountpoint)]
    kind = max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""
    if kind in _NETWORK_FILE_SYSTEMS:
        return Check(
            "file system", "fault", f"{kind}, on which the store's lock is not safe", "choose a home on a local disk"
        )
    return Check("file system", "ok", kind or "unknown")


def check_disk(home: Path) -> Check:
    try:
        free = shutil.disk_usage(_existing(home)).free
    except OSError as error:
        return Check("disk", "fault", str(error.strerror), "choose another home with --home DIR")
    if free < DISK_FREE_BYTES_MIN:
        return Check("disk", "warning", f"{size(free)} free", f"free at least {size(DISK_FREE_BYTES_MIN)}")
    return Check("disk", "ok", f"{size(free)} free")


def check_ports() -> Check:
    """A loopback port can be opened at all; which one it will be is the Runtime's choice."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            probe.listen(1)
            port = probe.getsockname()[1]
    except OSError as error:
        return Check(
            "ports", "fault", f"no loopback port can be opened: {error.strerror}", "bring up the loopback interface"
        )
    return Check("ports", "ok", f"loopback ports can be opened (tried {port})")


def check_clock(now_s: float) -> Check:
    year = time.gmtime(now_s).tm_year
    if not _YEAR_MIN <= year <= _YEAR_MAX:
        found = f"the clock says {year}; deadlines keep to it"
        return Check("clock", "fault", found, "set the clock, for example with `timedatectl set-ntp true`")
    return Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s)))


def _existing(path: Path) -> Path:
    """The path itself or its nearest ancestor that exists."""
    return next(place for place in (path, *path.parents) if place.exists())
