"""The daemon: the only loop. Wait → drain → step each → commit (all three in ``store_thread``) → execute, in order.

This file owns the order of the start and of the end, the timer, and which edge carries out which effect. It must not
decide anything: rules are ``core``'s, and what an edge does is that edge's own.

Start: home → lock and store → isolation → host socket → boot event → hostshell says where it listens → ready.
End: ``Stopping`` → the core lets every worker go and says ``Halt`` → services → sockets → lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import itertools
import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_protocol.messages import PROTOCOL_VERSION
from lineup_supervisor.backup import remove_half_made
from lineup_supervisor.backups import Backups
from lineup_supervisor.config import Config
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.ctx import META_KEY
from lineup_supervisor.core.schema import META
from lineup_supervisor.core.step import step
from lineup_supervisor.core.timers import next_due
from lineup_supervisor.crash_points import crash_point
from lineup_supervisor.edges.bundles import own_bundles
from lineup_supervisor.edges.cgroup import Cgroups
from lineup_supervisor.edges.clock import SystemClock
from lineup_supervisor.edges.file_faults import file_fault
from lineup_supervisor.edges.host_link import HostLink, Session
from lineup_supervisor.edges.logs import LogDirectory
from lineup_supervisor.edges.services import Service
from lineup_supervisor.edges.spawner import Exit, Spawner
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.systemd import notify
from lineup_supervisor.edges.transport import HostSocket
from lineup_supervisor.edges.upkeep import Recurring, every, told
from lineup_supervisor.edges.workers import HostSettings, WorkerHost
from lineup_supervisor.engine import Engine, Outcome, answers, is_ack
from lineup_supervisor.home import Home, ensure_agent_token, remove_leftovers, write_private
from lineup_supervisor.home_files import HomeFiles
from lineup_supervisor.isolation import Isolation, find_isolation
from lineup_supervisor.outgoing import sends_last
from lineup_supervisor.own_requests import OwnRequests
from lineup_supervisor.runtime_log import RuntimeLog
from lineup_supervisor.step_costs import StepCosts
from lineup_supervisor.store_thread import StoreThread
from lineup_supervisor.worker_link import WorkerLink, resident_bytes

TIMER_RECHECK_S = 30.0  # a wall clock that jumps, or a machine that slept, is noticed at the latest after this
LISTENING_WITHIN_S = 30.0  # a cold disk and a slow machine; hostshell takes half a second
SERVICE_STOP_S = 4.0  # hostshell ends open answers within 3 s
HALT_SLACK_S = 5.0  # beyond the workers' own grace, for the exits to be seen and committed
STORE_STOP_S = 10.0  # one commit on a slow disk
BACKUP_STOP_S = 2.0  # for one that is told to stop to clear up; a disk that stands still is not waited for
MEMORY_SAMPLE_BEATS = 2  # every second heartbeat
FILES_AGAIN_S = 5.0  # a file of the home that could not be written is tried again


@dataclass(frozen=True)
class Options:
    """What the command line said. ``port`` overrides the configured one."""

    port: int | None = None
    web: bool = True
    demo: bool = False


VERSION = importlib.metadata.version("lineup-runtime")


class Fatal(Exception):
    """The daemon cannot go on; the log has the story."""


class Daemon:
    """One run. ``await run()`` from the main thread; it returns when everything is gone."""

    def __init__(self, home: Home, config: Config, options: Options, store: Store, log: RuntimeLog) -> None:
        self.home = home
        self.config = config
        self.options = options
        self.store = store
        self.log = log
        self.boot_id = f"b{secrets.token_hex(6)}"
        self.urls: dict[str, str] = {}
        self.port = config.web_port if options.port is None else options.port
        self.services: list[Service] = []
        self.logs = LogDirectory(home.app_logs)
        self.files = HomeFiles(home, store, log)
        self.isolation: Isolation
        self.worker_link: WorkerLink | None = None
        self._numbers = itertools.count(1)
        self._booted = False
        self._ready = False
        self._stopping = False
        self._hurried = False
        self._message_bytes = 0  # of the host link's message that is being dealt with
        self._tasks: list[asyncio.Task[None]] = []
        self._due: tuple[int | None, int | None] = (None, None)
        self._undecided: list[ev.WorkerFrame] = []  # they wait for room in the store
        self._late_acks: dict[str, ev.AgentFrame] = {}  # the newest of each link, while too much waits

    # start

    async def run(self) -> None:
        """Raises LineUpError if it cannot start, Fatal if it cannot go on. Whatever was opened is closed first."""
        self.loop = asyncio.get_running_loop()
        self._halted: asyncio.Future[str] = self.loop.create_future()
        self._listening: asyncio.Future[None] = self.loop.create_future()
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="files")
        for signum, what in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")):
            self.loop.add_signal_handler(signum, self.stop, what)
        self.loop.add_signal_handler(signal.SIGHUP, lambda: self.log.info("SIGHUP ignored"))
        self.loop.set_exception_handler(self._on_callback_fault)
        self._timer = Recurring("looking at the clock", self._look_at_the_clock)
        self._missing_timer = Recurring("writing artifacts that are missing", self._save_missing)
        self._facts_timer = Recurring("writing runtime.json", self._say_where)
        self._open_edges()
        try:
            await self._boot()
            await self._serve()
        finally:
            await self._close()

    def _open_edges(self) -> None:
        with self.store.read() as txn:
            meta = txn.get(META, META_KEY)
        self.clock = SystemClock(meta.steady_ms + 1 if meta is not None else 0)
        self.spawner = Spawner()
        self.backups = Backups(self.store, self.home)
        self.host = HostLink(
            submit=lambda event: self.submit(event, self._message_bytes),
            own=lambda *request: self.own.take(*request),
            welcome=self._welcome,
            new_event_id=self.new_event_id,
            on_lost=self._peer_lost,
            log=self.log,
        )
        self.host.socket = HostSocket(
            self.home.host_socket,
            on_message=self._on_host_message,
            on_gone=self.host.on_gone,
            may_read=lambda: not self.thread.is_full,
        )
        self.own = OwnRequests(self)
        costs = StepCosts(step)
        engine = Engine(self.store, costs, next_due, on_fault=self._on_fault, hook=crash_point)
        self.thread = StoreThread(
            engine,
            self.clock.now,
            deliver=lambda batch, outcome: self._to_loop(self._execute, batch, outcome, costs.take()),
            on_fatal=lambda error: self._to_loop(self._fail, error),
        )

    async def _boot(self) -> None:
        crash_point("boot-before-store")
        remove_leftovers(self.home)
        await self.in_thread(remove_half_made, self.home)
        ensure_agent_token(self.home)
        bundles = await self.in_thread(own_bundles, self.home.apps)
        if not await self.in_thread(self.files.tidy, bundles):
            self._missing_timer.start(FILES_AGAIN_S)
        self.isolation = find_isolation(self.home, self.config, self.log)
        settings = HostSettings(
            run_dir=self.home.run,
            logs=self.logs,
            levels=self.isolation.levels,
            why_not=self.isolation.why_not,
            bwrap=self.isolation.bwrap,
            cgroups=Cgroups.detect(),
        )
        self.worker_link = WorkerLink(
            WorkerHost(settings, self.spawner),
            self.home.apps,
            self.isolation.level,
            submit=self.submit,
            new_event_id=self.new_event_id,
            missed_max=self.config.workers_missed_heartbeats_max,
            memory_bytes_max=self.config.workers_memory_bytes_max,
            allow_bare_system_apps=self.config.isolation_allow_bare_system_apps,
            log=self.log,
        )
        self.host.socket.open()
        self.thread.start()
        self._booted = True
        self.submit(
            ev.Boot(
                event_id=self.new_event_id(),
                boot_id=self.boot_id,
                isolation=self.isolation.level,
                bundles=bundles,
                policy=self.config.policy(),
            )
        )
        crash_point("boot-after-store")

    async def _serve(self) -> None:
        """Start hostshell, say when everything is ready, and go on until it is over."""
        beat_s = self.config.workers_heartbeat_ms / 1000
        self._go_on_with("a heartbeat", beat_s, self._beat)
        self._go_on_with("a look at the workers' memory", beat_s * MEMORY_SAMPLE_BEATS, self._sample_memory)
        if self._halted.done():  # asked to stop during the start
            return
        if self.options.web:
            self._start_services()
            await self._first_of(self._listening, LISTENING_WITHIN_S)
        if not self._halted.done():
            self._say_ready()
        reason = await self._halted
        self.log.info("halted", reason=reason)

    def _start_services(self) -> None:
        modules = {"hostshell": "lineup_hostshell"} | ({"demo": "lineup_agent.demo"} if self.options.demo else {})
        for name, module in modules.items():
            service = Service(
                name,
                (sys.executable, "-m", module),
                self._service_environment,
                spawner=self.spawner,
                log=self.log,
                on_exit=functools.partial(self._service_ended, name),
            )
            self.services.append(service)
        self.services[0].start()

    def _service_environment(self) -> dict[str, str]:
        own = {"LINEUP_RUN_DIR": str(self.home.run), "LINEUP_HOME": str(self.home.root), "LINEUP_PORT": str(self.port)}
        return {**os.environ, **own}

    def _service_ended(self, name: str, end: Exit) -> None:
        """At the start this is a failure; later a restart mends it, and the host link notices what it carried."""
        if name == "hostshell" and not self._listening.done():
            last = self.services[0].last_line
            error = LineUpError(
                "internal_error", f"hostshell could not start ({end.detail}): {last or 'it said nothing'}"
            )
            self._listening.set_exception(error)

    def _peer_lost(self, session: Session, reason: str) -> None:
        """A hostshell that was let go but lives would serve people without us: let it begin anew."""
        for service in self.services:
            if service.name == "hostshell" and service.pid == session.pid:
                service.kill(reason)

    async def _first_of(self, waited: asyncio.Future[None], within_s: float) -> None:
        """Wait for it, or for the end. Raises what it raises, or ``internal_error`` when time is over."""
        await asyncio.wait((waited, self._halted), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if waited.done():
            waited.result()
        elif self._halted.done():
            self._halted.result()
        else:
            raise LineUpError("internal_error", f"hostshell did not say within {within_s:g} s where it listens")

    def on_listening(self, urls: dict[str, str], port: int | None) -> None:
        """hostshell says where it listens: at the start, and again after each restart."""
        self.log.info("host is listening", **urls)
        self.urls = urls
        if port:
            self.port = port
        if not self._listening.done():
            self._listening.set_result(None)
        elif self._ready and not self._stopping:
            self._facts_timer.start(0)

    def _say_ready(self) -> None:
        crash_point("boot-before-ready")
        self._write_runtime_json()
        self._ready = True
        for service in self.services[1:]:
            service.start()
        notify(f"READY=1\nSTATUS=isolation {self.isolation.level}")
        self.log.info("ready", boot_id=self.boot_id, isolation=self.isolation.level, **self.urls)
        with contextlib.suppress(OSError):  # a closed terminal is no reason to stop
            print(f"ready: {self.urls.get('workspace_url') or self.home.host_socket}", flush=True)
        crash_point("boot-after-ready")

    def _say_where(self) -> float | None:
        """At the start a home in which this cannot be written is refused; later nobody is ended for it."""
        try:
            self._write_runtime_json()
        except LineUpError as error:
            self.log.error("where it listens cannot be written down", error=str(error))
            return FILES_AGAIN_S
        return None

    def _write_runtime_json(self) -> None:
        facts = {
            "pid": os.getpid(),
            "boot_id": self.boot_id,
            "agent_url": self.urls.get("agent_url"),
            "workspace_url": self.urls.get("workspace_url"),
            "version": VERSION,
            "protocol": PROTOCOL_VERSION,
            "isolation": self.isolation.level,
        }
        content = msgspec.json.encode(facts) + b"\n"
        try:
            with contextlib.suppress(OSError):
                if self.home.runtime_json.read_bytes() == content:
                    return
            write_private(self.home.runtime_json, content)
        except OSError as error:
            raise file_fault(OSError(error.errno, error.strerror), self.home.runtime_json) from error

    def _welcome(self, session: Session) -> dict[str, Any]:
        settings = {"token_path": "run/agent.token", "port": self.port, "isolation": self.isolation.level}
        return {"boot_id": self.boot_id, "version": VERSION, "settings": settings}

    # events

    def new_event_id(self) -> str:
        return f"{self.boot_id}-{next(self._numbers)}"

    def _on_host_message(self, peer: bytes, data: bytes) -> None:
        self._message_bytes = len(data)
        try:
            self.host.on_message(peer, data)
        finally:
            self._message_bytes = 0

    def submit(self, event: ev.AnyEvent, size: int = 0) -> None:
        """Hand one event to the core; a request is refused here when too much waits already. ``size``: its bytes, if
        whoever sent it waits while too many of them are in hand."""
        if isinstance(event, ev.AgentLinkClosed):
            self._late_acks.pop(event.link_id, None)
        if self.thread.is_crowded and is_ack(event):
            self._late_acks[event.link_id] = event
            return
        if self.thread.is_crowded and isinstance(event, ev.AgentFrame | ev.HostQuery | ev.HostAction | ev.HostWatch):
            error = LineUpError("rate_limited", "too much waits to be decided; try again later")
            for effect in answers(event, error, self.clock.now()):
                self.loop.call_soon(self._carry_out, effect)
            return
        self.thread.submit(event, size)

    def _to_loop(self, callback: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear of it
            self.loop.call_soon_threadsafe(callback, *args)

    def _execute(self, batch: Sequence[ev.AnyEvent], outcome: Outcome, costs: Mapping[str, float]) -> None:
        assert self.worker_link is not None
        try:
            for effect in sends_last(outcome.effects):
                self._carry_out(effect)
        except Exception as error:  # a bug: what is durable is sent again by the next run, this one cannot be trusted
            self._fail(error)
            return
        frames = [*self._undecided, *(event for event in batch if isinstance(event, ev.WorkerFrame))]
        self._undecided = [event for event in frames if event.event_id in outcome.kept]
        for event in frames:  # when all that it has cost is known: what waits behind it goes now
            if event.event_id not in outcome.kept:
                with told("counting what a worker sent"):
                    self.worker_link.committed(event, costs.get(event.event_id, 0.0))
        self.host.socket.read_on()
        while self._late_acks and not self.thread.is_crowded:
            self.thread.submit(self._late_acks.pop(next(iter(self._late_acks))))
        if outcome.retry_in_ms is None:
            self._due = outcome.next_due
            self._arm()
        else:
            self._timer.cancel()  # the store thread tries again by itself, and its outcome arms the timer

    def _carry_out(self, effect: fx.AnyEffect) -> None:
        assert self.worker_link is not None
        match effect:
            case fx.SendWorker():
                crash_point("before-send-worker")
                self.worker_link.send(effect)
                crash_point("after-send-worker")
            case fx.SendAgent():
                crash_point("before-send-agent")
                self.host.send_agent(effect)
                crash_point("after-send-agent")
            case fx.ReplyHost():
                crash_point("before-reply-host")
                with told("answering a request of the host link"):  # a question must never end what it asks about
                    self.host.reply(self.own.completed(effect))
                crash_point("after-reply-host")
            case fx.HostDelta():
                began = time.thread_time()
                self.host.delta(effect)
                self.worker_link.charge(effect.event_id, time.thread_time() - began)
            case fx.CloseAgent():
                self.host.close_agent(effect)
            case fx.StartWorker():
                crash_point("before-start-worker")
                self.worker_link.start(effect)
                crash_point("after-start-worker")
            case fx.StopWorker():
                crash_point("before-stop-worker")
                self.worker_link.stop(effect)
                crash_point("after-stop-worker")
            case fx.SaveBlob():
                crash_point("before-save-blob")
                self._beside(self._save_blob, effect)
            case fx.ArchiveAudit():
                self._beside(self._archive_audit, effect)
            case fx.Halt():
                if not self._halted.done():
                    self._halted.set_result(effect.reason)
            case _:
                assert_never(effect)

    def _archive_audit(self, effect: fx.ArchiveAudit) -> None:
        done = self.files.archive_audit(effect, self.new_event_id())
        self._to_loop(self.submit, done)

    def _save_blob(self, effect: fx.SaveBlob) -> None:
        if not self.files.save_blob(effect):
            self._to_loop(self._missing_timer.start, FILES_AGAIN_S)

    def _save_missing(self) -> None:
        self._beside(self._save_missing_now)

    def _save_missing_now(self) -> None:
        if not self.files.save_missing():
            self._to_loop(self._missing_timer.start, FILES_AGAIN_S)

    def _beside(self, function: Callable[..., None], *args: Any) -> None:
        """Run what reads or writes files beside the loop, and wait for nothing; a fault of it is told."""

        def ended(done: Future[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                self.log.error("work with files failed", story="".join(traceback.format_exception(error)))

        self._executor.submit(function, *args).add_done_callback(ended)

    # time

    def _arm(self) -> None:
        """One timer for the next due moment on either clock; it looks again every ``TIMER_RECHECK_S`` at least."""
        wait_s = self._wait_s()
        if wait_s is None:
            self._timer.cancel()
        else:
            self._timer.start(wait_s)

    def _wait_s(self) -> float | None:
        now = self.clock.now()
        waits_ms = [
            due - at for due, at in zip(self._due, (now.wall_ms, now.steady_ms), strict=True) if due is not None
        ]
        return min(max(min(waits_ms), 0) / 1000, TIMER_RECHECK_S) if waits_ms else None

    def _look_at_the_clock(self) -> float | None:
        now = self.clock.now()
        wall_due, steady_due = self._due
        if (wall_due is not None and wall_due <= now.wall_ms) or (
            steady_due is not None and steady_due <= now.steady_ms
        ):
            self.submit(ev.Wake(event_id=self.new_event_id()))  # its outcome arms the timer
            return None
        return self._wait_s()

    def _go_on_with(self, what: str, pause_s: float, turn: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(every(what, pause_s, turn), name=what)
        task.add_done_callback(self._on_task_ended)
        self._tasks.append(task)

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._fail(task.exception() or Fatal(f"{task.get_name()} is not coming any more"))

    async def _beat(self) -> None:
        assert self.worker_link is not None
        self.worker_link.beat()

    async def _sample_memory(self) -> None:
        assert self.worker_link is not None
        if pids := self.worker_link.pids():
            self.worker_link.on_memory(await self.in_thread(resident_bytes, pids))

    async def in_thread(self, function: Any, *args: Any) -> Any:
        """Run what reads or writes files beside the loop; at most two at once."""
        return await self.loop.run_in_executor(self._executor, lambda: function(*args))

    # end

    def stop(self, reason: str) -> None:
        """Begin the clean end; asked a second time, kill the workers instead of waiting for them."""
        if self._stopping:
            if not self._hurried and reason in ("SIGINT", "SIGTERM"):
                self._hurried = True
                self.log.warning("hurrying the end", reason=reason)
                self._kill_workers("the Runtime was asked twice to stop")
            return
        self._stopping = True
        self.log.info("stopping", reason=reason)
        notify("STOPPING=1")
        crash_point("stop-before-workers")
        self.backups.stop()
        self._remove_runtime_json()
        if not self._booted:
            self._halted.set_result(reason)
            return
        self.submit(ev.Stopping(event_id=self.new_event_id(), reason=reason))
        limit_s = self.config.workers_stop_grace_ms / 1000 + HALT_SLACK_S
        self.loop.call_later(limit_s, self._halt_late, f"{reason}; some workers did not end within {limit_s:g} s")

    def _halt_late(self, reason: str) -> None:
        if not self._halted.done():
            self.log.error("halting without the core's word", reason=reason)
            self._halted.set_result(reason)
            self._kill_workers(reason)

    def _kill_workers(self, why: str) -> None:
        if self.worker_link is not None:
            self.worker_link.kill_all(why)

    def _on_callback_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        story = "".join(traceback.format_exception(error)) if error is not None else ""
        self.log.error("a callback failed", what=context.get("message", ""), story=story)

    def _on_fault(self, event: ev.Event, error: Exception) -> None:
        story = "".join(traceback.format_exception(error))
        self.log.error("an event could not be handled", event_type=type(event).__name__, dropped=event, story=story)

    def _fail(self, error: BaseException) -> None:
        """The store thread has ended: nothing can be decided any more."""
        story = "".join(traceback.format_exception(error))
        self.log.error("fatal", story=story)
        if not self._halted.done():
            self._halted.set_exception(error if isinstance(error, LineUpError) else Fatal(f"{error}"))

    async def _close(self) -> None:
        """Everything that was opened, in the opposite order; nothing raises, nothing waits without a bound."""
        crash_point("stop-after-workers")
        self.backups.stop()
        self._remove_runtime_json()
        for timer in (self._timer, self._missing_timer):
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._kill_workers("the Runtime ends")
        with told("ending the services"):
            await asyncio.gather(*(service.stop(SERVICE_STOP_S) for service in self.services))
        if self.worker_link is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.worker_link.idle.wait(), HALT_SLACK_S)
        if not await self.backups.ended(BACKUP_STOP_S):
            self.log.error("a backup did not end; what it has half made is removed at the next start")
        if self._booted and not await asyncio.to_thread(self.thread.stop, STORE_STOP_S):
            self.log.error("the store thread did not end; its last transaction is lost")
        self.host.socket.close()
        with told("removing what is of this run"):
            remove_leftovers(self.home)
        self._executor.shutdown(wait=True)
        self.logs.close()
        self.log.info("stopped")

    def _remove_runtime_json(self) -> None:
        self._facts_timer.cancel()
        with contextlib.suppress(OSError):
            self.home.runtime_json.unlink(missing_ok=True)
