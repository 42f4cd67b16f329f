"""The link to the Runtime, both forms: handshake, answers, time limits, its end; and who may be at the other side."""

from __future__ import annotations

import asyncio
import os
import socket as socket_module
from pathlib import Path
from typing import Any

import pytest
import zmq

from lineup_hostshell.host_session import endpoint
from lineup_hostshell.runtime_link import RuntimeClient, RuntimeLink
from lineup_hostshell.server import bind_loopback
from lineup_protocol.errors import LineUpError


async def connected(run_dir: Path, handlers: Any = None) -> RuntimeLink:
    link = RuntimeLink(run_dir, "cli", handlers or {})
    await link.connect()
    return link


async def test_the_handshake_comes_first_and_brings_the_settings(runtime: Any, run_dir: Path) -> None:
    link = RuntimeLink(run_dir, "hostshell", {})
    welcome = await link.connect()
    _, hello = await runtime.expect("host.hello")
    assert hello == {"protocols": [1], "role": "hostshell", "pid": os.getpid()}
    assert (welcome.boot_id, welcome.protocol) == ("b-1", 1)
    assert "agent_token" in welcome.settings
    link.close()


async def test_a_refused_handshake_raises(runtime: Any, run_dir: Path) -> None:
    runtime.refuse_hello = True
    with pytest.raises(LineUpError, match="too old") as refused:
        await connected(run_dir)
    assert refused.value.code == "protocol_unsupported"


async def test_no_socket_is_no_runtime(run_dir: Path) -> None:
    with pytest.raises(LineUpError) as refused:
        await connected(run_dir)
    assert refused.value.code == "no_runtime"


async def test_a_stale_socket_is_no_runtime(run_dir: Path) -> None:
    left_behind = socket_module.socket(socket_module.AF_UNIX)
    left_behind.bind(os.fspath(run_dir / "host.sock"))
    left_behind.close()
    async with asyncio.timeout(5):
        with pytest.raises(LineUpError) as refused:
            await connected(run_dir)
    assert refused.value.code == "no_runtime"
    with pytest.raises(LineUpError) as refused:
        RuntimeClient(run_dir).__enter__()
    assert refused.value.code == "no_runtime"


async def test_answers_find_their_requests(runtime: Any, run_dir: Path) -> None:
    link = await connected(run_dir)
    await runtime.expect("host.hello")
    first = asyncio.create_task(link.query("status"))
    second = asyncio.create_task(link.action("apps.enable", {"app_scope": "x"}, action_id="a-1"))
    third = asyncio.create_task(link.query("nothing"))
    query_id, query = await runtime.expect("host.query")
    action_id, action = await runtime.expect("host.action")
    nothing_id, _ = await runtime.expect("host.query")
    assert query == {"name": "status", "args": {}}
    assert action == {"action_id": "a-1", "name": "apps.enable", "args": {"app_scope": "x"}}
    await runtime.answer("r-unknown", 0)
    await runtime.answer(nothing_id, code="not_found")
    await runtime.answer(action_id, {"done": True})
    await runtime.answer(query_id, [1, 2])
    assert await first == [1, 2]
    assert await second == {"done": True}
    with pytest.raises(LineUpError, match="refused in a test") as refused:
        await third
    assert refused.value.code == "not_found"
    link.close()


async def test_an_unknown_code_of_a_newer_runtime_is_not_lost(runtime: Any, run_dir: Path) -> None:
    link = await connected(run_dir)
    await runtime.expect("host.hello")
    asked = asyncio.create_task(link.query("status"))
    id_, _ = await runtime.expect("host.query")
    await runtime.answer(id_, code="brand_new_code")
    with pytest.raises(LineUpError, match="brand_new_code"):
        await asked
    link.close()


async def test_a_silent_runtime_is_given_up(runtime: Any, run_dir: Path) -> None:
    link = await connected(run_dir)
    with pytest.raises(LineUpError, match="did not answer"):
        await link.request("host.query", {"name": "status", "args": {}}, timeout_s=0.05)
    link.close()


async def test_what_was_said_before_the_end_is_taken_and_the_end_is_seen(runtime: Any, run_dir: Path) -> None:
    seen: list[int] = []
    link = await connected(run_dir, {"host.delta": lambda body: seen.append(body["revision"])})
    waiting = asyncio.create_task(link.query("status"))
    await runtime.expect("host.hello")
    await runtime.expect("host.query")
    runtime.socket.setsockopt(zmq.LINGER, 1000)  # let it all out before the end
    for revision in range(1000):
        await runtime.say("host.delta", {"revision": revision, "changes": []})
    runtime.close()
    async with asyncio.timeout(5):
        await link.lost.wait()
    assert seen == list(range(1000))
    with pytest.raises(LineUpError) as gone:
        await waiting
    assert gone.value.code == "no_runtime"
    with pytest.raises(LineUpError):
        await link.send("agent.closed", {"link_id": "x"})
    link.close()


