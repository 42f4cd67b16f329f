"""The folder of artifacts: where people find the files that they let MiniApps export.

This file owns the files in ``artifacts/``, one for each exported content, named by its sha256. The store is the truth
and this a copy: a file that is missing or cut short is written again from it. It must not know who may export.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from pathlib import Path

from lineup_supervisor.core import artifacts
from lineup_supervisor.core.txn import Txn

_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]{1,8})?", re.ASCII)
_UNFINISHED = re.compile(r"\.[0-9a-f]{16}", re.ASCII)


class BlobFolder:
    """Files by digest, each complete or not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, name: str, content: bytes) -> Path:
        """Write one file durably; one that is there with these bytes is left alone.

        ``name`` is the sha256 of ``content`` and perhaps an extension.

        Raises:
            OSError: the folder cannot be written; nothing half written stays under ``name``.
        """
        assert _NAME.fullmatch(name), f"{name} is no name of a blob"
        assert name[:64] == hashlib.sha256(content).hexdigest(), f"{name} names other bytes"
        path = self._folder / name
        if self._holds(path, content):
            return path
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self._folder / f".{secrets.token_hex(8)}"
        try:
            with open(unfinished, "xb", opener=_private) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self._sync()
        return path

    def catch_up(self, txn: Txn) -> int:
        """Write what could not be written before, and clear what was left half written; how many were written. What
        people keep in the folder is theirs.

        Raises:
            OSError: of one that cannot be written; the others are.
        """
        for left in self._folder.iterdir() if self._folder.is_dir() else ():
            if _UNFINISHED.fullmatch(left.name):
                with contextlib.suppress(OSError):
                    left.unlink()
        written, fault = 0, None
        for artifact in artifacts.exported(txn):
            path = self._folder / artifacts.file_name(artifact)
            if not path.is_file() or path.stat().st_size != artifact.bytes:
                try:
                    self.save(path.name, artifacts.read(txn, artifact.artifact_id, None)[1])
                    written += 1
                except OSError as error:
                    fault = fault or error
        if fault is not None:
            raise fault
        return written

    @staticmethod
    def _holds(path: Path, content: bytes) -> bool:
        try:
            return not path.is_symlink() and path.stat().st_size == len(content) and path.read_bytes() == content
        except FileNotFoundError:
            return False

    def _sync(self) -> None:
        """The new name itself must survive a crash too."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
