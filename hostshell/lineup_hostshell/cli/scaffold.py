"""Makes a new bundle out of a template: a folder that validates, runs and tests itself as it is.

A template is a working bundle called ``my-miniapp`` ("My MiniApp"); making one is copying it under another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from lineup_hostshell.cli.failure import EXIT_USAGE, CommandFailure
from lineup_protocol.manifest import RESERVED_SCOPES

_NAME = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", re.ASCII)
_SCOPE_IN_TEMPLATE = "my-miniapp"
_TITLE_IN_TEMPLATE = "My MiniApp"


def make_bundle(directory: Path, *, surface: bool) -> list[Path]:
    """Write the template into ``directory``, whose last part is the MiniApp's name. Returns the files that were made.

    Raises:
        CommandFailure: the name cannot be a scope, or something is there already; nothing was written then.
    """
    scope = directory.name
    if not _NAME.fullmatch(scope):
        raise CommandFailure(
            f"{scope!r} cannot be a MiniApp's name",
            "use 2 to 63 small letters, digits and hyphens, a letter first, for example my-notes",
            exit_code=EXIT_USAGE,
        )
    if scope in RESERVED_SCOPES:
        raise CommandFailure(f"{scope!r} is a name of the Runtime's own", "choose another name", exit_code=EXIT_USAGE)
    if directory.exists():
        raise CommandFailure(f"{directory} exists already", "choose another name; nothing was changed")
    title = scope.replace("-", " ").capitalize()
    made = []
    for place, template in _files(
        resources.files("lineup_hostshell.cli") / "templates" / _kind(surface), PurePosixPath()
    ):
        text = (
            template.read_text(encoding="utf-8").replace(_SCOPE_IN_TEMPLATE, scope).replace(_TITLE_IN_TEMPLATE, title)
        )
        path = directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        made.append(path)
    return sorted(made)


def _kind(surface: bool) -> str:
    return "surface" if surface else "plain"


def _files(folder: Traversable, below: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    for item in folder.iterdir():
        place = below / item.name
        if item.is_dir():
            if item.name != "__pycache__":
                yield from _files(item, place)
        elif not item.name.endswith(".pyc"):
            yield place, item
