"""A LineUp as a person starts it: ``lineup up --demo`` in a home of its own, and the links into its workspace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lineup_hostshell.cli.homes import require_runtime
from lineup_hostshell.cli.open_command import fresh_link
from processes.support.runtime import Runtime
from processes.support.waiting import until_now

AGENT_S = 20.0


class LineUp(Runtime):
    """One home with its Runtime, its demo agent and its workspace."""

    port = 0  # the workspace's, once it is known

    def begin(self, *options: str, crash_at: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """``lineup up``, which becomes the daemon: its pid is the supervisor's."""
        argv = self.cli_argv("up", "--demo", "--no-open", "--port", str(self.port), *options)
        with (self.home.parent / "daemon.out").open("a") as out, (self.home.parent / "daemon.err").open("a") as errors:
            self.process = subprocess.Popen(
                argv, env={**self.cli_environment(), **environment}, stdout=out, stderr=errors
            )
        return self.process

    def up(self) -> None:
        """Start it and wait until the demo agent is there; a second start is at the same address."""
        url = str(self.start()["workspace_url"])
        self.port = int(url.rsplit(":", 1)[1].rstrip("/"))
        until_now(self._has_agent, AGENT_S, "the demo agent is connected")

    def _has_agent(self) -> bool:
        return any(row["agent_id"] == "demo" and row["connected"] for row in self.query("snapshot")["agents"])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def link(self) -> str:
        """A fresh way into the workspace, which works once: what ``lineup open`` prints."""
        url: str = fresh_link(self.home, require_runtime(self.home), f"{self.origin}/")
        return url

    def open_app(self, tool_id: str, conversation_id: str, **input_: Any) -> None:
        """Call a tool as an agent of the command line does, in a conversation of its own."""
        done = self.cli("call", tool_id, json.dumps(input_), "--conversation", conversation_id, "--no-wait")
        assert done.returncode == 0, done.stderr

    def surface_state(self, surface_id: str) -> dict[str, Any]:
        """What the Runtime has of a surface: its durable state."""
        state: dict[str, Any] = self.query("surface", surface_id=surface_id)["state"]
        return state

    def kill_supervisor(self) -> None:
        self.remember_family()
        self.send(signal.SIGKILL)
        self.wait_over()

    def kill_service(self, name: str) -> int:
        pid = self.service(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_worker(self, app_scope: str, conversation_id: str) -> int:
        pid = self.worker(app_scope, conversation_id)
        assert pid is not None, f"{app_scope} does not run"
        os.kill(pid, signal.SIGKILL)
        return pid


@contextlib.contextmanager
def lineup_up() -> Iterator[LineUp]:
    root = Path(tempfile.mkdtemp(prefix="lub-"))
    made = LineUp(root)
    try:
        made.up()
        yield made
    finally:
        made.discard()
        shutil.rmtree(root, ignore_errors=True)
