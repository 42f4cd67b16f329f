"""The home directory and config.toml: everything that can be wrong with them is one sentence that names the place."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.config import RULES, Config, read_config
from lineup_supervisor.edges.clock import OFFSET_VARIABLE, SystemClock
from lineup_supervisor.edges.systemd import notify
from lineup_supervisor.home import ensure_agent_token, open_home, remove_leftovers, write_private


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def refused(path: Path) -> str:
    with pytest.raises(LineUpError) as caught:
        open_home(path)
    assert caught.value.code == "home_unusable"
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_home_is_made_for_the_owner_alone_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = open_home(tmp_path / "deep" / "home")
    finally:
        os.umask(before)
    assert [mode(path) for path in (home.root, home.data, home.artifacts, home.apps, home.logs, home.run)] == [
        "0o700"
    ] * 6
    open_home(home.root)


def test_a_home_of_ours_that_others_could_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home").chmod(0o755)
    assert mode(open_home(tmp_path / "home").root) == "0o700"


@pytest.mark.parametrize("which", ["home", "home/run"])
def test_what_others_could_have_written_into_is_refused(tmp_path: Path, which: str) -> None:
    (tmp_path / which).mkdir(parents=True)
    (tmp_path / which).chmod(0o777)
    assert "can be written by others" in refused(tmp_path / "home")
    assert mode(tmp_path / which) == "0o777"


@pytest.mark.parametrize("which", ["home", "home/run", "home/data"])
def test_a_symbolic_link_is_refused(tmp_path: Path, which: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / which).parent.mkdir(exist_ok=True)
    (tmp_path / which).symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in refused(tmp_path / "home")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("x")
    refused(tmp_path / "home")


def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    (tmp_path / "home").mkdir(mode=0o700)
    os.chown(tmp_path / "home", 12345, 12345)
    assert "belongs to user 12345" in refused(tmp_path / "home")


def test_a_home_that_cannot_be_made_is_refused() -> None:
    refused(Path("/proc/lineup"))


def test_a_home_whose_sockets_would_not_fit_is_refused(tmp_path: Path) -> None:
    assert "too long" in refused(tmp_path / ("x" * 90))
    assert not (tmp_path / ("x" * 90)).exists()


def test_the_token_is_made_once_and_kept(tmp_path: Path) -> None:
    home = open_home(tmp_path / "h")
    ensure_agent_token(home)
    token = home.agent_token.read_text()
    assert len(token) > 32
    assert mode(home.agent_token) == "0o600"
    ensure_agent_token(home)
    assert home.agent_token.read_text() == token
    home.agent_token.write_text("")
    ensure_agent_token(home)
    assert home.agent_token.read_text() not in ("", token)


@pytest.mark.parametrize("spoil", ["open", "link", "folder", "hard link"])
def test_a_token_that_is_not_ours_alone_is_refused(tmp_path: Path, spoil: str) -> None:
    home = open_home(tmp_path / "h")
    other = tmp_path / "other"
    write_private(other, b"secret")
    if spoil == "open":
        home.agent_token.write_text("x")
        home.agent_token.chmod(0o644)
    elif spoil == "link":
        home.agent_token.symlink_to(other)
    elif spoil == "folder":
        home.agent_token.mkdir()
    else:
        os.link(other, home.agent_token)
    with pytest.raises(LineUpError, match=r"agent\.token"):
        ensure_agent_token(home)


def test_a_private_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(tmp_path / "f", b"old")

    def fail(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no"):
        write_private(tmp_path / "f", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_leftovers_go_and_nothing_else(tmp_path: Path) -> None:
    home = open_home(tmp_path / "h")
    home.runtime_json.write_text("{}")
    (home.run / ".runtime.json.abcd").write_text("{")
    sockets = []
    for path in (home.host_socket, home.worker_sockets / "ab" / "s"):
        path.parent.mkdir(exist_ok=True, parents=True)
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        sockets.append(left)
    (home.worker_sockets / "cd").mkdir()
    (home.worker_sockets / "cd" / "kept").write_text("not a socket")
    ensure_agent_token(home)
    remove_leftovers(home)
    for left in sockets:
        left.close()
    assert sorted(str(path.relative_to(home.run)) for path in home.run.rglob("*")) == [
        "agent.token",
        "w",
        "w/cd",
        "w/cd/kept",
    ]


# --- config.toml


def config(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_no_file_and_an_empty_one_mean_the_defaults(tmp_path: Path) -> None:
    assert read_config(tmp_path / "config.toml") == Config()
    assert read_config(config(tmp_path, "# nothing\n")) == Config()


def test_settings_are_taken_over(tmp_path: Path) -> None:
    text = (
        '[web]\nport = 0\n[workers]\nheartbeat_ms = 500\nmax = 3\n[log]\nlevel = "debug"\n[isolation]\nminimum = "S2"\n'
    )
    found = read_config(config(tmp_path, text))
    assert (found.web_port, found.workers_heartbeat_ms, found.log_level) == (0, 500, "debug")
    assert found.isolation_minimum == "S2"
    assert found.policy().workers_max == 3


def test_the_operators_limits_hold_a_manifest_down_and_never_raise_it(tmp_path: Path) -> None:
    policy = read_config(config(tmp_path, "[limits]\nmemory_mb = 100\ncpu_share = 0.5\n")).policy()
    asked = {"memory_mb": 256, "cpu_share": 0.25, "tmp_mb": 32}
    assert policy.limits_of({"limits": asked}) == {"memory_mb": 100, "cpu_share": 0.25, "tmp_mb": 32}
    assert Config().policy().limits_of({"limits": asked}) == asked


def test_every_rule_has_its_field_and_its_default_obeys_it() -> None:
    default = Config()
    for table, rules in RULES.items():
        for name, rule in rules.items():
            assert rule.fault(getattr(default, f"{table}_{name}")) is None
    assert sum(map(len, RULES.values())) == len(Config.__dataclass_fields__)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[web]\nport = 70000\n", 2, "integer from 0 to 65535"),
        ("[web]\nport = true\n", 2, "integer from 0 to 65535"),
        ('[web]\n# a remark\n\nport = "80"\n', 4, "integer"),
        ("[web]\nprot = 80\n", 2, "unknown setting prot in [web]; there are port"),
        ("\n[wep]\nport = 80\n", 2, "unknown table [wep]"),
        ("port = 80\n", 1, "unknown table [port]"),
        ("web = 80\n", 1, "must be the table [web]"),
        ("web.port = -1\n", 1, "integer"),
        ("[web]\nport = \n", 2, "is not TOML"),
        ("[web\n", 1, "is not TOML"),
        ("[web]\nport = 1\nport = 2\n", 3, "is not TOML"),
        ('[log]\nlevel = "loud"\n', 2, "must be one of"),
        ("[isolation]\nallow_bare_system_apps = 1\n", 2, "true or false"),
        ("[limits]\ncpu_share = 9.5\n", 2, "number from 0.05 to 8.0"),
        (b"[web]\n# \xff\n", 2, "UTF-8"),
    ],
)
def test_every_fault_names_file_line_and_cause(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    path = config(tmp_path, text)
    with pytest.raises(LineUpError) as caught:
        read_config(path)
    assert caught.value.code == "config_invalid"
    assert caught.value.message.startswith(f"{path}, line {line}, ")
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_is_too_big_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LineUpError, match="config_invalid"):
        read_config(config(tmp_path, "#" * 300_000))
    with pytest.raises(LineUpError, match="config_invalid"):
        read_config(tmp_path)


# --- clock and readiness


def test_the_steady_clock_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offset = tmp_path / "offset"
    monkeypatch.setenv(OFFSET_VARIABLE, str(offset))
    clock = SystemClock(5_000)
    first = clock.now()
    assert 5_000 <= first.steady_ms < 6_000
    offset.write_text("-3600000")
    moved = clock.now()
    assert moved.steady_ms >= first.steady_ms
    assert -3_600_000 <= moved.wall_ms - first.wall_ms < -3_590_000


def test_readiness_is_said_to_whoever_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        assert notify("READY=1")
        assert listener.recv(100) == b"READY=1"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0lineup-test-{os.getpid()}")
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@lineup-test-{os.getpid()}")
        assert notify("STOPPING=1")
        assert listener.recv(100) == b"STOPPING=1"
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "absent"))
    assert not notify("READY=1")


@pytest.mark.timeout(10)
def test_a_pipe_in_place_of_the_config_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(LineUpError, match="is no regular file") as refused:
        read_config(tmp_path / "config.toml")
    assert refused.value.code == "config_invalid"
