"""Damage inside a store, and a store that is gone: said as ``store_damaged`` by everything that opens one (H3).

Real jobs of ``python -m lineup_supervisor`` where a person would use them.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor import stopped_home
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import CONVERSATIONS, SCHEMA_VERSION, TABLES
from lineup_supervisor.core.step import step as core_step
from lineup_supervisor.edges.store_file import DATA_NAME, forget_sum
from lineup_supervisor.edges.store_view import view_store
from lineup_supervisor.engine import Engine
from storage.homes import child, job, open_store


def zero_a_leaf(path: Path, table: str) -> None:
    """A page of the table's rows, all zeros, as a bad disk or a strange tool leaves it."""
    env = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=len(TABLES) + 1)
    with env.begin() as txn:
        db = env.open_db(table.encode(), txn=txn, create=False)
        key, row = next(iter(txn.cursor(db)))
        assert txn.stat(db)["leaf_pages"] > 1
    env.close()
    at = path.read_bytes().index(key + row) // 4096 * 4096
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(4096))


def change(home: Path, work: Callable[[lmdb.Environment, lmdb.Transaction], object]) -> None:
    """Write into the store past the program: LMDB finds it sound."""
    env = lmdb.open(str(home / "data"), max_dbs=len(TABLES) + 1)
    meta = env.open_db(b"_store", create=False)
    with env.begin(write=True) as txn:
        work(env, txn)
        txn.put(b"txn_id", str(txn.id()).encode(), db=meta)
    env.close()
    forget_sum(home / "data" / DATA_NAME)


def row_in(env: lmdb.Environment, txn: lmdb.Transaction, table: str) -> tuple[object, bytes]:
    db = env.open_db(table.encode(), txn=txn, create=False)
    return db, next(iter(txn.cursor(db)))[0]


