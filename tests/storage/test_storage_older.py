"""A store of an older version that is damaged: opening it says so, and leaves it to the program that wrote it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.core.txn import Key
from lineup_supervisor.edges.store import MAP_BYTES_START, Store
from lineup_supervisor.edges.store_file import DATA_NAME, forget_sum
from lineup_supervisor.edges.store_keys import encode_key
from lineup_supervisor.edges.store_migration import Migration, RawTxn
from lineup_supervisor.store_migrations import MIGRATIONS

Rows = dict[tuple[str, Key], Any]

OWNED = {"conversation_id": "c1", "app_scope": "lab"}
GOOD: Rows = {
    ("meta", ("meta",)): {"calls_over": 1},
    ("conversations", ("c1",)): {"conversation_id": "c1", "agent_id": "a1"},
    ("calls", ("a1", "k1")): {"call_id": "k1"},
    ("interactions", ("q1",)): OWNED,
    ("instances", ("i1",)): OWNED,
    ("snapshots", ("i1",)): {"bytes": 7},
    ("surfaces", ("f1",)): OWNED,
    ("retired", ("call", 5, "a1", "k1")): {},
    ("retired", ("interaction", 6, "q1")): {},
    ("retired", ("instance", 7, "i1")): {},
    ("retired", ("surface", 8, "f1")): {},
    ("surface_parts", ("f2",)): {"split": True},
    ("surface_parts", ("f2", "=a")): {"name": "a", "value": [1, {"b": None}]},
    ("surface_parts", ("f2", "=o")): {"name": "o", "split": True},
    ("surface_parts", ("f2", "=o", "=p")): {"name": "p", "value": "x"},
}


def deep(levels: int) -> bytes:
    return b"\x81\xa1n" * levels + b"\xc0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store of version 1 that has every kind of row that a step looks at."""
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    Store.open(directory, TABLES, schema_version=1).close()
    write(directory, GOOD)
    return directory


def write(directory: Path, rows: dict[tuple[str, Any], Any]) -> None:
    """Put rows, which may be anything; None takes one away. As whoever harms a store would: past our own code."""
    env = lmdb.open(str(directory), max_dbs=256, map_size=MAP_BYTES_START)
    meta = env.open_db(b"_store")
    with env.begin(write=True) as txn:
        for (table, key), row in rows.items():
            db, at = env.open_db(table.encode(), txn=txn), key if isinstance(key, bytes) else encode_key(key)
            if row is None:
                assert txn.delete(at, db=db)
            else:
                txn.put(at, row if isinstance(row, bytes) else msgspec.msgpack.encode(row), db=db)
        txn.put(b"txn_id", str(txn.id()).encode(), db=meta)
    env.close()
    forget_sum(directory / DATA_NAME)


def open_today(directory: Path) -> None:
    Store.open(directory, TABLES, schema_version=SCHEMA_VERSION, migrations=MIGRATIONS).close()


def refusal(directory: Path) -> str:
    """What is said; the store is left byte by byte as it was, and its own program opens it."""
    before = (directory / DATA_NAME).read_bytes()
    with pytest.raises(LineUpError) as refused:
        open_today(directory)
    assert refused.value.code == "store_damaged"
    assert (directory / DATA_NAME).read_bytes() == before
    Store.open(directory, TABLES, schema_version=1).close()
    assert "lineup restore" in refused.value.message
    assert str(directory) in refused.value.message
    return refused.value.message


def test_the_good_rows_are_brought_up_to_date(data: Path) -> None:
    open_today(data)
    with Store.open(data, TABLES, schema_version=SCHEMA_VERSION).read() as txn:
        tables = {table.name: table for table in TABLES}
        found = {key for key, _ in txn.scan(tables["surface_parts"])}
        assert len(found) == 2
        assert {key[:2] for key, _ in txn.scan(tables["retired"])} == {
            ("call", "a1"),
            *((kind, "a1 lab") for kind in ("interaction", "instance", "surface")),
        }


UNREADABLE = (b"\xc1", b"\x01", b"", b"\x81\xa1", b"\x81\x01\x01", b"\x81\xa1\xff\x01", deep(5_000))


@pytest.mark.parametrize(
    ("table", "key", "raw"),
    [
        *((table, key, UNREADABLE[at % len(UNREADABLE)]) for at, (table, key) in enumerate(GOOD)),
        *(("conversations", ("c1",), raw) for raw in UNREADABLE),
    ],
)
def test_a_row_that_cannot_be_decoded(data: Path, table: str, key: Key, raw: bytes) -> None:
    write(data, {(table, key): raw})
    assert f"its row {key!r} of {table} cannot be brought up to date (" in refusal(data)


