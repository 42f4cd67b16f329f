"""A stand-in for the supervisor's side of the host link: answers queries and actions from a table of functions.

It speaks the real protocol over a real ROUTER socket, so that the command line is tested down to the bytes; what it
answers is up to each test. Rules of the Runtime have no place here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from lineup_protocol.codec import decode_message, encode_message
from lineup_protocol.errors import LineUpError

Answer = Callable[[dict[str, Any]], Any]
_POLL_MS = 20


class FakeRuntime:
    """Use as a context manager. ``queries`` and ``actions``: a name and what makes its detail (or raises LineUpError).

    ``records`` are what a watch of a call sends, one after the other; ``seen`` lists every request as ``(name, args)``.
    """

    def __init__(self, home: Path) -> None:
        self.run_dir = home / "run"
        self.queries: dict[str, Answer] = {}
        self.actions: dict[str, Answer] = {}
        self.records: list[dict[str, Any]] = []
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.watched = threading.Event()
        self.stopping = threading.Event()
        self.falls_silent = False  # set by an action: it is taken, and neither it nor anything else is ever answered
        self.action_ids: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> FakeRuntime:
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._thread.join(10)

    def args_of(self, name: str) -> list[dict[str, Any]]:
        return [args for seen, args in self.seen if seen == name]

    def _serve(self) -> None:
        # Closed whatever an answer raises: a context with a socket left over would wait in its destructor for ever.
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.setsockopt(zmq.LINGER, 500)
            socket.bind(f"ipc://{self.run_dir / 'host.sock'}")
            self._ready.set()
            while not self.stopping.is_set():
                if socket.poll(_POLL_MS):
                    peer, data = socket.recv_multipart()
                    messages = self._answers(*decode_message(data, "host", from_runtime=False))
                    for message in () if self.falls_silent else messages:
                        socket.send_multipart([peer, message])

    def _answers(self, type_: str, id_: str | None, body: dict[str, Any]) -> list[bytes]:
        if type_ == "host.hello":
            welcome = {"protocol": 1, "boot_id": "b-1", "version": "0.1.0", "settings": {}}
            return [encode_message("host.welcome", welcome, link="host", from_runtime=True)]
        assert id_ is not None
        if type_ == "host.watch":
            self.watched.set()
            return [_result(id_, None), *(self._watched(body["call_id"], record) for record in self.records)]
        table = self.queries if type_ == "host.query" else self.actions
        self.seen.append((body["name"], body["args"]))
        self.action_ids += [body["action_id"]] if type_ == "host.action" else []
        try:
            if body["name"] not in table:
                raise LineUpError("not_found", f"this stand-in has no {body['name']}")
            return [_result(id_, table[body["name"]](body["args"]))]
        except LineUpError as error:
            return [
                encode_message(
                    "host.result", {"re": id_, "accepted": False, **error.as_dict()}, link="host", from_runtime=True
                )
            ]

    @staticmethod
    def _watched(call_id: str, record: dict[str, Any]) -> bytes:
        body = {"call_id": call_id, "record": {"call_id": call_id, **record}}
        return encode_message("host.watched", body, link="host", from_runtime=True)


def _result(id_: str, detail: Any) -> bytes:
    return encode_message(
        "host.result", {"re": id_, "accepted": True, "detail": detail}, link="host", from_runtime=True
    )
