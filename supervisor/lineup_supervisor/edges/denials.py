"""Answers the system calls that a worker's filter denies, and so learns what it has tried.

Owns: the kernel's listener of one worker (seccomp user notification), the words for an attempt, and how fast a worker
is answered. Must not know: what follows from an attempt; nothing does but that it is told.

The worker hands the listener over before any app code runs (``lineup_sdk.confine.seal``). From then on a denied call
waits in the kernel until it is answered here, always with EPERM: nothing is ever let through. Without a listener, when
this process is gone too, the kernel answers them all with ENOSYS.

Laws:
    * ``on_denied(operation)`` once per operation, for ``OPERATIONS_MAX`` of them; then ``MORE`` once.
    * A worker that asks on and on waits: after ``FREE`` answers, ``ANSWERS_AT_ONCE`` per ``PAUSE_S``.
    * Never blocks: the listener is read only when the kernel says that a call waits.
    * ``on_unconfined(why)`` comes from our own code alone: the worker lets go of its end before it loads the app.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable

from lineup_supervisor.edges import sandbox_policy as policy
from lineup_supervisor.edges import seccomp

FREE = 256  # a start of a library that tries what it cannot have takes a few
ANSWERS_AT_ONCE = 16
PAUSE_S = 0.05
OPERATIONS_MAX = 64
MORE = "others"
RETRY_S = 0.05  # until the listener is watched again, should the kernel have no room for one more watch
UNCONFINED = b"not confined: "  # as ``lineup_sdk.confine`` says it

# linux/seccomp.h: struct seccomp_notif (id, pid, flags, nr, arch, instruction pointer, six arguments) and its answer.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_LISTENER = "anon_inode:seccomp notify"
_LOW_32 = 0xFFFF_FFFF
# Calls that are many in one: the argument that says which, and the names of what is denied.
_ASKED = (("ioctl", policy.DENIED_IOCTLS, 1), ("fcntl", policy.DENIED_FCNTLS, 1), ("prctl", policy.DENIED_PRCTLS, 0))


class Denials:
    """Those of one worker, until ``close``. Use from the loop's thread only; callbacks come from the loop.

    ``on_unreported(why)`` at most once: the worker is as confined as any, but nobody will hear what it tries.
    ``on_unconfined(why)`` at most once: it could not be confined wholly, and ends without having loaded its app.
    """

    def __init__(
        self,
        on_denied: Callable[[str], None],
        on_unreported: Callable[[str], None],
        on_unconfined: Callable[[str], None],
    ) -> None:
        self._on_denied = on_denied
        self._on_unreported = on_unreported
        self._on_unconfined = on_unconfined
        self._loop = asyncio.get_running_loop()
        self._report: socket.socket | None = None
        self._listener = -1
        self._poller = select.poll()
        self._told: set[str] = set()
        self._answered = 0
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> int:
        """The worker's end, through which the listener will come; the caller closes it after the start.

        Raises:
            OSError: no descriptors are left, or no room for one more watch.
        """
        self._report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        with theirs:
            self._report.setblocking(False)
            self._loop.add_reader(self._report.fileno(), self._on_report)
            return theirs.detach()

    def close(self) -> None:
        """Let go of everything; what still waits is answered by the kernel."""
        self._close_report()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._listener >= 0:
            self._loop.remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _close_report(self) -> None:
        if self._report is not None:
            self._loop.remove_reader(self._report.fileno())
            self._report.close()
            self._report = None

    def hear_out(self) -> None:
        """Take what the worker has said at its end and was not read yet."""
        while self._report is not None and self._on_report():
            pass

    def _on_report(self) -> bool:
        """One message of the worker while it runs our code alone: the listener, why there is none, or what failed.

        False if there is none now.
        """
        assert self._report is not None
        try:
            said, parts, _, _ = self._report.recvmsg(256, socket.CMSG_LEN(4), socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            said, parts = b"", []
        found = array.array("i")
        for level, kind, data in parts:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found.frombytes(data[: len(data) - len(data) % found.itemsize])
        if not said:
            self._close_report()
        elif said.startswith(UNCONFINED):
            self._on_unconfined(said.removeprefix(UNCONFINED).decode("utf-8", "replace"))
        elif found and self._listener < 0 and _is_listener(found[0]):
            self._take(found.pop(0))
        elif not found:  # and if it was the listener that was said: none has come through
            lost = "the listener of denied calls did not arrive: too many files are open"
            self._on_unreported(lost if said == b"listener" else said.decode("utf-8", "replace"))
        if found:  # from our own code, which is no reason to trust it
            self._close_report()
            for descriptor in found:
                os.close(descriptor)
        return True

    def _take(self, listener: int) -> None:
        try:
            self._loop.add_reader(listener, self._on_waiting)
        except OSError as error:  # nobody may wait for an answer that never comes: closed, the kernel answers
            os.close(listener)
            self._on_unreported(f"the listener of denied calls cannot be watched: {error.strerror}")
            return
        self._listener = listener
        self._poller.register(listener, select.POLLIN)

    # ---- answering

    def _on_waiting(self) -> None:
        for _ in range(ANSWERS_AT_ONCE):
            state = self._poller.poll(0)
            if not state:
                break
            if not state[0][1] & select.POLLIN:  # nobody is left who could ask
                self.close()
            else:
                self._answer()
            if self._listener < 0:  # by whom we have told, perhaps
                return
        if self._answered > FREE:
            self._loop.remove_reader(self._listener)
            self._timer = self._loop.call_later(PAUSE_S, self._on_pause_over)

    def _on_pause_over(self) -> None:
        self._timer = None
        try:
            self._loop.add_reader(self._listener, self._on_waiting)
        except OSError:
            self._timer = self._loop.call_later(RETRY_S, self._on_pause_over)

    def _answer(self) -> None:
        self._answered += 1
        asked = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, asked, True)
        except OSError:  # whoever waited was killed meanwhile
            return
        ticket, _pid, _flags, number, _arch, _at, *arguments = _NOTIFICATION.unpack(asked)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, bytearray(_ANSWER.pack(ticket, 0, -errno.EPERM, 0)), True)
        operation = describe(number, arguments)
        if operation in self._told or len(self._told) > OPERATIONS_MAX:
            return
        if len(self._told) == OPERATIONS_MAX:
            operation = MORE
        self._told.add(operation)
        self._on_denied(operation)


def describe(number: int, arguments: list[int]) -> str:
    """The system call, with the argument that makes it one thing or another."""
    name = seccomp.names_by_number().get(number, f"system call {number}")
    if name == "socket":
        return f"{name} {_domain(arguments[0] & _LOW_32)}"
    for which, values, argument in _ASKED:
        if name == which:
            value = arguments[argument] & _LOW_32
            return f"{name} {next((known for known, code in values.items() if code == value), hex(value))}"
    return name


def _domain(number: int) -> str:
    try:
        return socket.AddressFamily(number).name
    except ValueError:
        return f"family {number}"


def _is_listener(descriptor: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == _LISTENER
    except OSError:
        return False
