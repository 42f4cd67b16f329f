"""Backup and restore of a home: one tar file with the store's copy, the artifacts, the bundles and the settings.

This file owns the file's form. A backup is consistent because the store is copied first: what the copy refers to is
content-addressed and already there. Left out: logs, sockets, the agents' token. The last member has the sha256 of
every other one, in the form of ``sha256sum``: a tar file checks its headers alone, and LMDB keeps no sums.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.file_faults import MAKE_ROOM, file_fault
from lineup_supervisor.edges.store import Migration, Store
from lineup_supervisor.edges.store_copy import CopyStop
from lineup_supervisor.edges.store_file import DATA_NAME, fsync_directory
from lineup_supervisor.home import Home, open_home

_STORE_MEMBER = f"data/{DATA_NAME}"
_SUMS_MEMBER = "SHA256SUMS"
_FOLDERS = ("artifacts", "apps")
_HALF_MADE = re.compile(r"backup(-[0-9a-f]{16})?\.mdb(\.partial)?", re.ASCII)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # said where there are no hard links: FAT, exFAT


def write_backup(store: Store, home: Home, destination: Path, stop: CopyStop | None = None) -> int:
    """Write ``destination``, which must not exist, whole or not at all; its bytes. The store may be in use.

    Raises:
        LineUpError: ``conflict`` if it exists, or would lie beside the store; ``storage_full``; ``file_unusable`` if it
            cannot be made there; ``runtime_stopping`` once ``stop`` was asked for.
    """
    if destination.exists():
        raise LineUpError("conflict", f"{destination} exists already; a backup never overwrites")
    if destination.resolve().parent == home.data.resolve():
        raise LineUpError("conflict", f"{home.data} is the store's own folder; write the backup somewhere else")
    stop = stop or CopyStop()
    mark = secrets.token_hex(8)  # another one may be written elsewhere in this folder
    partial = destination.with_name(f".lineup-backup-{mark}")
    copy = home.data / f"backup-{mark}.mdb"
    try:
        with _typed(destination, home.root):
            try:
                _copy(store, copy, stop)
                return _write_whole(home, copy, partial, destination, stop)
            finally:
                for path in (partial, copy):
                    with contextlib.suppress(OSError):
                        path.unlink()
    except Exception as error:
        if stop.is_asked and not isinstance(error, _Stopped):
            raise _Stopped from error  # it makes the copying fail in its own way
        raise


def remove_half_made(home: Home) -> None:
    """What a backup that was killed has left in the home. Only while none is being made. Never raises OSError."""
    with contextlib.suppress(OSError):
        for entry in home.data.iterdir():
            if _HALF_MADE.fullmatch(entry.name):
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()


class _Stopped(LineUpError):
    def __init__(self) -> None:
        super().__init__("runtime_stopping", "the Runtime is going down, and no backup was made")


def _write_whole(home: Home, copy: Path, partial: Path, destination: Path, stop: CopyStop) -> int:
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            sums: dict[str, str] = {}
            _add(tar, copy, _STORE_MEMBER, sums, stop)
            if home.config.is_file():
                _add(tar, home.config, home.config.name, sums, stop)
            for name in _FOLDERS:
                _add_folder(tar, home.root / name, name, sums, stop)
            _add_sums(tar, sums)
        file.flush()
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    _put_in_place(partial, destination)
    fsync_directory(destination.parent)
    return size


def _put_in_place(partial: Path, destination: Path) -> None:
    """Never over a file that appeared meanwhile."""
    try:
        os.link(partial, destination)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Then the name is taken first. Killed between the two, an empty file is left, which nobody takes for a backup.
        os.close(os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        try:
            os.replace(partial, destination)
        except OSError:
            destination.unlink()
            raise


def restore_backup(
    file: Path,
    root: Path,
    tables: Sequence[Table[Any]],
    schema_version: int,
    migrations: Sequence[Migration] = (),
) -> None:
    """Make the home ``root``, which must be empty or not there, out of a backup; on a fault nothing is left of it.

    Raises:
        LineUpError: ``conflict``, ``not_found``, ``store_damaged`` (no backup, or a broken one), ``store_newer``,
            ``storage_full``.
    """
    if not file.is_file():
        raise LineUpError("not_found", f"there is no backup {file}")
    if root.exists() and any(root.iterdir()):
        raise LineUpError("conflict", f"{root} is not empty; choose an empty home with --home DIR, nothing was changed")
    existed = root.exists()
    try:
        with _typed(root, root):
            home = open_home(root)
            _unpack(file, home)
            Store.open(home.data, tables, schema_version=schema_version, migrations=migrations).close()
    except BaseException:
        _empty(root)
        if not existed:
            with contextlib.suppress(OSError):
                root.rmdir()
        raise


def _copy(store: Store, copy: Path, stop: CopyStop) -> None:
    try:
        store.copy(copy, stop)
    except LineUpError as error:
        if error.code != "storage_full":
            raise
        raise LineUpError(
            "storage_full",
            f"{copy.parent} has no room for the copy of the store that a backup is made from, wherever it goes; "
            f"{MAKE_ROOM}",
        ) from error


class _Hashed:
    """A file that is read once, from its start to its end, and hashed on the way."""

    def __init__(self, file: IO[bytes], stop: CopyStop | None = None) -> None:
        self._file = file
        self._stop = stop
        self._sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        if self._stop is not None and self._stop.is_asked:
            raise _Stopped
        data = self._file.read(size)
        self._sha256.update(data)
        return data

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()


def _add(tar: tarfile.TarFile, path: Path, name: str, sums: dict[str, str], stop: CopyStop) -> None:
    with path.open("rb") as file:
        hashed = _Hashed(file, stop)
        tar.addfile(tar.gettarinfo(str(path), name), cast("IO[bytes]", hashed))
    sums[name] = hashed.digest


def _add_sums(tar: tarfile.TarFile, sums: dict[str, str]) -> None:
    content = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
    info = tarfile.TarInfo(_SUMS_MEMBER)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _add_folder(tar: tarfile.TarFile, folder: Path, name: str, sums: dict[str, str], stop: CopyStop) -> None:
    """Regular files and folders only; what is half made has a name with a dot in front and stays out."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in sorted(files):
            path = Path(where) / each
            if not each.startswith(".") and path.is_file() and not path.is_symlink():
                _add(tar, path, f"{name}/{path.relative_to(folder)}", sums, stop)


