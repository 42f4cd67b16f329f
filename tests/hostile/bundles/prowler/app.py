"""Reaches for files that are not its own: reads, lists, writes, removes, links, and looks what exists."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
TMP = Path(os.environ["TMPDIR"])


def attempt(action: Callable[[], Any]) -> str:
    try:
        return f"done: {action()!r}"[:300]
    except Exception as error:
        return f"denied: {type(error).__name__}: {error}"


def through_a_link(path: str, name: str) -> bytes:
    (TMP / name).symlink_to(path)
    return (TMP / name).read_bytes()[:100]


@app.tool("prowler.files")
async def files(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    found: dict[str, str] = {}
    for name, path in call.input["files"].items():
        at = Path(path)
        found[f"{name}: read"] = attempt(lambda at=at: at.read_bytes()[:100])
        found[f"{name}: write"] = attempt(lambda at=at: at.open("ab"))
        found[f"{name}: unlink"] = attempt(at.unlink)
        found[f"{name}: rename"] = attempt(lambda at=at: at.rename(str(at) + ".gone"))
        found[f"{name}: truncate"] = attempt(lambda at=at: os.truncate(at, 0))
        found[f"{name}: chmod"] = attempt(lambda at=at: at.chmod(0o777))
        found[f"{name}: hard link"] = attempt(lambda at=at: os.link(at, TMP / "hard"))
        found[f"{name}: symbolic link"] = attempt(
            lambda path=path, name=name: through_a_link(path, f"l-{len(name)}-{name[:3]}")
        )
    for name, path in call.input["folders"].items():
        found[f"{name}: list"] = attempt(lambda path=path: os.listdir(path))
        found[f"{name}: create"] = attempt(lambda path=path: (Path(path) / "planted").write_text("x"))
        found[f"{name}: replace"] = attempt(lambda path=path: os.rename(TMP, path))
    found["own bundle: write"] = attempt(lambda: (Path(os.environ["LINEUP_BUNDLE"]) / "app.py").open("ab"))
    for name, path in (("own bundle", f"{os.environ['LINEUP_BUNDLE']}/app.py"), ("library", os.__file__)):
        found[f"{name}: chmod by descriptor"] = attempt(lambda path=path: os.fchmod(os.open(path, os.O_RDONLY), 0o777))
        found[f"{name}: times by descriptor"] = attempt(lambda path=path: os.utime(os.open(path, os.O_RDONLY)))
    found["own socket: unlink"] = attempt(lambda: os.unlink(os.environ["LINEUP_SOCKET"].removeprefix("ipc://")))
    socket_folder = os.path.dirname(os.environ["LINEUP_SOCKET"].removeprefix("ipc://"))
    found["own socket: replace"] = attempt(lambda: os.symlink("/tmp/x", f"{socket_folder}/s2"))
    return found


@app.tool("prowler.litter")
async def litter(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Leaves what is hard to clean up: links to what it cannot read, folders without rights, and very deep ones."""
    for name, path in call.input["links"].items():
        (TMP / f"link-{name}").symlink_to(path)
    for name in ("closed", "closed too"):
        (TMP / name).mkdir(mode=0)
    here = os.open(TMP, os.O_RDONLY)
    for _ in range(call.input["depth"]):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    return {"left": sorted(os.listdir(TMP))}
