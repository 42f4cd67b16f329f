"""The operator's raw link: msgpack maps over a ZeroMQ DEALER, as ``protocol/SPEC.md`` says, nothing of ours between."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgpack
import zmq

ANSWER_S = 10.0
POLL_MS = 20


class Gone(Exception):
    """Nobody answers."""


class Operator:
    """One peer on ``run/host.sock``. Use as a context manager."""

    def __init__(
        self, home: Path, role: str = "cli", is_up: Callable[[], bool] = lambda: True, pid: int | None = None
    ) -> None:
        self._is_up = is_up
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"ipc://{home / 'run' / 'host.sock'}")
        self._numbers = itertools.count(1)
        self._role = role
        self._pid = pid or os.getpid()  # as the Runtime sees it; it watches that process

    def __enter__(self) -> Self:
        try:
            self._send({"type": "host.hello", "body": {"protocols": [1], "role": self._role, "pid": self._pid}})
            welcome = self._receive(time.monotonic() + ANSWER_S)
            assert welcome["type"] == "host.welcome", welcome
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._context.term()

    def query(self, name: str, **args: Any) -> Any:
        answer = self.ask("host.query", {"name": name, "args": args})
        assert answer["accepted"], answer
        return answer.get("detail")

    def action(self, name: str, action_id: str, **args: Any) -> dict[str, Any]:
        """The whole ``host.result``; the same ``action_id`` again has no second effect."""
        return self.ask("host.action", {"action_id": action_id, "name": name, "args": args})

    def ask(self, type_: str, body: dict[str, Any], within_s: float = ANSWER_S) -> dict[str, Any]:
        message_id = f"q-{os.getpid()}-{next(self._numbers)}"
        self._send({"type": type_, "id": message_id, "body": body})
        give_up_at = time.monotonic() + within_s
        while True:
            message = self._receive(give_up_at)
            if message["type"] == "host.result" and message["body"]["re"] == message_id:
                found: dict[str, Any] = message["body"]
                return found

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.send(msgpack.packb(message))

    def _receive(self, give_up_at: float) -> dict[str, Any]:
        while not self._socket.poll(POLL_MS):
            if not self._is_up() or time.monotonic() > give_up_at:
                raise Gone("the Runtime did not answer")
        message: dict[str, Any] = msgpack.unpackb(self._socket.recv())
        return message


def audit(operator: Operator) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All rows of the audit and its head."""
    rows: list[dict[str, Any]] = []
    while True:
        page = operator.query("audit.page", after=rows[-1]["seq"] if rows else 0, limit=1000)
        rows += page["rows"]
        if not page["rows"] or rows[-1]["seq"] >= page["head"]["seq"]:
            return rows, page["head"]
