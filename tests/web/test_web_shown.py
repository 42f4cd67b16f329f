"""The Runtime is told which surfaces are before people: at the start, at each change, and again after it was gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lineup_hostshell.workspace import ShownSurfaces
from lineup_protocol.errors import LineUpError

DIGEST = "0" * 64


class FakeRuntime:
    """Answers when it is let; ``told`` is what it heard."""

    def __init__(self, apps: Path) -> None:
        self.apps = apps
        self.told: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_gone = False

    async def begin(self, type_: str, body: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        assert (type_, body["name"]) == ("host.action", "pages.shown")
        if self.is_gone:
            raise LineUpError("no_runtime", "it is gone")
        await self.gate.wait()
        self.told.append(body["args"]["surface_ids"])
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        answer.set_result({"accepted": True})
        return answer

    async def query(self, name: str, args: dict[str, Any] | None = None) -> Any:
        if name == "surface":
            row = {"digest": DIGEST, "entry": "index.html", "title": "", "revision": 0, "state": {}}
            return row | {"surface_id": (args or {})["surface_id"]}
        return {"path": str(self.apps / DIGEST), "digest": DIGEST}


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def load(shown: ShownSurfaces, tab: object, surface_id: str) -> str:
    answer = await shown.load(tab, {"surface_id": surface_id}, lambda load: None)
    return str(answer["load_id"])


async def test_what_is_shown_is_told_whenever_it_changes(tmp_path: Path) -> None:
    runtime = FakeRuntime(tmp_path)
    shown = ShownSurfaces(runtime, tmp_path, "http://127.0.0.1:1")
    shown.tell()
    await settled()
    assert runtime.told == [[]], "a process before this one may have shown some"
    one, other = object(), object()
    first = await load(shown, one, "f-1")
    await settled()
    await load(shown, other, "f-1")
    await settled()
    assert runtime.told == [[], ["f-1"]], "in two tabs it is shown all the same"
    shown.unload(one, {"load_id": first})
    await load(shown, one, "f-2")
    await settled()
    shown.tab_ended(other)
    await settled()
    shown.surface_closed("f-2")
    await settled()
    assert runtime.told == [[], ["f-1"], ["f-1", "f-2"], ["f-2"], []]


async def test_what_changes_while_it_is_told_is_told_afterwards_at_once(tmp_path: Path) -> None:
    runtime = FakeRuntime(tmp_path)
    shown = ShownSurfaces(runtime, tmp_path, "http://127.0.0.1:1")
    runtime.gate.clear()
    tab = object()
    await load(shown, tab, "f-1")
    await settled()
    for number in range(2, 6):
        await load(shown, tab, f"f-{number}")
    runtime.gate.set()
    await settled()
    assert runtime.told == [["f-1"], [f"f-{n}" for n in range(1, 6)]]


async def test_it_is_told_again_when_it_could_not_be_told(tmp_path: Path) -> None:
    runtime = FakeRuntime(tmp_path)
    shown = ShownSurfaces(runtime, tmp_path, "http://127.0.0.1:1")
    tab = object()
    await load(shown, tab, "f-1")
    await settled()
    runtime.is_gone = True
    shown.tab_ended(tab)
    await settled()
    runtime.is_gone = False
    await load(shown, tab, "f-1")
    await settled()
    assert runtime.told == [["f-1"], ["f-1"]]
