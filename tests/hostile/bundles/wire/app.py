"""Takes its own link away from ZeroMQ and speaks whatever it likes on it."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import select
import socket
import struct
import threading
import time
from typing import Any

import msgpack

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()
faulthandler.enable()
SPEAK_S = 20.0  # far beyond every limit of the gate


class Link:
    """The worker's connection as a plain socket. libzmq keeps a number that leads nowhere."""

    def __init__(self) -> None:
        number = link_descriptor()
        self.socket = socket.socket(fileno=os.dup(number))
        self.socket.setblocking(True)
        self.socket.settimeout(SPEAK_S)
        left, self._kept = socket.socketpair()
        os.dup2(left.detach(), number)
        self._read = b""
        self._lock = threading.Lock()

    def speak(self, data: bytes) -> None:
        with self._lock:
            self.socket.sendall(data)

    def message(self, value: Any, *, packed: bool = False) -> None:
        body = value if packed else msgpack.packb(value)
        self.speak(frame(body))

    def receipts(self, count: int, seconds: float) -> list[dict[str, Any]]:
        """What came back, until there are so many receipts or the link is cut."""
        found: list[dict[str, Any]] = []
        give_up_at = time.monotonic() + seconds
        while len(found) < count and select.select([self.socket], [], [], max(0.0, give_up_at - time.monotonic()))[0]:
            try:
                part = self.socket.recv(65_536)
            except OSError:
                break
            if not part:
                break
            self._read += part
            for body in self._frames():
                message = msgpack.unpackb(body)
                if message["type"] == "receipt":
                    found.append(message["body"])
                elif message["type"] == "worker.ping":
                    self.message({"type": "worker.pong", "body": message["body"]})
        return found

    def answer_pings(self) -> None:
        with contextlib.suppress(OSError):
            self.receipts(10**9, SPEAK_S)

    def _frames(self) -> list[bytes]:
        found = []
        while len(self._read) >= 2:
            header = 9 if self._read[0] & 2 else 2
            if len(self._read) < header:
                break
            size = struct.unpack(">Q", self._read[1:9])[0] if header == 9 else self._read[1]
            if len(self._read) < header + size:
                break
            if not self._read[0] & 4:
                found.append(self._read[header : header + size])
            self._read = self._read[header + size :]
        return found


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes([flags | 2]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body


def link_descriptor() -> int:
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as made:
                if made.family == socket.AF_UNIX and str(made.getpeername()).endswith("/s"):
                    return int(name)
        except OSError:
            continue
    raise LookupError("there is no link")


def command(name: bytes, data: bytes) -> bytes:
    return frame(bytes([len(name)]) + name + data, flags=4)


def endless(block: bytes) -> Any:
    while True:
        yield block


def progress(call_id: str) -> bytes:
    return frame(msgpack.packb({"type": "tool.progress", "body": {"call_id": call_id, "progress": 0.5}}))


DEPTHS = (33, 511, 1025, 3000, 1_000_000)
ATTACKS: dict[str, Any] = {
    "more": lambda: endless(frame(b"x" * 60_000, flags=1)),
    "more, empty": lambda: endless(b"\x01\x00" * 30_000),
    "frames": lambda: [frame(b"x", flags=1) * 200_000 + frame(b"x")],
    "size": lambda: [b"\x02" + struct.pack(">Q", 2**63 - 1) + bytes(1_000_000)],
    "over the cap": lambda: [frame(bytes(4 * 1024 * 1024 + 1))],
    "never finished": lambda: [b"\x02" + struct.pack(">Q", 4 * 1024 * 1024), *[bytes(1000)] * 4000],
    "reserved flags": lambda: [b"\xf8\x00"],
    "a victim's routing id": lambda: [
        command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x06victim")
    ],
    "another greeting": lambda: [b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)],
    "huge ping": lambda: [command(b"PING", bytes(60_000))],
    "ping flood": lambda: endless(command(b"PING", b"\x00\x00ping") * 1000),
    "subscribe": lambda: [command(b"SUBSCRIBE", b"")],
    "no message": lambda: [frame(b"")],
    "garbage": lambda: [frame(bytes(range(256)) * 16)],
    **{f"depth {n}": lambda n=n: [frame(b"\x91" * n)] for n in DEPTHS},
    **{
        f"bomb {bomb.hex()}": lambda bomb=bomb: [frame(bomb)]
        for bomb in (
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
            b"\xc9\xff\xff\xff\xff\x01",
            bytes.fromhex("9ffd74f7dd74fffdbd"),
            b"\x82\xa4type\xa1x\xa4type\xa1y",
            b"\xd7\xff" + b"\xff" * 8,
        )
    },
    "flood of refused": lambda: endless(progress("nobodys") * 500),
    "flood of bytes": lambda: endless(
        frame(msgpack.packb({"type": "state.save", "body": {"state": {"x": "y" * 3_000_000}}}))
    ),
}


@app.tool("wire.attack")
async def attack(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    what = call.input["what"]
    blocks = endless(progress(call.call_id) * 500) if what == "flood" else ATTACKS[what]()
    link = Link()
    await asyncio.gather(asyncio.to_thread(speak, link, blocks), asyncio.to_thread(link.answer_pings))
    await asyncio.Event().wait()
    return {}


def speak(link: Link, blocks: Any) -> None:
    try:
        for block in blocks:
            link.speak(block)
    except OSError:
        return


@app.tool("wire.forge")
async def forge(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """Says each message under an id of its own; then ends its call, as an honest app would, with what it heard."""
    link = Link()
    messages = call.input["messages"]
    for number, message in enumerate(messages):
        link.message({**message, "id": f"forged-{number}"})
    receipts = await asyncio.to_thread(link.receipts, len(messages), 10.0)
    body = {"call_id": call.call_id, "result": {"receipts": receipts}}
    link.message({"type": "tool.complete", "id": "done", "body": body})
    await asyncio.to_thread(link.receipts, 1, 5.0)
    os._exit(0)
