"""One home and the daemons that run in it, one after the other: start, look, signal, kill, end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes.support.family import Member, alive, descendants, members
from processes.support.operator import Gone, Operator, audit
from processes.support.waiting import until, until_now

READY_S = 30.0
GONE_S = 2.0  # what a killed daemon had started is gone within this
BUNDLES = Path(__file__).resolve().parent.parent / "bundles"
LAB, FORKING, STUBBORN = (BUNDLES / name for name in ("lab", "forking", "stubborn"))


class Runtime:
    """See the module. ``config`` is the text of ``config.toml``."""

    def __init__(self, root: Path, config: str = "") -> None:
        self.home = root / f"home-{root.name}"
        self.home.mkdir(mode=0o700)
        if config:
            (self.home / "config.toml").write_text(config)
        self.process: subprocess.Popen[bytes] | None = None
        self._family: set[Member] = set()
        self.operator_pid: int | None = None  # one that the Runtime sees, if it does not see ours

    # -- start

    def begin(self, *options: str, crash_at: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """Start a daemon; it is not ready yet."""
        assert self.process is None or self.process.poll() is not None, "there is one already"
        if crash_at:
            environment["LINEUP_CRASH_AT"] = crash_at
        argv = [
            sys.executable,
            "-m",
            "lineup_supervisor",
            "run",
            "--home",
            str(self.home),
            *(options or ("--port", "0")),
        ]
        with (self.home.parent / "daemon.out").open("a") as out, (self.home.parent / "daemon.err").open("a") as errors:
            self.process = subprocess.Popen(argv, env={**os.environ, **environment}, stdout=out, stderr=errors)
        return self.process

    def start(self, *options: str, **settings: str) -> dict[str, Any]:
        """Start a daemon and wait until it is ready; what ``runtime.json`` says."""
        self.begin(*options, **settings)
        until_now(self._ready_or_over, READY_S, "the daemon is ready")
        assert self.is_up, f"the daemon ended with {self.process and self.process.returncode}: {self.errors()}"
        return self.facts()

    async def start_async(self, *options: str, **settings: str) -> bool:
        """The same for a daemon that may die on the way; False if it did."""
        self.begin(*options, **settings)
        await until(self._ready_or_over, READY_S, "the daemon is ready")
        return self.is_up

    def _ready_or_over(self) -> bool:
        return not self.is_up or self.facts().get("pid") == self.pid

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def facts(self) -> dict[str, Any]:
        """``runtime.json``; empty while there is none. A killed daemon leaves its own behind."""
        try:
            facts: dict[str, Any] = json.loads((self.home / "run" / "runtime.json").read_text())
        except FileNotFoundError:
            return {}
        return facts

    # -- look

    def operator(self) -> Operator:
        return Operator(self.home, is_up=lambda: self.process is None or self.is_up, pid=self.operator_pid)

    def query(self, name: str, **args: Any) -> Any:
        with self.operator() as link:
            return link.query(name, **args)

    def action(self, name: str, action_id: str, **args: Any) -> dict[str, Any]:
        with self.operator() as link:
            return link.action(name, action_id, **args)

    def add(self, *bundles: Path) -> None:
        for bundle in bundles:
            answer = self.action("apps.add", f"add-{bundle.name}", path=str(bundle))
            assert answer["accepted"], answer

    def audit(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        with self.operator() as link:
            return audit(link)

    def worker(self, app_scope: str, conversation_id: str | None = None) -> int | None:
        """The pid of the worker of a MiniApp's live instance, None while it has none."""
        for row in self.query("status")["instances"]:
            if (
                row["app_scope"] == app_scope
                and conversation_id in (None, row["conversation_id"])
                and row["worker_pid"]
            ):
                return int(row["worker_pid"])
        return None

    def service(self, name: str) -> int | None:
        for row in self.query("status")["services"]:
            if row["name"] == name and row["pid"]:
                return int(row["pid"])
        return None

    def cli(self, *arguments: str, within_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.cli_argv(*arguments), env=self.cli_environment(), capture_output=True, text=True, timeout=within_s
        )

    def cli_begin(self, *arguments: str) -> subprocess.Popen[str]:
        """One that goes on beside the test."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.cli_argv(*arguments), env=self.cli_environment(), stdout=pipe, stderr=pipe, text=True
        )

    def cli_argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "lineup_hostshell.cli.main", *arguments]

    def cli_environment(self) -> dict[str, str]:
        return {**os.environ, "LINEUP_HOME": str(self.home), "NO_COLOR": "1"}

    def errors(self) -> str:
        path = self.home.parent / "daemon.err"
        return path.read_text() if path.exists() else ""

    def log(self) -> list[dict[str, Any]]:
        path = self.home / "logs" / "runtime.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    # -- end

    def remember_family(self) -> set[Member]:
        """The processes of this home now, so that it can be seen later whether they are gone."""
        self._family |= {*members(self.home), *(descendants(self.pid) if self.is_up else ())}
        return self._family

    def kill(self) -> None:
        """SIGKILL; returns when the daemon and all that it had started are gone."""
        self.remember_family()
        self.send(signal.SIGKILL)
        self.wait_over()
        self.assert_nobody()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM; the exit code."""
        self.remember_family()
        self.send(signal.SIGTERM)
        return self.wait_over(within_s)

    def wait_over(self, within_s: float = 20.0) -> int:
        """The exit code of a daemon that ends by itself."""
        assert self.process is not None
        return self.process.wait(within_s)

    def left(self) -> list[Member]:
        """Processes of this home that are alive."""
        return sorted({*alive(self._family), *members(self.home)}, key=lambda member: member.pid)

    def assert_nobody(self, within_s: float = GONE_S) -> None:
        give_up_at = time.monotonic() + within_s
        until_now(lambda: not self.left() or time.monotonic() > give_up_at, within_s + 1, "processes are looked at")
        assert not (left := self.left()), f"left behind: {left}"

    def assert_clean(self) -> None:
        """After a clean end: nobody, and in ``run/`` no socket, folder, half-written file or ``runtime.json``."""
        self.assert_nobody()
        left = [path for path in (self.home / "run").glob("*") if not path.is_file() or path.name.startswith(".")]
        assert not left, f"left in run/: {left}"
        assert not (self.home / "run" / "runtime.json").exists()

    def discard(self) -> None:
        """At the end of a test, whatever it left: nothing of it may stay."""
        if self.is_up:
            self.remember_family()
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
            self.wait_over()
        elif self.process is None and (pid := self.facts().get("pid")) in {member.pid for member in members(self.home)}:
            os.kill(pid, signal.SIGKILL)  # one that the test had started in another way
        self.assert_nobody(5.0)


@contextlib.contextmanager
def runtime(config: str = "") -> Iterator[Runtime]:
    """A Runtime in a home of its own, on the disk where a user's would be."""
    root = Path(tempfile.mkdtemp(prefix="lup-"))
    made = Runtime(root, config)
    try:
        yield made
        made.discard()
    finally:
        if made.is_up:
            made.discard()
        shutil.rmtree(root, ignore_errors=True)


__all__ = ["BUNDLES", "FORKING", "LAB", "STUBBORN", "Gone", "Runtime", "runtime"]
