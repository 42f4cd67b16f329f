"""A real daemon in a home of its own, driven from outside: start, ask over the host link, signal, kill."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from lineup_protocol.codec import decode_message, encode_message

READY_WITHIN_S = 30.0


def until(what: Callable[[], Any], within_s: float = 10.0, why: str = "") -> Any:
    """Wait for a condition with a bound; its value."""
    give_up_at = time.monotonic() + within_s
    while not (value := what()):
        assert time.monotonic() < give_up_at, f"not within {within_s} s: {why or what}"
        select.select([], [], [], 0.01)
    return value


class Peer:
    """One command line on the host link."""

    def __init__(
        self, home: Path, role: str = "cli", pid: int | None = None, alive: Callable[[], bool] = lambda: True
    ) -> None:
        self.alive = alive
        self.context: zmq.Context[Any] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"ipc://{home / 'run' / 'host.sock'}")
        self.others: list[tuple[str, dict[str, Any]]] = []
        self.send("host.hello", {"protocols": [1], "role": role, "pid": pid or os.getpid()})
        try:
            self.welcome = self.receive()
        except BaseException:
            self.close()
            raise

    def send(self, type_: str, body: dict[str, Any], message_id: str | None = None) -> None:
        self.socket.send(encode_message(type_, body, link="host", from_runtime=False, message_id=message_id))

    def receive(self, within_s: float = 10.0) -> tuple[str, dict[str, Any]]:
        until(lambda: self.socket.poll(50) or not self.alive(), within_s, "a message")
        if not self.socket.poll(0):
            raise ConnectionError("the daemon is gone")
        type_, _, body = decode_message(self.socket.recv(), "host", from_runtime=True)
        return type_, body

    def ask(self, type_: str, body: dict[str, Any]) -> dict[str, Any]:
        message_id = f"m-{secrets.token_hex(4)}"
        self.send(type_, body, message_id)
        while True:
            found, answer = self.receive()
            if found == "host.result" and answer["re"] == message_id:
                return answer
            self.others.append((found, answer))

    def query(self, name: str, **args: Any) -> Any:
        answer = self.ask("host.query", {"name": name, "args": args})
        assert answer["accepted"], answer
        return answer.get("detail")

    def action(self, name: str, *, action_id: str | None = None, **args: Any) -> dict[str, Any]:
        return self.ask(
            "host.action", {"action_id": action_id or f"a-{secrets.token_hex(4)}", "name": name, "args": args}
        )

    def close(self) -> None:
        self.socket.close()
        self.context.term()


class Daemon:
    """One home and the daemon in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[str] | None = None
        self.peers: list[Peer] = []
        self.family: set[psutil.Process] = set()

    def begin(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-m",
                "lineup_supervisor",
                "run",
                "--home",
                str(self.home),
                *options,
            ],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def start(self, *options: str, **environment: str) -> dict[str, Any]:
        """Start and wait until ready; what runtime.json says."""
        process = self.begin(*(options or ("--no-web",)), **environment)
        until(lambda: self.facts().get("pid") == process.pid or process.poll() is not None, READY_WITHIN_S, "ready")
        assert process.poll() is None, self.ended()
        return self.facts()

    def facts(self) -> dict[str, Any]:
        """What runtime.json says; a killed daemon leaves its own behind."""
        try:
            facts: dict[str, Any] = json.loads(self.runtime_json.read_text())
        except FileNotFoundError:
            return {}
        return facts

    @property
    def runtime_json(self) -> Path:
        return self.home / "run" / "runtime.json"

    def ended(self, within_s: float = 20.0) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a daemon that ends."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err

    def remember_family(self) -> set[psutil.Process]:
        """The daemon's processes, so that it can be asked later whether they are gone."""
        assert self.process is not None
        self.family |= set(psutil.Process(self.process.pid).children(recursive=True))
        return self.family

    def survivors(self) -> list[psutil.Process]:
        return [each for each in self.family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def peer(self, **options: Any) -> Peer:
        self.peers.append(
            Peer(self.home, alive=lambda: self.process is not None and self.process.poll() is None, **options)
        )
        return self.peers[-1]

    @staticmethod
    def until(what: Callable[[], Any], within_s: float = 10.0, why: str = "") -> Any:
        return until(what, within_s, why)

    def signal(self, signum: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    def stop(self) -> tuple[int, str, str]:
        self.signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        assert self.process is not None
        self.remember_family()
        self.process.kill()
        self.process.communicate()
        until(lambda: not self.survivors(), 2.0, "everything of a killed daemon is gone")

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "logs" / "runtime.log").read_text().splitlines()]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "home")
    yield made
    for peer in made.peers:
        peer.close()
    if made.process is not None and made.process.poll() is None:
        made.remember_family()
        made.process.kill()
        made.process.communicate()
    until(lambda: not made.survivors(), 5.0, "nothing is left behind")
