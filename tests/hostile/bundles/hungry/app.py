"""Takes as much as it gets of everything: memory, threads, processors, output, files, storage, the Runtime's time."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
hoard: list[Any] = []
MIB = 1024 * 1024


def ten_gigabytes() -> None:
    for _ in range(160):
        block = bytearray(64 * MIB)
        block[::4096] = b"x" * (len(block) // 4096)
        hoard.append(block)


@app.tool("hungry.memory")
async def memory(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    ten_gigabytes()
    return {"took": len(hoard)}


@app.tool("hungry.caught")
async def caught(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    try:
        ten_gigabytes()
    except MemoryError:
        blocks = len(hoard)
        hoard.clear()
        return {"stopped_at_mib": blocks * 64}
    return {"stopped_at_mib": None}


@app.tool("hungry.threads")
async def threads(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    started, stopped = 0, threading.Event()
    try:
        for _ in range(1000):
            threading.Thread(target=stopped.wait, daemon=True).start()
            started += 1
    except RuntimeError as error:
        stopped.set()
        return {"started": started, "stopped_by": str(error)}
    await asyncio.Event().wait()
    return {"started": started, "stopped_by": None}


def burn(until: float) -> None:
    """Long hashes let go of the interpreter's lock, so that every thread has a processor of its own."""
    block = bytes(MIB)
    while time.process_time() < until:
        hashlib.sha256(block)


@app.tool("hungry.processor")
async def processor(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    began, until = time.monotonic(), time.process_time() + call.input["seconds"]
    await asyncio.gather(*(asyncio.to_thread(burn, until) for _ in range(4)))
    return {"took_s": time.monotonic() - began}


@app.tool("hungry.output")
async def output(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    lie = call.input["lie"]
    block = (
        f"\x1b[2J\x1b]0;title\x07\x1b[31m{lie}\r\n"
        f'{{"at":"2026-01-01T00:00:00.000Z","stream":"runtime","app_scope":"bystander","note":"{lie}"}}\n'
        f"\u202e{lie}\u2028{lie}\x00\x08\x9b31m\n"
    ).encode() * 200
    for _ in range(call.input["bytes"] // len(block)):
        os.write(1, block)
        await asyncio.sleep(0)
    print("bwrap: Creating new namespace failed", file=sys.stderr, flush=True)
    return {}


@app.tool("hungry.tmp")
async def tmp(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    folder = os.environ["TMPDIR"]
    found = {"one_file": until_refused(lambda: fill(f"{folder}/one"))}
    if call.input["many"]:
        found["many"] = until_refused(lambda: fill_many(folder))
    for name in os.listdir(folder):
        os.unlink(f"{folder}/{name}")
    return found


def fill(path: str) -> None:
    with open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(MIB))


def fill_many(folder: str) -> None:
    for number in range(200):
        with open(f"{folder}/{number}", "wb", buffering=0) as file:
            file.write(bytes(MIB))


@app.tool("hungry.descriptors")
async def descriptors(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    opened: list[int] = []
    said = until_refused(lambda: opened.append(os.open("/dev/null", os.O_RDONLY)), times=100_000)
    for descriptor in opened:
        os.close(descriptor)
    return {"opened": len(opened), "said": said}


def until_refused(action: Callable[[], Any], times: int = 1) -> str:
    try:
        for _ in range(times):
            action()
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    return "never"


@app.tool("hungry.state")
async def state(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """A snapshot as big as it may be, then surfaces' worth of it besides."""
    size = 200_000
    for number in range(20):
        receipt = await sdk.state.save({"n": number, "padding": ["x" * size] * (number + 1)})
        if not receipt.accepted:
            return {"saves": number, "code": receipt.code}
    return {"saves": 20, "code": None}


@app.tool("hungry.artifacts")
async def artifacts(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    for number in range(40):
        receipt = await sdk.artifacts.submit(f"number {number}", "text/plain", (f"{number:05}" * 20_000).encode())
        if not receipt.accepted:
            return {"accepted": number, "code": receipt.code}
    return {"accepted": 40, "code": None}


@app.tool("hungry.hang")
async def hang(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    while True:
        pass


@app.tool("hungry.deaf")
async def deaf(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """The link stays open and nobody reads from it any more: libzmq gets another socket in its place."""
    descriptor = link_descriptor()
    hoard.append(os.dup(descriptor))
    left, right = socket.socketpair()
    hoard.append(right)
    os.dup2(left.detach(), descriptor)
    await asyncio.Event().wait()
    return {}


def link_descriptor() -> int:
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as made:
                if made.family == socket.AF_UNIX and str(made.getpeername()).endswith("/s"):
                    return int(name)
        except OSError:
            continue
    raise LookupError("there is no link")
