"""A worker locks itself in: the last layers of its isolation, from inside, before any app code.

Owns: applying what the Runtime hands over (resource limits, Landlock, seccomp, the tie to the supervisor's life).
It decides nothing: which layer belongs to which level is the Runtime's policy. Standard library only: starts stay fast.

Order: ``apply`` after the SDK's imports and before any ZeroMQ context or thread; ``seal`` once the link is up and
before the app is loaded. Both raise ``ConfineError`` if anything could not be applied; the worker must then exit.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

ENVIRONMENT = "LINEUP_LIMITS"  # the Runtime's settings: one JSON object, see ``apply``
_LIFELINE = 0
REPORT = "LINEUP_REPORT"  # number of an inherited unix socket: the listener of what ``seal`` denies goes through it
UNREPORTED, UNCONFINED = "not reported", "not confined"  # what else is said there, with the cause behind it
_REPORT_BYTES_MAX = 200
_HAND_OVER_FLAGS = 0x800  # MSG_CONFIRM means nothing there; until the last filter the reporting seal lets it through
_LAYERS = {"S3": ("seccomp",), "S2": ("seccomp", "landlock", "parent_pid"), "S1": ("parent_pid",)}

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER, _SECCOMP_FILTER_FLAG_TSYNC_ESRCH = 1 << 3, 1 << 4
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD_RULE, _SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446

# Landlock file rights by the ABI that brought them (linux/landlock.h).
_FS_EXECUTE, _FS_WRITE_FILE, _FS_READ_FILE, _FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FS_ABI_1 = (1 << 13) - 1
_FS_REFER, _FS_TRUNCATE, _FS_IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_NET_BIND_CONNECT_TCP = 0b11
_SCOPE_ABSTRACT_UNIX_AND_SIGNAL = 0b11
_FS_MAKE_CHAR, _FS_MAKE_BLOCK = 1 << 6, 1 << 11
_FILE_RIGHTS = _FS_EXECUTE | _FS_WRITE_FILE | _FS_READ_FILE | _FS_TRUNCATE | _FS_IOCTL_DEV  # allowed on a plain file

_applied: dict[str, Any] | None = None
_report: socket.socket | None = None


class ConfineError(RuntimeError):
    """A layer could not be applied. The message names it; running on would be less isolation than was promised."""


def apply(level: str, limits: str | bytes | None = None) -> None:
    """Apply every layer of ``level``. ``limits`` is the Runtime's JSON; None takes it from the environment.

    ``{"rlimits": {name: value}, "landlock": {"read": [...], "list": [...], "write": [...]} | null,
    "seccomp": base64, "seal": base64, "reporting_seal": base64, "last": base64, "parent_pid": int | null,
    "lifeline": bool, "nice": int}``. With ``lifeline`` the standard input is one: a pipe whose other end the supervisor
    alone holds.
    """
    global _applied, _report
    settings = _settings(limits)
    number = os.environ.pop(REPORT, "")
    if number:
        _report = socket.socket(fileno=int(number))
    missing = [name for name in _LAYERS.get(level, ("an unknown level",)) if not settings.get(name)]
    if missing:
        raise ConfineError(f"isolation level {level} needs settings that are missing: {', '.join(missing)}")
    if settings.get("lifeline"):
        _watch_lifeline()
    if settings.get("parent_pid"):
        _die_with(int(settings["parent_pid"]))
    _limit_resources(settings.get("rlimits") or {})
    _be_first_to_go()
    if settings.get("nice"):
        os.nice(int(settings["nice"]))
    if level != "S1":
        _prctl(_PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
        # No core dump, and no other process of the same person may look into this one.
        _prctl(_PR_SET_DUMPABLE, 0, "dumpable")
        if settings.get("landlock"):
            _landlock(settings["landlock"])
        _load_filter(base64.b64decode(settings["seccomp"]))
    _applied = settings


def seal() -> None:
    """No new sockets from here on, in any thread: call it when the link is up, before the app is loaded.

    A failure is told to the Runtime through the report, which no app code ever has in its hands, before it is raised.
    """
    global _report
    if _applied is None:
        raise ConfineError("seal() comes after apply()")
    report, _report = _report, None
    try:
        _release_lifeline()
        if _applied.get("seal") and not _seal_and_report(report, _applied):
            _load_filter(base64.b64decode(_applied["seal"]))
    except (ConfineError, OSError) as error:
        _tell(report, f"{UNCONFINED}: {error}")
        raise ConfineError(str(error)) from error
    finally:
        if report is not None:
            report.close()


def _seal_and_report(report: socket.socket | None, settings: dict[str, Any]) -> bool:
    """Let the Runtime answer what is denied, and so learn of it; False where it cannot (then the kernel answers).

    The descriptor goes to the Runtime and is closed here: nothing in this process can answer in its place. Only when it
    is on its way are handing over and loading filters denied, too.
    """
    if report is None or not settings.get("reporting_seal"):
        return False
    flags = _SECCOMP_FILTER_FLAG_NEW_LISTENER | _SECCOMP_FILTER_FLAG_TSYNC_ESRCH
    try:
        listener = _load_filter(base64.b64decode(settings["reporting_seal"]), flags)
    except ConfineError as error:  # another listener has come first, as in some containers
        _tell(report, f"{UNREPORTED}: {error}")
        return False
    try:
        passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))
        report.sendmsg([b"listener"], [passed], _HAND_OVER_FLAGS)
    except OSError as error:  # how many may be under way is counted for all that the person runs
        _tell(report, f"{UNREPORTED}: the listener of denied calls could not be handed over: {error}")
        return False
    finally:
        os.close(listener)
    _load_filter(base64.b64decode(settings["last"]))
    return True


def _tell(report: socket.socket | None, what: str) -> None:
    if report is not None:
        with contextlib.suppress(OSError):  # the Runtime may be gone
            report.send(what.encode()[:_REPORT_BYTES_MAX])


def _settings(limits: str | bytes | None) -> dict[str, Any]:
    text = os.environ.pop(ENVIRONMENT, "") if limits is None else limits
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise ConfineError(f"the isolation settings are not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ConfineError("the isolation settings are not an object")
    return settings


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _failed(layer: str) -> ConfineError:
    return ConfineError(f"{layer} could not be applied: {os.strerror(ctypes.get_errno())}")


def _prctl(option: int, value: int, layer: str) -> None:
    zero = ctypes.c_ulong(0)
    if _libc().prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        raise _failed(layer)


def _watch_lifeline() -> None:
    """Leave as soon as the supervisor, which alone holds the other end, is gone; SIGKILL when bubblewrap is.

    Until the link is up nothing else would end this process. Later the Runtime arms the lifeline for bubblewrap, which
    takes this process along and keeps the lifeline as its standard input; ``seal`` then puts /dev/null in its place
    here, so that app code cannot touch it.
    """
    try:
        signal.signal(signal.SIGIO, lambda *_: os._exit(1))
        fcntl.fcntl(_LIFELINE, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(_LIFELINE, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    except OSError as error:
        raise ConfineError(f"the lifeline is not usable: {error}") from error
    _leave_if_orphaned()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "parent-death signal")


def _leave_if_orphaned() -> None:
    try:
        if os.read(_LIFELINE, 1) == b"":
            os._exit(1)
    except BlockingIOError:
        pass


def _release_lifeline() -> None:
    if (_applied or {}).pop("lifeline", False):
        _leave_if_orphaned()
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, _LIFELINE)
        os.close(nothing)
        signal.signal(signal.SIGIO, signal.SIG_DFL)


def _die_with(parent_pid: int) -> None:
    """SIGKILL when the supervisor's main thread ends; and if it ended before this line, leave now."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, "parent-death signal")
    if os.getppid() != parent_pid:
        os._exit(1)


