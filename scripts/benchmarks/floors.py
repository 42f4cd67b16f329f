"""Floors, measured in the same run as everything else: what the machine itself charges for the parts of a call."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAYLOAD = b"x" * 300
ECHO = (
    "import sys, zmq\n"
    "s = zmq.Context().socket(zmq.DEALER); s.connect(sys.argv[1]); s.send(b'ready')\n"
    "while (m := s.recv()): s.send(m)\n"
)


def zmq_round_trip_s(rounds: int = 3000) -> float:
    """Median of one raw ZeroMQ round trip of 300 bytes to another process over ipc."""
    import zmq

    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/s"
        context = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        socket.bind(address)
        peer = subprocess.Popen([sys.executable, "-c", ECHO, address])
        try:
            identity, _ = socket.recv_multipart()
            times = []
            for _ in range(rounds):
                begin = time.perf_counter()
                socket.send_multipart([identity, PAYLOAD])
                socket.recv_multipart()
                times.append(time.perf_counter() - begin)
            socket.send_multipart([identity, b""])
            peer.wait(5)
        finally:
            peer.kill()
            socket.close(0)
            context.term()
    return statistics.median(times[rounds // 10 :])


def durable_commit_s(commits: int = 400) -> float:
    """Median of one LMDB write transaction of one row, synced to the disk that the home would be on."""
    import lmdb

    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        env = lmdb.open(folder, map_size=1 << 28)
        times = []
        for n in range(commits):
            begin = time.perf_counter()
            with env.begin(write=True) as txn:
                txn.put(b"%016d" % n, PAYLOAD)
            times.append(time.perf_counter() - begin)
        env.close()
    return statistics.median(times)


def interpreter_start_s(starts: int = 15) -> float:
    """Median of starting and ending a bare interpreter."""
    times = []
    for _ in range(starts):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
