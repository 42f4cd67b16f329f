"""What a moment's lack costs: without descriptors, without room, in the middle of a backup. The Runtime goes on."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lineup_supervisor.core.schema import (
    ARTIFACTS,
    BLOBS,
    EXPORTED_ARTIFACTS,
    SCHEMA_VERSION,
    TABLES,
    Artifact,
    Blob,
    Mark,
)
from lineup_supervisor.edges.store import Store
from lineup_supervisor.home import open_home

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def configure(home: Path, text: str) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(text)


def kept(root: Path, work: Any) -> None:
    """Rows in the store of a home that no daemon has open."""
    home = open_home(root)
    store = Store.open(home.data, TABLES, schema_version=SCHEMA_VERSION)
    store.transact(work)
    store.close()


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """The process can open nothing more, whatever it closes meanwhile."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(set(range(max(used) + 2)) - used), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def call(peer: Any, call_id: str) -> int:
    """Start a call; the pid of its worker once it runs."""
    answer = peer.action(
        "call.start",
        action_id=f"start-{call_id}",
        call_id=call_id,
        tool_id="task-dashboard.open",
        input={"task_id": call_id, "title": "Write report"},
        conversation_id="c1",
        inventory_revision=peer.query("tools")["revision"],
        agent_id="cli",
    )
    assert answer["accepted"], answer
    give_up_at = time.monotonic() + 20
    while peer.query("call", call_id=call_id, agent_id="cli")["status"] != "running":
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    return worker_pid(peer)


def worker_pid(peer: Any) -> int:
    """0 if it has none just now."""
    pids = [i["worker_pid"] for i in peer.query("status")["instances"] if i["app_scope"] == "task-dashboard"]
    return int(pids[0] or 0)


# --- questions


def test_status_is_answered_without_what_cannot_be_looked_at(daemon: Any) -> None:
    daemon.start()
    peer = daemon.peer()
    with no_descriptors(daemon.process.pid):
        for _ in range(3):
            assert peer.query("status")["pid"] == daemon.process.pid
    data = daemon.home / "data" / "data.mdb"
    data.rename(data.with_name("aside"))
    assert "store" not in peer.query("status")
    assert peer.query("calls")["calls"] == []
    data.with_name("aside").rename(data)
    status = peer.query("status")
    assert status["store"]["bytes"] > 0
    assert status["memory_bytes"] > 0
    assert daemon.stop()[0] == 0


# --- descriptors


def test_a_hung_worker_is_found_after_a_time_without_descriptors_too(daemon: Any) -> None:
    configure(daemon.home, "[workers]\nheartbeat_ms = 100\nmissed_heartbeats_max = 5\n")
    daemon.start()
    peer = daemon.peer()
    first = call(peer, "k1")
    with no_descriptors(daemon.process.pid):
        daemon.until(lambda: faults_of(daemon, "a look at the workers' memory failed"), 10)
    os.kill(first, signal.SIGSTOP)
    daemon.until(lambda: worker_pid(peer) not in (0, first), 15, "its successor")
    assert "hung" in [line["reason"] for line in daemon.log() if line["event"] == "worker ended"]


def test_hostshell_is_started_again_once_there_are_descriptors(daemon: Any) -> None:
    daemon.start("--port", "0")
    peer = daemon.peer()
    (service,) = peer.query("status")["services"]
    shell = psutil.Process(service["pid"])
    shell.suspend()
    with no_descriptors(daemon.process.pid):
        os.kill(service["pid"], signal.SIGKILL)
        give_up_at = time.monotonic() + 20
        while not [line for line in daemon.log() if line["event"] == "service ended" and "could not" in line["detail"]]:
            assert time.monotonic() < give_up_at
            used = {int(name) for name in os.listdir(f"/proc/{daemon.process.pid}/fd")}
            free = min(set(range(max(used) + 2)) - used)
            most = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[1]
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (free, most))  # its end has freed some
            time.sleep(0.02)
    daemon.until(lambda: sum(line["event"] == "host is listening" for line in daemon.log()) == 2, 20)
    assert peer.query("status")["services"][0]["pid"]


def faults_of(daemon: Any, what: str) -> list[dict[str, Any]]:
    return [line for line in daemon.log() if line["event"] == "a callback failed" and line["what"] == what]


# --- files of the home


def test_where_it_listens_need_not_be_written_down_for_hostshell_to_come_back(daemon: Any) -> None:
    facts = daemon.start("--port", "0")
    peer = daemon.peer()
    daemon.runtime_json.unlink()
    daemon.runtime_json.mkdir()
    (daemon.runtime_json / "x").touch()  # stands for a disk without room
    (service,) = peer.query("status")["services"]
    os.kill(service["pid"], signal.SIGKILL)
    written = "where it listens cannot be written down"
    daemon.until(lambda: [line for line in daemon.log() if line["event"] == written], 20)
    daemon.until(lambda: peer.query("status")["services"][0]["pid"], 10)
    assert peer.query("status")["services"][0]["restarts"] == 1
    shutil.rmtree(daemon.runtime_json)
    daemon.until(lambda: daemon.facts() == facts, 15, "written once it can be")
    assert daemon.stop()[0] == 0
    assert not daemon.runtime_json.exists()


