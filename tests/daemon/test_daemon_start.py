"""Starting and not starting: what is wrong is one sentence with exit code 1, and nothing was changed."""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import psutil
import pytest

import lineup_supervisor.__main__ as program
from lineup_protocol.errors import LineUpError
from lineup_supervisor import daemon as module
from lineup_supervisor.__main__ import usable_port
from lineup_supervisor.config import Config
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.edges.store import Store


def tree(root: Path) -> dict[str, Any]:
    """Every file of a home but for what a locked store and a log may change."""
    names = {path.relative_to(root): path for path in sorted(root.rglob("*"))}
    passing = ("lock.mdb", "lineup.lock", "runtime.log", "isolation.json", "agent.token")
    return {
        str(name): path.read_bytes() if path.is_file() else None
        for name, path in names.items()
        if path.name not in passing
    }


def fails(daemon: Any, *options: str, **environment: str) -> str:
    """It does not start; the one sentence that says why."""
    daemon.begin(*options, **environment)
    code, out, err = daemon.ended()
    assert (code, out) == (1, ""), err
    assert err.startswith("lineup: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return str(err)


def test_ready_is_said_when_it_is_true(daemon: Any) -> None:
    facts = daemon.start()
    assert set(facts) == {"pid", "boot_id", "agent_url", "workspace_url", "version", "protocol", "isolation"}
    assert facts["protocol"] == 1
    assert stat.S_IMODE(daemon.runtime_json.stat().st_mode) == 0o600
    assert stat.S_IMODE((daemon.home / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((daemon.home / "run" / "host.sock").stat().st_mode) == 0o700
    status = daemon.peer().query("status")
    assert status["pid"] == facts["pid"]
    assert status["store"]["bytes"] > 0
    assert status["memory_bytes"] < 80 << 20
    assert {app["app_scope"] for app in status["apps"]} >= {"chat", "task-dashboard"}
    code, out, err = daemon.stop()
    assert (code, err) == (0, "")
    assert out.startswith("ready: ")
    left = {path.name for path in (daemon.home / "run").iterdir()}
    assert left <= {"agent.token", "isolation.json"}


class Systemd:
    """The receiving end of ``Type=notify``: a datagram socket that knows from the kernel who has sent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def hear(self, within_s: float = 30.0) -> tuple[int, list[str]]:
        """The sender's pid, and the lines of its next message."""
        self.socket.settimeout(within_s)
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(12))
        ((_, _, credentials),) = ancillary
        return struct.unpack("3i", credentials)[0], data.decode().splitlines()

    def nothing_more(self) -> bool:
        return not select.select([self.socket], [], [], 0)[0]


@pytest.fixture(params=["path", "abstract"])
def systemd(request: Any, tmp_path: Path) -> Iterator[Systemd]:
    """As systemd gives it: a path of the user's manager, or an abstract name (``@…``) as of old and in containers."""
    made = Systemd(str(tmp_path / "notify") if request.param == "path" else f"@lineup-test-{os.getpid()}")
    yield made
    made.socket.close()


def test_systemd_hears_when_it_is_ready_and_when_it_stops(daemon: Any, systemd: Systemd) -> None:
    daemon.begin("--no-web", NOTIFY_SOCKET=systemd.address)
    pid, said = systemd.hear()
    assert json.loads(daemon.runtime_json.read_text())["pid"] == pid == daemon.process.pid, (
        "ready is true when it is said"
    )
    assert said == ["READY=1", f"STATUS=isolation {daemon.facts()['isolation']}"]
    assert daemon.peer().query("status")["pid"] == pid
    assert systemd.nothing_more(), "ready is said once"
    daemon.signal(signal.SIGTERM)
    assert systemd.hear() == (pid, ["STOPPING=1"])
    assert daemon.ended()[0] == 0
    assert systemd.nothing_more()


def test_what_systemd_starts_is_what_tells_it(daemon: Any, systemd: Systemd) -> None:
    """``ExecStart=lineup up``: systemd listens to its main process alone, so the command becomes the daemon."""
    command = [sys.executable, "-m", "lineup_hostshell.cli.main", "up", "--no-web", "--no-open"]
    daemon.process = subprocess.Popen(
        [*command, "--home", str(daemon.home)],
        env={**os.environ, "NOTIFY_SOCKET": systemd.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid, said = systemd.hear()
    assert (pid, said[0]) == (daemon.process.pid, "READY=1")
    daemon.signal(signal.SIGTERM)
    assert systemd.hear() == (pid, ["STOPPING=1"])
    assert daemon.ended()[0] == 0


def test_a_start_that_fails_is_never_ready(daemon: Any, systemd: Systemd) -> None:
    (daemon.home / "data").mkdir(parents=True, mode=0o700)
    daemon.home.chmod(0o700)
    (daemon.home / "data" / "data.mdb").write_bytes(b"damaged")
    assert "store_damaged" in fails(daemon, "--no-web", NOTIFY_SOCKET=systemd.address)
    assert systemd.nothing_more()


def test_systemd_that_does_not_listen_holds_nobody_up(daemon: Any, tmp_path: Path) -> None:
    daemon.start("--no-web", NOTIFY_SOCKET=str(tmp_path / "absent"))
    assert daemon.stop()[0] == 0


def test_a_second_daemon_is_refused_and_the_first_lives(daemon: Any) -> None:
    first = daemon.start()
    second = subprocess.run(
        [sys.executable, "-m", "lineup_supervisor", "run", "--home", str(daemon.home), "--no-web"],
        capture_output=True,
        text=True,
    )
    assert second.returncode == 1
    assert second.stderr.startswith("lineup: store_locked: ")
    assert str(first["pid"]) in second.stderr
    assert json.loads(daemon.runtime_json.read_text()) == first
    assert daemon.peer().query("status")["pid"] == first["pid"]


def test_what_a_killed_one_left_does_not_matter(daemon: Any) -> None:
    first = daemon.start()
    daemon.kill()
    assert daemon.runtime_json.exists()
    assert (daemon.home / "run" / "host.sock").exists()
    second = daemon.start()
    assert second["boot_id"] != first["boot_id"]
    assert daemon.stop()[0] == 0


def test_a_port_that_is_taken(daemon: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port} is in use" in fails(daemon, "--port", str(port))
    assert not daemon.home.exists(), "nothing was made yet"


def test_settings_that_are_wrong(daemon: Any) -> None:
    daemon.home.mkdir(mode=0o700)
    (daemon.home / "config.toml").write_text("[web]\nport = 99999\n")
    assert "config.toml, line 2," in fails(daemon, "--no-web")


def test_a_home_that_cannot_be_used(daemon: Any) -> None:
    daemon.home = Path("/proc/lineup-home")
    assert "home_unusable" in fails(daemon, "--no-web")


def test_a_store_of_a_newer_version(daemon: Any) -> None:
    (daemon.home / "data").mkdir(parents=True, mode=0o700)
    daemon.home.chmod(0o700)
    Store.open(daemon.home / "data", TABLES, schema_version=SCHEMA_VERSION + 1).close()
    before = tree(daemon.home)
    assert "store_newer" in fails(daemon, "--no-web")
    after = tree(daemon.home)
    assert {name: after[name] for name in before} == before


def test_a_store_of_the_version_before(daemon: Any) -> None:
    (daemon.home / "data").mkdir(parents=True, mode=0o700)
    daemon.home.chmod(0o700)
    Store.open(daemon.home / "data", TABLES, schema_version=1).close()
    daemon.start()
    assert daemon.stop()[0] == 0
    Store.open(daemon.home / "data", TABLES, schema_version=SCHEMA_VERSION).close()


@pytest.mark.parametrize("damage", ["empty", "half", "foreign"])
def test_a_damaged_store(daemon: Any, damage: str) -> None:
    daemon.start()
    assert daemon.stop()[0] == 0
    path = daemon.home / "data" / "data.mdb"
    if damage == "empty":
        os.truncate(path, 0)
    elif damage == "half":
        os.truncate(path, 40_000)
    else:
        path.unlink()
        env = lmdb.open(str(path), subdir=False, lock=False)
        with env.begin(write=True) as txn:
            txn.put(b"somebody", b"else")
        env.close()
    before = path.read_bytes()
    assert "store_damaged" in fails(daemon, "--no-web")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["run/runtime.json", "run/host.sock", "data/data.sum", "data/lock.mdb", "data/lineup.lock"]
)
def test_a_folder_where_a_file_of_the_home_belongs_is_no_fault_of_the_program(daemon: Any, name: str) -> None:
    daemon.start()
    assert daemon.stop()[0] == 0
    (daemon.home / name).unlink(missing_ok=True)
    (daemon.home / name / "inside").mkdir(parents=True)
    said = fails(daemon, "--no-web")
    assert f"home_unusable: {daemon.home / name} cannot be used (it is a folder); remove it" in said
    (daemon.home / name / "inside").rmdir()
    (daemon.home / name).rmdir()
    daemon.start("--no-web")


@pytest.mark.parametrize("name", ["run/isolation.json", "run/surface.port", "run/workspace.key", "run/launch", "run/w"])
@pytest.mark.parametrize("left", ["file", "empty", "folder"])
def test_no_leftover_in_the_run_directory_prevents_a_start(daemon: Any, name: str, left: str) -> None:
    path = daemon.home / name
    path.parent.mkdir(parents=True, mode=0o700)
    daemon.home.chmod(0o700)
    if left == "folder":
        (path / "inside").mkdir(parents=True)
    else:
        path.write_text("{" if left == "file" else "")
    daemon.start("--port", "0")
    assert daemon.stop()[0] == 0


def test_an_empty_folder_in_place_of_what_a_start_removes_goes(daemon: Any) -> None:
    (daemon.home / "run" / "runtime.json").mkdir(parents=True, mode=0o700)
    daemon.home.chmod(0o700)
    (daemon.home / "run").chmod(0o700)
    daemon.begin("--no-web")
    give_up_at = time.monotonic() + 20.0
    while not daemon.runtime_json.is_file():
        assert time.monotonic() < give_up_at
        select.select([], [], [], 0.01)
    assert daemon.stop()[0] == 0


def test_a_log_that_cannot_be_written_is_said_at_the_start(daemon: Any) -> None:
    (daemon.home / "logs" / "runtime.log").mkdir(parents=True, mode=0o700)
    daemon.home.chmod(0o700)
    (daemon.home / "logs").chmod(0o700)
    daemon.start("--no-web")
    code, _, err = daemon.stop()
    assert code == 0
    assert f"{daemon.home}/logs/runtime.log cannot be written (Is a directory); nothing is logged" in err


def test_a_full_disk_is_that_for_the_last_file_of_a_start_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Start(module.Daemon):
        def __init__(self) -> None:
            self.home = module.Home(tmp_path)
            self.boot_id, self.urls = "b", {}
            self.isolation = SimpleNamespace(level="S3")  # type: ignore[assignment]

    monkeypatch.setattr(module, "write_private", full)
    with pytest.raises(LineUpError) as refused:
        Start()._write_runtime_json()
    assert refused.value.code == "storage_full"
    assert str(tmp_path / "run" / "runtime.json") in refused.value.message


def test_a_full_disk(daemon: Any, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    tmp_path.joinpath("small").mkdir()
    daemon.home = tmp_path / "small"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(daemon.home)]).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        daemon.home.chmod(0o700)
        (daemon.home / "ballast").write_bytes(bytes(48 << 10))
        assert "storage_full" in fails(daemon, "--no-web")
        assert not (daemon.home / "data" / "data.mdb").exists()
    finally:
        subprocess.run(["umount", "-l", str(daemon.home)], check=True)


def test_the_command_line_says_what_it_does_not_understand(daemon: Any) -> None:
    for options in (["--port", "x"], ["--port", "70000"], ["--frobnicate"]):
        daemon.begin(*options)
        code, _, err = daemon.ended()
        assert code == 2
        assert "Traceback" not in err


# --- backup and restore


def job(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lineup_supervisor", *arguments], capture_output=True, text=True)


def test_a_hot_backup_restores_into_an_empty_home(daemon: Any, tmp_path: Path) -> None:
    daemon.start()
    peer = daemon.peer()
    detail = peer.action("runtime.backup", path=str(tmp_path / "b.tar"))["detail"]
    assert detail["bytes"] == (tmp_path / "b.tar").stat().st_size
    assert stat.S_IMODE((tmp_path / "b.tar").stat().st_mode) == 0o600
    again = peer.action("runtime.backup", path=str(tmp_path / "b.tar"))
    assert (again["accepted"], again["code"]) == (False, "conflict")
    assert peer.action("runtime.backup", path="relative")["code"] == "message_invalid"
    assert daemon.stop()[0] == 0
    assert job("backup", str(tmp_path / "c.tar"), "--home", str(daemon.home)).returncode == 0

    for name in ("b.tar", "c.tar"):
        other = tmp_path / f"r-{name[0]}"
        done = job("restore", str(tmp_path / name), "--home", str(other))
        assert done.returncode == 0, done.stderr
        assert (other / "data" / "data.mdb").exists()
        assert {path.name for path in (other / "apps").iterdir()} == {
            path.name for path in (daemon.home / "apps").iterdir() if not path.name.startswith(".")
        }
        refused = job("restore", str(tmp_path / name), "--home", str(other))
        assert refused.returncode == 1
        assert "is not empty" in refused.stderr
        daemon.home = other
        daemon.start()
        assert daemon.peer().query("status")["apps"]
        assert daemon.stop()[0] == 0
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kind", ["text", "cut", "foreign", "climbing"])
def test_what_is_no_backup_leaves_nothing_behind(daemon: Any, tmp_path: Path, kind: str) -> None:
    import io
    import tarfile

    file = tmp_path / "b.tar"
    daemon.start()
    assert daemon.peer().action("runtime.backup", path=str(file))["accepted"]
    assert daemon.stop()[0] == 0
    if kind == "text":
        file.write_text("hello")
    elif kind == "cut":
        os.truncate(file, 30_000)
    else:
        with tarfile.open(file, "w") as tar:
            member = tarfile.TarInfo("../evil" if kind == "climbing" else "x")
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    other = tmp_path / "restored"
    done = job("restore", str(file), "--home", str(other))
    assert done.returncode == 1
    assert done.stderr.startswith("lineup: store_damaged")
    assert not other.exists()
    assert not (tmp_path / "evil").exists()


def test_only_a_port_that_nobody_chose_is_replaced(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LineUpError, match="in use"):
            usable_port(Config(web_port=port), None)
        monkeypatch.setattr(program, "DEFAULT_PORT", port)
        with pytest.raises(LineUpError, match="in use"):
            usable_port(Config(web_port=port), port)
        assert usable_port(Config(web_port=port), 0) == 0
        assert capsys.readouterr().err == ""
        assert usable_port(Config(web_port=port), None) == 0
        assert capsys.readouterr().err == f"lineup: port {port} is in use, so this Runtime takes another one\n"
    assert usable_port(Config(web_port=port), None) is None


def test_it_takes_all_the_descriptors_it_may_have_and_so_does_hostshell(daemon: Any) -> None:
    """The usual soft limit is for programs that use select(); sixty-four workers come near to it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        daemon.start("--port", "0")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for process in (psutil.Process(daemon.process.pid), *daemon.remember_family()):
        assert process.rlimit(psutil.RLIMIT_NOFILE) == (hard, hard), process.cmdline()
    assert len(daemon.family) == 1, "hostshell"
    assert daemon.stop()[0] == 0
