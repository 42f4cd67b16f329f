"""Everything the core can ask of the edges: plain values, carried out in order, only after the commit.

Whatever an effect starts ends in exactly one event (``StartWorker`` → ``WorkerExited``,
``ArchiveAudit`` → ``AuditArchived``). A lost effect is harmless:
what must be sent is derived again from durable rows at the next connection, start or wake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class SendAgent(Effect, frozen=True, kw_only=True):
    """Frames (JSON objects) for one agent link, in order. A link that is gone swallows them."""

    link_id: str
    frames: tuple[dict[str, Any], ...]


class CloseAgent(Effect, frozen=True, kw_only=True):
    """Close one link with a WebSocket code and a reason of at most 123 bytes."""

    link_id: str
    code: int
    reason: str


class SendWorker(Effect, frozen=True, kw_only=True):
    """Messages for one incarnation, in order. One that is gone swallows them."""

    instance_id: str
    incarnation: int
    messages: tuple[dict[str, Any], ...]


class StartWorker(Effect, frozen=True, kw_only=True):
    """Start a sandboxed process. Ends in exactly one ``WorkerExited``, ``WorkerStarted`` before it if it came to be."""

    instance_id: str
    incarnation: int
    app_scope: str
    bundle_path: str
    kind: str
    min_isolation: str
    limits: dict[str, Any]


class StopWorker(Effect, frozen=True, kw_only=True):
    """Ask, then TERM, then KILL after ``grace_ms``; ``grace_ms`` 0 kills at once."""

    instance_id: str
    incarnation: int
    reason: str
    grace_ms: int


class ReplyHost(Effect, frozen=True, kw_only=True):
    """The one answer to a ``HostQuery``, ``HostAction`` or ``HostWatch``."""

    reply_to: str
    accepted: bool
    code: str | None = None
    message: str | None = None
    detail: Any = None


class HostDelta(Effect, frozen=True, kw_only=True):
    """What changed for people in this event; ``changes`` are ``{kind, id, row}``, ``row`` null when it is gone.

    They are made from rows when somebody reads them (``views.Changes``): mostly nobody looks. The edge sends all of
    them to who subscribed, and the record of a call to who watches it. ``event_id`` says whose doing it was.
    """

    revision: int
    changes: Sequence[dict[str, Any]]
    event_id: str = ""


class SaveBlob(Effect, frozen=True, kw_only=True):
    """Put an exported artifact into the folder of artifacts; ``name`` is the sha256 of ``content`` and an extension.

    A lost one is found at the next start: the edge compares the folder with what the store says is exported.
    """

    name: str
    content: bytes


class ArchiveAudit(Effect, frozen=True, kw_only=True):
    """Write the audit's rows after ``after_seq`` up to ``up_to_seq`` into a file of the archive. Ends in one
    ``AuditArchived``; only then are they deleted. Asked again until it has happened.
    """

    after_seq: int
    up_to_seq: int


class Halt(Effect, frozen=True, kw_only=True):
    """Everything is settled; the daemon may end."""

    reason: str


AnyEffect = (
    SendAgent
    | CloseAgent
    | SendWorker
    | StartWorker
    | StopWorker
    | ReplyHost
    | HostDelta
    | SaveBlob
    | ArchiveAudit
    | Halt
)