def test_it_ends_cleanly_also_where_a_file_of_the_run_cannot_be_removed(daemon: Any) -> None:
    daemon.start()
    daemon.runtime_json.unlink()
    daemon.runtime_json.mkdir()
    (daemon.runtime_json / "x").touch()
    assert daemon.stop()[0] == 0
    assert daemon.log()[-1]["event"] == "stopped"


def test_a_file_that_was_exported_is_written_as_soon_as_it_can_be(daemon: Any) -> None:
    content = b"what a person let a MiniApp export"
    sha256 = hashlib.sha256(content).hexdigest()

    def work(txn: Any) -> None:
        artifact = Artifact(
            artifact_id="a1",
            sha256=sha256,
            media_type="text/plain",
            bytes=len(content),
            title="t",
            app_scope="whiteboard",
            instance_id="i1",
            conversation_id="c1",
            agent_id="cli",
            created_ms=1,
            cause="e1",
            exported_ms=1,
        )
        txn.put(ARTIFACTS, ("a1",), artifact)
        txn.put(EXPORTED_ARTIFACTS, ("a1",), Mark())
        txn.put(BLOBS, (sha256,), Blob(content=content))

    kept(daemon.home, work)
    path = daemon.home / "artifacts" / f"{sha256}.txt"
    path.mkdir()  # stands for a disk that refuses
    daemon.start()
    assert [line for line in daemon.log() if line["event"] == "files of the home cannot be kept"]
    path.rmdir()
    daemon.until(path.is_file, 15, "written without a start")
    assert path.read_bytes() == content
    assert daemon.stop()[0] == 0


# --- backups


def test_two_backups_side_by_side_end_nothing(daemon: Any, tmp_path: Path) -> None:
    """Each is there, whole, or refused by name."""

    def fill(txn: Any) -> None:
        for _ in range(12):
            content = os.urandom(1 << 20)
            txn.put(BLOBS, (hashlib.sha256(content).hexdigest(),), Blob(content=content))

    kept(daemon.home, fill)
    daemon.start()
    made = []
    for n in range(4):
        pair = [backup(daemon.home, tmp_path / f"{n}-{which}.tar") for which in "ab"]
        for which, process in zip("ab", pair, strict=True):
            out, err = process.communicate(timeout=60)
            assert daemon.process.poll() is None, "the Runtime is gone"
            assert process.returncode == 0 or "conflict: another backup" in err, (out, err)
            if process.returncode == 0:
                made.append(tmp_path / f"{n}-{which}.tar")
    assert len(made) >= 4
    assert {file.name for file in tmp_path.glob("*.tar")} == {file.name for file in made}
    assert {file.stat().st_size for file in made} == {made[0].stat().st_size}
    assert not list((daemon.home / "data").glob("backup*"))
    assert daemon.stop()[0] == 0
    restored = subprocess.run(
        [sys.executable, "-m", "lineup_supervisor", "restore", str(made[-1]), "--home", str(tmp_path / "restored")],
        capture_output=True,
        text=True,
    )
    assert restored.returncode == 0, restored.stderr


def test_an_end_does_not_wait_for_a_backup(daemon: Any, tmp_path: Path) -> None:
    open_home(daemon.home)
    with open(daemon.home / "artifacts" / "large", "wb") as file:
        file.truncate(4 << 30)  # without blocks; to read and write it takes seconds
    daemon.start()
    process = backup(daemon.home, tmp_path / "b.tar")
    daemon.until(lambda: [p for p in tmp_path.glob(".lineup-backup-*") if p.stat().st_size > 1 << 20], 20)
    began = time.monotonic()
    code, _, err = daemon.stop()
    assert (code, time.monotonic() - began < 3.0) == (0, True), err
    _, err = process.communicate(timeout=10)
    assert process.returncode != 0
    assert "runtime_stopping" in err
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert not list((daemon.home / "data").glob("backup*"))


def test_what_a_killed_backup_left_is_gone_after_the_next_start(daemon: Any) -> None:
    left = open_home(daemon.home).data / "backup-0123456789abcdef.mdb"
    left.write_bytes(b"x")
    daemon.start()
    assert not left.exists()


def backup(home: Path, file: Path) -> subprocess.Popen[str]:
    lineup = [sys.executable, "-m", "lineup_hostshell.cli.main", "backup", str(file), "--home", str(home)]
    return subprocess.Popen(lineup, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
