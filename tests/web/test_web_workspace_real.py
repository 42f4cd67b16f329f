"""The workspace of a real Runtime: in by a real link, and still in after hostshell and the supervisor were killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import websockets

WAIT_S = 30.0


class Runtime:
    """One home, its daemon and its command line."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, port: int = 0) -> None:
        self.process = started = self._spawn(port)
        await self.until(lambda: self.facts().get("pid") == started.pid, "ready")

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "lineup_supervisor", "run", "--demo", "--port", str(port), "--home"]
        with open(self.home.parent / "out", "ab") as out:
            return subprocess.Popen([*argv, str(self.home)], stdout=out, stderr=out)

    def facts(self) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads((self.home / "run" / "runtime.json").read_text())
        except FileNotFoundError:
            return {}
        return facts

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        assert self.process is not None
        async with asyncio.timeout(WAIT_S):
            while not condition():
                assert self.process.poll() is None, (self.home.parent / "out").read_text()
                await asyncio.sleep(0.02)  # what is waited for happens in another process

    async def lineup(self, *args: str) -> Any:
        """The JSON that a command prints."""
        argv = [sys.executable, "-m", "lineup_hostshell.cli.main", *args]
        environment = {**os.environ, "LINEUP_HOME": str(self.home)}
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe, env=environment)
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate()
        assert process.returncode == 0, err
        return json.loads(out) if "--json" in args else None

    @property
    def port(self) -> int:
        return int(self.facts()["workspace_url"].rpartition(":")[2].strip("/"))

    async def token(self) -> str:
        """What a page gets for the link that ``lineup open`` prints."""
        link = (await self.lineup("open", "--print", "--json"))["url"]
        url, _, key = link.partition("#launch=")
        assert url == self.facts()["workspace_url"]
        async with httpx2.AsyncClient(trust_env=False) as client:
            answers = [await client.post(url + "api/session", json={"launch": key}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 401]
        return str(answers[0].json()["token"])

    def hostshell(self) -> psutil.Process | None:
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if child.cmdline()[1:3] == ["-m", "lineup_hostshell"]:
                    return child
            except psutil.NoSuchProcess:
                pass
        return None

    async def kill(self) -> None:
        assert self.process is not None
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        async with asyncio.timeout(WAIT_S):
            while any(_lives(each) for each in family):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
async def real() -> AsyncIterator[Runtime]:
    with tempfile.TemporaryDirectory(prefix="lu-") as folder:  # short: a socket's path has 107 bytes at most
        runtime = Runtime(Path(folder) / "h")
        await runtime.start()
        yield runtime
        if runtime.process is not None and runtime.process.poll() is None:
            runtime.process.send_signal(signal.SIGTERM)
            assert runtime.process.wait(WAIT_S) == 0


class Tab:
    """A page's socket, with whatever else arrives while it waits kept aside."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.deltas: list[dict[str, Any]] = []
        self.numbers = iter(range(1_000_000))

    async def hear(self, *kinds: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                if frame["t"] == "delta":
                    self.deltas.append(frame)
                if frame["t"] in kinds:
                    return frame

    async def ask(self, kind: str, name: str, action_id: str | None = None, **args: Any) -> dict[str, Any]:
        frame = {"t": kind, "id": f"q-{next(self.numbers)}", "name": name, "args": args}
        await self.socket.send(json.dumps(frame | ({"action_id": action_id} if action_id else {})))
        return await self.hear("result")

    async def until_changed(self, kind: str, test: Callable[[Any], Any]) -> Any:
        """The row of a change of this kind that the test agrees to."""
        seen = 0
        while True:
            for delta in self.deltas[seen:]:
                for change in delta["changes"]:
                    if change["kind"] == kind and change["row"] is not None and test(change["row"]):
                        return change["row"]
            seen = len(self.deltas)
            await self.hear("delta")


async def enter(real: Runtime, token: str) -> tuple[Tab, dict[str, Any], dict[str, Any]]:
    """Hello and the first snapshot; like a page, it tries again until hostshell is back."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                url = f"ws://127.0.0.1:{real.port}/workspace"
                socket = await websockets.connect(
                    url, max_size=None, proxy=None, origin=f"http://127.0.0.1:{real.port}"
                )
                break
            except (OSError, KeyError, websockets.InvalidHandshake):
                await asyncio.sleep(0.05)
    tab = Tab(socket)
    await tab.hear("challenge")
    await socket.send(json.dumps({"t": "auth", "token": token}))
    hello = await tab.hear("hello")
    return tab, hello, (await tab.hear("snapshot"))["snapshot"]


async def test_a_person_talks_and_stays_in_over_kills(real: Runtime) -> None:
    token = await real.token()
    tab, hello, snapshot = await enter(real, token)
    assert hello["boot_id"] == snapshot["boot_id"] == real.facts()["boot_id"]
    if not any(agent["connected"] for agent in snapshot["agents"]):
        await tab.until_changed("agent", lambda row: row["connected"])
    opened = await tab.ask("action", "conversation.open", "a-1", title="First")
    assert opened["accepted"], opened
    conversation_id = opened["detail"]["conversation_id"]
    await tab.until_changed("conversation", lambda row: row["conversation_id"] == conversation_id)
    for _ in range(2):  # the same action again has no second effect
        said = await tab.ask("action", "person.text", "a-2", conversation_id=conversation_id, text="你好")
        assert said["accepted"], said
    assert (await tab.ask("action", "call.start", "a-3", tool_id="x"))["code"] == "unauthorized"
    audit = (await tab.ask("query", "audit.page", limit=1000))["detail"]["rows"]
    assert {row["actor"] for row in audit if row["kind"].startswith("conversation")} == {"person"}

    port, process = real.port, real.hostshell()
    assert process is not None
    process.kill()
    await real.until(lambda: (found := real.hostshell()) is not None and found.pid != process.pid, "a new hostshell")
    again, hello_again, _ = await enter(real, token)
    assert (real.port, hello_again["surface_origin"]) == (port, hello["surface_origin"])
    timeline = (await again.ask("query", "timeline", conversation_id=conversation_id))["detail"]["entries"]
    assert [entry["text"] for entry in timeline if entry["author"] == "person"] == ["你好"]

    await real.kill()
    await real.start(port)
    after, hello_after, snapshot_after = await enter(real, token)
    assert hello_after["boot_id"] != hello["boot_id"]
    assert hello_after["surface_origin"] == hello["surface_origin"]
    assert conversation_id in [row["conversation_id"] for row in snapshot_after["conversations"]]
    for each in (tab, again, after):
        await each.socket.close()


async def test_a_surface_is_served_from_its_installed_bundle(real: Runtime) -> None:
    folder = real.home.parent / "counter"
    await real.lineup("new", str(folder), "--surface")
    await real.lineup("apps", "add", str(folder), "--json")
    tools = (await real.lineup("tools", "--json"))["tools"]
    tool = next(tool["id"] for tool in tools if tool["id"].endswith(".count"))
    tab, hello, _ = await enter(real, await real.token())
    await real.lineup("call", tool, '{"start": 4}', "--no-wait", "--json")
    surface = await tab.until_changed("surface", lambda row: row["status"] == "open")
    load = (await tab.ask("query", "surface.load", surface_id=surface["surface_id"]))["detail"]
    assert load["state"] == {"count": 4}
    assert load["url"].startswith(hello["surface_origin"] + "/s/")
    async with httpx2.AsyncClient(trust_env=False) as client:
        page = await client.get(load["url"])
        assert page.status_code == 200
        assert "lineup-bridge.js" in page.text
        script = await client.get(load["url"].replace("index.html", "main.js"))
        assert script.text.endswith((folder / "surface" / "main.js").read_text())
        assert (await client.get(load["url"])).status_code == 404
    assert (await tab.hear("torn"))["surface_id"] == surface["surface_id"]
    patched = await tab.ask("action", "surface.patch", "a-1", surface_id=surface["surface_id"], patch={"count": 5})
    assert patched["accepted"], patched
    closed = await tab.ask("action", "surface.torn", "a-2", surface_id=surface["surface_id"])
    assert closed["accepted"], closed
    await tab.until_changed("surface", lambda row: row["status"] == "closed")
    assert (await tab.ask("query", "surface.load", surface_id=surface["surface_id"]))["code"] == "surface_not_found"
    await tab.socket.close()


async def test_only_the_operator_stops_the_runtime(real: Runtime) -> None:
    """Even a hostshell that has gone bad speaks for a person only."""
    from lineup_hostshell.runtime_link import RuntimeClient
    from lineup_protocol.errors import LineUpError

    with RuntimeClient(real.home / "run", role="hostshell") as link:
        for name in ("runtime.stop", "runtime.backup", "apps.add", "call.start"):
            with pytest.raises(LineUpError) as refused:
                link.action(name, {"path": os.devnull, "call_id": "c-1"})
            assert refused.value.code == "unauthorized"
        assert link.query("status")["stopping"] is False
