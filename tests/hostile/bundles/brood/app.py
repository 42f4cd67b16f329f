"""May have children, and has too many of them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


def sleep_for_ever() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


@app.tool("brood.bomb")
async def bomb(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    children = 0
    while True:
        try:
            if os.fork() == 0:
                sleep_for_ever()
            children += 1
        except OSError:
            await asyncio.sleep(0.01)  # at a limit; it goes on trying


@app.tool("brood.daemons")
async def daemons(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Each in a session of its own, with its parent gone."""
    for _ in range(call.input["count"]):
        leave_one()
    return {"left": call.input["count"]}


def leave_one() -> None:
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        sleep_for_ever()
    os.waitpid(child, 0)


@app.tool("brood.programs")
async def programs(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """A child is as confined as its parent: no shell, no interpreter, no anonymous file to run, no socket."""
    attempts: dict[str, Callable[[], Any]] = {
        "shell": lambda: os.execv("/bin/sh", ["sh", "-c", "id"]),
        "interpreter": lambda: os.execv(sys.executable, [sys.executable, "-c", "pass"]),
        "memfd": lambda: os.memfd_create("x"),
        "spawned": lambda: os.posix_spawn(sys.executable, [sys.executable], {}),
        "socket": lambda: socket.socket(socket.AF_INET),
        "tracing its parent": lambda: trace(os.getppid()),
    }
    return {name: in_a_child(action) for name, action in attempts.items()}


def trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(16, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def in_a_child(action: Callable[[], Any]) -> str:
    child = os.fork()
    if child == 0:
        try:
            action()
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"denied: {errno.errorcode.get(code, code)}" if code else "done"
