"""Plain sockets in a real sandbox against its own gate, before any link is up, as a worker could while it starts."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from lineup_supervisor.edges.gate import GateLimits
from lineup_supervisor.edges.logs import LogDirectory
from lineup_supervisor.edges.spawner import Spawner
from lineup_supervisor.edges.workers import HostSettings, WorkerHost, WorkerProcess
from processes.support.waiting import until

PRELUDE = """
import os, socket, struct, sys, time
from lineup_sdk import confine
confine.apply(os.environ["LINEUP_LEVEL"])
path = os.environ["LINEUP_SOCKET"].removeprefix("ipc://")
def connect():
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    return made
SIGNATURE = b"\\xff" + bytes(8) + b"\\x7f"
GREETING = SIGNATURE + b"\\x03\\x01" + b"NULL".ljust(20, b"\\0") + bytes(32)
def command(name, data):
    body = bytes([len(name)]) + name + data
    return bytes([4, len(body)]) + body
def ready(kind, identity=b""):
    data = b"\\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    if identity:
        data += b"\\x08Identity" + struct.pack(">I", len(identity)) + identity
    return command(b"READY", data)
def wait():
    time.sleep(60)
"""
PEERS = {
    "silent": ("peer = connect(); wait()", "handshake_timeout"),
    "half a greeting": ("peer = connect(); peer.sendall(GREETING[:30]); wait()", "handshake_timeout"),
    "no READY": ("peer = connect(); peer.sendall(GREETING); wait()", "handshake_timeout"),
    "an old version": ("peer = connect(); peer.sendall(SIGNATURE + b'\\x01' + bytes(53)); wait()", "greeting"),
    "another protocol": ("peer = connect(); peer.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); wait()", "greeting"),
    "another mechanism": (
        "peer = connect(); peer.sendall(SIGNATURE + b'\\x03\\x01' + b'PLAIN'.ljust(20, b'\\0') + bytes(32)); wait()",
        "mechanism",
    ),
    "another socket type": ("peer = connect(); peer.sendall(GREETING + ready(b'ROUTER')); wait()", "socket_type"),
    "a message before READY": ("peer = connect(); peer.sendall(GREETING + b'\\0\\x01x'); wait()", "handshake"),
    "a huge READY": (
        "peer = connect(); peer.sendall(GREETING + b'\\x06' + struct.pack('>Q', 1 << 40)); wait()",
        "message_too_large",
    ),
    "200 silent connects": (
        "kept = []\n"
        "for _ in range(200):\n"
        "    try: kept.append(connect())\n"
        "    except OSError: pass\n"
        "print(len(kept), flush=True)\n"
        "wait()",
        "handshake_timeout",
    ),
}
CONNECT_S = 8.0


class Peers:
    """A host of workers whose ends are collected."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = LogDirectory(home / "logs")
        self.ends: dict[str, tuple[str, str]] = {}
        self.messages: dict[str, list[bytes]] = {}

    def start(self, name: str, code: str) -> WorkerProcess:
        settings = HostSettings(
            self.home / "run" / name.replace(" ", "-"),
            self.logs,
            ("S3",),
            gate=GateLimits(handshake_s=1.0),
            connect_s=CONNECT_S,
        )
        host = WorkerHost(settings, self.spawner, entry=PRELUDE + code)
        heard = self.messages.setdefault(name, [])
        return host.start_worker(
            name,
            1,
            app_scope=name.replace(" ", "-"),
            bundle_path=str(self.home),
            limits={"open_files": 512},
            level="S3",
            on_started=lambda pid, level: None,
            on_message=heard.append,
            on_exited=lambda reason, detail, code: self.ends.__setitem__(name, (reason, detail)),
        )

    @property
    def spawner(self) -> Spawner:
        if not hasattr(self, "_spawner"):
            self._spawner = Spawner()
        return self._spawner


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    with tempfile.TemporaryDirectory(prefix="lu-") as directory:
        made = Peers(Path(directory))
        yield made
        for process in list(made.spawner.processes):
            process.kill("stopped")
        await until(lambda: not made.spawner.processes, 10, "every process has ended")
        made.logs.close()


async def test_each_is_cut_by_name_and_costs_one_descriptor(peers: Peers) -> None:
    me = psutil.Process()
    before, names = me.num_fds(), list(PEERS)
    for name in names:
        peers.start(name, PEERS[name][0])
    most = 0

    def are_over() -> bool:
        nonlocal most
        most = max(most, me.num_fds())
        return len(peers.ends) == len(names)

    await until(are_over, 30, "every peer was cut")
    assert {
        name: end for name, end in peers.ends.items() if not (end[0] == "gate" and end[1].startswith(PEERS[name][1]))
    } == {}
    # Per worker: listener or connection, two pipes of output, two of the lifeline, one of bubblewrap, three pidfds.
    assert most - before <= 12 * len(names)
    await until(lambda: me.num_fds() <= before + 2, 5, "every descriptor is back")


async def test_a_victims_routing_id_gets_nobody_its_messages(peers: Peers) -> None:
    """A peer that says it is the victim is still only itself: identity comes from the process and its own socket."""
    echo = "peer = connect(); peer.sendall(GREETING + ready(b'DEALER', b'victim') + b'\\0\\x05hello')\n"
    listen = "seen = b''\nwhile b'secret' not in seen: seen += peer.recv(4096)\npeer.sendall(b'\\0\\x03got'); wait()"
    victim = peers.start("victim", echo + listen)
    thief = peers.start("thief", echo + listen)
    await until(lambda: peers.messages["victim"] and peers.messages["thief"], 20, "both are linked")
    assert victim.send(b"secret")
    await until(lambda: peers.messages["victim"] == [b"hello", b"got"], 10, "the victim has its message")
    assert peers.messages["thief"] == [b"hello"]
    for worker in (victim, thief):
        worker.kill("stopped", "")
    await asyncio.sleep(0)


async def test_a_stranger_on_a_workers_socket_is_not_let_in(peers: Peers) -> None:
    """Another process of the same person that finds the socket first: it is turned away, and the worker gets in."""
    import socket

    worker = peers.start(
        "late", "time.sleep(0.3)\npeer = connect(); peer.sendall(GREETING + ready(b'DEALER') + b'\\0\\x02me'); wait()"
    )
    paths = [path for path in (peers.home / "run").rglob("s") if path.is_socket()]
    assert len(paths) == 1
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(10)
        stranger.connect(os.fspath(paths[0]))
        await until(lambda: peers.messages["late"] == [b"me"], 20, "the worker itself is linked")
        assert await asyncio.to_thread(stranger.recv, 1) == b"", "the stranger was turned away"
    worker.kill("stopped", "")
