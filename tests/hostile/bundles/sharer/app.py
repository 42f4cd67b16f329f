"""Takes, and keeps, what the kernel counts for all programs of a person together."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import resource
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
hoard: list[Any] = []
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# x86-64's numbers; what there is no name for in Python.
SENDMMSG, IO_SETUP, INOTIFY_INIT, MQ_OPEN, MLOCK, TIMER_CREATE = 307, 206, 253, 240, 149, 222
EPOLL_CREATE, EPOLL_CREATE1, EPOLL_CTL, ADD_KEY = 213, 291, 233, 248
IO_URING_SETUP, BPF, PERF_EVENT_OPEN, MEMFD_CREATE, USERFAULTFD, FANOTIFY_INIT = 425, 321, 298, 319, 323, 300
MSG_CONFIRM, SECCOMP, TSYNC = 0x800, 317, 1
MAP_LOCKED, MAP_PRIVATE_ANONYMOUS = 0x2000, 0x22


def system(number: int, *arguments: Any) -> int:
    plain = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    found = int(libc.syscall(ctypes.c_long(number), *plain))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def tried(action: Callable[[], Any]) -> str:
    """``done`` or the name of the error."""
    try:
        hoard.append(action())
    except OSError as error:
        return os.strerror(error.errno or 0)
    return "done"


def send_descriptors(flags: int = 0) -> None:
    """As many as one message holds, to nobody who takes them."""
    ends = socket.socketpair()
    hoard.append(ends)
    passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("253i", *[1] * 253))
    ends[0].sendmsg([b"x"], [passed], flags)


def count(action: Callable[[], Any], most: int) -> int:
    done = 0
    while done < most and tried(action) == "done":
        done += 1
    return done


def make_timer() -> int:
    made = ctypes.c_void_p()
    return system(TIMER_CREATE, 1, None, ctypes.byref(made))


def watch_with_what_the_link_has() -> int:
    """Register files under as many numbers as there are, with each epoll that this process has been born with."""
    polls = [int(name) for name in os.listdir("/proc/self/fd") if _is_epoll(name)]
    files = [os.eventfd(0) for _ in range(3)]
    hoard.extend(files)
    made = 0
    for number in range(40, 50):
        for file in files:
            os.dup2(file, number)
            for poll in polls:
                event = struct.pack("=IQ", 1, number)
                made += tried(lambda p=poll, n=number, e=event: system(EPOLL_CTL, p, 1, n, e)) == "done"
        os.close(number)
    return made


def _is_epoll(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]"
    except OSError:
        return False


def big_pipe() -> None:
    ends = os.pipe()
    hoard.append(ends)
    fcntl.fcntl(ends[0], 1031, 1 << 20)


def locked_memory() -> int:
    libc.mmap.restype = ctypes.c_void_p
    found = libc.mmap(None, ctypes.c_size_t(1 << 16), 3, MAP_PRIVATE_ANONYMOUS | MAP_LOCKED, -1, ctypes.c_long(0))
    if found in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "no")
    return int(found)


@app.tool("sharer.take")
async def take(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    return {
        "sendmsg": tried(send_descriptors),
        "sendmsg as at the hand-over": tried(lambda: send_descriptors(MSG_CONFIRM)),
        "sendmmsg": tried(lambda: system(SENDMMSG, 1, None, 0, 0)),
        "seccomp": tried(lambda: system(SECCOMP, 1, TSYNC, None)),
        "timers": count(make_timer, 400),
        "pending_signals": resource.getrlimit(resource.RLIMIT_SIGPENDING),
        "big pipe": tried(big_pipe),
        "epoll": tried(select.epoll),
        "epoll_create": tried(lambda: system(EPOLL_CREATE, 1)),
        "watches": watch_with_what_the_link_has(),
        "inotify": tried(lambda: system(INOTIFY_INIT)),
        "fanotify": tried(lambda: system(FANOTIFY_INIT, 0, 0)),
        "message queue": tried(lambda: system(MQ_OPEN, b"/q", os.O_CREAT | os.O_RDWR, 0o600, None)),
        "mlock": tried(lambda: system(MLOCK, 0, 4096)),
        "locked memory": tried(locked_memory),
        "aio": tried(lambda: system(IO_SETUP, 1000, ctypes.byref(ctypes.c_ulong()))),
        "io_uring": tried(lambda: system(IO_URING_SETUP, 8, None)),
        "bpf": tried(lambda: system(BPF, 0, None, 0)),
        "perf": tried(lambda: system(PERF_EVENT_OPEN, None, 0, -1, -1, 0)),
        "userfaultfd": tried(lambda: system(USERFAULTFD, 0)),
        "key": tried(lambda: system(ADD_KEY, b"user", b"k", b"x", 1, -3)),
        "memfd": tried(lambda: os.memfd_create("x")),
    }


@app.tool("sharer.loops")
async def loops(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Nothing hostile: a loop in a thread, and streams over a socket pair that have to wait for their reader."""

    async def talk() -> int:
        one, other = socket.socketpair()
        reader, unused = await asyncio.open_connection(sock=one)
        _, writer = await asyncio.open_connection(sock=other)
        writer.writelines([b"x" * 300_000, b"y" * 300_000])
        drained = asyncio.create_task(writer.drain())
        heard = len(await reader.readexactly(600_000))
        await drained
        for each in (unused, writer):
            each.close()
        return heard

    heard = await asyncio.to_thread(lambda: asyncio.run(talk()))
    return {"heard": heard, "heard_here": await talk()}
