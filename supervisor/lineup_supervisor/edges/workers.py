"""One worker as the daemon sees it: a process, its gate and its output, with one beginning and one end.

Owns: putting sandbox, spawner, gate, watch, denials and logs together, and which reason an end gets. Must not know: the
core, the store, or what a message means; the daemon turns these callbacks into events.

Laws:
    * Every ``start_worker`` ends in exactly one ``on_exited``; ``on_started`` and every ``on_message`` come before it.
    * Callbacks come from the loop, never from inside a call of the daemon.
    * Once its link is up, what a worker prints cannot pass for a failure of the sandbox or the Runtime.
    * When ``on_exited`` is called, process, socket and pipes are gone, and its scratch directory is out of the way:
      what a worker has left in it is removed beside the loop, or at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import sandbox
from lineup_supervisor.edges import sandbox_policy as policy
from lineup_supervisor.edges.cgroup import Cgroups, Scope
from lineup_supervisor.edges.denials import Denials
from lineup_supervisor.edges.gate import Gate, GateLimits
from lineup_supervisor.edges.logs import APP_LINES_PER_S, Capture, LogDirectory
from lineup_supervisor.edges.scratch import Remover
from lineup_supervisor.edges.spawner import Exit, Process, Spawner
from lineup_supervisor.edges.upkeep import told
from lineup_supervisor.edges.usage import Watch

CONNECT_S = 15.0  # from the start to a working link; a loaded machine starts an interpreter in a second or two
# As bubblewrap and the worker word them: what the machine has no more of just now says nothing against the level.
_SHORTAGES = tuple(map(os.strerror, (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE)))
_ASIDE = "w-"  # how the names in ``run`` begin of what is only to be removed
DISCONNECT_GRACE_S = 1.0  # a worker that ends by itself loses its link a moment before its process is gone

OnStarted = Callable[[int, str], None]
OnMessage = Callable[[bytes], None]
OnThrottled = Callable[[str, str], None]
OnDenied = Callable[[str], None]
OnExited = Callable[[str, str, int | None], None]


@dataclass(frozen=True)
class HostSettings:
    """Where workers live and what this machine may offer them (``levels``: what the probe has found to hold)."""

    run_dir: Path
    logs: LogDirectory
    levels: tuple[policy.Level, ...]
    why_not: str = ""  # cause and fix, for a refused start
    bwrap: str | None = None
    gate: GateLimits = field(default_factory=GateLimits)
    cgroups: Cgroups | None = None
    connect_s: float = CONNECT_S


class WorkerProcess:
    """One incarnation. Made by ``WorkerHost.start_worker``; every method is safe at any time and never raises."""

    def __init__(
        self,
        host: WorkerHost,
        on_started: OnStarted,
        on_message: OnMessage,
        on_exited: OnExited,
        on_throttled: OnThrottled,
        on_denied: OnDenied,
    ) -> None:
        self.level: str = ""
        self.limits = policy.WorkerLimits()
        self._host = host
        self._loop = host.spawner.loop
        self._on_started = on_started
        self._on_message = on_message
        self._on_exited = on_exited
        self._on_throttled = on_throttled
        self._on_denied = on_denied
        self._denials: Denials | None = None
        self._watch: Watch | None = None
        self._was_linked = False
        self._why_unconfined = ""
        self._is_suppressing = False
        self._log_line: Callable[..., None] = _no_line
        self._process: Process | None = None
        self._gate: Gate | None = None
        self._captures: list[Capture] = []
        self._place: Path | None = None
        self._scope: Scope | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._ended = False

    @property
    def pid(self) -> int | None:
        """The worker's own pid on this machine, once known."""
        return self._process.pid if self._process is not None else None

    @property
    def is_ended(self) -> bool:
        return self._ended

    def send(self, *payloads: bytes) -> bool:
        """Send messages; False if the link is not up (what is durable is sent again at the next start)."""
        return self._gate is not None and self._gate.send(*payloads)

    def taken(self, count: int = 1) -> None:
        """The daemon has dealt with ``count`` messages; without this, reading stops at the high-water mark."""
        if self._gate is not None:
            self._gate.taken(count)

    def stop(self, reason: str, grace_ms: int) -> None:
        """Ends as ``stopped``. The daemon has asked by message already; TERM and KILL follow within ``grace_ms``."""
        if self._process is not None:
            self._process.stop(grace_ms / 1000, reason="stopped", detail=reason)

    def kill(self, reason: str, detail: str) -> None:
        """End it at once under this reason (``hung``, ``gate``, ``limit``, …)."""
        if self._process is not None:
            self._process.kill(reason, detail)

    # ---- start

    def _begin(self, request: dict[str, Any]) -> None:
        try:
            self._check_level(request["level"])
            self._start(**request)
        except LineUpError as error:
            hopeless = ("isolation_insufficient", "app_start_failed")
            reason = error.code if error.code in hopeless else "start_failed"
            self._loop.call_soon(self._finish, Exit(reason, error.message))
        except OSError as error:
            self._loop.call_soon(self._finish, Exit("start_failed", f"cannot prepare the worker: {error}"))

    def _check_level(self, level: str) -> None:
        if level not in self._host.settings.levels:
            why = self._host.settings.why_not or "the level does not hold on this machine"
            raise LineUpError("isolation_insufficient", f"isolation level {level or 'none'} is not available: {why}")

    def _start(
        self, *, level: policy.Level, bundle_path: str, limits: Mapping[str, Any], scope: str, fields: dict[str, object]
    ) -> None:
        if not os.path.isdir(bundle_path):
            raise LineUpError("app_start_failed", f"the bundle's folder {bundle_path} is gone")
        self.level = level
        self.limits = policy.WorkerLimits.from_mapping(limits)
        self._log_line = functools.partial(self._host.settings.logs.of(scope).write, stream="runtime", **fields)
        self._place = self._host.new_place()
        gate = Gate(
            self._place / "g" / policy.SOCKET_NAME,
            self._host.settings.gate,
            on_message=self._message,
            on_ready=self._ready,
            on_cut=self._cut,
            on_throttled=functools.partial(self._throttled, "messages"),
        )
        gate.open()
        self._gate = gate
        scratch = self._place / "t"
        scratch.mkdir(mode=0o700)
        command = sandbox.build_command(
            sandbox.SandboxRequest(
                level=level,
                bundle_path=bundle_path,
                socket_path=gate.path,
                scratch_dir=str(scratch),
                limits=self.limits,
                entry=self._host.entry,
            ),
            bwrap=self._host.settings.bwrap,
        )
        log = self._host.settings.logs.of(scope)
        rate = self.limits.stdout_bytes_per_s
        ends: list[int] = []
        try:
            for stream in ("stdout", "stderr"):
                capture = Capture(log, stream, fields, bytes_per_s=rate, on_suppressed=self._suppressed)
                ends.append(capture.open())
                self._captures.append(capture)
            if level != "S1":  # nothing is denied there
                self._denials = Denials(self._denied, self._unreported, self._unconfined)
                ends.append(self._denials.open())
            self._process = self._host.spawner.start(
                command,
                on_exit=self._exited,
                on_pid=self._started,
                stdout=ends[0],
                stderr=ends[1],
                report=ends[2] if self._denials is not None else None,
            )
        finally:
            for end in ends:
                os.close(end)
        self._timers.append(self._loop.call_later(self._host.settings.connect_s, self._connect_deadline))

    def _started(self, pid: int) -> None:
        if self._host.settings.cgroups is not None and self._place is not None:
            self._scope = self._host.settings.cgroups.scope(self._place.name, self.limits)
        if self._scope is not None:
            self._scope.add(pid)
        self._watch = Watch(
            pid,
            self.limits,
            on_over=lambda limit, detail: self.kill("limit", f"over a limit: {limit}: {detail}"),
            on_slowed=functools.partial(self._throttled, "cpu_share"),
            caps_cpu=self._scope is None or not self._scope.caps_cpu,
        )
        self._on_started(pid, self.level)
        if self._gate is not None:
            self._gate.expect(pid)

    def _connect_deadline(self) -> None:
        if self._gate is not None and not self._gate.is_ready:
            self.kill("start_failed", f"the worker did not connect within {self._host.settings.connect_s:g} s")

    # ---- the link

    def _ready(self) -> None:
        self._was_linked = True
        if self._process is not None:
            self._process.arm()

    def _message(self, payload: bytes) -> None:
        if not self._ended:
            self._on_message(payload)

    def _cut(self, reason: str, detail: str) -> None:
        if reason == "accept_failed":  # our own lack of something, while it runs our code alone
            self.kill("start_failed", detail)
        elif reason == "disconnected":
            self._timers.append(self._loop.call_later(DISCONNECT_GRACE_S, self.kill, "gate", f"{reason}: {detail}"))
        else:
            self.kill("gate", f"{reason}: {detail}")

    def _throttled(self, limit: str, detail: str) -> None:
        self._log_line(note=f"over a limit: {limit}: {detail}")
        self._on_throttled(limit, detail)

    def _suppressed(self) -> None:
        """Of either stream; told once, the log counts on."""
        if not self._is_suppressing:
            self._is_suppressing = True
            rate = self.limits.stdout_bytes_per_s // 1024
            self._throttled(
                "stdout_bytes_per_s",
                f"it prints more than {rate} KiB or {APP_LINES_PER_S} lines a second; the rest is dropped",
            )

    def _denied(self, operation: str) -> None:
        self._log_line(note=f"denied by the sandbox: {operation}")
        self._on_denied(operation)

    def _unreported(self, why: str) -> None:
        self._log_line(note=f"what the sandbox denies is not reported on this machine: {why}")

    def _unconfined(self, why: str) -> None:
        """It leaves by itself, before it loads its app; should it not, it must not stay."""
        self._why_unconfined = f"the worker could not confine itself: {why}"
        self.kill("unconfined", self._why_unconfined)

    # ---- the end

    def _exited(self, end: Exit) -> None:
        for capture in self._captures:
            capture.finish()
        if self._denials is not None:
            self._denials.hear_out()
        self._finish(self._named(end))

    def _named(self, end: Exit) -> Exit:
        """What the process itself said last may name the limit that ended it, or the layer that failed."""
        last = self._captures[-1].last_line if self._captures else ""
        exceeded = self._scope.exceeded() if self._scope is not None else None
        if end.reason not in ("exited", "killed"):
            return end
        if self._why_unconfined:
            return Exit("unconfined", self._why_unconfined, end.exit_code)
        if exceeded is not None and end.exit_code != 0:
            return Exit("limit", f"over a limit: {exceeded}", end.exit_code)
        if not self._was_linked and (last.startswith("bwrap: ") or "cannot start: " in last):
            reason = "unconfined" if last.endswith(_SHORTAGES) else "isolation_insufficient"
            what = "sandbox could not be made" if last.startswith("bwrap: ") else "worker could not confine itself"
            return Exit(reason, f"the {what}: {last}", end.exit_code)
        if end.exit_code != 0 and last.startswith("MemoryError"):
            limit = self.limits.memory_bytes // policy.MIB
            return Exit("limit", f"over a limit: memory_bytes ({limit} MiB)", end.exit_code)
        if end.exit_code and last:
            return Exit(end.reason, f"{end.detail}; last output: {last[:300]}", end.exit_code)
        return end

    def _finish(self, end: Exit) -> None:
        if self._ended:
            return
        self._ended = True
        for timer in self._timers:
            timer.cancel()
        ends: list[Callable[[], None]] = [capture.finish for capture in self._captures]
        ends += [part.close for part in (self._gate, self._denials, self._watch, self._scope) if part is not None]
        if self._place is not None:
            ends.append(functools.partial(self._host.clear_place, self._place))
        for end_part in ends:
            with told("clearing up after a worker"):  # whose end must be reported, whatever of it could not be removed
                end_part()
        self._host.workers.discard(self)
        self._on_exited(end.reason, end.detail, end.exit_code)