def _limit_resources(limits: dict[str, Any]) -> None:
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if which is None:
            raise ConfineError(f"unknown resource limit {name}")
        _soft, hard = resource.getrlimit(which)
        wanted = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        try:
            resource.setrlimit(which, (wanted, wanted))
        except (OSError, ValueError) as error:
            raise ConfineError(f"resource limit {name} could not be applied: {error}") from error


def _be_first_to_go() -> None:
    """Where the machine's memory runs out this process is to end, not the Runtime or what else the person runs."""
    with contextlib.suppress(OSError):  # a container without /proc
        Path("/proc/self/oom_score_adj").write_text("1000")


def _load_filter(program: bytes, flags: int = 0) -> int:
    """Add one seccomp filter to all threads. ``program`` is an array of 8-byte BPF instructions."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    number = _SYS_SECCOMP.get(platform.machine())
    if number is None:
        raise ConfineError(f"seccomp is not supported on {platform.machine()}")
    argument = Program(len(program) // 8, program)
    result = _libc().syscall(
        ctypes.c_long(number),
        ctypes.c_ulong(_SECCOMP_SET_MODE_FILTER),
        ctypes.c_ulong(_SECCOMP_FILTER_FLAG_TSYNC | flags),
        ctypes.byref(argument),
    )
    if result < 0 or (result and not flags):  # without a listener to number, it is the thread that could not follow
        raise _failed("seccomp")
    return int(result)


def landlock_abi() -> int:
    """The kernel's Landlock ABI, 0 if there is none."""
    version_flag = ctypes.c_uint32(1)
    result = _libc().syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE), None, ctypes.c_size_t(0), version_flag)
    return max(0, int(result))