def look(home: Path, *requests: tuple[str, dict[str, object]]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lineup_supervisor", "look", "--home", str(home)]
    lines = "".join(json.dumps({"name": name, "args": args}) + "\n" for name, args in requests)
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("end", ["clean", "unclean"])
@pytest.mark.parametrize("table", ["audit", "calls"])
def test_a_damaged_page_of_rows_is_refused_by_everything_that_opens_the_store(
    home: Path, tmp_path: Path, table: str, end: str
) -> None:
    data = home / "data" / DATA_NAME
    zero_a_leaf(data, table)
    if end == "unclean":
        forget_sum(data)
    damaged = data.read_bytes()
    for arguments in (("run", "--no-web"), ("backup", tmp_path / "backup.tar"), ("look",)):
        done = job(*arguments, home=home)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert f"store_damaged: {data} cannot be used: page " in done.stderr
        assert "lineup restore" in done.stderr
        assert data.read_bytes() == damaged


def test_a_row_that_is_gone_under_a_start_is_damage_and_no_fault_of_the_program(home: Path) -> None:
    def drop(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        db, _ = row_in(env, txn, "instances")
        txn.drop(db, delete=False)

    change(home, drop)
    done = job("run", "--no-web", home=home)
    assert done.returncode == 1, done.stderr
    assert f"store_damaged: the store in {home / 'data'} cannot be used: its rows contradict each other" in done.stderr


@pytest.mark.parametrize("what", ["row", "key"])
def test_rows_that_cannot_be_read_are_damage_to_whoever_looks(home: Path, what: str) -> None:
    def harm(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        db, key = row_in(env, txn, "audit")
        txn.put(*((key, b"\xc1") if what == "row" else (b"\x07", b"x")), db=db)

    change(home, harm)
    done = look(home, ("audit.page", {"after": 0}), ("call", {"call_id": "k3"}))
    assert (done.returncode, done.stderr) == (0, "")
    opened, page, call = map(json.loads, done.stdout.splitlines())
    assert opened == {"open": True}
    assert call["accepted"]
    assert page["code"] == "store_damaged"
    assert page["message"].startswith(f"a {what} of audit cannot be read (")
    assert "lineup restore" in page["message"]


def test_a_decision_that_meets_damage_is_no_refusal(home: Path) -> None:
    """Who catches a rule's refusal must not take what the store says for one, and go on."""

    def harm(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        db = env.open_db(b"conversations", txn=txn, create=False)
        for key in [bytes(key) for key, _ in txn.cursor(db)]:
            txn.put(key, b"\xc1", db=db)

    with view_store(home / "data", TABLES, schema_version=SCHEMA_VERSION) as txn:
        conversation_id = next(str(key[0]) for key, _ in txn.scan(CONVERSATIONS))
    change(home, harm)
    store = open_store(home / "data")
    engine = Engine(store, core_step, lambda txn: (None, None))
    renamed = ev.HostAction(
        event_id="e",
        reply_to="r",
        action_id="x",
        actor="person",
        name="conversation.rename",
        args={"conversation_id": conversation_id, "title": "x"},
    )
    with pytest.raises(LineUpError, match="a row of conversations cannot be read") as met:
        engine.run([renamed], ev.Now(wall_ms=1, steady_ms=1))
    assert met.value.code == "store_damaged"
    store.close()


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_look_that_fails_says_whether_the_rows_contradict_each_other(
    home: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("instances ('i',) is missing")

    if is_damaged:
        change(home, lambda env, txn: txn.drop(row_in(env, txn, "instances")[0], delete=False))
    monkeypatch.setattr(stopped_home, "_answer", fail)
    request = io.StringIO(json.dumps({"name": "calls", "args": {}}) + "\n")
    with pytest.raises(LineUpError if is_damaged else AssertionError) as failed:
        stopped_home.serve(home, request, io.StringIO())
    if is_damaged:
        assert failed.value.code == "store_damaged"
        assert "contradict" in str(failed.value)


def test_a_page_that_breaks_under_a_reader_is_damage(home: Path) -> None:
    refused = pytest.raises(LineUpError, match="store_damaged")
    with refused, view_store(home / "data", TABLES, schema_version=SCHEMA_VERSION):
        raise lmdb.CorruptedError("mdb_cursor_next: MDB_CORRUPTED")


# a store that is gone


def test_a_home_whose_store_is_gone_is_not_begun_anew(home: Path) -> None:
    data = home / "data" / DATA_NAME
    assert (home / "data" / "lock.mdb").exists()
    for traces in (("data.sum", "lock.mdb"), ("lock.mdb",), ("data.sum",)):
        kept = {name: (home / "data" / name).read_bytes() for name in ("data.mdb", "data.sum", "lock.mdb")}
        for name in kept:
            if name not in traces:
                (home / "data" / name).unlink()
        for arguments in (("run", "--no-web"), ("look",)):
            done = job(*arguments, home=home)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
            assert done.stderr.startswith(f"lineup: store_damaged: {data} is gone, but {home / 'data'}/")
            assert "lineup restore" in done.stderr
            assert not data.exists()
        for name, content in kept.items():
            (home / "data" / name).write_bytes(content)
    open_store(home / "data").close()


@pytest.mark.parametrize(
    "name", ["logs/audit-000000000001-000000010000.jsonl", f"apps/{'a' * 64}/app.py", f"artifacts/{'b' * 64}.png"]
)
def test_what_only_a_home_with_a_store_has_shows_that_there_was_one(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    for folder in (home, home / "data", home / name.split("/")[0]):
        folder.mkdir(mode=0o700)
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text("mine")
    for arguments in (("run", "--no-web"), ("look",)):
        done = job(*arguments, home=home)
        assert done.returncode == 1
        assert "store_damaged" in done.stderr
        assert str(home / "/".join(name.split("/")[:2])) in done.stderr
    assert list((home / "data").glob("*.mdb")) == []
    assert (home / name).read_text() == "mine"


def test_a_first_start_that_is_killed_at_any_step_does_not_shut_the_home(tmp_path: Path) -> None:
    """Every call to the kernel that its making consists of is the last one once."""
    code = """
import os, sys
from pathlib import Path
import lineup_supervisor.edges.store as store, lineup_supervisor.edges.store_file as file
from storage.homes import open_store
left = int(sys.argv[2])
def killing(call):
    def counted(*args, **more):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return call(*args, **more)
    return counted
for name in ("open", "rename", "ftruncate", "fsync", "close", "unlink", "posix_fallocate", "mkdir"):
    setattr(os, name, killing(getattr(os, name)))
open_store(Path(sys.argv[1])).close()
"""
    for step in range(1, 200):
        home = tmp_path / f"h{step}"
        (home / "data").mkdir(parents=True, mode=0o700)
        done = child(code, home / "data", str(step))
        open_store(home / "data").close()
        if done.returncode == 0:
            break
        assert done.returncode == 9, done.stderr
    assert step > 20
