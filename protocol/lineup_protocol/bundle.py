"""Bundles on disk: read a folder that may be hostile, and keep an immutable copy named by its digest.

Whoever wrote the folder may still be changing it while it is read. So nothing is opened by a path that could be swapped
underneath: every step is relative to an open directory, follows no link, and looks again at what it has opened. What is
used afterwards is the copy, never the folder.

Names that start with a dot, and ``__pycache__``, are passed over: they are an author's tools, not the bundle.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.schema import Fault, refusal
from lineup_protocol.strict_json import decode_json

if TYPE_CHECKING:
    from lineup_protocol.manifest import Manifest

MANIFEST_NAME = "miniapp.json"
FOLDER_DEPTH_MAX = 16
_RENAMES_MAX = 3

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read_bundle(path: str | os.PathLike[str], *, trusted: bool = False) -> tuple[Manifest, str, dict[str, bytes]]:
    """Manifest, digest and files (relative path → content) of the folder at ``path``.

    ``trusted`` is for the Runtime's own distribution alone: kinds as in ``parse_manifest``, and files with several hard
    links (package installers make those).

    Raises:
        LineUpError: ``manifest_invalid`` with ``detail = {faults}``; a fault of a file has its path in the bundle.
    """
    from lineup_protocol.manifest import parse_manifest  # it loads pydantic; who only copies or compares needs none

    missing = refusal([Fault(f"/{MANIFEST_NAME}", "is missing: a bundle is a folder with this file")])
    if os.path.isdir(path) and not os.path.lexists(os.path.join(path, MANIFEST_NAME)):
        raise missing  # said first: whatever else is odd about a folder that is no bundle is nobody's concern
    files = read_folder(path, allow_hard_links=trusted)
    if MANIFEST_NAME not in files:
        raise missing
    try:
        data = decode_json(files[MANIFEST_NAME], bytes_max=limits.MANIFEST_BYTES_MAX)
    except LineUpError as error:
        raise refusal([Fault(f"/{MANIFEST_NAME}", error.message)]) from None
    manifest = parse_manifest(data, trusted=trusted)
    if faults := list(_missing_files(manifest, files)):
        raise refusal(faults)
    return manifest, bundle_digest(files), files


def read_folder(path: str | os.PathLike[str], *, allow_hard_links: bool = False) -> dict[str, bytes]:
    """Every file below ``path``. Raises ``manifest_invalid`` for all but regular files and folders within limits."""
    try:
        root = os.open(path, _FOLDER)
    except OSError as error:
        raise refusal([Fault("/", f"cannot be opened as a folder: {error.strerror}")]) from None
    try:
        reader = _Reader(allow_hard_links)
        reader.read(root, "", 1)
        return reader.files
    finally:
        os.close(root)


def bundle_digest(files: dict[str, bytes]) -> str:
    """sha256 in hex over the sorted files, each as length, path, length, content (lengths: 8 bytes, big-endian)."""
    digest = hashlib.sha256(b"lineup.bundle.v1\0")
    for path in sorted(files):
        for part in (path.encode(), files[path]):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def copy_bundle(src: str | os.PathLike[str], dest_root: str | os.PathLike[str], *, trusted: bool = False) -> Path:
    """Copy a bundle to ``dest_root/<digest>``, read-only and whole or not at all. The same bundle again is no new copy.

    Raises:
        LineUpError: ``manifest_invalid`` as ``read_bundle``.
        OSError: the copy cannot be written.
    """
    _, digest, files = read_bundle(src, trusted=trusted)
    return store_bundle(files, digest, dest_root)


def store_bundle(files: dict[str, bytes], digest: str, dest_root: str | os.PathLike[str]) -> Path:
    """Write what ``read_bundle`` returned to ``dest_root/<digest>``; see ``copy_bundle``. Raises OSError too."""
    root = Path(dest_root)
    final = root / digest
    if _is_intact(final, digest):
        return final
    made = root / f".new-{digest[:16]}-{secrets.token_hex(8)}"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_tree(made, files)
        _put_in_place(made, final, digest)
        _sync_folder(root)
    finally:
        remove_tree(made)
    return final


def remove_tree(path: Path) -> None:
    """Remove a copy, read-only folders included. Silent if it is not there."""
    if path.is_symlink() or not path.is_dir():
        return
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)


class _Reader:
    """One pass over a folder, with its budgets."""

    def __init__(self, allow_hard_links: bool) -> None:
        self.files: dict[str, bytes] = {}
        self._allow_hard_links = allow_hard_links
        self._entries_left = limits.BUNDLE_FILES_MAX
        self._bytes_left = limits.BUNDLE_BYTES_MAX

    def read(self, folder: int, prefix: str, depth: int) -> None:
        if depth > FOLDER_DEPTH_MAX:
            raise refusal([Fault(f"/{prefix}", f"is nested deeper than {FOLDER_DEPTH_MAX} folders")])
        for name in self._names(folder):
            path = f"{prefix}{name}"
            if not _is_plain(name) or len(path.encode()) > limits.BUNDLE_PATH_BYTES_MAX:
                raise refusal([Fault(f"/{ascii(path)[1:-1]}", "has a name that is too long or has odd characters")])
            try:
                self._entry(folder, name, path, depth)
            except OSError as error:
                raise refusal([Fault(f"/{path}", f"cannot be read: {error.strerror}")]) from None

    def _names(self, folder: int) -> list[str]:
        names = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    raise refusal([Fault("/", f"has more than {limits.BUNDLE_FILES_MAX} files and folders")])
                if not entry.name.startswith(".") and entry.name != "__pycache__":
                    names.append(entry.name)
        return sorted(names)

    def _entry(self, folder: int, name: str, path: str, depth: int) -> None:
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(seen.st_mode):
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            try:
                self.read(inner, f"{path}/", depth + 1)
            finally:
                os.close(inner)
            return
        self._check(seen, path)  # before opening: opening a device can do things
        opened = os.open(name, _FILE, dir_fd=folder)
        try:
            self._check(os.fstat(opened), path)
            self.files[path] = self._content(opened, path)
        finally:
            os.close(opened)

    def _check(self, seen: os.stat_result, path: str) -> None:
        if not stat.S_ISREG(seen.st_mode):
            raise refusal([Fault(f"/{path}", f"is {_kind_words(seen.st_mode)}; only files and folders are allowed")])
        if seen.st_nlink > 1 and not self._allow_hard_links:
            raise refusal([Fault(f"/{path}", "has several hard links; copy the file instead")])
        if seen.st_size > self._bytes_left:
            raise refusal([Fault(f"/{path}", f"makes the bundle bigger than {limits.BUNDLE_BYTES_MAX} bytes")])

    def _content(self, opened: int, path: str) -> bytes:
        chunks: list[bytes] = []
        while chunk := os.read(opened, 1 << 20):  # the size may grow meanwhile, so it is counted, not believed
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                raise refusal([Fault(f"/{path}", f"makes the bundle bigger than {limits.BUNDLE_BYTES_MAX} bytes")])
            chunks.append(chunk)
        return b"".join(chunks)


def _missing_files(manifest: Manifest, files: dict[str, bytes]) -> Iterator[Fault]:
    module = manifest.entry.partition(":")[0].replace(".", "/")
    if f"{module}.py" not in files and f"{module}/__init__.py" not in files:
        yield Fault("/entry", f"there is no {module}.py in the bundle")
    for index, surface in enumerate(manifest.surfaces):
        if surface.entry not in files:
            yield Fault(f"/surfaces/{index}/entry", f"there is no {surface.entry} in the bundle")


def _is_plain(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not any(0xD800 <= ord(c) <= 0xDFFF for c in name)


def _kind_words(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _is_intact(path: Path, digest: str) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        return bundle_digest(read_folder(path)) == digest
    except LineUpError:
        return False


def _put_in_place(made: Path, final: Path, digest: str) -> None:
    """Rename ``made`` to ``final``. An intact copy that someone else was first with stays; a damaged one gives way."""
    for _ in range(_RENAMES_MAX):
        try:
            os.rename(made, final)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        if _is_intact(final, digest):
            return
        aside = final.with_name(f".old-{secrets.token_hex(8)}")
        try:
            os.rename(final, aside)
        except FileNotFoundError:
            continue
        if aside.is_dir() and not aside.is_symlink():
            remove_tree(aside)
        else:
            aside.unlink()
    raise OSError(errno.EEXIST, "something else keeps taking the copy's place")


def _write_tree(root: Path, files: dict[str, bytes]) -> None:
    root.mkdir(mode=0o700)
    folders = {root}
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folders.update(parent for parent in target.parents if parent.is_relative_to(root))
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(out.fileno(), 0o444)
            os.fsync(out.fileno())
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        _sync_folder(folder)
        os.chmod(folder, 0o555)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, _FOLDER)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
