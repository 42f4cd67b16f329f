"""A disk that is full, a store that is damaged, newer or taken, a home or a port that cannot be used (catalogue H).

Each is one clear sentence, an exit code that is not 0, and nothing changed; and a full disk is no reason to die.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from processes.support.agent import Agent
from processes.support.judge import assert_kept, settled
from processes.support.runtime import LAB, Runtime
from processes.support.runtime import runtime as new_runtime

MIB = 1024 * 1024


def contents(home: Path) -> dict[str, str]:
    """Every file of a home by its digest; logs and the lock's own note of a pid left out."""
    found = {}
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        if path.is_file() and not name.startswith("logs/") and path.name not in ("lineup.lock", "lock.mdb"):
            content = path.read_bytes()
            if path.name == "data.sum":  # its third word is a time, and the store that was copied has one of its own
                content = b" ".join(content.split()[:2])
            found[name] = hashlib.sha256(content).hexdigest()
    return found


def refused(runtime: Runtime, code: str, *options: str) -> str:
    """Start a daemon that must not start; the one sentence that it says."""
    before, said = contents(runtime.home), len(runtime.errors())
    runtime.begin(*options)
    assert runtime.wait_over(30) == 1
    sentences = [line for line in runtime.errors()[said:].splitlines() if line.strip()]
    assert len(sentences) == 1, sentences
    assert sentences[0].startswith(f"lineup: {code}: "), sentences
    assert contents(runtime.home) == before, "something was changed"
    runtime.assert_clean()
    return sentences[0]


@pytest.fixture(scope="module")
def seen_a_call() -> Iterator[Path]:
    """A home with a store that has seen a call, closed cleanly; made once and copied."""
    with new_runtime() as made:
        made.start("--no-web", "--port", "0")
        answer = made.action(
            "call.start", "s", call_id="k", tool_id="task-dashboard.update", input={"task_id": "t"}, conversation_id="c"
        )
        assert answer["accepted"], answer
        assert made.stop() == 0
        yield made.home


@pytest.fixture
def used(own: Runtime, seen_a_call: Path) -> Runtime:
    shutil.copytree(seen_a_call, own.home, dirs_exist_ok=True)
    return own


# -- full


@pytest.fixture
def small_disk(own: Runtime) -> Iterator[Callable[[int], None]]:
    """Puts the home on a tmpfs of its own; as root only."""
    mounted = False

    def mount(size: int) -> None:
        nonlocal mounted
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "lineup-test", str(own.home)], capture_output=True
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
        mounted = True

    yield mount
    if mounted:
        own.discard()
        subprocess.run(["umount", "--lazy", str(own.home)], check=True)


async def test_h1_the_disk_is_full_and_then_it_is_not(own: Runtime, small_disk: Callable[[int], None]) -> None:
    small_disk(12 * MIB)
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    await agent.call("lab.once", {"text": "before"}, call_id="before")
    assert (await agent.result("before"))["status"] == "completed"
    await agent.call("lab.hold", {"text": "x", "until_attempt": 9}, call_id="open")
    filler = own.home / "filler"
    _fill(filler)
    refusals: list[str] = []
    for number in range(60):
        receipt = await agent.receipt(
            await agent.call("lab.hold", {"text": "x" * 30_000, "until_attempt": 9}, call_id=f"k-{number}")
        )
        if not receipt["accepted"]:
            refusals.append(receipt["code"])
            break
    assert refusals == ["storage_full"], "the disk is full, and it was said"
    assert own.is_up
    assert own.query("status")["boot_id"], "questions are answered all the same"
    filler.unlink()

    async def accepted() -> bool:
        message_id = await agent.call("lab.once", {"text": "after"}, call_id="after")
        return bool((await agent.receipt(message_id))["accepted"])

    for _ in range(50):  # the daemon tries again within five seconds
        if await accepted():
            break
    assert (await agent.result("after"))["status"] == "completed"
    for call_id in ("open", *(f"k-{n}" for n in range(number))):
        await agent.say("tool.cancel", {"call_id": call_id})
    await settled(own, agent)
    await agent.call("lab.tally", {"text": ""}, call_id="tally")
    assert (await agent.result("tally"))["result"] == {"texts": ["before", "after"]}
    await settled(own, agent)
    assert_kept(own, agent)
    await agent.leave()
    assert own.stop() == 0


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4_096)
        except OSError:
            pass


def test_h1_too_full_to_start(own: Runtime, small_disk: Callable[[int], None]) -> None:
    small_disk(MIB)
    _fill(own.home / "filler")
    own.begin("--no-web", "--port", "0")
    assert own.wait_over(30) == 1
    (sentence,) = [line for line in own.errors().splitlines() if "warning" not in line and "memory" not in line]
    assert sentence.startswith("lineup: storage_full: "), sentence
    (own.home / "filler").unlink()
    # Room for the store is enough to begin with; what the bundles need is said when it is missing.
    assert not (own.home / "data" / "data.mdb").exists()


async def test_h2_the_map_grows_under_load(own: Runtime) -> None:
    """More than the 64 MiB that a map begins with: nothing is lost while it grows, and it opens again."""
    own.start()
    own.add(LAB)
    agent = Agent(own, "a")
    await agent.connect()
    start = own.query("status")["store"]["map_bytes"]
    text = "x" * 400_000
    number = 0
    while own.query("status")["store"]["map_bytes"] == start:
        assert number < 400, own.query("status")["store"]
        batch = range(number, number + 20)
        for n in batch:
            await agent.call("lab.echo", {"text": text}, call_id=f"k-{n}")
        await agent.until(lambda batch=batch: all(f"k-{n}" in agent.results for n in batch), 60, "twenty results")
        number += 20
    assert {result["status"] for result in agent.results.values()} == {"completed"}
    await settled(own, agent)
    assert_kept(own, agent)
    await agent.leave()
    own.kill()
    own.start("--no-web", "--port", "0")
    assert own.query("status")["store"]["map_bytes"] > start


