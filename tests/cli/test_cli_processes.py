"""`up` and `down` over real processes: the stand-in supervisor, started by the command itself."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

WAIT_S_MAX = 30


def runtime_pid(home: Path) -> int:
    return int(json.loads((home / "run" / "runtime.json").read_text())["pid"])


def wait_for(condition, what: str):
    give_up_at = time.monotonic() + WAIT_S_MAX
    while not (found := condition()):
        assert time.monotonic() < give_up_at, f"no {what}"
        time.sleep(0.01)
    return found


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_detach_returns_when_ready_and_down_waits_until_gone(home, lineup):
    up = lineup("up", "--detach", "--port", "0", "--no-web", "--demo")
    assert up.returncode == 0, up.stderr
    assert "is ready (isolation S3" in up.stdout
    assert "Workspace: http://127.0.0.1:1/" in up.stdout
    pid = runtime_pid(home)
    status = json.loads(lineup("status", "--json").stdout)
    assert status["up"] is True
    assert status["pid"] == pid
    assert status["argv"][1:] == ["--home", str(home), "--port", "0", "--no-web", "--demo"]
    down = lineup("down")
    assert down.returncode == 0, down.stderr
    assert is_gone(pid)
    assert lineup("status").returncode == 7


def test_a_second_up_says_who_is_there(home, lineup):
    assert lineup("up", "--detach").returncode == 0
    try:
        second = lineup("up")
        assert second.returncode == 1
        assert f"already running for {home} (pid {runtime_pid(home)})" in second.stderr
    finally:
        assert lineup("down").returncode == 0


def test_a_daemon_that_cannot_start_is_one_sentence_and_its_exit_code(lineup):
    up = lineup("up", "--detach", FAKE_MODE="refuse")
    assert up.returncode == 4
    assert up.stderr == "lineup: port 4990 is taken; choose another with --port N.\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_foreground_is_the_daemon_itself(home, environment, signum):
    process = subprocess.Popen(
        [sys.executable, "-m", "lineup_hostshell.cli.main", "up"], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()
    assert runtime_pid(home) == process.pid
    assert "Workspace: http://127.0.0.1:1/" in process.stdout.readline()
    process.send_signal(signum)
    process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 0


def test_down_without_a_runtime_is_fine(lineup):
    down = lineup("down")
    assert down.returncode == 0
    assert "No Runtime is running" in down.stdout


# A process that has the store's lock and no runtime.json yet, or none any more.
HAS_THE_LOCK = """
import fcntl, os, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, flush=True)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock_holder(home):
    """``lock_holder(job)``: one that does this job of the supervisor until its standard input ends."""
    (home / "data").mkdir(parents=True)
    started: list[subprocess.Popen[bytes]] = []

    def start(job: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", HAS_THE_LOCK, str(home / "data" / "lineup.lock"), "lineup_supervisor", job]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        return process

    yield start
    for process in started:
        process.kill()
        with process:  # closes its pipes and waits
            pass


def test_down_stops_one_that_is_only_starting(run, lock_holder):
    starting = lock_holder("run")
    result = run("down")
    assert result.exit_code == 0
    assert result.output == "The Runtime has stopped.\n"
    assert starting.wait(WAIT_S_MAX) == -signal.SIGTERM


def test_down_waits_for_one_that_is_stopping(home, run, runtime, lock_holder):
    stopping = lock_holder("run")
    runtime.actions["runtime.stop"] = lambda args: stopping.stdin.close()
    result = run("down")
    assert result.exit_code == 0
    assert result.output == "The Runtime has stopped.\n"
    assert stopping.wait(WAIT_S_MAX) == 0, "nobody hurried it"
    assert run("down").output == f"No Runtime is running for {home}.\n"


def test_down_leaves_a_backup_alone(home, run, lock_holder):
    backup = lock_holder("backup")
    assert run("down").output == f"No Runtime is running for {home}.\n"
    assert backup.poll() is None


def test_down_kills_exactly_the_daemon_that_does_not_stop(home, environment, monkeypatch, run):
    from lineup_hostshell.cli import run_commands

    monkeypatch.setattr(run_commands, "STOP_WITHIN_S", 0.3)
    monkeypatch.setattr(run_commands, "TERM_WITHIN_S", 0.3)
    deaf = subprocess.Popen(
        [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(home)],
        env={**environment, "FAKE_MODE": "deaf"},
    )
    bystander = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        wait_for((home / "run" / "runtime.json").exists, "runtime.json")
        result = run("down")
        assert result.exit_code == 0, result.output
        assert "did not stop within" in result.stderr
        assert deaf.wait(WAIT_S_MAX) == -signal.SIGKILL
        assert bystander.poll() is None
        assert not (home / "run" / "runtime.json").exists()
    finally:
        bystander.kill()
        bystander.wait()
        deaf.kill()
        deaf.wait()


def test_a_reused_pid_is_never_taken_for_the_runtime(home, run):
    """What a dead Runtime left behind names a pid that now belongs to somebody else."""
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        (home / "run").mkdir(parents=True, mode=0o700)
        (home / "run" / "runtime.json").write_text(json.dumps({"pid": stranger.pid, "boot_id": "b-1"}))
        assert run("status").exit_code == 7
        assert run("down").exit_code == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"pid": "1", "boot_id": "b"}', '{"pid": 1, "boot_id": "b"}', '{"pid": 5}']
)
def test_a_damaged_runtime_json_is_said(home, run, text):
    (home / "run").mkdir(parents=True, mode=0o700)
    (home / "run" / "runtime.json").write_text(text)
    result = run("status")
    assert result.exit_code == 1
    assert "runtime.json is damaged" in result.stderr