async def test_many_messages_both_ways_lose_no_edge(runtime: Any, run_dir: Path) -> None:
    """2,000 requests at once: sends fill the queue while answers arrive, and an edge-triggered fd loses none."""
    link = await connected(run_dir)
    await runtime.expect("host.hello")

    async def serve() -> None:
        for _ in range(2000):
            _, _, id_, body = await runtime.inbox.get()
            await runtime.answer(id_, body["args"]["n"])

    server = asyncio.create_task(serve())
    async with asyncio.timeout(20):
        results = await asyncio.gather(*(link.query("echo", {"n": n}) for n in range(2000)))
    assert results == list(range(2000))
    await server
    link.close()


async def test_what_takes_its_time_is_waited_for_as_long_as_the_runtime_is_there(runtime: Any, run_dir: Path) -> None:
    """A backup of a large home takes minutes; who is told that it failed begins another one."""

    def talk() -> list[Any]:
        out: list[Any] = []
        with RuntimeClient(run_dir, answer_s_max=0.05) as client:
            for slow in (False, True, True):
                try:
                    out.append(client.action("runtime.backup", {"path": "/x"}, takes_its_time=slow))
                except LineUpError as error:
                    out.append(error.code)
        return out

    talking = asyncio.create_task(asyncio.to_thread(talk))
    await runtime.expect("host.hello")
    await runtime.expect("host.action")
    id_, _ = await runtime.expect("host.action")
    await asyncio.sleep(0.3)
    await runtime.answer(id_, {"bytes": 1})
    await runtime.expect("host.action")
    runtime.close()
    async with asyncio.timeout(5):
        assert await talking == ["no_runtime", {"bytes": 1}, "no_runtime"]


async def test_the_plain_client(runtime: Any, run_dir: Path) -> None:
    def talk() -> list[Any]:
        with RuntimeClient(run_dir) as client:
            out: list[Any] = [client.welcome.boot_id, client.query("status")]
            try:
                client.action("apps.remove", {"app_scope": "x"})
            except LineUpError as error:
                out.append(error.code)
            out.extend(client.watch("c-1", "cli"))
            return out

    talking = asyncio.create_task(asyncio.to_thread(talk))
    _, hello = await runtime.expect("host.hello")
    assert hello["role"] == "cli"
    id_, _ = await runtime.expect("host.query")
    await runtime.answer(id_, {"up": True})
    id_, action = await runtime.expect("host.action")
    assert action["action_id"].startswith("apps.remove-")
    await runtime.answer(id_, code="app_not_found")
    id_, watch = await runtime.expect("host.watch")
    assert watch == {"call_id": "c-1", "agent_id": "cli"}
    await runtime.say("host.watched", {"call_id": "c-1", "record": {"status": "routing"}})  # before its own answer
    await runtime.answer(id_)
    await runtime.say("host.watched", {"call_id": "c-2", "record": {"status": "completed"}})
    await runtime.say("host.watched", {"call_id": "c-1", "record": {"status": "completed"}})
    async with asyncio.timeout(5):
        assert await talking == ["b-1", {"up": True}, "app_not_found", {"status": "routing"}, {"status": "completed"}]


async def test_the_plain_client_sees_the_end(runtime: Any, run_dir: Path) -> None:
    def talk() -> str:
        with RuntimeClient(run_dir) as client:
            try:
                client.query("status")
            except LineUpError as error:
                return error.code
        return "answered"

    talking = asyncio.create_task(asyncio.to_thread(talk))
    await runtime.expect("host.hello")
    await runtime.expect("host.query")
    runtime.close()
    async with asyncio.timeout(5):
        assert await talking == "no_runtime"


def test_a_run_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    with socket_module.socket(socket_module.AF_UNIX) as listener:
        listener.bind(os.fspath(run_dir / "host.sock"))
        assert endpoint(run_dir) == f"ipc://{run_dir}/host.sock"
        run_dir.chmod(0o755)
        with pytest.raises(LineUpError) as refused:
            endpoint(run_dir)
        assert refused.value.code == "home_unusable"
    run_dir.chmod(0o700)
    (run_dir / "host.sock").unlink()
    (run_dir / "host.sock").symlink_to(tmp_path)
    with pytest.raises(LineUpError) as refused:
        endpoint(run_dir)
    assert refused.value.code == "home_unusable"
    with pytest.raises(LineUpError, match="longer than") as refused:
        endpoint(Path("/tmp/" + "x" * 120))
    assert refused.value.code == "home_unusable"


def test_a_taken_port_means_another_one() -> None:
    with bind_loopback(0) as impostor:
        taken = impostor.getsockname()[1]
        with bind_loopback(taken) as ours:
            assert ours.getsockname()[0] == "127.0.0.1"
            assert ours.getsockname()[1] not in (0, taken)
    with bind_loopback(taken) as ours:
        assert ours.getsockname()[1] == taken
