"""The supervisor's end of the workers: effects to processes, frames to events, heartbeats, the memory budget.

This file owns which process is which incarnation, what of its traffic never reaches the core (pings, bytes that are no
message) and when it counts as hung. It must not know what a message means, nor how a process is made or confined.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lineup_protocol.codec import CAPS, decode, decode_message, encode_checked
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import WORKER_PROCESSES_DEFAULT
from lineup_supervisor.app_lane import CHEAP_S, AppLane
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.edges.sandbox_policy import MIB, level_satisfies
from lineup_supervisor.edges.workers import WorkerHost, WorkerProcess

PONG_BYTES_MAX = 64  # of an answer to a ping, which must not wait in the lane
RECLAIM_SHARE = 4  # over the budget, a quarter of the workers (at least one) is let go at a time


@dataclass
class _Worker:
    app_scope: str
    process: WorkerProcess | None = None
    pid: int | None = None
    nonce: int = 0
    missed: int = 0
    answered: bool = True
    is_ready: bool = False
    waiting: int = 0  # messages of it in its MiniApp's lane
    undecided: int = 0  # handed on to the core; not all of them can be decided while the store is full


class WorkerLink:
    """See the module. Use from the loop's thread only. ``beat`` is to be called once per heartbeat interval.

    Args:
        apps: where the bundles' copies lie; an effect's path is looked up there by its last part, the digest, so that a
            home may be moved.
        level: the isolation level that holds on this machine.

    ``idle`` is set while there is no worker.
    """

    def __init__(
        self,
        host: WorkerHost,
        apps: Path,
        level: str,
        *,
        submit: Callable[[ev.AnyEvent], None],
        new_event_id: Callable[[], str],
        missed_max: int,
        memory_bytes_max: int,
        allow_bare_system_apps: bool,
        log: Any,
    ) -> None:
        self._host = host
        self._apps = apps
        self._level = level
        self._submit = submit
        self._new_event_id = new_event_id
        self._missed_max = missed_max
        self._memory_bytes_max = memory_bytes_max
        self._allow_bare_system_apps = allow_bare_system_apps
        self._log = log
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[str, AppLane] = {}
        # By the event's id: its lane, the message's bytes, and what of reading it has not been charged yet.
        self._undecided: dict[str, tuple[AppLane, int, float]] = {}
        self.idle = asyncio.Event()
        self.idle.set()
        self.memory_bytes = 0

    # effects

    def start(self, effect: fx.StartWorker) -> None:
        """Ends in exactly one ``WorkerExited``. A level below the bundle's minimum is refused there, by name."""
        key = (effect.instance_id, effect.incarnation)
        worker = self._workers[key] = _Worker(effect.app_scope)
        self.idle.clear()
        level = self._level
        if not level_satisfies(level, effect.min_isolation):
            bare = effect.kind == "system" and self._allow_bare_system_apps
            level = "S1" if bare else effect.min_isolation
        worker.process = self._host.start_worker(
            effect.instance_id,
            effect.incarnation,
            app_scope=effect.app_scope,
            bundle_path=str(self._apps / Path(effect.bundle_path).name),
            limits=machine_limits(effect.limits),
            level=level,
            on_started=functools.partial(self._started, key),
            on_message=functools.partial(self._message, key),
            on_exited=functools.partial(self._exited, key),
            on_throttled=functools.partial(self._throttled, key),
            on_denied=functools.partial(self._denied, key),
        )

    def send(self, effect: fx.SendWorker) -> None:
        worker = self._workers.get((effect.instance_id, effect.incarnation))
        if worker is not None:
            self._send(worker, *effect.messages)

    def stop(self, effect: fx.StopWorker) -> None:
        worker = self._workers.get((effect.instance_id, effect.incarnation))
        if worker is None or worker.process is None:
            return
        body = {"reason": effect.reason, "grace_ms": effect.grace_ms}
        self._send(worker, {"type": "worker.stop", "body": body})
        worker.process.stop(effect.reason, effect.grace_ms)

    def committed(self, event: ev.WorkerFrame, cost_s: float) -> None:
        """The core has dealt with it in so much of the processor's time: the worker's credit comes back."""
        lane, size, more_s = self._undecided.pop(event.event_id)
        lane.decided(size, cost_s + more_s)
        worker = self._workers.get((event.instance_id, event.incarnation))
        if worker is None:
            return
        worker.undecided -= 1
        if worker.process is not None:
            worker.process.taken()

    def charge(self, event_id: str, cost_s: float) -> None:
        """To tell people of this event has cost so much; nobody is charged if no worker's message was the reason."""
        if (undecided := self._undecided.get(event_id)) is not None:
            undecided[0].charge(cost_s)

    def kill_all(self, detail: str) -> None:
        for worker in list(self._workers.values()):
            if worker.process is not None:
                worker.process.kill("stopped", detail)

    # what comes from the processes

    def _started(self, key: tuple[str, int], pid: int, level: str) -> None:
        self._workers[key].pid = pid
        self._submit(
            ev.WorkerStarted(
                event_id=self._new_event_id(), instance_id=key[0], incarnation=key[1], pid=pid, isolation=level
            )
        )

    def _exited(self, key: tuple[str, int], reason: str, detail: str, exit_code: int | None) -> None:
        fields = self._fields(key)
        worker = self._workers.pop(key, None)
        if worker is not None and worker.waiting:
            self._lane(worker).forget(key)
        if not self._workers:
            self.idle.set()
        self._log.info("worker ended", **fields, reason=reason, detail=detail)
        self._submit(
            ev.WorkerExited(
                event_id=self._new_event_id(),
                instance_id=key[0],
                incarnation=key[1],
                reason=reason,
                detail=detail,
                exit_code=exit_code,
            )
        )

    def _throttled(self, key: tuple[str, int], limit: str, detail: str) -> None:
        self._log.warning("worker throttled", **self._fields(key), limit=limit, detail=detail)
        self._submit(
            ev.WorkerThrottled(
                event_id=self._new_event_id(), instance_id=key[0], incarnation=key[1], limit=limit, detail=detail
            )
        )

    def _denied(self, key: tuple[str, int], operation: str) -> None:
        self._log.warning("worker denied", **self._fields(key), operation=operation)
        self._submit(
            ev.WorkerDenied(event_id=self._new_event_id(), instance_id=key[0], incarnation=key[1], operation=operation)
        )

    def _lane(self, worker: _Worker) -> AppLane:
        lane = self._lanes.get(worker.app_scope)
        if lane is None:
            lane = self._lanes[worker.app_scope] = AppLane(self._loop.time, self._loop.call_at)
        return lane

    def _message(self, key: tuple[str, int], data: bytes) -> None:
        """The answer to the ping that is out is taken as it comes; all else is read when its MiniApp's lane says so."""
        worker = self._workers[key]
        if not worker.answered and _is_pong(data, worker.nonce):
            assert worker.process is not None
            worker.process.taken()
            worker.answered = True
            return
        worker.waiting += 1
        self._lane(worker).enter(key, len(data), functools.partial(self._hand_on, key, data))

    def _hand_on(self, key: tuple[str, int], data: bytes) -> bool:
        worker = self._workers[key]
        worker.waiting -= 1
        lane = self._lane(worker)
        began = time.thread_time()
        frame = self._decoded(key, worker, data)
        cost_s = time.thread_time() - began
        lane.charge(cost_s)
        if frame is None:
            return False
        if isinstance(frame[0], dict):
            worker.is_ready |= frame[0].get("type") == "worker.ready"
        event = ev.WorkerFrame(event_id=self._new_event_id(), instance_id=key[0], incarnation=key[1], frame=frame[0])
        self._undecided[event.event_id] = (lane, len(data), min(cost_s, CHEAP_S))
        worker.undecided += 1
        self._submit(event)
        return True

    def _decoded(self, key: tuple[str, int], worker: _Worker, data: bytes) -> tuple[Any] | None:
        """None for bytes that are no message: its worker is ended."""
        assert worker.process is not None
        try:
            return (_frame(data),)
        except LineUpError as error:
            self._log.warning("worker sent no message", **self._fields(key), error=str(error))
            worker.process.taken()
            worker.process.kill("gate", error.message)
            return None

    def _fields(self, key: tuple[str, int]) -> dict[str, Any]:
        """Whose worker it is, for a line of the log."""
        worker = self._workers.get(key)
        scope = {} if worker is None else {"app_scope": worker.app_scope}
        return {**scope, "instance_id": key[0], "incarnation": key[1]}

    # watching over them

    def beat(self) -> None:
        """Ping who is ready; count who has not answered since the last beat.

        Beats are counted, not time: when the supervisor itself stood still, nobody is hung because of that.
        """
        for worker in list(self._workers.values()):
            if not worker.is_ready or worker.process is None:
                continue  # loading the app has its own time limit, kept by the core
            if worker.waiting or worker.undecided:
                continue  # it is we who do not read from it just now, and its answer may stand behind the rest
            worker.missed = 0 if worker.answered else worker.missed + 1
            if worker.missed >= self._missed_max:
                worker.is_ready = False
                worker.process.kill("hung", f"{worker.missed} pings went unanswered")
                continue
            worker.nonce += 1
            worker.answered = False
            self._send(worker, {"type": "worker.ping", "body": {"nonce": worker.nonce}})

    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers.values() if worker.pid is not None]

    def on_memory(self, memory_bytes: int) -> None:
        """What all workers together take just now, sampled by the owner in another thread."""
        self.memory_bytes = memory_bytes
        if memory_bytes > self._memory_bytes_max and self._workers:
            count = max(1, len(self._workers) // RECLAIM_SHARE)
            self._log.info("worker memory over budget", bytes=memory_bytes, reclaim=count)
            self._submit(ev.ReclaimWorkers(event_id=self._new_event_id(), count=count))

    def _send(self, worker: _Worker, *messages: dict[str, Any]) -> None:
        """A link that is not up swallows them; what is durable is sent again to the next incarnation.

        What it costs to write them down is its MiniApp's: a welcome with a large state takes as long as to read one.
        """
        if worker.process is None:
            return
        began = time.thread_time()
        payloads: list[bytes] = []
        for message in messages:
            try:
                payloads.append(encode_checked(message, CAPS["worker", True]))
            except LineUpError as error:
                self._log.error("message for a worker cannot be sent", type=message.get("type"), error=str(error))
        worker.process.send(*payloads)
        self._lane(worker).charge(time.thread_time() - began)


def _is_pong(data: bytes, nonce: int) -> bool:
    """Whether it is exactly the answer to this ping."""
    if len(data) > PONG_BYTES_MAX:
        return False
    try:
        return decode(data, CAPS["worker", False]) == {"type": "worker.pong", "body": {"nonce": nonce}}
    except LineUpError:
        return False


def _frame(data: bytes) -> Any:
    """What the core judges: a message of the table, or at least JSON; bytes that are neither raise LineUpError."""
    try:
        type_, message_id, body = decode_message(data, "worker", from_runtime=False)
    except LineUpError:
        return decode(data, CAPS["worker", False])
    frame: dict[str, Any] = {"type": type_, "body": body}
    if message_id is not None:
        frame["id"] = message_id
    return frame


def machine_limits(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's ``limits`` in the sandbox's own units. ``processes`` there counts threads as well."""
    held: dict[str, Any] = {}
    for name, target, unit in (
        ("memory_mb", "memory_bytes", MIB),
        ("tmp_mb", "tmp_bytes", MIB),
        ("file_size_mb", "file_bytes", MIB),
        ("stdout_kb_per_second", "stdout_bytes_per_s", 1024),
        ("open_files", "open_files", 1),
        ("cpu_share", "cpu_share", 1),
        ("processes", "threads", 1),
    ):
        if name in asked:
            held[target] = asked[name] * unit
    if asked.get("processes", 0) > WORKER_PROCESSES_DEFAULT:
        held["processes"] = asked["processes"]
    return held


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of these processes and all their descendants, in one pass over the machine's processes."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
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