def test_a_home_that_cannot_be_made(home, run):
    home.write_text("a file")
    result = run("up", "--detach")
    assert result.exit_code == 1
    assert "home_unusable" in result.stderr
    assert home.read_text() == "a file"


def test_what_a_detached_daemon_says_is_for_its_owner_alone(home, lineup):
    (home / "logs").mkdir(parents=True, mode=0o700)
    output = home / "logs" / "detached.out"
    output.write_text("of an earlier version")
    output.chmod(0o644)
    assert lineup("up", "--detach").returncode == 0
    try:
        assert stat.S_IMODE(output.stat().st_mode) == 0o600
        assert "of an earlier version" not in output.read_text()
    finally:
        assert lineup("down").returncode == 0


def test_a_detached_daemon_writes_over_nobody_elses_file(home, tmp_path, run):
    target = tmp_path / "mine.txt"
    target.write_text("mine")
    (home / "logs").mkdir(parents=True, mode=0o700)
    (home / "logs" / "detached.out").symlink_to(target)
    result = run("up", "--detach")
    assert result.exit_code == 1
    assert f"home_unusable: {home}/logs/detached.out cannot be used" in result.stderr
    assert target.read_text() == "mine"


def test_a_home_on_a_full_disk_is_said_as_that(home, run, monkeypatch):
    def full(path, flags, mode=0o777, *, dir_fd=None):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("lineup_hostshell.cli.run_commands.os.open", full)
        result = run("up", "--detach")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"lineup: storage_full: {home}/logs/detached.out cannot be written: No space left")
    assert "free some disk space" in result.stderr


def test_doctor_without_a_daemon_probes_by_itself(lineup):
    done = lineup("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["isolation"] == "S2"
    by_name = {check["name"]: check for check in report["checks"]}
    assert by_name["S3 user namespaces"] == {
        "name": "S3 user namespaces", "verdict": "warning", "found": "off", "fix": "on",
    }  # fmt: skip
    assert {"home", "socket paths", "file system", "disk", "ports", "clock", "store"} <= set(by_name)


def test_doctor_calls_it_a_fault_when_no_level_holds(lineup):
    done = lineup("doctor", FAKE_MODE="none")
    assert done.returncode == 1
    assert "no level holds" in done.stdout
    assert "fix: on" in done.stdout


def test_restore_passes_the_cause_on(home, tmp_path, lineup):
    file = tmp_path / "a.backup"
    file.write_bytes(b"x")
    done = lineup("restore", str(file))
    assert done.returncode == 1
    assert done.stderr == "lineup: store_damaged: the backup cannot be read.\n"


def test_restore_into_a_home_in_use_changes_nothing(home, tmp_path, lineup):
    file = tmp_path / "a.backup"
    file.write_bytes(b"x")
    (home / "data").mkdir(parents=True)
    done = lineup("restore", str(file))
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert [path.name for path in home.iterdir()] == ["data"]


def test_what_is_to_be_done_after_a_restore_names_the_home(tmp_path, lineup):
    file = tmp_path / "a.backup"
    file.write_bytes(b"x")
    done = lineup("restore", str(file), "--home", str(tmp_path / "new"), FAKE_MODE="restored")
    assert done.returncode == 0, done.stderr
    assert f"Start it with `lineup up --home {tmp_path / 'new'}`." in done.stdout


@pytest.mark.parametrize("signum", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_a_reader_that_a_damaged_store_ends_is_said_as_that(home, lineup, signum):
    (home / "data").mkdir(parents=True)
    done = lineup("story", "k1", FAKE_MODE=str(int(signum)))
    assert done.returncode == 1
    assert done.stderr.startswith(f"lineup: store_damaged: the store in {home / 'data'} cannot be used: ")
    assert signum.name in done.stderr
    assert "`lineup restore FILE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_somebody_kills_says_nothing_of_the_store(home, lineup):
    (home / "data").mkdir(parents=True)
    done = lineup("story", "k1", FAKE_MODE=str(int(signal.SIGKILL)))
    assert done.returncode == 1
    assert "store_damaged" not in done.stderr


def test_a_restore_is_never_advised_into_the_damaged_home(tmp_path, lineup):
    home = tmp_path / "h"
    (home / "data").mkdir(parents=True)
    done = lineup("story", "k1", "--home", str(home), FAKE_MODE=str(int(signal.SIGABRT)))
    assert "`lineup restore FILE`" in done.stderr
