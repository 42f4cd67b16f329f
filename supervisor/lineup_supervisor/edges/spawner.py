"""Starts processes and says, exactly once each, how they ended.

Owns: fork and exec, process groups, pidfds, stop deadlines, the wording of an end. Must not know: sandboxes (a
``Command`` comes in ready-made), sockets, or what a worker is for.

Laws:
    * Main thread only: a parent-death signal fires when the *thread* that spawned ends.
    * Every ``start`` ends in exactly one ``on_exit``, from the loop, a failed start included; nothing raises into it.
    * A signal goes through a pidfd or to a group whose leader is not yet reaped, so a recycled pid is never hit.
    * No process of a start is alive when its ``on_exit`` is called (S3 wholly; else its process group).
    * When this process dies, by ``kill -9`` too, so do they all. Services and S2/S1: parent-death signal and a check of
      the parent. S3: the lifeline, a pipe whose write end is only here. Until it is armed the worker, still our own
      code, watches it and leaves at its end; armed, the kernel kills bubblewrap then, and that kills its sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lineup_supervisor.edges.sandbox import REPORT_VARIABLE, Command, with_descriptors

F_SETSIG = 10  # fcntl(2), Linux; the fcntl module has it from 3.13 on
_INFO_BYTES_MAX = 4_096
_LOOK_S = 0.05  # between two looks at a descriptor that the kernel does not watch for us
_INFO_WAIT_S = 2.0  # bubblewrap tells the pid within milliseconds; a kill before that waits for it this long
_LIMIT_SIGNALS: dict[int, str] = {
    signal.SIGSYS: "a forbidden system call (seccomp)",
    signal.SIGXCPU: "processor time (RLIMIT_CPU)",
    signal.SIGXFSZ: "file size (RLIMIT_FSIZE)",
}


@dataclass(frozen=True)
class Exit:
    """How a process ended. ``reason``: see ``core.events.WorkerExited``. No ``exit_code``: a signal, or never ran."""

    reason: str
    detail: str
    exit_code: int | None = None
    signal: int | None = None


class Process:
    """One started process; made by ``Spawner.start``. Methods may be called at any time and never raise."""

    def __init__(self, spawner: Spawner, on_exit: Callable[[Exit], None], on_pid: Callable[[int], None] | None) -> None:
        self.pid: int | None = None  # of the process itself, as this side sees it; None until it is known
        self._spawner = spawner
        self._loop = spawner.loop
        self._on_exit = on_exit
        self._on_pid = on_pid
        self._child_pid = 0  # our direct child: the process itself, or bubblewrap
        self._child_fd = -1
        self._worker_fd = -1  # pidfd of the process itself, once known
        self._info_fd = -1
        self._info = b""
        self._lifeline_read = self._lifeline_held = -1
        self._sandboxed = False
        self._verdict: Exit | None = None  # why we ended it; the first one stands
        self._timers: list[asyncio.TimerHandle] = []
        self._wants_kill = False
        self._ended = False

    @property
    def is_ended(self) -> bool:
        return self._ended

    # ---- start

    def _begin(self, command: Command, stdout: int | None, stderr: int | None, report: int | None) -> None:
        info_read = info_write = -1
        argv: list[str] = list(command.argv)
        env, passed = command.env, [] if report is None else [report]
        try:
            if command.sandboxed:
                info_read, info_write = _info_pipe()
                self._lifeline_read, self._lifeline_held = os.pipe2(os.O_CLOEXEC)
                argv = with_descriptors(command.argv, info=info_write, report=report)
                passed += [info_write]
            elif report is not None:
                env = {**env, REPORT_VARIABLE: str(report)}
            child = subprocess.Popen(
                argv,
                env=env,
                cwd=command.cwd,
                stdin=self._lifeline_read if command.sandboxed else subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if stdout is None else stdout,
                stderr=subprocess.DEVNULL if stderr is None else stderr,
                close_fds=True,
                pass_fds=passed,
                start_new_session=True,
            )
            child.returncode = 0  # reaped by pidfd below, never by Popen
            self._child_pid = child.pid
            # None is lacking for these two: Popen has just closed as many of its own.
            self._child_fd = os.pidfd_open(child.pid)
            if not command.sandboxed:
                self._worker_fd = os.dup(self._child_fd)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._abandon_start(error, info_read)
            return
        finally:
            if info_write >= 0:
                os.close(info_write)
        self._watch(self._child_fd, self._on_child_exit)
        if command.sandboxed:
            self._sandboxed = True
            self._info_fd = info_read
            self._watch(info_read, self._on_info)
        else:
            self._loop.call_soon(self._set_pid, child.pid)

    def _abandon_start(self, error: BaseException, info_read: int) -> None:
        if info_read >= 0:
            os.close(info_read)
        if self._child_pid:  # started, but not watchable: it must not stay
            with contextlib.suppress(OSError):
                os.kill(self._child_pid, signal.SIGKILL)
                os.waitpid(self._child_pid, 0)
        self._loop.call_soon(self._finish, Exit("start_failed", f"the process could not be started: {error}"))

    def _watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back when it is readable; by looking now and then where the kernel has no room for one more watch."""
        try:
            self._loop.add_reader(descriptor, callback)
        except OSError:
            self._loop.call_later(_LOOK_S, self._look, descriptor, callback)

    def _look(self, descriptor: int, callback: Callable[[], None]) -> None:
        if descriptor not in (self._child_fd, self._worker_fd, self._info_fd):
            return  # closed meanwhile
        if not _is_readable(descriptor):
            self._watch(descriptor, callback)
            return
        callback()
        if descriptor == self._info_fd:  # there is more to come
            self._watch(descriptor, callback)

    def _set_pid(self, pid: int) -> None:
        if self._ended:
            return
        self.pid = pid
        if self._on_pid is not None:
            self._call(self._on_pid, pid)
        if self._wants_kill:
            self._kill_now()

    def _on_info(self) -> None:
        """bubblewrap's JSON with the pid of the sandbox's first process, which is the worker itself (--as-pid-1)."""
        try:
            part = os.read(self._info_fd, _INFO_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            part = b""
        self._info += part
        if part and len(self._info) < _INFO_BYTES_MAX:
            return
        self._close_info()
        try:
            pid = int(json.loads(self._info)["child-pid"])
            self._worker_fd = os.pidfd_open(pid)
            is_ours = _parent_of(pid) == self._child_pid
        except (ValueError, KeyError, TypeError, OSError):
            return  # bubblewrap failed or the worker is gone already; its exit tells
        if is_ours:
            self._set_pid(pid)
        else:
            os.close(self._worker_fd)
            self._worker_fd = -1

    def arm(self) -> None:
        """The worker runs (its link is up): from here on the kernel kills bubblewrap when the lifeline ends.

        ``F_SETSIG`` of SIGKILL on the read end, which bubblewrap keeps open as its standard input (every other
        descriptor it closes); our exit closes the write end. Must come before any app code can run; the worker lets go
        of its own copy before it loads the app.
        """
        if self._ended or self._lifeline_read < 0:
            return
        fcntl.fcntl(self._lifeline_read, fcntl.F_SETOWN, self._child_pid)
        fcntl.fcntl(self._lifeline_read, F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(self._lifeline_read, fcntl.F_GETFL)
        fcntl.fcntl(self._lifeline_read, fcntl.F_SETFL, flags | os.O_ASYNC)
        os.close(self._lifeline_read)
        self._lifeline_read = -1

    def _close_info(self) -> None:
        if self._info_fd >= 0:
            self._loop.remove_reader(self._info_fd)
            os.close(self._info_fd)
            self._info_fd = -1

    # ---- stop

    def stop(self, grace_s: float, *, reason: str = "stopped", detail: str = "") -> None:
        """It has been asked by message: TERM after half of the grace, KILL after all of it; no grace kills at once."""
        if self._ended:
            return
        self._verdict = self._verdict or Exit(reason, detail)
        if grace_s <= 0:
            self.kill(reason, detail)
            return
        self._timers.append(self._loop.call_later(grace_s / 2, self._signal, signal.SIGTERM))
        self._timers.append(self._loop.call_later(grace_s, self.kill, reason, detail))

    def kill(self, reason: str, detail: str = "") -> None:
        """End it now. The first reason given by anybody is the one that is reported."""
        if self._ended:
            return
        self._verdict = self._verdict or Exit(reason, detail)
        self._wants_kill = True
        if self._worker_fd >= 0:
            self._kill_now()
        elif self._child_fd >= 0:
            # bubblewrap killed too early leaves a child that waits for it for ever: wait until it has told the pid.
            self._timers.append(self._loop.call_later(_INFO_WAIT_S, _send, self._child_fd, signal.SIGKILL))

    def _kill_now(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._ended:
            return
        if self._worker_fd >= 0:
            _send(self._worker_fd, number)
        if not self._sandboxed and self._child_fd >= 0:
            with contextlib.suppress(OSError):
                os.killpg(self._child_pid, number)  # its leader is not reaped yet, so the group is ours

    # ---- end

    def _on_child_exit(self) -> None:
        if self._sandboxed and self._worker_fd >= 0 and not _is_over(self._worker_fd):
            # bubblewrap went first (somebody killed it): see its sandbox out before reporting.
            self._loop.remove_reader(self._child_fd)
            _send(self._worker_fd, signal.SIGKILL)
            self._watch(self._worker_fd, self._on_worker_over)
            return
        self._reap()

    def _on_worker_over(self) -> None:
        self._loop.remove_reader(self._worker_fd)
        self._reap()

    def _reap(self) -> None:
        if not self._sandboxed:
            with contextlib.suppress(OSError):
                os.killpg(self._child_pid, signal.SIGKILL)  # what it left behind in its group
        try:
            status = os.waitid(os.P_PIDFD, self._child_fd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            status = None
        self._finish(_describe(status, sandboxed=self._sandboxed, verdict=self._verdict))

    def _finish(self, end: Exit) -> None:
        if self._ended:
            return
        self._ended = True
        for timer in self._timers:
            timer.cancel()
        self._close_info()
        if self._child_fd >= 0:
            self._loop.remove_reader(self._child_fd)
        for descriptor in (self._child_fd, self._worker_fd, self._lifeline_read, self._lifeline_held):
            if descriptor >= 0:
                os.close(descriptor)
        self._child_fd = self._worker_fd = self._lifeline_read = self._lifeline_held = -1
        self._spawner._forget(self)
        self._call(self._on_exit, end)

    def _call(self, callback: Callable[..., None], argument: object) -> None:
        """A callback that raises is a bug of its owner; it is told to the loop and stops nobody else's end."""
        try:
            callback(argument)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a spawner callback raised", "exception": error})


class Spawner:
    """Starts processes. One per daemon, made on the main thread while its loop runs."""

    def __init__(self) -> None:
        assert threading.current_thread() is threading.main_thread(), "spawn from the main thread only"
        self.loop = asyncio.get_running_loop()
        self.processes: set[Process] = set()

    def start(
        self,
        command: Command,
        *,
        on_exit: Callable[[Exit], None],
        on_pid: Callable[[int], None] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        report: int | None = None,
    ) -> Process:
        """Start one process. ``on_pid`` is called when its own pid is known, at most once and before ``on_exit``.

        ``stdout``, ``stderr`` (None is /dev/null) and ``report``, which a worker gets to report from (``denials``), are
        descriptors that the caller closes afterwards.
        """
        assert threading.current_thread() is threading.main_thread(), "spawn from the main thread only"
        process = Process(self, on_exit, on_pid)
        self.processes.add(process)
        process._begin(command, stdout, stderr, report)
        return process

    def _forget(self, process: Process) -> None:
        self.processes.discard(process)
        if os.getpid() == 1:
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """As a container's first process, orphans become ours; those that are not in our own books are reaped here."""
        ours = {process._child_pid for process in self.processes}
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid in ours:
                    return
                os.waitpid(found.si_pid, 0)


# A service (hostshell, the demo agent) is ours and unconfined; it only has to die with the supervisor.
_SERVICE_BOOT = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def service_command(argv: tuple[str, ...], *, env: Mapping[str, str], cwd: str = "/") -> Command:
    """A command that runs ``argv`` (an absolute path first) and ends with the supervisor, even after ``kill -9``."""
    if sys.platform != "linux":
        return Command(argv, dict(env), sandboxed=False, cwd=cwd)
    boot = (os.path.realpath(sys.executable), "-I", "-S", "-c", _SERVICE_BOOT, str(os.getpid()))
    return Command(boot + argv, dict(env), sandboxed=False, cwd=cwd)


def _info_pipe() -> tuple[int, int]:
    """A pipe whose writing end can also read: should we die first, bubblewrap is not stopped by SIGPIPE half way."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return read, os.open(f"/proc/self/fd/{write}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)


def _send(pidfd: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, OSError):
        signal.pidfd_send_signal(pidfd, number)


def _is_over(pidfd: int) -> bool:
    """True if the process has ended, reaped or not."""
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return True
    return _is_readable(pidfd)


def _is_readable(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def _describe(status: os.waitid_result | None, *, sandboxed: bool, verdict: Exit | None) -> Exit:
    """The end in words. Our own verdict, where there is one, is the reason; the status fills in code and signal."""
    code: int | None = None
    number: int | None = None
    if status is not None:
        if status.si_code != os.CLD_EXITED:
            number = status.si_status
        elif sandboxed and status.si_status > 128:  # how bubblewrap passes a signal on
            number = status.si_status - 128
        else:
            code = status.si_status
    if verdict is not None:
        return replace(verdict, exit_code=code, signal=number)
    if number is not None:
        name = _signal_name(number)
        limit = _LIMIT_SIGNALS.get(number)
        if limit is not None:
            return Exit("limit", f"over a limit: {limit}, ended by {name}", None, number)
        hint = "; the system may have been out of memory" if number == signal.SIGKILL else ""
        return Exit("killed", f"ended by {name}{hint}", None, number)
    return Exit("exited", f"exited with code {code}", code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