class WorkerHost:
    """Starts workers. One per daemon; its loop must be running on the main thread."""

    def __init__(self, settings: HostSettings, spawner: Spawner, *, entry: str = sandbox.WORKER_ENTRY) -> None:
        self.settings = settings
        self.spawner = spawner
        self.entry = entry
        self.workers: set[WorkerProcess] = set()
        self._places = settings.run_dir / "w"
        self._remover = Remover()
        if self._places.is_dir() and not self._places.is_symlink():
            self._put_aside(self._places)  # of a run before this one; its workers died with it
        self._places.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in settings.run_dir.glob(f"{_ASIDE}*"):
            self._remover.remove(leftover)

    def new_place(self) -> Path:
        """A private directory of one incarnation, with a name short enough for a socket below it."""
        place = self._places / secrets.token_hex(4)
        place.mkdir(mode=0o700)
        return place

    def clear_place(self, place: Path) -> None:
        """Empty folders at once; what a worker has left in them, which may be any number of files, beside the loop."""
        for folder in (place / "g", place / "t", place):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if place.exists():
            self._remover.remove(self._put_aside(place))

    def _put_aside(self, folder: Path) -> Path:
        aside = self.settings.run_dir / f"{_ASIDE}{secrets.token_hex(8)}"
        try:
            folder.rename(aside)
        except OSError:
            return folder  # then from where it is
        return aside

    def start_worker(
        self,
        instance_id: str,
        incarnation: int,
        *,
        app_scope: str,
        bundle_path: str,
        limits: Mapping[str, Any],
        level: str,
        on_started: OnStarted,
        on_message: OnMessage,
        on_exited: OnExited,
        on_throttled: OnThrottled = lambda limit, detail: None,
        on_denied: OnDenied = lambda operation: None,
    ) -> WorkerProcess:
        """Start one incarnation at ``level`` (which must be among ``settings.levels``; never at less).

        ``on_started(pid, level)``, then ``on_message(payload)`` for each message, then
        ``on_exited(reason, detail, exit_code)``. ``on_throttled(limit, detail)`` in between, where it is slowed down;
        ``on_denied(operation)`` where the sandbox has kept it from something, once for each.
        """
        worker = WorkerProcess(self, on_started, on_message, on_exited, on_throttled, on_denied)
        self.workers.add(worker)
        worker._begin(
            {
                "level": level,
                "bundle_path": bundle_path,
                "limits": limits,
                "scope": app_scope,
                "fields": {"app_scope": app_scope, "instance_id": instance_id, "incarnation": incarnation},
            }
        )
        return worker


def _no_line(**record: object) -> None:
    """Where lines of a worker go that never came to have a log."""
