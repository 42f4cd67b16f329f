"""Everything that can happen to the core: plain values, made by the edges, replayable from a trace.

An event carries what the core must not fetch itself: ``event_id`` (unique, from the edge) is the root of every new
id made while it is handled. The moment comes beside it as ``Now``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_supervisor.core.policy import Policy


class Now(msgspec.Struct, frozen=True):
    """One moment on both clocks, in milliseconds.

    ``wall_ms`` is UTC and may jump; operations and expiry keep to it. ``steady_ms`` never goes back, not even over
    a restart, and stands still while the machine sleeps; timeouts, grace and back-off keep to it.
    """

    wall_ms: int
    steady_ms: int


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    event_id: str


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A validated bundle as the edges read it: ``manifest`` is miniapp.json, ``path`` its immutable copy by digest."""

    digest: str
    path: str
    manifest: dict[str, Any]


class Boot(Event, frozen=True, kw_only=True):
    """First event of every run. ``bundles`` are those of the Runtime's own distribution."""

    boot_id: str
    isolation: str
    bundles: tuple[Bundle, ...] = ()
    policy: Policy = Policy()


class Wake(Event, frozen=True, kw_only=True):
    """Time has passed; settle what is due."""


class Stopping(Event, frozen=True, kw_only=True):
    """A clean stop was asked for: refuse new calls, stop the workers."""

    reason: str


class AgentFrame(Event, frozen=True, kw_only=True):
    """One decoded JSON frame of one agent link; ``frame`` may be anything."""

    link_id: str
    frame: Any


class AgentLinkClosed(Event, frozen=True, kw_only=True):
    link_id: str


class WorkerStarted(Event, frozen=True, kw_only=True):
    """The worker's process exists (it has not said hello yet)."""

    instance_id: str
    incarnation: int
    pid: int
    isolation: str


class WorkerFrame(Event, frozen=True, kw_only=True):
    """One decoded message of the worker that the supervisor started as this incarnation; ``frame`` may be anything."""

    instance_id: str
    incarnation: int
    frame: Any


class WorkerThrottled(Event, frozen=True, kw_only=True):
    """The worker is over a limit that slows it down or drops what is too much, and does not end it (yet).

    ``limit``: ``messages`` (the gate reads in pauses and soon cuts) | ``cpu_share`` | ``stdout_bytes_per_s``.
    """

    instance_id: str
    incarnation: int
    limit: str
    detail: str


class WorkerDenied(Event, frozen=True, kw_only=True):
    """The sandbox has kept the worker from something that it tried. Told once per incarnation and ``operation``.

    ``operation``: the system call, with what makes it one thing or another: ``ptrace``, ``socket AF_INET``, …
    """

    instance_id: str
    incarnation: int
    operation: str


class WorkerExited(Event, frozen=True, kw_only=True):
    """The one completion of ``StartWorker``: the process is gone, or never came to be.

    ``reason``: ``exited`` | ``killed`` | ``hung`` | ``gate`` | ``limit`` | ``start_failed`` | ``unconfined`` |
    ``isolation_insufficient`` | ``app_start_failed`` | ``stopped``, to which the core adds ``violation``; ``detail`` is
    a sentence for people.
    """

    instance_id: str
    incarnation: int
    reason: str
    detail: str = ""
    exit_code: int | None = None


class HostQuery(Event, frozen=True, kw_only=True):
    """Read only. ``reply_to`` is the edge's own address of the asker."""

    reply_to: str
    name: str
    args: dict[str, Any]


class HostAction(Event, frozen=True, kw_only=True):
    """A durable action of a person (through hostshell) or the operator (through the CLI)."""

    reply_to: str
    action_id: str
    actor: str  # "person" | "operator"
    name: str
    args: dict[str, Any]
    bundle: Bundle | None = None  # for apps.add: what the edge has read and copied
    fault: dict[str, Any] | None = None  # or why it could not, as ``LineUpError.as_dict``; then it is refused with that
    blob: bytes | None = None


class HostWatch(Event, frozen=True, kw_only=True):
    """Send the record of one call now and at every change until it is final."""

    reply_to: str
    agent_id: str
    call_id: str


class AuditArchived(Event, frozen=True, kw_only=True):
    """The one completion of ``ArchiveAudit``: the rows up to ``up_to_seq``, whose last has ``hash``, are in a file and
    on the disk. With ``error`` they are not, for this reason.
    """

    after_seq: int
    up_to_seq: int
    hash: str = ""
    error: str = ""


class ReclaimWorkers(Event, frozen=True, kw_only=True):
    """The memory budget is exceeded: let go of up to ``count`` workers, least recently used first."""

    count: int


AnyEvent = (
    Boot
    | Wake
    | Stopping
    | AgentFrame
    | AgentLinkClosed
    | WorkerStarted
    | WorkerFrame
    | WorkerThrottled
    | WorkerDenied
    | WorkerExited
    | HostQuery
    | HostAction
    | HostWatch
    | AuditArchived
    | ReclaimWorkers
)