@pytest.mark.parametrize("table", sorted({table for table, _ in GOOD} - {"snapshots", "calls"}))
@pytest.mark.parametrize("raw_key", [b"\x07", b"\x02\xff\x00"])
def test_a_key_that_cannot_be_decoded(data: Path, table: str, raw_key: bytes) -> None:
    write(data, {(table, raw_key): {}})
    if table in ("interactions", "instances", "surfaces"):
        open_today(data)  # where one row is looked for: it is met by whoever looks at all of them
        return
    assert f"its row {raw_key!r} of {table} cannot be brought up to date (" in refusal(data)


@pytest.mark.parametrize(
    "missing",
    [
        ("conversations", ("c1",)),
        ("calls", ("a1", "k1")),
        ("interactions", ("q1",)),
        ("instances", ("i1",)),
        ("surfaces", ("f1",)),
        ("surface_parts", ("f2",)),
        ("surface_parts", ("f2", "=o")),
    ],
)
def test_a_row_that_others_refer_to_is_gone(data: Path, missing: tuple[str, Key]) -> None:
    write(data, {missing: None})
    refusal(data)


@pytest.mark.parametrize(
    ("table", "key", "row"),
    [
        ("conversations", ("c1",), {}),
        ("conversations", ("c1",), {"agent_id": 5}),
        ("conversations", ("c1",), {"agent_id": "a\0b"}),
        ("conversations", ("c1",), {"agent_id": "a" * 600}),
        ("interactions", ("q1",), {"conversation_id": [1], "app_scope": "lab"}),
        ("instances", ("i1",), {"conversation_id": "c1"}),
        ("surfaces", ("f1",), {"conversation_id": "elsewhere", "app_scope": "lab"}),
        ("snapshots", ("i1",), {}),
        ("snapshots", ("i1",), {"bytes": "7"}),
        ("snapshots", ("i1",), {"bytes": -1}),
        ("retired", ("call",), {}),
        ("retired", (5, "call"), {}),
        ("retired", ("call", 5, "a1"), {}),
        ("retired", ("call", 5, "a1", 7), {}),
        ("retired", ("call", "5", "a1", "k1"), {}),
        ("retired", ("else", 5, "x"), {}),
        ("surface_parts", (5,), {"split": True}),
        ("surface_parts", ("f2",), {"value": {"a": 1}}),
        ("surface_parts", ("f2",), {"split": "yes"}),
        ("surface_parts", ("f2", "=a", "=b"), {"name": "b", "value": 1}),
        ("surface_parts", ("f2", "=a"), {"name": 7, "value": 1}),
        ("surface_parts", ("f2", "=a"), {"name": "a", "value": {1: 2, "x": 3}}),
        ("surface_parts", ("f2", "=a"), {"name": "a", "value": b"bytes"}),
        ("surface_parts", ("f2", "=a"), {"name": "a", "value": msgspec.msgpack.Ext(5, b"x")}),
        ("surface_parts", ("f2", "=a"), b"\x82\xa4name\xa1a\xa5value" + deep(40)),
        ("surface_parts", ("f2", "=a"), b"\x82\xa4name\xa1a\xa5value" + deep(800)),
    ],
)
def test_a_row_that_no_program_has_written(data: Path, table: str, key: Key, row: Any) -> None:
    write(data, {(table, key): row})
    refusal(data)


def test_a_state_that_its_rows_make_too_large(data: Path) -> None:
    """Deeper than a key may be long."""
    key: Key = ("f3",)
    rows: Rows = {("surface_parts", key): {"split": True}}
    for _ in range(9):
        key = (*key, "=n")
        rows["surface_parts", key] = {"name": "n", "split": True}
    rows["surface_parts", (*key, "=v")] = {"name": "v", "value": {f"k{n}": 1 for n in range(40_000)}}
    write(data, rows)
    assert "its row ('f3',) of surface_parts" in refusal(data)


@pytest.mark.parametrize("levels", [100, 300, 500, 900])
def test_a_row_of_any_depth_is_brought_up_to_date_or_damage(data: Path, levels: int) -> None:
    write(data, {("calls", ("a1", "k1")): deep(levels), ("interactions", ("q1",)): GOOD["interactions", ("q1",)]})
    with contextlib.suppress(LineUpError):
        open_today(data)


@pytest.mark.parametrize("fault", [KeyError("x"), TypeError("x"), ValueError("x"), RecursionError("x")])
def test_a_fault_of_a_step_is_no_damage(data: Path, fault: Exception) -> None:
    def step(txn: RawTxn) -> None:
        list(txn.scan("calls"))
        raise fault

    before = (data / DATA_NAME).read_bytes()
    with pytest.raises(type(fault)) as raised:
        Store.open(data, TABLES, schema_version=2, migrations=[Migration(1, step)])
    assert raised.value is fault
    assert (data / DATA_NAME).read_bytes() == before
