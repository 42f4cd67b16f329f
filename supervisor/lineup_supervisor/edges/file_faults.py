"""What a disk or a file system says, as an operating error: which file, what is wrong with it, what to do about it.

This file owns the words for ``errno``. It must not know what the files are for.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lineup_protocol.errors import LineUpError

FULL_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
MAKE_ROOM = "nothing was accepted, free disk space and try again"

_OTHER_PLACE = "choose another home with --home DIR"
_WORDS = {
    errno.ELOOP: ("it is a symbolic link", "put the file itself there"),
    errno.EPERM: (
        "Operation not permitted; it may be marked as immutable",
        "`lsattr` shows the mark and `chattr -ia` takes it away",
    ),
    errno.EISDIR: ("it is a folder", ""),
    errno.EACCES: ("Permission denied", "give it back to the user who runs LineUp"),
}


def file_fault(
    error: OSError, place: str | os.PathLike[str], *, code: str = "home_unusable", remedy: str = _OTHER_PLACE
) -> LineUpError:
    """``storage_full`` for a disk that is full or failing, else ``code``; ``place`` is for errors that name no file."""
    where = _where(error, place)
    if error.errno in FULL_ERRNOS:
        return LineUpError("storage_full", f"{where} cannot be written ({error.strerror}); {MAKE_ROOM}")
    why, way_out = _WORDS.get(error.errno or 0, (error.strerror or str(error), ""))
    steps = " or ".join(step for step in (way_out, remedy) if step)
    return LineUpError(code, f"{where} cannot be used ({why}); {steps}", detail={"path": where})


def _where(error: OSError, place: str | os.PathLike[str]) -> str:
    """The file that the error names, as a whole path; names relative to a descriptor say too little."""
    named = error.filename
    if isinstance(named, bytes):
        named = os.fsdecode(named)
    return str(named) if isinstance(named, str) and Path(named).is_absolute() else os.fspath(place)


def check_owner(fd: int, path: Path) -> None:
    """Raises LineUpError ``home_unusable`` if the open file is somebody else's, which root would not notice."""
    owner = os.fstat(fd).st_uid
    if owner != os.geteuid():
        raise LineUpError(
            "home_unusable",
            f"{path} belongs to user {owner}, not to {os.geteuid()}; see how it came there, "
            "then give it back with `chown` or choose another home with --home DIR",
            detail={"path": str(path)},
        )
