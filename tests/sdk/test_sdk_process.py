"""Real worker processes on a real ROUTER socket, not confined: their birth, their work and every way to end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import zmq
import zmq.asyncio

from lineup_protocol import codec
from lineup_sdk.channel import ChannelClosed
from lineup_sdk.worker import EXIT_CODES

EXIT_S = 15.0

APP = """
import asyncio, os, time
from lineup_sdk import MiniApp, SDK, ToolCall

app = MiniApp()

@app.tool("probe.echo")
async def echo(call: ToolCall, sdk: SDK) -> dict:
    print("echoing", call.call_id)
    return {"echo": call.input, "pid": os.getpid()}

@app.tool("probe.thread")
async def thread(call: ToolCall, sdk: SDK) -> dict:
    import threading
    threading.Thread(target=threading.Event().wait).start()
    return {}

@app.tool("probe.wait")
async def wait(call: ToolCall, sdk: SDK) -> None:
    await sdk.tools.report_progress(call.call_id, 0.1)
    await asyncio.Event().wait()

@app.on_stop
async def stop(sdk: SDK) -> None:
    print("stopping")
"""


class RouterChannel:
    """The Runtime's side of one worker, as a plain ROUTER."""

    def __init__(self, path: Path) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(f"ipc://{path}")
        self._peer: bytes | None = None
        self.closed = False

    def send(self, message: dict[str, Any]) -> None:
        data = codec.encode_message(
            message["type"], message["body"], link="worker", from_runtime=True, message_id=message.get("id")
        )
        self.send_raw(data)

    def send_raw(self, *frames: bytes) -> None:
        assert self._peer is not None
        self._socket.send_multipart([self._peer, *frames])

    async def receive(self) -> list[dict[str, Any]]:
        try:
            frames = await self._socket.recv_multipart()
        except (zmq.ZMQError, asyncio.CancelledError):
            raise ChannelClosed("closed") from None
        assert len(frames) == 2, "one frame per message, behind the routing id"
        self._peer = frames[0]
        return [cast("dict[str, Any]", codec.decode(frames[1], codec.CAPS["worker", False], allow_bytes=True))]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._socket.close()
            self._context.term()


class Worker:
    """One process with its scripted Runtime."""

    def __init__(self, channel: RouterChannel, runtime: Any, process: asyncio.subprocess.Process) -> None:
        self.channel = channel
        self.runtime = runtime
        self.process = process

    async def exit(self) -> tuple[int, str, str]:
        """``(code, stdout, stderr)`` once it has ended."""
        async with asyncio.timeout(EXIT_S):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


