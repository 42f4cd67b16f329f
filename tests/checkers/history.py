"""The record of one run as its participants saw it. Plain data; whoever drives a run fills it in.

``at`` is one counter over all logs, so that entries of different logs can be put in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One line of one log. ``what`` names it; ``data`` depends on that."""

    at: int
    wall_ms: int
    what: str
    data: Any
    link: str = ""
    steady_ms: int = 0


@dataclass
class AgentLog:
    """``opened``, ``cut``, ``closed`` (code), ``sent`` and ``received`` (frame), each of one link."""

    agent_id: str
    entries: list[Entry] = field(default_factory=list)

    def frames(self, what: str, *types: str) -> Iterator[tuple[Entry, dict[str, Any]]]:
        for entry in self.entries:
            if entry.what == what and isinstance(entry.data, dict) and entry.data.get("type") in types:
                yield entry, entry.data


@dataclass
class WorkerLog:
    """One incarnation: ``started``, ``received``, ``sent`` (message), ``violation`` (sentence), ``exited`` (reason)."""

    instance_id: str
    incarnation: int
    app_scope: str
    entries: list[Entry] = field(default_factory=list)

    def messages(self, what: str, *types: str) -> Iterator[tuple[Entry, dict[str, Any]]]:
        for entry in self.entries:
            if entry.what == what and isinstance(entry.data, dict) and (not types or entry.data.get("type") in types):
                yield entry, entry.data


@dataclass
class HostLog:
    """``boot`` (boot_id), ``replaced`` (a new Host, which knows nothing), ``action`` ({action_id, name, args}),
    ``reply`` ({action_id, accepted, …}), ``delta`` ({revision, changes}), ``snapshot`` (the query's answer) and
    ``watched`` ({agent_id, call_id, record})."""

    entries: list[Entry] = field(default_factory=list)

    def of(self, what: str) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.what == what)


@dataclass
class Look:
    """What the Runtime said of itself in answer to public queries at one moment, when ``audit_rows`` rows were written.

    ``instances`` and ``operations`` are by id, None where the Runtime knows of none; the rest are the answers as they
    came.
    """

    at: int
    audit_rows: int
    status: dict[str, Any]
    snapshot: dict[str, Any]
    calls: list[dict[str, Any]]
    interactions: list[dict[str, Any]]
    instances: dict[str, dict[str, Any] | None]
    operations: dict[str, dict[str, Any] | None]


@dataclass
class Waits:
    """A moment in which nobody but a person has anything left to do: ``(instance_id, app_scope)`` of who needs a
    process for a call and has none, of who has one, and of these of who has nothing open but questions and pages that
    nobody looks at."""

    waiting: list[tuple[str, str]] = field(default_factory=list)
    places: list[tuple[str, str]] = field(default_factory=list)
    could_go: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Refusal:
    """What an event that was refused has changed: ``table`` for a row that came or went, ``table.field`` of one that
    was there, ``timer.kind``. ``kind`` is message, command or action."""

    kind: str
    name: str
    code: str
    changed: tuple[str, ...]


@dataclass
class History:
    """One whole run. ``settled`` is true when it was brought to rest at its end, so that nothing may be left open."""

    seed: int
    agents: dict[str, AgentLog] = field(default_factory=dict)
    workers: dict[tuple[str, int], WorkerLog] = field(default_factory=dict)
    host: HostLog = field(default_factory=HostLog)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    restarts_max: int = 5
    starting_max: int = 4
    workers_max: int = 64
    inbox_max: int = 0  # 0: more than a run reaches
    inbox_bytes_max: int = 0
    audit: list[dict[str, Any]] = field(default_factory=list)
    audit_head: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)  # in the order of their ``audit_rows``
    processes: list[str] = field(default_factory=list)
    refusals: dict[str, Refusal] = field(default_factory=dict)  # by the event's id
    waits: Waits = field(default_factory=lambda: Waits())
    unrest: str = ""
    stale: list[str] = field(default_factory=list)  # what a worker believed in a quiet moment against what Hosts knew
    settled: bool = False


@dataclass(frozen=True)
class Fault:
    """A broken promise: which checker says so, and one sentence."""

    checker: str
    words: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.words}"
