"""The hostshell process: ``python -m lineup_hostshell``, started and watched by the supervisor.

Environment: ``LINEUP_RUN_DIR`` (the Runtime's run directory), ``LINEUP_PORT`` (the wanted port, 0 for any). Order of
the start: link and handshake with the Runtime, listen, say where (``host.listening``). It ends when it is told to
(SIGTERM, SIGINT: exit 0) and when the Runtime is gone (exit 3); it holds nothing that could be lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop

from lineup_hostshell.agent_link import GOING_AWAY, SERVICE_RESTART, AgentLinks
from lineup_hostshell.host_session import Welcome
from lineup_hostshell.run_files import read_private
from lineup_hostshell.runtime_link import RuntimeLink
from lineup_hostshell.server import LOOPBACK, LoopbackServer, bind_loopback, build_app
from lineup_hostshell.workspace import Workspace
from lineup_protocol.errors import LineUpError

EXIT_STOPPED, EXIT_FAILED, EXIT_RUNTIME_GONE = 0, 1, 3

_log = logging.getLogger("lineup.hostshell")


class Hostshell:
    """One run of the process, from the link to the end."""

    def __init__(self, run_dir: Path, wanted_port: int) -> None:
        self._run_dir = run_dir
        self._wanted_port = wanted_port
        self._agents: AgentLinks | None = None
        self._workspace: Workspace | None = None
        self._stop = asyncio.Event()
        self._runtime = RuntimeLink(
            run_dir,
            "hostshell",
            {"agent.send": self._agent_send, "agent.close": self._agent_close, "host.delta": self._delta},
        )

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> int:
        """The exit code. Raises LineUpError if it cannot start."""
        welcome = await self._runtime.connect()
        try:
            token = agent_token(self._run_dir, welcome)
            self._agents = AgentLinks(self._runtime.send, token)
            listener = bind_loopback(self._wanted_port)
            port = int(listener.getsockname()[1])
            self._workspace = Workspace(self._run_dir, self._runtime, welcome, token, port)
            server = LoopbackServer(build_app(port, self._agents, self._workspace.routes), listener)
            serving = (await server.start(), await self._workspace.start())
            await self._runtime.action(
                "host.listening",
                {"agent_url": f"ws://{LOOPBACK}:{port}/agent", "workspace_url": f"http://{LOOPBACK}:{port}/"},
            )
            _log.info("listening on port %d", port)
            return await self._until_the_end(server, serving)
        finally:
            self._runtime.close()

    async def _until_the_end(self, server: LoopbackServer, serving: tuple[asyncio.Task[None], ...]) -> int:
        lost = asyncio.create_task(self._runtime.lost.wait())
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((*serving, lost, stop), return_when=asyncio.FIRST_COMPLETED)
        assert self._agents is not None
        assert self._workspace is not None
        if lost.done():
            _log.error("the Runtime is gone; ending")
            self._agents.close_all(SERVICE_RESTART, "the Runtime is gone; reconnect when it is back")
            self._workspace.links.runtime_lost()
        else:
            self._agents.close_all(GOING_AWAY, "the host is stopping; reconnect")
            self._workspace.links.close_all(SERVICE_RESTART, "the host is stopping; reconnect")
        for waiting in (lost, stop):
            waiting.cancel()
        failed = [task for task in serving if task.done()]
        await asyncio.gather(server.stop(), self._workspace.stop(), return_exceptions=bool(failed))
        for task in failed:
            task.result()
        if failed:
            return EXIT_FAILED
        return EXIT_RUNTIME_GONE if self._runtime.lost.is_set() else EXIT_STOPPED

    def _delta(self, body: dict[str, Any]) -> None:
        if self._workspace is not None:
            self._workspace.links.delta(body)

    def _agent_send(self, body: dict[str, Any]) -> None:
        if self._agents is not None:
            self._agents.deliver(body)

    def _agent_close(self, body: dict[str, Any]) -> None:
        if self._agents is not None:
            self._agents.close(body)


def agent_token(run_dir: Path, welcome: Welcome) -> str:
    """The token that agents must show: from the Runtime's welcome, else from the file that agents read, too.

    Raises:
        LineUpError: ``home_unusable`` if the file is missing, empty, or open to others.
    """
    given = welcome.settings.get("agent_token")
    if isinstance(given, str) and given:
        return given
    path = run_dir / "agent.token"
    token = read_private(path).decode("ascii", "replace").strip()
    if not token:
        raise LineUpError("home_unusable", f"{path} is empty")
    return token


async def _amain(run_dir: Path, port: int) -> int:
    hostshell = Hostshell(run_dir, port)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, hostshell.stop)
    return await hostshell.run()


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    run_dir, port = os.environ.get("LINEUP_RUN_DIR"), os.environ.get("LINEUP_PORT", "0")
    if not run_dir or not port.isascii() or not port.isdigit() or int(port) > 65535:
        _log.error("LINEUP_RUN_DIR must name the run directory and LINEUP_PORT a port from 0 to 65535")
        return EXIT_FAILED
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_amain(Path(run_dir), int(port)))
    except (LineUpError, OSError) as error:
        _log.error("cannot run: %s", error)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
