"""Ending: clean, hurried, killed, at every named point; and the host link's peers (catalogue F7, J1 to J5, A1)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.crash_points import CRASH_POINTS, arm
from lineup_supervisor.edges.store import Store


def call(peer: Any, call_id: str) -> Any:
    return peer.action(
        "call.start",
        action_id=f"start-{call_id}",
        call_id=call_id,
        tool_id="task-dashboard.open",
        input={"task_id": call_id, "title": "Write report"},
        conversation_id="c1",
        inventory_revision=peer.query("tools")["revision"],
        agent_id="cli",
    )


def worker_pid(peer: Any) -> int | None:
    for instance in peer.query("status")["instances"]:
        if instance["app_scope"] == "task-dashboard" and instance["worker_pid"]:
            return int(instance["worker_pid"])
    return None


def new_worker_pid(peer: Any, old: int | None) -> int | None:
    pid = worker_pid(peer)
    return None if pid == old else pid


def running(peer: Any, call_id: str) -> bool:
    return peer.query("call", call_id=call_id, agent_id="cli")["status"] == "running"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_idle_it_ends_within_a_second(daemon: Any, signum: signal.Signals) -> None:
    daemon.start()
    began = time.monotonic()
    daemon.signal(signum)
    code, out, _ = daemon.ended()
    assert code == 0
    assert out.endswith("The Runtime has stopped.\n")
    assert time.monotonic() - began < 1.0


def test_with_a_worker_it_ends_within_the_grace_and_leaves_nobody(daemon: Any) -> None:
    daemon.start()
    peer = daemon.peer()
    assert call(peer, "k1")["accepted"]
    pid = daemon.until(lambda: worker_pid(peer), 15)
    daemon.remember_family()
    assert psutil.pid_exists(pid)
    assert peer.action("runtime.stop")["accepted"]
    assert daemon.ended()[0] == 0
    assert daemon.survivors() == []
    assert not psutil.pid_exists(pid)
    assert not daemon.runtime_json.exists()


def test_a_second_signal_does_not_wait_for_a_worker_that_will_not_end(daemon: Any) -> None:
    daemon.start()
    peer = daemon.peer()
    assert call(peer, "k1")["accepted"]
    daemon.until(lambda: running(peer, "k1"), 15)
    psutil.Process(worker_pid(peer)).suspend()
    daemon.remember_family()
    began = time.monotonic()
    daemon.signal(signal.SIGINT)
    daemon.until(lambda: not daemon.runtime_json.exists())
    daemon.signal(signal.SIGINT)
    assert daemon.ended()[0] == 0
    assert time.monotonic() - began < 2.0
    assert daemon.survivors() == []


def test_a_hangup_and_a_closed_terminal_stop_nothing(daemon: Any) -> None:
    daemon.start()
    daemon.signal(signal.SIGHUP)
    daemon.process.stdout.close()
    daemon.process.stderr.close()
    assert daemon.peer().query("status")["pid"] == daemon.process.pid
    daemon.until(lambda: any(line["event"] == "SIGHUP ignored" for line in daemon.log()))
    daemon.signal(signal.SIGTERM)
    assert daemon.process.wait(10) == 0


def test_killed_it_takes_every_process_along_and_the_call_survives(daemon: Any) -> None:
    daemon.start("--port", "0")
    peer = daemon.peer()
    assert call(peer, "k1")["accepted"]
    daemon.until(lambda: running(peer, "k1"), 15)
    assert len(daemon.remember_family()) >= 2
    daemon.kill()
    daemon.start()
    assert daemon.peer().query("call", call_id="k1", agent_id="cli")["status"] in ("running", "waiting_for_app")
    assert daemon.stop()[0] == 0


def test_a_killed_worker_comes_back_and_a_hung_one_is_replaced(daemon: Any) -> None:
    daemon.home.mkdir(mode=0o700)
    (daemon.home / "config.toml").write_text("[workers]\nheartbeat_ms = 100\nmissed_heartbeats_max = 3\n")
    daemon.start()
    peer = daemon.peer()
    assert call(peer, "k1")["accepted"]
    daemon.until(lambda: running(peer, "k1"), 15)
    first = worker_pid(peer)
    os.kill(first, signal.SIGKILL)
    second = daemon.until(lambda: new_worker_pid(peer, first), 15)
    daemon.until(lambda: running(peer, "k1"), 15)
    os.kill(second, signal.SIGSTOP)
    daemon.until(lambda: new_worker_pid(peer, second), 15)
    ended = [line for line in daemon.log() if line["event"] == "worker ended"]
    assert all(line["app_scope"] == "task-dashboard" for line in ended)
    reasons = [line["reason"] for line in ended]
    assert reasons[0] in ("killed", "gate")
    assert reasons[1] == "hung"


def test_a_dead_hostshell_comes_back_at_the_same_port(daemon: Any) -> None:
    facts = daemon.start("--port", "0")
    peer = daemon.peer()
    (service,) = peer.query("status")["services"]
    os.kill(service["pid"], signal.SIGKILL)
    daemon.until(lambda: peer.query("status")["services"][0]["restarts"] == 1, 15)
    daemon.until(lambda: sum(line["event"] == "host is listening" for line in daemon.log()) == 2, 15)
    assert json.loads(daemon.runtime_json.read_text())["agent_url"] == facts["agent_url"]
    assert daemon.stop()[0] == 0


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_killed_at_any_point_the_next_run_goes_on(daemon: Any, point: str) -> None:
    """Whatever was accepted is there afterwards, once; the store is whole; no process survives."""
    daemon.begin("--no-web", LINEUP_CRASH_AT=point)
    drive(daemon)
    if daemon.process.poll() is None:
        daemon.signal(signal.SIGTERM)
    code, _, err = daemon.ended()
    if point in ("before-send-agent", "after-send-agent", "before-save-blob", "after-save-blob"):
        assert code == 0, err  # nothing here sends to an agent or keeps a blob
        return
    assert code == -signal.SIGKILL, err
    daemon.until(lambda: not daemon.survivors(), 2.0)
    daemon.start()
    peer = daemon.peer()
    assert call(peer, "k1")["accepted"]  # the same action again: the same call
    daemon.until(lambda: running(peer, "k1"), 20)
    assert len([c for c in peer.query("calls")["calls"] if c["call_id"] == "k1"]) == 1
    assert daemon.stop()[0] == 0
    Store.open(daemon.home / "data", TABLES, schema_version=SCHEMA_VERSION).close()


def drive(daemon: Any) -> None:
    """One call until it runs; stops wherever the daemon does."""
    daemon.until(lambda: (daemon.home / "run" / "host.sock").exists() or daemon.process.poll() is not None, 20)
    with contextlib.suppress(ConnectionError, psutil.NoSuchProcess):
        peer = daemon.peer()
        assert call(peer, "k1")["accepted"]
        daemon.until(lambda: running(peer, "k1"), 15)
        daemon.remember_family()


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no point"):
        arm("nowhere")
    arm("")


# --- peers of the host link


def test_peers_are_told_what_is_wrong_and_others_go_on(daemon: Any) -> None:
    daemon.start()
    peer, rude = daemon.peer(), daemon.peer()
    assert peer.welcome[0] == "host.welcome"
    rude.socket.send(b"\xc1")
    rude.socket.send(b"")
    rude.send("host.query", {"name": "status", "args": {}})  # without an id: nobody waits
    rude.socket.send_multipart([b"a", b"b", b"c"])
    assert rude.ask("host.query", {"name": "no-such-query", "args": {}})["code"] == "message_invalid"
    assert rude.action("runtime.frobnicate")["code"] == "message_invalid"
    assert rude.action("host.listening", agent_url="ws://x", workspace_url="http://x")["code"] == "unauthorized"
    assert peer.query("status")["pid"] == daemon.process.pid
    assert peer.query("doctor")["level"]


def test_who_does_not_greet_or_speaks_another_version_is_refused(daemon: Any) -> None:
    daemon.start()
    peer = daemon.peer()
    peer.send("host.hello", {"protocols": [99], "role": "cli", "pid": os.getpid()})
    assert peer.receive()[0] == "host.refuse"


def test_a_subscriber_gets_a_snapshot_and_then_every_change(daemon: Any) -> None:
    daemon.start()
    watcher, actor = daemon.peer(), daemon.peer()
    snapshot = watcher.ask("host.subscribe", {})
    assert snapshot["accepted"], snapshot
    revision = snapshot["detail"]["revision"]
    assert call(actor, "k1")["accepted"]
    type_, delta = watcher.receive()
    assert type_ == "host.delta"
    assert delta["revision"] == revision + 1
    assert {change["kind"] for change in delta["changes"]} >= {"call", "conversation"}


def test_links_of_a_peer_that_is_gone_are_closed(daemon: Any) -> None:
    """An agent link carried by a process that ends is taken off the core's books."""
    daemon.start()
    carrier = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    peer = daemon.peer(role="hostshell", pid=carrier.pid)
    hello = {"type": "lineup.v1.hello", "message_id": "m1", "sent_at": "2026-11-30T08:00:00Z"}
    hello |= {"payload": {"agent_id": "a1", "protocol": 1}}
    peer.send("agent.frame", {"link_id": "l1", "frame": hello})
    type_, body = peer.receive()
    assert type_ == "agent.send"
    assert body["link_id"] == "l1"
    assert json.loads(body["frames"][0])["type"] == "lineup.v1.welcome"
    looker = daemon.peer()
    assert [agent["connected"] for agent in looker.query("status")["agents"] if agent["agent_id"] == "a1"] == [True]
    carrier.communicate(b"\n")
    daemon.until(lambda: not any(agent["connected"] for agent in looker.query("status")["agents"]), 10)


