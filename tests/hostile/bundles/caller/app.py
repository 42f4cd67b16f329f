"""Tries every kind of socket, and ZeroMQ's own way out."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import zmq

from lineup_sdk import SDK, MiniApp, ToolCall

app = MiniApp()


def attempt(action: Callable[[], Any]) -> str:
    try:
        return f"done: {action()!r}"[:300]
    except Exception as error:
        return f"denied: {type(error).__name__}: {error}"


def connect(family: int, kind: int, address: Any) -> str:
    with socket.socket(family, kind) as made:
        made.settimeout(1)
        made.connect(address)
        return "connected"


@app.tool("caller.network")
async def network(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    found: dict[str, str] = {}
    for name, port in call.input["ports"].items():
        found[f"tcp4 {name}"] = attempt(
            lambda port=port: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port))
        )
        found[f"tcp6 {name}"] = attempt(lambda port=port: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port)))
    found["udp4"] = attempt(lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 53)))
    found["udp6"] = attempt(lambda: connect(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 53)))
    found["dns"] = attempt(lambda: socket.getaddrinfo("example.org", 80))
    found["raw"] = attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    found["packet"] = attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
    found["netlink"] = attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
    found["vsock"] = attempt(lambda: connect(socket.AF_VSOCK, socket.SOCK_STREAM, (2, 1)))
    found["alg"] = attempt(lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
    found["bluetooth"] = attempt(lambda: socket.socket(31, socket.SOCK_SEQPACKET))
    for name, path in call.input["sockets"].items():
        address = "\0" + path[1:] if path.startswith("@") else path
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            found[f"unix {name} {kind.name}"] = attempt(lambda a=address, k=kind: connect(socket.AF_UNIX, k, a))
    left, right = socket.socketpair()
    with left, right:
        for name, path in call.input["sockets"].items():
            found[f"unix {name} by a pair"] = attempt(lambda path=path: left.connect(path))
        found["unix bind"] = attempt(lambda: left.bind(os.environ["TMPDIR"] + "/mine"))
    found["unix own path again"] = attempt(
        lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, os.environ["LINEUP_SOCKET"].removeprefix("ipc://"))
    )
    found["unix 200 silent connects"] = attempt(lambda: [socket.socket(socket.AF_UNIX) for _ in range(200)])
    return found


@app.tool("caller.zmq")
async def by_zmq(call: ToolCall, sdk: SDK) -> dict[str, Any]:
    """libzmq may end the process when it is refused a socket; that is an answer as well."""
    context: zmq.Context[Any] = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.linger = 0
    peer.connect(call.input["endpoint"])
    peer.send(b"\x81\xa4type\xaahost.hello")
    said = peer.recv() if peer.poll(1_000) else None
    context.destroy(0)
    return {"zmq": "denied: no answer" if said is None else f"done: {said!r}"}
