"""Removes a folder that a worker could write to, whatever it has left there.

Owns: clearing such a tree without following links, without recursion, without long paths, and without a list of what
is in it; and doing so beside the loop, because nothing bounds how much that is. Must not know: whose it was. The worker
must be gone: nobody may change the tree meanwhile.

``shutil.rmtree`` will not do. Folders nested a thousand deep end it with RecursionError, so a worker could have
stopped the supervisor in the middle of its own end; and it gives up on a folder without rights.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
from collections import deque
from pathlib import Path


class Remover:
    """Removes trees in a thread of its own. It keeps no process from ending; the next run removes what is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: deque[Path] = deque()
        self._is_at_work = False

    def remove(self, root: Path) -> None:
        """Returns at once; ``root`` must have a name that nobody uses any more."""
        with self._lock:
            self._left.append(root)
            if not self._is_at_work:
                threading.Thread(target=self._run, name="scratch", daemon=True).start()
                self._is_at_work = True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._left:
                    self._is_at_work = False
                    return
                root = self._left.popleft()
            remove_tree(root)


def remove_tree(root: Path) -> None:
    """Remove ``root`` and all that is in it; what cannot be removed stays. Never raises OSError."""
    if root.is_symlink() or not root.is_dir():
        return
    mark = f".{secrets.token_hex(8)}-"  # that nobody has taken before
    names = (f"{mark}{number}" for number in itertools.count())
    left = [root]
    while left:
        folder = left.pop()
        something_went = False
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if folder == root and entry.name.startswith(mark):
                        continue
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            # Up to the top, so that no path grows. It must be ours to write before it can be moved.
                            os.chmod(entry.path, 0o700)
                            moved = root / next(names)
                            os.rename(entry.path, moved)
                            left.append(moved)
                        else:
                            os.unlink(entry.path)
                        something_went = True
        try:
            folder.rmdir()
        except OSError:
            if something_went:  # a folder that changes while it is read may keep something from its reader
                left.append(folder)
    with contextlib.suppress(OSError):
        root.rmdir()