# --- a disk that fills up under a running daemon


def test_a_full_disk_refuses_answers_and_recovers(daemon: Any, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    daemon.home = tmp_path / "small"
    daemon.home.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(daemon.home)]).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        daemon.start()
        peer = daemon.peer()
        assert call(peer, "k1")["accepted"]
        daemon.until(lambda: running(peer, "k1"), 15)
        fill(daemon.home / "ballast")
        named = [f"{'x' * 100} {n}" for n in range(100)]
        answers = [peer.action("conversation.rename", conversation_id="c1", title=title) for title in named]
        refused = [answer["code"] for answer in answers if not answer["accepted"]]
        assert refused
        assert set(refused) == {"storage_full"}
        os.kill(worker_pid(peer), signal.SIGKILL)  # what happens to us meanwhile is not forgotten
        assert peer.query("status")["pid"] == daemon.process.pid
        (daemon.home / "ballast").unlink()
        daemon.until(lambda: peer.action("conversation.rename", conversation_id="c1", title="x")["accepted"], 10)
        daemon.until(lambda: incarnation(peer) == 2 and running(peer, "k1"), 15)
        assert daemon.stop()[0] == 0
    finally:
        subprocess.run(["umount", "-l", str(daemon.home)], check=True)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def incarnation(peer: Any) -> int:
    return max(instance["incarnation"] for instance in peer.query("status")["instances"])
