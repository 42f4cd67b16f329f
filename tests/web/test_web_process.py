"""``python -m lineup_hostshell`` as the supervisor starts it: the order of its start, and each way that it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets

HELLO = {
    "type": "lineup.v1.hello",
    "message_id": "m-1",
    "sent_at": "2026-11-30T08:00:00Z",
    "payload": {"agent_id": "a-1", "protocol": 1},
}
Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start(run_dir: Path) -> AsyncIterator[Start]:
    started: list[asyncio.subprocess.Process] = []

    async def launch(**environment: str) -> asyncio.subprocess.Process:
        env = os.environ | {"LINEUP_RUN_DIR": str(run_dir), "LINEUP_PORT": "0"} | environment
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lineup_hostshell", env=env, stderr=asyncio.subprocess.PIPE
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def end_of(process: asyncio.subprocess.Process) -> tuple[int, str]:
    async with asyncio.timeout(10):
        _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()


async def listening(runtime: Any) -> str:
    """See the start through and return the agent's URL."""
    async with asyncio.timeout(10):
        _, type_, _, hello = await runtime.inbox.get()
    assert (type_, hello["role"]) == ("host.hello", "hostshell")
    id_, action = await runtime.expect("host.action")
    if action["name"] == "pages.shown":  # nothing is before anybody yet
        assert action["args"] == {"surface_ids": []}
        await runtime.answer(id_)
        id_, action = await runtime.expect("host.action")
    assert action["name"] == "host.listening"
    await runtime.answer(id_)
    url: str = action["args"]["agent_url"]
    port = url.split(":")[2].split("/")[0]
    assert url == f"ws://127.0.0.1:{port}/agent"
    assert action["args"]["workspace_url"] == f"http://127.0.0.1:{port}/"
    return url


def connect(url: str, token: str) -> Any:
    return websockets.connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None)


async def test_start_serve_and_stop_on_sigterm(runtime: Any, start: Start, wire: Any) -> None:
    process = await start()
    url = await listening(runtime)
    async with connect(url, wire.token) as socket:
        await socket.send(json.dumps(HELLO))
        _, frame = await runtime.expect("agent.frame")
        process.send_signal(signal.SIGTERM)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
    _, gone = await runtime.expect("agent.closed")
    assert gone["link_id"] == frame["link_id"]
    code, err = await end_of(process)
    assert code == 0, err
    assert wire.token not in err


async def test_it_ends_when_the_runtime_is_gone(runtime: Any, start: Start) -> None:
    process = await start()
    await listening(runtime)
    runtime.close()
    code, err = await end_of(process)
    assert code == 3, err


async def test_the_token_may_come_from_the_file(runtime: Any, start: Start, run_dir: Path) -> None:
    runtime.settings = {}
    token_file = run_dir / "agent.token"
    token_file.write_text("from-the-file\n")
    token_file.chmod(0o600)
    await start()
    url = await listening(runtime)
    async with connect(url, "from-the-file") as socket:
        await socket.send(json.dumps(HELLO))
        await runtime.expect("agent.frame")


@pytest.mark.parametrize("fault", ["missing", "open", "empty", "symlink"])
async def test_a_bad_token_file_stops_the_start(runtime: Any, start: Start, run_dir: Path, fault: str) -> None:
    runtime.settings = {}
    token_file = run_dir / "agent.token"
    if fault == "symlink":
        (run_dir / "elsewhere").write_text("x")
        token_file.symlink_to(run_dir / "elsewhere")
    elif fault != "missing":
        token_file.write_text("" if fault == "empty" else "secret-in-an-open-file")
        token_file.chmod(0o644 if fault == "open" else 0o600)
    code, err = await end_of(await start())
    assert code == 1
    assert "agent.token" in err
    assert "Traceback" not in err
    assert "secret" not in err


@pytest.mark.parametrize("environment", [{"LINEUP_RUN_DIR": ""}, {"LINEUP_PORT": "http"}, {"LINEUP_PORT": "65536"}])
async def test_a_bad_environment_is_said(start: Start, environment: dict[str, str]) -> None:
    code, err = await end_of(await start(**environment))
    assert code == 1
    assert "LINEUP_" in err
    assert "Traceback" not in err


async def test_no_runtime_is_said(start: Start) -> None:
    code, err = await end_of(await start())
    assert code == 1
    assert "no_runtime" in err
    assert "Traceback" not in err
