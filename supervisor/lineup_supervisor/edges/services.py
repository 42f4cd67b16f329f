"""The Runtime's own helpers, hostshell and the demo agent: supervised processes without authority.

This file owns keeping them running (restart with back-off), ending them, and what they print. It must not know what
they do, nor how a process is made (``spawner``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from lineup_supervisor.edges.spawner import Exit, Process, Spawner, service_command
from lineup_supervisor.edges.upkeep import Recurring, told

RESTART_MS_MIN, RESTART_MS_MAX = 100, 5_000
CALM_S = 10.0  # a service that has run this long starts again with the shortest back-off
LINE_BYTES_MAX = 8_192  # of one printed line; the rest of it is dropped
READ_BYTES = 65_536  # per turn, so that a flood does not hold the loop


class Service:
    """One process that should always run. Use from the loop's (main) thread only.

    ``on_exit(exit)`` is called at every end that was not asked for, before the restart is planned.
    """

    def __init__(
        self,
        name: str,
        argv: tuple[str, ...],
        env: Callable[[], Mapping[str, str]],
        *,
        spawner: Spawner,
        log: Any,
        on_exit: Callable[[Exit], None],
    ) -> None:
        self.name = name
        self.last_line = ""
        self.restarts = 0
        self._argv = argv
        self._env = env
        self._spawner = spawner
        self._loop = spawner.loop
        self._log = log
        self._on_exit = on_exit
        self._process: Process | None = None
        self._output = -1
        self._rest = b""
        self._backoff_ms = RESTART_MS_MIN
        self._started_s = 0.0
        self._timer = Recurring(f"starting {name} again", self.start)
        self._stopping = False
        self._gone = asyncio.Event()
        self._gone.set()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """A process that cannot be made ends like any other."""
        self._close_output()
        self._started_s = self._loop.time()
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            self._exited(Exit("start_failed", f"the process could not be started: {error}"))
            return
        self._gone.clear()
        os.set_blocking(reader, False)
        self._output = reader
        try:
            self._loop.add_reader(reader, self._read)
            self._process = self._spawner.start(
                service_command(self._argv, env=self._env()),
                on_exit=self._exited,
                on_pid=lambda pid: self._log.info("service started", service=self.name, pid=pid),
                stdout=writer,
                stderr=writer,
            )
        except OSError as error:  # no room for one more watch
            self._exited(Exit("start_failed", f"the process could not be watched: {error}"))
        finally:
            os.close(writer)

    def kill(self, detail: str) -> None:
        """End it hard; it is started again like after any other end."""
        if self._process is not None:
            self._process.kill("killed", detail)

    async def stop(self, grace_s: float) -> None:
        """TERM, then KILL when ``grace_s`` is over; no restart. Returns when the process is gone."""
        self._stopping = True
        self._timer.cancel()
        if self._process is not None:
            self._process.stop(grace_s)
            if (pid := self._process.pid) is not None and not self._process.is_ended:
                # A service is not asked by message first, so TERM comes at once; not yet reaped, the pid is its own.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            await self._gone.wait()
        self._close_output()

    def _exited(self, end: Exit) -> None:
        self._read()
        self._close_output()
        self._process = None
        self._gone.set()
        if self._stopping:
            self._log.info("service stopped", service=self.name, detail=end.detail)
            return
        if self._loop.time() - self._started_s > CALM_S:
            self._backoff_ms = RESTART_MS_MIN
        self._log.warning("service ended", service=self.name, detail=end.detail, restart_in_ms=self._backoff_ms)
        with told("hearing that a service has ended"):
            self._on_exit(end)
        if not self._stopping:
            self.restarts += 1
            self._timer.start(self._backoff_ms / 1000)
            self._backoff_ms = min(self._backoff_ms * 2, RESTART_MS_MAX)

    def _read(self) -> None:
        if self._output < 0:
            return
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close_output()
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_BYTES_MAX]
        for line in lines:
            self._say(line)

    def _close_output(self) -> None:
        if self._output < 0:
            return
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._output = -1
        rest, self._rest = self._rest, b""
        self._say(rest)

    def _say(self, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode(errors="backslashreplace").rstrip()
        if text:
            self.last_line = text
            self._log.info("printed", service=self.name, line=text)
