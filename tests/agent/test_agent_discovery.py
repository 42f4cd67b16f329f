"""How the agent's client finds its Runtime, and whom it gives its token to."""

from __future__ import annotations

import asyncio
import json
import socket as socket_module
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from lineup_agent import (
    AgentLink,
    NoRuntime,
)
from lineup_agent.discovery import Target, listens_for_us

WAIT_S = 5.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def soon(awaitable: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> Any:
    async with asyncio.timeout(WAIT_S):
        return await awaitable


# --- finding the Runtime ----------------------------------------------------------------------------------------------


def write_home(home: Path, url: str, token: str) -> None:
    run = home / "run"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    (run / "runtime.json").write_text(json.dumps({"pid": 1, "agent_url": url}))
    (run / "agent.token").write_text(token + "\n")
    for name in ("runtime.json", "agent.token"):
        (run / name).chmod(0o600)


async def test_a_home_is_read_again_after_a_restart(tmp_path: Path, scripted: Any, token: str) -> None:
    second = type(scripted)()
    await second.start()
    second.token = "a-new-token"
    write_home(tmp_path, scripted.url, token)
    link = AgentLink.from_home(tmp_path, agent_id="a-1")
    entering = asyncio.create_task(link.__aenter__())
    await (await scripted.connection()).welcome()
    await soon(entering)
    write_home(tmp_path, second.url, "a-new-token")
    await scripted.wires[0].cut()
    await (await second.connection()).welcome()
    await link.close()
    await second.stop()


async def test_a_home_may_come_up_later(tmp_path: Path, scripted: Any, token: str) -> None:
    link = AgentLink.from_home(tmp_path, agent_id="a-1")
    entering = asyncio.create_task(link.__aenter__())
    await until(lambda: link._problem is not None)
    assert "lineup up" in str(link._problem)
    write_home(tmp_path, scripted.url, token)
    await (await scripted.connection()).welcome()
    await soon(entering)
    await link.close()


@pytest.mark.parametrize("fault", ["damaged", "no link", "open to others", "symlink", "dead port"])
async def test_a_home_that_cannot_be_trusted_gets_no_token(
    tmp_path: Path, scripted: Any, token: str, fault: str
) -> None:
    write_home(tmp_path, scripted.url, token)
    runtime_json = tmp_path / "run" / "runtime.json"
    if fault == "damaged":
        runtime_json.write_text("{")
    elif fault == "no link":
        runtime_json.write_text(json.dumps({"agent_url": None}))
    elif fault == "open to others":
        runtime_json.chmod(0o622)
    elif fault == "symlink":
        runtime_json.rename(tmp_path / "elsewhere")
        runtime_json.symlink_to(tmp_path / "elsewhere")
    else:
        write_home(tmp_path, "ws://127.0.0.1:1/agent", token)
    with pytest.raises(NoRuntime):
        async with AgentLink.from_home(tmp_path, agent_id="a-1", open_timeout=0.1):
            pass
    assert scripted.requests == 0


def test_a_port_of_another_user_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket_module.create_server(("127.0.0.1", 0)) as listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/agent"
        assert listens_for_us(url)
        monkeypatch.setattr("lineup_agent.discovery.os.geteuid", lambda: 54321)
        assert not listens_for_us(url)


def test_a_target_does_not_print_its_token() -> None:
    assert "secret" not in repr(Target("ws://x", "secret"))
