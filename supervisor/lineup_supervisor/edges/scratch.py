"""Removes a folder that a worker could write to, whatever it has left there.

Owns: clearing such a tree without following links, without recursion, and without long paths. Must not know: whose it
was. The worker must be gone: nobody may change the tree meanwhile.

``shutil.rmtree`` will not do. Folders nested a thousand deep end it with RecursionError, so a worker could have
stopped the supervisor in the middle of its own end; and it gives up on a folder without rights.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from pathlib import Path


def remove_tree(root: Path) -> None:
    """Remove ``root`` and all that is in it; what cannot be removed stays. Never raises OSError."""
    if root.is_symlink() or not root.is_dir():
        return
    names = (f".{secrets.token_hex(8)}" for _ in itertools.count())  # that nobody has taken before
    left = [root]
    while left:
        folder = left.pop()
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            with os.scandir(folder) as entries:
                found = list(entries)
            for entry in found:
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    # Up to the top, so that no path grows. It must be ours to write before it can be moved.
                    os.chmod(entry.path, 0o700)
                    moved = root / next(names)
                    os.rename(entry.path, moved)
                    left.append(moved)
            if folder != root:
                folder.rmdir()
    with contextlib.suppress(OSError):
        root.rmdir()
