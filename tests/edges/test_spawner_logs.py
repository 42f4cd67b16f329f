"""Captured output: harmless, bounded, never in anybody's way."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lineup_supervisor.edges import logs
from lineup_supervisor.edges.logs import Capture, LogDirectory, RotatingLog, escape
from lineup_supervisor.edges.sandbox import Command
from lineup_supervisor.edges.spawner import Exit, Spawner
from lineup_supervisor.home import Home
from lineup_supervisor.runtime_log import RuntimeLog

PYTHON = os.path.realpath(sys.executable)


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


def records(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        ("中文 é 🙂".encode(), "中文 é 🙂"),
        (b"tab\tstays", "tab\tstays"),
        (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        (b"back\\slash", "back\\\\slash"),
        (b'{"at":"now"}\r{"forged":1}', '{"at":"now"}\\x0d{"forged":1}'),
        (b"bell\x07 nul\x00 del\x7f", "bell\\x07 nul\\x00 del\\x7f"),
        ("c1\x9b31m".encode(), "c1\\x9b31m"),
        (b"bad \xff\xfe utf8", "bad \\xff\\xfe utf8"),
        ("\u202egnp.exe\u2066x".encode(), "\\u202egnp.exe\\u2066x"),
        ("line\u2028sep".encode(), "line\\u2028sep"),
    ],
)
def test_escaping(raw: bytes, text: str) -> None:
    assert escape(raw) == text


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def capture(tmp_path: Path, *, rate: float = 1e9, clock: Clock | None = None) -> tuple[Capture, Path]:
    path = tmp_path / "demo.log"
    made = Capture(RotatingLog(path), "stdout", {"instance_id": "i"}, bytes_per_s=rate, clock=clock or Clock())
    return made, path


async def test_one_line_is_one_record_however_it_arrives(tmp_path: Path) -> None:
    made, path = capture(tmp_path)
    for part in (b"fir", b"st\nsecond\r\n\nth", b"ird\n"):
        made.feed(part)
    found = records(path)
    assert [record["text"] for record in found] == ["first", "second", "third"]
    assert found[0]["stream"] == "stdout"
    assert found[0]["instance_id"] == "i"
    assert found[0]["at"].endswith("Z")
    assert made.last_line == "third"


async def test_a_fake_record_stays_a_text(tmp_path: Path) -> None:
    made, path = capture(tmp_path)
    made.feed(b'x"}\r{"at":"2026-11-30T08:00:00Z","stream":"audit"}\n')
    assert len(path.read_bytes().splitlines()) == 1
    assert records(path)[0]["stream"] == "stdout"


async def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    made, path = capture(tmp_path)
    for _ in range(100):
        made.feed(b"x" * 10_000)
    made.feed(b"\nnext\n")
    first, second = records(path)
    assert first["text"].startswith("x" * logs.LINE_BYTES_MAX + " … (995904 more bytes")
    assert second["text"] == "next"


async def test_over_the_rate_is_counted_and_noted(tmp_path: Path) -> None:
    clock = Clock()
    made, path = capture(tmp_path, rate=100, clock=clock)
    made.feed(b"a" * 399 + b"\n")
    made.feed(b"b" * 1_000 + b"\n")
    clock.now += 1.5
    made.feed(b"c" * 1_000 + b"\n")
    notes = [record["note"] for record in records(path) if "note" in record]
    assert notes == ["suppressed 1001 bytes", "suppressed 851 bytes"]
    assert made.suppressed_bytes == 1_852


async def test_the_instances_of_a_miniapp_share_its_lines_and_others_have_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of one letter costs as much as one of a hundred: lines are bounded, not bytes alone."""
    clock, directory, writes = Clock(), LogDirectory(tmp_path), list[int]()
    of = lambda scope: Capture(directory.of(scope), "stdout", {}, bytes_per_s=1e9, clock=clock)  # noqa: E731
    first, second, other = of("evil"), of("evil"), of("good")
    real = os.write
    monkeypatch.setattr(logs.os, "write", lambda fd, data: writes.append(fd) or real(fd, data))  # type: ignore[func-returns-value]
    for _ in range(4):
        first.feed(b"a\n" * 32_768)
        second.feed(b"a\n" * 32_768)
    other.feed(b"hello\n")
    monkeypatch.undo()
    lines = [record for record in records(tmp_path / "evil.log") if "text" in record]
    assert len(lines) == logs.APP_LINES_BURST
    assert len(writes) <= 8, "what came together is written together"
    assert [record["text"] for record in records(tmp_path / "good.log")] == ["hello"]
    clock.now += 0.5
    second.feed(b"b\n" * 32_768)
    lines = [record for record in records(tmp_path / "evil.log") if record.get("text") == "b"]
    assert len(lines) == logs.APP_LINES_PER_S // 2
    directory.close()


