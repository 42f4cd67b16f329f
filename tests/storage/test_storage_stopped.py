"""A stopped Runtime's home is read, and not written: the same answers as a running one gives, under the home's lock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.policy import Policy
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_view import view_store
from storage.homes import MAP_BYTES, hide_table, open_store
from storage.traffic import Traffic

QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("calls", {}),
    ("calls", {"state": "open"}),
    ("call", {"call_id": "k3"}),
    ("story", {"id": "k3"}),
    ("interactions", {"state": "all"}),
    ("apps", {}),
    ("audit.page", {"after": 0, "limit": 1000}),
    ("audit.page", {"after": 30, "limit": 7}),
]


@pytest.fixture
def running(tmp_path: Path) -> tuple[Path, list[Any]]:
    """A home, and what its Runtime answered before it ended."""
    root = tmp_path / "home"
    (root / "data").mkdir(parents=True, mode=0o700)
    os.chmod(root, 0o700)
    store = open_store(root / "data")
    traffic = Traffic(store, Policy())
    traffic.boot()
    traffic.calls(0, 20)
    answers = [traffic.query(name, **args).detail for name, args in QUESTIONS]
    store.close()
    return root, json.loads(json.dumps(answers))


class Look:
    """The job, and a talk with it."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "lineup_supervisor", "look", "--home", str(home)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, name: str, **args: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"name": name, "args": args}) + "\n")
        self.process.stdin.flush()
        return self.hear()


@contextmanager
def look(home: Path) -> Iterator[Look]:
    job = Look(home)
    try:
        yield job
    finally:
        job.process.kill()
        job.process.communicate()


def refusal(home: Path) -> str:
    with look(home) as job:
        out, err = job.process.communicate("", timeout=60)
    assert (job.process.returncode, out) == (1, ""), err
    assert err.count("\n") == 1
    return err.removeprefix("lineup: ")


def contents(home: Path) -> dict[str, tuple[int, bytes]]:
    """But for the lock, whose file names its holder."""
    files = [path for path in (home / "data").iterdir() if path.name != "lineup.lock"]
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_it_says_what_the_runtime_said_and_writes_nothing(running: tuple[Path, list[Any]]) -> None:
    home, said = running
    before = contents(home)
    with look(home) as job:
        assert job.hear() == {"open": True}
        answers = [job.ask(name, **args) for name, args in QUESTIONS]
        assert [answer.get("detail") for answer in answers] == said
        assert job.ask("story", id="nobody")["code"] == "not_found"
        assert job.ask("tools")["code"] == "no_runtime", "what is offered is a running Runtime's to say"
    assert contents(home) == before


def test_no_runtime_starts_meanwhile_and_one_does_afterwards(running: tuple[Path, list[Any]]) -> None:
    home, _ = running
    with look(home) as job:
        assert job.hear() == {"open": True}
        with pytest.raises(LineUpError) as refused:
            open_store(home / "data")
        assert refused.value.code == "store_locked"
        assert "is being read" in refused.value.message
        with look(home) as another:
            assert [another.hear(), another.ask("call", call_id="k3")] == [
                {"open": True},
                job.ask("call", call_id="k3"),
            ]
        with pytest.raises(LineUpError, match="is being read"):
            open_store(home / "data")
    open_store(home / "data").close()


def test_it_is_refused_while_a_runtime_has_the_home_open(running: tuple[Path, list[Any]]) -> None:
    home, _ = running
    store = open_store(home / "data")
    try:
        assert refusal(home).startswith("store_locked: ")
    finally:
        store.close()


def test_a_home_where_nothing_was_ever_kept(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").startswith("no_runtime: ")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("damage", ["cut", "foreign", "fifo", "link", "hidden table"])
def test_what_a_runtime_would_not_open_is_not_read_either(running: tuple[Path, list[Any]], damage: str) -> None:
    home, _ = running
    path = home / "data" / "data.mdb"
    if damage == "cut":
        os.truncate(path, 40_000)
    elif damage == "foreign":
        path.unlink()
        env = lmdb.open(str(path), subdir=False, lock=False)
        with env.begin(write=True) as txn:
            txn.put(b"somebody", b"else")
        env.close()
    elif damage == "hidden table":
        hide_table(home / "data", "interactions")
    elif damage == "fifo":
        path.unlink()
        os.mkfifo(path)
    else:
        path.rename(home / "elsewhere.mdb")
        path.symlink_to(home / "elsewhere.mdb")
    assert refusal(home).startswith("home_unusable: " if damage == "link" else "store_damaged: ")


def test_a_store_that_this_program_has_to_bring_up_to_date_first(running: tuple[Path, list[Any]]) -> None:
    data = running[0] / "data"
    newer = pytest.raises(LineUpError, match="start it once with `lineup up`")
    with newer, view_store(data, TABLES, schema_version=SCHEMA_VERSION + 1):
        pass
    more: tuple[Table[Any], ...] = (*TABLES, Table("of_tomorrow", TABLES[0].row))
    with newer, view_store(data, more, schema_version=SCHEMA_VERSION):
        pass
    Store.open(data, more, schema_version=SCHEMA_VERSION, map_bytes=MAP_BYTES).close()
    with view_store(data, more, schema_version=SCHEMA_VERSION) as txn:
        assert list(txn.scan(more[-1])) == []
