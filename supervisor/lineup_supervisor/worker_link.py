"""The supervisor's end of the workers: frames to events, heartbeats, the memory budget.

This file owns what of a worker's traffic never reaches the core (pings, bytes that are no message) and when a worker
counts as hung. It must not know what a message means. Starting, sending and stopping are ``edges.workers``'.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from lineup_protocol.codec import decode, decode_message
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import WORKER_MESSAGE_BYTES_MAX
from lineup_supervisor.core import events as ev

RECLAIM_SHARE = 4  # over the budget, a quarter of the workers (at least one) is let go at a time


class Workers(Protocol):
    """What this needs of ``edges.workers.WorkerHost``."""

    def send(self, instance_id: str, incarnation: int, messages: tuple[dict[str, Any], ...]) -> None: ...

    def kill(self, instance_id: str, incarnation: int, reason: str, detail: str) -> None: ...


@dataclass
class _Pulse:
    pid: int
    nonce: int = 0
    missed: int = 0
    answered: bool = True
    is_ready: bool = False


class WorkerLink:
    """See the module. Use from the loop's thread only. ``beat`` is to be called once per heartbeat interval."""

    def __init__(
        self,
        workers: Workers,
        *,
        submit: Callable[[ev.AnyEvent], None],
        new_event_id: Callable[[], str],
        missed_max: int,
        memory_bytes_max: int,
        log: Any,
    ) -> None:
        self._workers = workers
        self._submit = submit
        self._new_event_id = new_event_id
        self._missed_max = missed_max
        self._memory_bytes_max = memory_bytes_max
        self._log = log
        self._pulses: dict[tuple[str, int], _Pulse] = {}
        self.memory_bytes = 0

    def on_started(self, instance_id: str, incarnation: int, pid: int, isolation: str) -> None:
        self._pulses[instance_id, incarnation] = _Pulse(pid)
        self._submit(
            ev.WorkerStarted(
                event_id=self._new_event_id(),
                instance_id=instance_id,
                incarnation=incarnation,
                pid=pid,
                isolation=isolation,
            )
        )

    def on_exited(
        self, instance_id: str, incarnation: int, reason: str, detail: str, exit_code: int | None = None
    ) -> None:
        self._pulses.pop((instance_id, incarnation), None)
        self._submit(
            ev.WorkerExited(
                event_id=self._new_event_id(),
                instance_id=instance_id,
                incarnation=incarnation,
                reason=reason,
                detail=detail,
                exit_code=exit_code,
            )
        )

    def on_message(self, instance_id: str, incarnation: int, data: bytes) -> bool:
        """One message. True if it became an event, so that the worker's credit comes back only after the commit."""
        try:
            frame = _frame(data)
        except LineUpError as error:
            self._log.warning("worker sent no message", instance_id=instance_id, error=str(error))
            self._workers.kill(instance_id, incarnation, "gate", error.message)
            return False
        pulse = self._pulses.get((instance_id, incarnation))
        if isinstance(frame, dict) and pulse is not None:
            if frame.get("type") == "worker.pong":
                self._pong(pulse, frame.get("body"))
                return False
            pulse.is_ready |= frame.get("type") == "worker.ready"
        self._submit(
            ev.WorkerFrame(
                event_id=self._new_event_id(), instance_id=instance_id, incarnation=incarnation, frame=frame
            )
        )
        return True

    def beat(self) -> None:
        """Ping who is ready; count who has not answered since the last beat.

        Beats are counted, not time: when the supervisor itself stood still, nobody is hung because of that.
        """
        for (instance_id, incarnation), pulse in list(self._pulses.items()):
            if not pulse.is_ready:
                continue  # loading the app has its own time limit, kept by the core
            pulse.missed = 0 if pulse.answered else pulse.missed + 1
            if pulse.missed >= self._missed_max:
                self._pulses.pop((instance_id, incarnation))
                self._workers.kill(instance_id, incarnation, "hung", f"{pulse.missed} pings went unanswered")
                continue
            pulse.nonce += 1
            pulse.answered = False
            ping = {"type": "worker.ping", "body": {"nonce": pulse.nonce}}
            self._workers.send(instance_id, incarnation, (ping,))

    @staticmethod
    def _pong(pulse: _Pulse, body: Any) -> None:
        if isinstance(body, dict) and body.get("nonce") == pulse.nonce:
            pulse.answered = True

    def pids(self) -> list[int]:
        return [pulse.pid for pulse in self._pulses.values()]

    def on_memory(self, memory_bytes: int) -> None:
        """What all workers together take just now, sampled by the owner in another thread."""
        self.memory_bytes = memory_bytes
        if memory_bytes > self._memory_bytes_max and self._pulses:
            count = max(1, len(self._pulses) // RECLAIM_SHARE)
            self._log.info("worker memory over budget", bytes=memory_bytes, reclaim=count)
            self._submit(ev.ReclaimWorkers(event_id=self._new_event_id(), count=count))


def _frame(data: bytes) -> Any:
    """What the core judges: a message of the table, or at least JSON; bytes that are neither raise LineUpError."""
    try:
        type_, message_id, body = decode_message(data, "worker", from_runtime=False)
    except LineUpError:
        return decode(data, bytes_max=WORKER_MESSAGE_BYTES_MAX)
    frame: dict[str, Any] = {"type": type_, "body": body}
    if message_id is not None:
        frame["id"] = message_id
    return frame


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of these processes and all their descendants, in one pass over the machine's processes."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            with process.oneshot():
                children.setdefault(process.ppid(), []).append(process.pid)
                resident[process.pid] = process.memory_info().rss
    total, seen, left = 0, set(), list(pids)
    while left:
        pid = left.pop()
        if pid not in seen:
            seen.add(pid)
            total += resident.get(pid, 0)
            left += children.get(pid, ())
    return total
