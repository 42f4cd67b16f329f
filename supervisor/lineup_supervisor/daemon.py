"""The daemon: the only loop. Wait → drain → step each → commit (all three in ``store_thread``) → execute, in order.

This file owns the order of the start and of the end, the timer, and which edge carries out which effect. It must not
decide anything: rules are ``core``'s, and what an edge does is that edge's own.

Start: home → lock and store → isolation → host socket → boot event → hostshell says where it listens → ready.
End: ``Stopping`` → the core lets every worker go and says ``Halt`` → services → sockets → lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.config import Config
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.ctx import META_KEY
from lineup_supervisor.core.schema import META, SCHEMA_VERSION, TABLES
from lineup_supervisor.core.step import step
from lineup_supervisor.core.timers import next_due
from lineup_supervisor.crash_points import crash_point
from lineup_supervisor.edges.bundles import own_bundles
from lineup_supervisor.edges.clock import SystemClock
from lineup_supervisor.edges.host_link import HostLink, Session
from lineup_supervisor.edges.services import Service
from lineup_supervisor.edges.spawner import Exit, Spawner
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.systemd import notify
from lineup_supervisor.edges.transport import HostSocket
from lineup_supervisor.edges.workers import WorkerHost
from lineup_supervisor.engine import Engine, Outcome, answers
from lineup_supervisor.home import Home, ensure_agent_token, remove_leftovers, write_private
from lineup_supervisor.isolation import find_isolation
from lineup_supervisor.own_requests import OwnRequests
from lineup_supervisor.runtime_json import runtime_json
from lineup_supervisor.runtime_log import RuntimeLog
from lineup_supervisor.store_thread import StoreThread
from lineup_supervisor.version import VERSION
from lineup_supervisor.worker_link import WorkerLink, resident_bytes

TIMER_RECHECK_S = 30.0  # a wall clock that jumps, or a machine that slept, is noticed at the latest after this
LISTENING_WITHIN_S = 30.0  # a cold disk and a slow machine; hostshell takes half a second
SERVICE_STOP_S = 4.0  # hostshell ends open answers within 3 s
HALT_SLACK_S = 5.0  # beyond the workers' own grace, for the exits to be seen and committed
STORE_STOP_S = 10.0  # one commit on a slow disk
MEMORY_SAMPLE_BEATS = 2  # every second heartbeat


@dataclass(frozen=True)
class Options:
    """What the command line said. ``port`` overrides the configured one."""

    port: int | None = None
    web: bool = True
    demo: bool = False


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
        self.isolation: Any = None
        self._numbers = itertools.count(1)
        self._ready = False
        self._stopping = False
        self._hurried = False
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due: tuple[int | None, int | None] = (None, None)

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
        self.host = HostLink(
            submit=self.submit,
            own=lambda *request: self.own.take(*request),
            welcome=self._welcome,
            new_event_id=self.new_event_id,
            log=self.log,
        )
        self.host.socket = HostSocket(
            self.home.host_socket, on_message=self.host.on_message, on_gone=self.host.on_gone
        )
        self.own = OwnRequests(self)
        engine = Engine(self.store, step, next_due, on_fault=self._on_fault, hook=crash_point)
        self.thread = StoreThread(
            engine,
            self.clock.now,
            deliver=lambda batch, outcome: self._to_loop(self._execute, batch, outcome),
            on_fatal=lambda error: self._to_loop(self._fail, error),
        )

    async def _boot(self) -> None:
        crash_point("boot-before-store")
        remove_leftovers(self.home)
        ensure_agent_token(self.home)
        bundles = await self._in_thread(own_bundles, self.home.apps)
        self.isolation = await find_isolation(self.home, self.spawner, self.config, self.log)
        self.workers = WorkerHost(self)
        self.worker_link = WorkerLink(
            self.workers,
            submit=self.submit,
            new_event_id=self.new_event_id,
            missed_max=self.config.workers_missed_heartbeats_max,
            memory_bytes_max=self.config.workers_memory_bytes_max,
            log=self.log,
        )
        self.host.socket.open()
        self.thread.start()
        self.submit(
            ev.Boot(
                event_id=self.new_event_id(), boot_id=self.boot_id, isolation=self.isolation.level, bundles=bundles
            )
        )
        crash_point("boot-after-store")