async def start_process(environment: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lineup_sdk.worker",
        env={"PATH": os.defpath, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.fixture
async def start_worker(tmp_path: Path, scripted_runtime: Any) -> AsyncIterator[Callable[..., Any]]:
    workers: list[Worker] = []

    async def start(app: str = APP, welcome: Any = None, **settings: str) -> Worker:
        bundle = tmp_path / "bundle"
        bundle.mkdir(exist_ok=True)
        (bundle / "app.py").write_text(app)
        path = tmp_path / f"{len(workers)}.sock"
        channel = RouterChannel(path)
        environment = {"LINEUP_SOCKET": str(path), "LINEUP_LEVEL": "none", "LINEUP_BUNDLE": str(bundle)}
        process = await start_process(environment | settings)
        workers.append(Worker(channel, scripted_runtime(channel, welcome), process))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.returncode is None:
            worker.process.kill()
            await worker.process.communicate()
        worker.runtime.end()


async def test_a_worker_does_its_job_and_stops_when_asked(start_worker: Any) -> None:
    worker = await start_worker()
    await worker.runtime.expect("worker.ready")
    for n in range(50):
        worker.runtime.call("probe.echo", {"n": n}, f"k-{n}")
    await worker.runtime.expect("tool.complete", 50)
    done = worker.runtime.said("tool.complete")
    assert [body["result"]["echo"]["n"] for body in done] == list(range(50))
    assert done[0]["result"]["pid"] == worker.process.pid
    worker.runtime.say("worker.ping", nonce=9)
    assert await worker.runtime.expect("worker.pong") == {"nonce": 9}
    worker.runtime.say("worker.stop", reason="idle", grace_ms=5_000)
    code, out, err = await worker.exit()
    assert (code, err) == (0, "")
    assert out.startswith("echoing k-0\n")
    assert out.endswith("stopping\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_term_stops_and_interrupt_is_ignored(start_worker: Any, number: signal.Signals) -> None:
    worker = await start_worker()
    await worker.runtime.expect("worker.ready")
    worker.runtime.call("probe.wait", {})
    await worker.runtime.expect("tool.progress")
    worker.process.send_signal(number)
    if number == signal.SIGINT:
        worker.runtime.call("probe.echo", {}, "k-2")
        await worker.runtime.expect("tool.complete")
        return
    code, out, _ = await worker.exit()
    assert (code, out) == (0, "stopping\n")


async def test_a_thread_that_the_app_left_behind_does_not_hold_the_exit_up(start_worker: Any) -> None:
    worker = await start_worker()
    await worker.runtime.expect("worker.ready")
    worker.runtime.call("probe.thread", {})
    await worker.runtime.expect("tool.complete")
    worker.runtime.say("worker.stop", reason="idle", grace_ms=5_000)
    assert (await worker.exit())[0] == 0


async def test_a_worker_ends_when_the_supervisor_is_gone(start_worker: Any) -> None:
    worker = await start_worker()
    await worker.runtime.expect("worker.ready")
    worker.runtime.call("probe.wait", {})
    await worker.runtime.expect("tool.progress")
    worker.runtime.end()
    code, _, _ = await worker.exit()
    assert code == EXIT_CODES["runtime_gone"]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ((b"\xc1",), "message_invalid"),
        ((b"\x91" * 1000,), "message_invalid"),
        ((b"\x80", b"\x80"), "a message of 2 frames"),
        ((b"\x83\xa4type\xa7no.such\xa2id\xa11\xa4body\x80",), "unknown message type 'no.such'"),
    ],
)
async def test_what_is_not_a_message_ends_the_worker_with_a_clear_line(
    start_worker: Any, frames: tuple[bytes, ...], reason: str
) -> None:
    worker = await start_worker()
    await worker.runtime.expect("worker.ready")
    worker.channel.send_raw(*frames)
    code, _, err = await worker.exit()
    assert code == EXIT_CODES["protocol"]
    assert err.startswith("lineup worker: protocol: ")
    assert reason in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("app", "entry", "reason"),
    [
        ("import no_such_module", "app:app", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("app = 7", "app:app", "ImportError: entry 'app:app': 'app' must be a MiniApp, it is int"),
        ("", "app:main", "'main' must be a MiniApp, it is NoneType"),
        ("", "json:loads", "not in the bundle"),
        ("", "nowhere:app", "No module named 'nowhere'"),
        ("def broken(:", "app:app", "SyntaxError"),
    ],
)
async def test_an_app_that_cannot_be_loaded(start_worker: Any, welcome: Any, app: str, entry: str, reason: str) -> None:
    worker = await start_worker(app, welcome(entry=entry))
    failed = await worker.runtime.expect("worker.failed")
    assert failed["code"] == "app_start_failed"
    assert reason in failed["message"]
    code, _, err = await worker.exit()
    assert code == EXIT_CODES["load_failed"]
    assert "Traceback" in err


async def test_one_that_cannot_seal_itself_ends_before_the_app_is_loaded_and_never_blames_it(start_worker: Any) -> None:
    limits = {"parent_pid": os.getpid(), "seal": base64.b64encode(b"no filter").decode()}
    app = "print('it runs')\n" + APP
    worker = await start_worker(app, LINEUP_LEVEL="S1", LINEUP_LIMITS=json.dumps(limits))
    code, out, err = await worker.exit()
    assert (code, out) == (EXIT_CODES["environment"], "")
    assert err.startswith("lineup worker: cannot start: seccomp could not be applied: ")
    assert "worker.failed" not in str(worker.runtime.heard)


async def test_a_refused_worker_exits(start_worker: Any) -> None:
    worker = await start_worker()
    worker.runtime._hear = lambda message: worker.runtime.say(
        "worker.refuse", code="protocol_unsupported", message="no common version"
    )
    code, _, err = await worker.exit()
    assert code == EXIT_CODES["refused"]
    assert err == "lineup worker: refused: protocol_unsupported: no common version\n"


@pytest.mark.parametrize("missing", ["LINEUP_SOCKET", "LINEUP_LEVEL", "LINEUP_BUNDLE"])
async def test_a_worker_is_not_started_by_hand(tmp_path: Path, missing: str) -> None:
    environment = {"LINEUP_SOCKET": "x", "LINEUP_LEVEL": "none", "LINEUP_BUNDLE": str(tmp_path)}
    process = await start_process({name: value for name, value in environment.items() if name != missing})
    _, err = await process.communicate()
    assert process.returncode == EXIT_CODES["environment"]
    assert f"{missing} is not set" in err.decode()


async def test_an_unknown_isolation_level_is_never_run_bare(tmp_path: Path) -> None:
    process = await start_process({"LINEUP_SOCKET": "x", "LINEUP_LEVEL": "S9", "LINEUP_BUNDLE": str(tmp_path)})
    _, err = await process.communicate()
    assert process.returncode == EXIT_CODES["environment"]
    assert err.decode().startswith("lineup worker: cannot start: ")


async def test_a_socket_that_is_not_there_ends_the_worker(tmp_path: Path) -> None:
    environment = {"LINEUP_LEVEL": "none", "LINEUP_BUNDLE": str(tmp_path), "LINEUP_SOCKET": str(tmp_path / "no.sock")}
    process = await start_process(environment)
    async with asyncio.timeout(EXIT_S):
        await process.communicate()
    assert process.returncode == EXIT_CODES["runtime_gone"]


async def test_the_worker_imports_neither_pydantic_nor_msgspec() -> None:
    code = "import sys, lineup_sdk.worker; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    loaded = set(out.decode().split())
    assert "lineup_protocol" in loaded
    heavy = {"pydantic", "pydantic_core", "msgspec", "fastjsonschema", "uvloop", "lmdb", "lineup_supervisor"}
    assert loaded & heavy == set()