async def test_the_instances_of_a_miniapp_share_its_bytes(tmp_path: Path) -> None:
    clock, directory = Clock(), LogDirectory(tmp_path)
    made = [Capture(directory.of("evil"), "stdout", {}, bytes_per_s=4 << 20, clock=clock) for _ in range(3)]
    for each in made:
        each.feed((b"x" * 1_023 + b"\n") * 600)
    assert sum(each.suppressed_bytes for each in made) == 3 * 600 * 1_024 - logs.APP_BYTES_PER_S
    directory.close()


def test_rotation_keeps_a_bounded_number_of_files(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "demo.log", bytes_max=1_000, kept=3)
    for number in range(200):
        log.write(text=f"line {number}")
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["demo.log", "demo.log.1", "demo.log.2"]
    assert all(path.stat().st_size <= 1_000 for path in tmp_path.iterdir())
    assert records(tmp_path / "demo.log")[-1]["text"] == "line 199"
    assert (tmp_path / "demo.log").stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_is_counted_not_raised(tmp_path: Path) -> None:
    (tmp_path / "demo.log").symlink_to("/etc/passwd")
    log = RotatingLog(tmp_path / "demo.log")
    log.write(text="x")
    assert log.lost_lines == 1


def test_a_fifo_in_the_log_directory_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "demo.log")
    log = RotatingLog(tmp_path / "demo.log")
    log.write(text="x")
    assert log.lost_lines == 1


def test_a_scope_names_a_file_in_the_directory_and_nowhere_else(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    assert directory.of("../../etc/cron.d/x").path.parent == tmp_path
    assert directory.of("a") is directory.of("a")
    directory.close()


@pytest.mark.parametrize("scope", ["runtime", "supervisor", "hostshell", "detached", "audit-1-2", "apps", "demo"])
def test_no_miniapp_writes_into_a_file_of_the_runtime(tmp_path: Path, scope: str) -> None:
    """Whatever its name is: also one that an older Runtime took."""
    home = Home(tmp_path)
    home.logs.mkdir()
    own = RuntimeLog(home.logs / "runtime.log")
    own.info("started")
    before = {path.name: path.read_bytes() for path in home.logs.iterdir()}
    directory = LogDirectory(home.app_logs)
    directory.of(scope).write(text="FORGED")
    directory.close()
    own.close()
    assert {path.name: path.read_bytes() for path in home.logs.iterdir() if path.is_file()} == before
    assert [path.name for path in home.app_logs.iterdir()] == [f"{scope}.log"]


async def test_a_gigabyte_of_output_costs_neither_memory_nor_the_loop(tmp_path: Path) -> None:
    spawner = Spawner()
    log = RotatingLog(tmp_path / "demo.log")
    made = Capture(log, "stdout", {}, bytes_per_s=64 * 1024)
    write = made.open()
    ends: list[Exit] = []
    code = "import os\nblob = b'\\x1b[31mFAKE audit line\\r\\n' * 3200\nfor _ in range(17000): os.write(1, blob)"
    spawner.start(Command((PYTHON, "-I", "-S", "-c", code), {}, sandboxed=False), on_exit=ends.append, stdout=write)
    os.close(write)
    before, turns, last = psutil.Process().memory_info().rss, list[float](), time.monotonic()
    deadline = last + 60
    while not ends:
        await asyncio.sleep(0.001)
        now = time.monotonic()
        turns.append(now - last)
        last = now
        assert now < deadline
    made.finish()
    log.close()
    p99 = sorted(turns)[int(len(turns) * 0.99)]
    print(f"suppressed {made.suppressed_bytes} bytes, turns of the loop p99 {p99 * 1000:.1f} ms of {len(turns)}")
    assert made.suppressed_bytes > 1_000_000_000
    assert psutil.Process().memory_info().rss - before < 16 << 20
    assert p99 < 0.05
    total = sum(path.stat().st_size for path in tmp_path.iterdir())  # noqa: ASYNC240
    assert total < 4 * logs.LOG_BYTES_MAX
    assert b"\x1b" not in (tmp_path / "demo.log").read_bytes()


async def test_the_last_words_of_a_dying_process_are_kept(tmp_path: Path) -> None:
    spawner = Spawner()
    log = RotatingLog(tmp_path / "demo.log")
    made = Capture(log, "stderr", {}, bytes_per_s=1e6)
    write = made.open()
    ends: list[Exit] = []
    code = "import sys; sys.stderr.write('x' * 3000 + '\\nlast words'); sys.stderr.flush(); sys.exit(1)"
    spawner.start(Command((PYTHON, "-I", "-S", "-c", code), {}, sandboxed=False), on_exit=ends.append, stderr=write)
    os.close(write)
    await until(lambda: bool(ends))
    made.finish()
    log.close()
    assert made.last_line == "last words"
