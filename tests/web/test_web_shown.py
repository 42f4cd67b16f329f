"""The Runtime is told which surfaces are before people: at the start, at each change, and again after it was gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineup_hostshell import workspace
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
        self.trouble = ""
        self.attempts = 0

    async def begin(self, type_: str, body: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        assert (type_, body["name"]) == ("host.action", "pages.shown")
        self.attempts += 1
        if self.trouble == "gone":
            raise LineUpError("no_runtime", "it is gone")
        await self.gate.wait()
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.trouble == "refused":
            answer.set_result({"accepted": False, "code": "storage_full", "message": "no room", "detail": None})
            return answer
        self.told.append(body["args"]["surface_ids"])
        if self.trouble == "answer lost":
            answer.set_exception(LineUpError("no_runtime", "it went while it answered"))
        else:
            answer.set_result({"accepted": True})
        return answer

    async def query(self, name: str, args: dict[str, Any] | None = None) -> Any:
        assert name == "surface"
        row = {"digest": DIGEST, "entry": "index.html", "title": "", "revision": 0, "state": {}}
        return row | {"surface_id": (args or {})["surface_id"]}


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], wait_s: float = 5.0) -> None:
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110 - what happens is another task's, with no event of its own
            await asyncio.sleep(0.005)


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


@pytest.mark.parametrize("how", ["gone", "refused"])
async def test_it_is_told_again_until_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(workspace, "RETELL_S", 0.01)
    runtime = FakeRuntime(tmp_path)
    shown = ShownSurfaces(runtime, tmp_path, "http://127.0.0.1:1")
    tab = object()
    await load(shown, tab, "f-1")
    await settled()
    runtime.trouble = how
    shown.tab_ended(tab)
    await until(lambda: runtime.attempts >= 4)
    assert runtime.told == [["f-1"]]
    runtime.trouble = ""
    await until(lambda: len(runtime.told) >= 2)
    assert runtime.told == [["f-1"], []], "nothing has changed since, and it is told all the same"
    attempts = runtime.attempts
    await asyncio.sleep(0.05)
    assert runtime.attempts == attempts, "what is known is told once"
    shown.tell_no_more()


async def test_a_lost_answer_does_not_hide_a_change_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "RETELL_S", 0.01)
    runtime = FakeRuntime(tmp_path)
    shown = ShownSurfaces(runtime, tmp_path, "http://127.0.0.1:1")
    tab = object()
    load_id = await load(shown, tab, "f-1")
    await settled()
    runtime.trouble = "answer lost"
    shown.unload(tab, {"load_id": load_id})
    await settled()
    assert runtime.told == [["f-1"], []]
    await load(shown, tab, "f-1")
    runtime.trouble = ""
    await until(lambda: len(runtime.told) >= 3)
    assert runtime.told[-1] == ["f-1"], "the Runtime may have taken the word whose answer was lost"
    shown.tell_no_more()