def _unpack(file: Path, home: Home) -> None:
    seen: dict[str, str] = {}
    sums: dict[str, str] = {}
    try:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                if not _is_ours(member):
                    raise LineUpError("store_damaged", f"{file} is no backup of a home: it has {member.name[:200]!r}")
                content = tar.extractfile(member)
                assert content is not None
                if member.name == _SUMS_MEMBER:
                    lines = (line.partition("  ") for line in content.read().decode().splitlines())
                    sums = {name: digest for digest, _, name in lines}
                    continue
                hashed = _Hashed(content)
                _write(home.root / member.name, hashed, 0o444 if member.name.startswith("apps/") else 0o600)
                seen[member.name] = hashed.digest
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise LineUpError("store_damaged", f"{file} is no backup of a home, or a broken one: {error}") from error
    if _STORE_MEMBER not in seen:
        raise LineUpError("store_damaged", f"{file} is no backup of a home: it holds no store")
    wrong = [name for name in {**sums, **seen} if sums.get(name) != seen.get(name)]
    if wrong:
        raise LineUpError("store_damaged", f"{file} is damaged: {wrong[0][:200]} is not what was backed up")


def _is_ours(member: tarfile.TarInfo) -> bool:
    parts = member.name.split("/")
    plain = member.isreg() and all(part and not part.startswith(".") and "\0" not in part for part in parts)
    return plain and (
        member.name in (_STORE_MEMBER, _SUMS_MEMBER, "config.toml") or (parts[0] in _FOLDERS and len(parts) > 1)
    )


def _write(path: Path, content: Any, mode: int) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        shutil.copyfileobj(content, out, 1 << 20)
        out.flush()
        os.fchmod(out.fileno(), mode)
        os.fsync(out.fileno())


def _empty(root: Path) -> None:
    """Remove what was made in a home that was empty before."""
    with contextlib.suppress(OSError):
        for entry in root.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


@contextmanager
def _typed(place: Path, root: Path) -> Iterator[None]:
    """``place`` is what is being written; only what lies in the home ``root`` is mended by choosing another home."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise LineUpError("conflict", f"{place} exists already; a backup never overwrites") from error
        named = Path(str(error.filename or place))
        if named.is_relative_to(root):
            raise file_fault(error, place) from error
        unnamed = OSError(error.errno, error.strerror)  # not the half-made file's own name
        raise file_fault(unnamed, place, code="file_unusable", remedy="name another place for the backup") from error