def _landlock(rules: dict[str, list[str]]) -> None:
    """Everything is denied but reading below ``read``, listing below ``list``, and all but devices below ``write``.

    Paths that do not exist are skipped: an absent rule allows less, never more.
    """

    class Ruleset(ctypes.Structure):
        _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))

    class PathRule(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))

    abi = landlock_abi()
    if abi == 0:
        raise ConfineError("landlock could not be applied: the kernel does not have it or it is switched off")
    handled = _FS_ABI_1
    handled |= (_FS_REFER if abi >= 2 else 0) | (_FS_TRUNCATE if abi >= 3 else 0) | (_FS_IOCTL_DEV if abi >= 5 else 0)
    ruleset = Ruleset(
        handled, _NET_BIND_CONNECT_TCP if abi >= 4 else 0, _SCOPE_ABSTRACT_UNIX_AND_SIGNAL if abi >= 6 else 0
    )
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    libc = _libc()
    descriptor = libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE), ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if descriptor < 0:
        raise _failed("landlock")
    read = _FS_READ_FILE | _FS_READ_DIR
    write = handled & ~(_FS_EXECUTE | _FS_MAKE_CHAR | _FS_MAKE_BLOCK)
    try:
        for key, rights in (("read", read), ("list", _FS_READ_DIR), ("write", write)):
            for path in rules.get(key, ()):
                try:
                    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
                except OSError:
                    continue
                try:
                    allowed = rights if os.path.isdir(path) else rights & _FILE_RIGHTS & handled
                    rule = PathRule(allowed, parent)
                    if libc.syscall(
                        ctypes.c_long(_SYS_LANDLOCK_ADD_RULE),
                        ctypes.c_int(descriptor),
                        ctypes.c_int(1),
                        ctypes.byref(rule),
                        ctypes.c_uint32(0),
                    ):
                        raise _failed(f"landlock rule for {path}")
                finally:
                    os.close(parent)
        if libc.syscall(ctypes.c_long(_SYS_LANDLOCK_RESTRICT_SELF), ctypes.c_int(descriptor), ctypes.c_uint32(0)):
            raise _failed("landlock")
    finally:
        os.close(descriptor)