# -- damaged, newer, taken


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 1)


def _cut_short(path: Path) -> None:
    os.truncate(path, 3 * 4096)


def _another_file(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + os.urandom(100_000))


def _flipped(path: Path) -> None:
    with path.open("r+b") as file:
        for at in (4096 + 150, 150):  # in both headers
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))


@pytest.mark.parametrize("damage", [_emptied, _cut_short, _another_file, _flipped], ids=lambda f: f.__name__.strip("_"))
def test_h3_a_damaged_store_is_refused_and_kept(used: Runtime, damage: Callable[[Path], None]) -> None:
    damage(used.home / "data" / "data.mdb")
    sentence = refused(used, "store_damaged", "--no-web", "--port", "0")
    assert str(used.home / "data") in sentence
    assert "lineup restore" in sentence


def test_h3_what_was_backed_up_can_be_restored_into_an_empty_home(used: Runtime) -> None:
    backup = used.home.parent / "backup"
    used.start("--no-web", "--port", "0")
    assert used.cli("backup", str(backup)).returncode == 0
    rows = used.audit()[0]
    assert used.stop() == 0
    for path in [*(used.home / "data").iterdir()]:
        path.unlink()
    _emptied(used.home / "data" / "data.mdb")
    refused(used, "store_damaged", "--no-web", "--port", "0")
    other = used.home.parent / "restored"
    done = used.cli("restore", str(backup), "--home", str(other))
    assert done.returncode == 0, done.stderr
    first, used.home = used.home, other
    used.start("--no-web", "--port", "0")
    assert used.audit()[0][: len(rows)] == rows
    assert used.query("call", call_id="k")["status"] == "rejected"
    assert used.stop() == 0
    used.home = first


def test_i3_a_newer_store_is_refused_and_not_written(used: Runtime) -> None:
    (used.home / "data" / "data.sum").unlink(missing_ok=True)
    env = lmdb.open(str(used.home / "data"), map_size=64 * MIB, max_dbs=4)
    table = env.open_db(b"_store", create=False)
    with env.begin(write=True, db=table) as txn:
        txn.put(b"schema_version", b"9999")
        txn.put(b"txn_id", str(txn.id()).encode())
    env.close()
    sentence = refused(used, "store_newer", "--no-web", "--port", "0")
    assert "install the newer program" in sentence


def test_h6_a_second_daemon_is_refused_and_the_first_goes_on(own: Runtime) -> None:
    """Also when LMDB's own lock file was removed meanwhile."""
    facts = own.start("--no-web", "--port", "0")
    (own.home / "data" / "lock.mdb").unlink()
    second = subprocess.run(
        [*own.cli_argv()[:2], "lineup_supervisor", "run", "--home", str(own.home), "--no-web"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode == 1
    (sentence,) = second.stderr.splitlines()
    assert sentence.startswith(f"lineup: store_locked: process {own.pid} has {own.home} open")
    assert own.facts() == facts
    assert own.query("status")["boot_id"] == facts["boot_id"]
    assert own.stop() == 0
    own.assert_clean()


# -- home, port, configuration


def test_h4_a_home_that_cannot_be_written(used: Runtime) -> None:
    bound = subprocess.run(["mount", "--bind", str(used.home), str(used.home)], capture_output=True)
    if bound.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(used.home)], check=True)
        sentence = refused(used, "home_unusable", "--no-web", "--port", "0")
        assert "--home DIR" in sentence
    finally:
        subprocess.run(["umount", "--lazy", str(used.home)], check=True)
    used.start("--no-web", "--port", "0")
    assert used.stop() == 0


def test_a_home_of_others_or_open_to_others(own: Runtime) -> None:
    os.chmod(own.home, 0o777)
    assert "can be written by others" in refused(own, "home_unusable", "--no-web")
    os.chmod(own.home, 0o700)
    (own.home / "run").symlink_to(own.home.parent)
    own.begin("--no-web")
    assert own.wait_over() == 1
    assert "symbolic link" in own.errors().splitlines()[-1]
    (own.home / "run").unlink()


def test_the_port_is_in_use(own: Runtime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        own.begin("--port", str(port))
        assert own.wait_over() == 1
    (sentence,) = own.errors().splitlines()
    assert sentence == f"lineup: port_unusable: port {port} is in use; choose another with --port, 0 takes any free one"
    own.assert_clean()
    assert not (own.home / "data" / "data.mdb").exists()


def test_a_fault_in_the_configuration_is_named_by_its_line(own: Runtime) -> None:
    (own.home / "config.toml").write_text('[web]\nport = 0\n[workers]\nidle_ms = "soon"\n')
    sentence = refused(own, "config_invalid", "--no-web")
    assert "line 4" in sentence
    assert "idle_ms" in sentence


async def test_the_command_line_says_the_same(own: Runtime) -> None:
    """`lineup up`, in the foreground and detached: the daemon's own sentence and exit code."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options in ((), ("--detach",)):
            done = await asyncio.to_thread(own.cli, "up", "--no-open", "--port", port, *options)
            assert done.returncode == 1
            (sentence,) = done.stderr.splitlines()
            assert f"port {port} is in use" in sentence


def test_a_token_that_others_could_read(used: Runtime) -> None:
    os.chmod(used.home / "run" / "agent.token", 0o644)
    assert "could be read by others" in refused(used, "home_unusable", "--no-web", "--port", "0")
