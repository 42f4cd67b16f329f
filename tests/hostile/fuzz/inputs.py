"""Makes inputs: from the table of messages, and from inputs that got somewhere."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import msgpack

from lineup_protocol.messages import AGENT_LINK, HOST_LINK, WORKER_LINK, Message
from lineup_supervisor.core import actions, queries

INPUT_BYTES_MAX = 4_096
_TABLES = {
    "worker": [m for m in WORKER_LINK if m.source != "runtime"],
    "host": [m for m in HOST_LINK if m.source != "runtime"],
    "agent": [m for m in AGENT_LINK if m.source != "runtime"],
}
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53,
    -(2**53),
    2**63,
    0.5,
    -0.0,
    1e308,
    "",
    "x",
    "\u202e\u0000",
    "\U0001f468\u200d\U0001f469",
    "e\u0301",
    "a" * 200,
    "2036-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "not a time",
    [],
    {},
    [[[[1]]]],
    {"a": {"b": {"c": 1}}},
    {"": 1},
    {"__proto__": 1},
    b"bytes",
    {"kind": "confirm", "title": "t", "prompt": "p"},
    {"kind": "choice", "title": "t", "prompt": "p", "actions": [{"id": "a", "label": "A"}]},
    {"kind": "input", "title": "t", "fields": [{"id": "a", "label": "A", "type": "text"}]},
    {"kind": "notice", "title": "t", "message": "m"},
    {"approved": True},
    {"n": 1},
    {"action_ids": ["a"]},
)
_BOMBS = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\x91" * 40,
    b"\x81" * 40,
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\xd7\xff" + b"\xff" * 8,
    b"\xa2\xff\xfe",
    b"\xc1",
)
_NAMES = sorted({*actions._ACTIONS, *getattr(queries, "_QUERIES", ())})


class Maker:
    """Inputs for one link, drawn from ``rng``."""

    def __init__(self, link: str, words: Sequence[str], rng: random.Random) -> None:
        self.link = link
        self._words = [*words, *_NAMES]
        self._rng = rng
        self._fields = sorted(
            {name for m in _TABLES[link] for name in m.fields} | {"args", "path", "text", "id", "result"}
        )

    def fresh(self) -> bytes:
        """A message of the table, mostly right."""
        rng = self._rng
        message = rng.choice(_TABLES[self.link])
        body = {
            name: self._value(field.kind)
            for name, field in message.fields.items()
            if field.required or rng.random() < 0.5
        }
        if message.type == "host.action" and rng.random() < 0.9:
            body["name"] = rng.choice(_NAMES)
        if "args" in body:
            body["args"] = {rng.choice(self._arguments()): self._any() for _ in range(rng.randrange(5))}
        if rng.random() < 0.1:
            body[rng.choice(self._fields)] = self._any()
        return self._encode(self._envelope(message, body))

    def mutated(self, data: bytes, other: bytes) -> bytes:
        """A neighbour of ``data``: of its values or of its bytes."""
        rng = self._rng
        if rng.random() < 0.6:
            try:
                return self._encode(self._changed(self._decode(data)))[:INPUT_BYTES_MAX]
            except Exception:
                pass  # it is not of that form any more; its bytes can still be changed
        for _ in range(rng.randrange(1, 4)):
            data = self._bytes_changed(data, other)
        return data[:INPUT_BYTES_MAX]

    def _envelope(self, message: Message, body: dict[str, Any]) -> dict[str, Any]:
        rng = self._rng
        if self.link == "agent":
            frame: dict[str, Any] = {
                "type": message.type,
                "message_id": rng.choice(("m1", "m2", self._word())),
                "sent_at": "2036-01-01T00:00:00Z",
                "payload": body,
            }
            if rng.random() < 0.8:
                frame["conversation_id"] = rng.choice(("c1", "c2", "c3", "c9", self._word()))
            return frame
        frame = {"type": message.type, "body": body}
        if rng.random() < 0.8:
            frame["id"] = "i-1"
        return frame

    def _arguments(self) -> tuple[str, ...]:
        return (
            *("call_id", "interaction_id", "instance_id", "conversation_id", "surface_id", "app_scope", "session_id"),
            *(
                "text",
                "result",
                "limit",
                "after",
                "before",
                "name",
                "payload",
                "patch",
                "base_revision",
                "input",
                "tool_id",
            ),
            *(
                "agent_id",
                "artifact_id",
                "notification_id",
                "capability",
                "reason",
                "draft",
                "action_id",
                "query",
                "kind",
            ),
        )

    def _value(self, kind: Any) -> Any:
        rng = self._rng
        if rng.random() < 0.1:
            return self._any()
        if isinstance(kind, tuple):
            return rng.choice(kind)
        chosen: dict[str, Any] = {
            "id": lambda: self._word(),
            "name": lambda: rng.choice((self._word(), "name", "lab.direct", "", "n" * 129)),
            "reason": lambda: rng.choice((self._word(), "", "r" * 1_024, "r" * 1_025)),
            "text": lambda: rng.choice((self._word(), "text", "surface/index.html", "lab.direct", "text/plain", "")),
            "int": lambda: rng.choice((0, 1, 2, 3, 7, -1, 2**53 - 1)),
            "num": lambda: rng.choice((0, 0.5, 1, 2, -1)),
            "bool": lambda: rng.random() < 0.5,
            "obj": lambda: rng.choice([value for value in _VALUES if isinstance(value, dict)]),
            "list": lambda: rng.choice(([], [1], [1, 2, 3], ["x"])),
            "time": lambda: "2036-01-01T00:00:00Z",
            "ids": lambda: [self._word()],
        }
        return chosen.get(kind, self._any)()

    def _word(self) -> str:
        return str(self._rng.choice(self._words))

    def _any(self) -> Any:
        rng = self._rng
        return rng.choice((self._word(), rng.choice(_VALUES), rng.choice(_VALUES)))

    def _changed(self, value: Any) -> Any:
        """One place of a value changed: replaced, renamed, left out, added or put in twice over."""
        rng = self._rng
        if isinstance(value, dict) and value and rng.random() < 0.85:
            name = rng.choice(list(value))
            changed = dict(value)
            match rng.randrange(6):
                case 0:
                    del changed[name]
                case 1:
                    changed[rng.choice(self._fields)] = self._any()
                case 2:
                    changed[rng.choice(self._fields)] = changed.pop(name)
                case _:
                    changed[name] = self._changed(changed[name])
            return changed
        if isinstance(value, list) and value and rng.random() < 0.7:
            at = rng.randrange(len(value))
            return [*value[:at], self._changed(value[at]), *value[at + rng.randrange(2) :]]
        return self._any()

    def _bytes_changed(self, data: bytes, other: bytes) -> bytes:
        rng = self._rng
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 1:
                return data[:at] + rng.choice(_BOMBS) + data[at:]
            case 2:
                return data[:at] + data[at + rng.randrange(1, 9) :]
            case 3:
                return data[:at] + other[rng.randrange(len(other) + 1) :]
            case 4:
                return data[:at] + self._word().encode() + data[at:]
            case _:
                return data[:at] + data[at : at + 16] * rng.randrange(2, 5) + data[at:]

    def _encode(self, value: Any) -> bytes:
        if self.link == "agent":
            return json.dumps(value, default=repr).encode()
        return bytes(msgpack.packb(value))

    def _decode(self, data: bytes) -> Any:
        return json.loads(data) if self.link == "agent" else msgpack.unpackb(data)
