"""Tries signals, tracing, other processes' memory and descriptors, execution, and what the kernel offers."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
# x86-64, or aarch64 where they differ: (x86-64, aarch64)
NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "clone3": (435, 435),
    "setns": (308, 268),
    "mount": (165, 40),
    "execveat": (322, 281),
    "kcmp": (312, 272),
    "init_module": (175, 105),
    "open_by_handle_at": (304, 265),
    "landlock_create_ruleset": (444, 444),
    "process_madvise": (440, 440),
    "memfd_secret": (447, 447),
}


def attempt(action: Callable[[], Any]) -> str:
    try:
        return f"done: {action()!r}"[:300]
    except Exception as error:
        return f"denied: {type(error).__name__}: {error}"


def kernel(name: str, *arguments: int) -> int:
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    result = LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


@app.tool("breaker.processes")
async def processes(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    found: dict[str, str] = {}
    for who, pid in call.input["pids"].items():
        found[f"{who}: signal"] = attempt(lambda pid=pid: os.kill(pid, 0))
        found[f"{who}: group"] = attempt(lambda pid=pid: os.killpg(pid, 0))
        found[f"{who}: ptrace attach"] = attempt(lambda pid=pid: kernel("ptrace", 16, pid, 0, 0))
        found[f"{who}: ptrace seize"] = attempt(lambda pid=pid: kernel("ptrace", 0x4206, pid, 0, 0))
        found[f"{who}: read memory"] = attempt(lambda pid=pid: kernel("process_vm_readv", pid, 0, 0, 0, 0, 0))
        found[f"{who}: write memory"] = attempt(lambda pid=pid: kernel("process_vm_writev", pid, 0, 0, 0, 0, 0))
        found[f"{who}: pidfd"] = attempt(lambda pid=pid: os.pidfd_open(pid))
        found[f"{who}: kcmp"] = attempt(lambda pid=pid: kernel("kcmp", os.getpid(), pid, 0, 0, 0))
        found[f"{who}: limits"] = attempt(lambda pid=pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, 8)))
        found[f"{who}: priority"] = attempt(lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19))
        found[f"{who}: class"] = attempt(lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)))
        found[f"{who}: affinity"] = attempt(lambda pid=pid: os.sched_setaffinity(pid, {0}))
        for file in ("environ", "mem", "maps", "fd", "root", "cwd", "cmdline"):
            found[f"{who}: /proc {file}"] = attempt(lambda pid=pid, file=file: look(f"/proc/{pid}/{file}"))
    found["everybody: signal"] = attempt(lambda: os.kill(-1, signal.SIGWINCH))
    found["descriptor of another"] = attempt(lambda: kernel("pidfd_getfd", 0, 0, 0))
    found["signal by pidfd"] = attempt(lambda: kernel("pidfd_send_signal", 0, 0, 0, 0))
    found["trace me"] = attempt(lambda: kernel("ptrace", 0, 0, 0, 0))
    found["keyctl"] = attempt(lambda: kernel("keyctl", 0, -3, 0))
    found["add_key"] = attempt(lambda: kernel("add_key", 0, 0, 0, 0, -3))
    found["io_uring"] = attempt(lambda: kernel("io_uring_setup", 8, 0))
    for name in (
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "mount",
        "init_module",
        "open_by_handle_at",
        "process_madvise",
    ):
        found[name] = attempt(lambda name=name: kernel(name, 0, 0, 0, 0, 0))
    found["memfd_secret"] = attempt(lambda: kernel("memfd_secret", 0))
    found["new user namespace"] = attempt(lambda: checked(LIBC.unshare(0x10000000)))
    found["new namespace by clone3"] = attempt(lambda: kernel("clone3", 0, 0))
    found["setns"] = attempt(lambda: kernel("setns", 0, 0))
    found["tiocsti"] = attempt(lambda: [fcntl.ioctl(fd, 0x5412, b"x") for fd in (0, 1, 2)])
    found["tioclinux"] = attempt(lambda: fcntl.ioctl(0, 0x541C, b"\x02"))
    found["a terminal"] = attempt(lambda: os.open("/dev/tty", os.O_RDWR))
    found["a new terminal"] = attempt(os.openpty)
    found["kernel memory"] = attempt(lambda: os.open("/dev/mem", os.O_RDONLY))
    found["fork"] = attempt(os.fork)
    found["a daemon"] = attempt(lambda: subprocess.Popen(["/bin/sh", "-c", "sleep 60"], start_new_session=True))
    found["a shell"] = attempt(lambda: os.execv("/bin/sh", ["sh", "-c", "id"]))
    found["an interpreter"] = attempt(lambda: os.execv(sys.executable, [sys.executable, "-c", "pass"]))
    found["posix_spawn"] = attempt(lambda: os.posix_spawn(sys.executable, [sys.executable], {}))
    found["memfd"] = attempt(lambda: os.memfd_create("x"))
    found["execveat"] = attempt(lambda: kernel("execveat", 0, 0, 0, 0, 0x1000))
    found["not to die"] = attempt(lambda: checked(LIBC.prctl(1, 0, 0, 0, 0)))
    found["dumpable"] = attempt(lambda: checked(LIBC.prctl(4, 1, 0, 0, 0)))
    found["more memory"] = attempt(lambda: resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)))
    found["higher priority"] = attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
    found["another user"] = attempt(lambda: os.setuid(0))
    found["the machine's name"] = attempt(lambda: checked(LIBC.sethostname(b"mine", 4)))
    found["alarm by another's timer"] = attempt(lambda: signal.pidfd_send_signal(0, signal.SIGKILL))
    return found


def look(path: str) -> Any:
    if path.endswith("fd"):
        return os.listdir(path)
    if path.endswith(("root", "cwd")):
        return os.readlink(path)
    with open(path, "rb") as file:
        return file.read(64)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
