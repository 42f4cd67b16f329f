"""Both stores, one behaviour: every test here runs over LMDB and over memory, the latter with and without bytes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lineup_supervisor.core.txn import Table, Txn
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_keys import BadKey
from lineup_supervisor.edges.store_memory import MemoryStore


class Thing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    n: int = 0
    data: Any = None


THINGS = Table("things", Thing)
OTHERS = Table("others", Thing)
TABLES = (THINGS, OTHERS)
AnyStore = Store | MemoryStore


@contextlib.contextmanager
def opened(kind: str) -> Iterator[AnyStore]:
    if kind == "lmdb":
        with tempfile.TemporaryDirectory() as directory:
            store = Store.open(Path(directory), TABLES)
            try:
                yield store
            finally:
                store.close()
    else:
        yield MemoryStore(TABLES, encoded=kind == "memory-encoded")


@pytest.fixture(params=["lmdb", "memory", "memory-encoded"])
def store(request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    with opened(request.param) as store:
        yield store


def test_a_transaction_reads_its_own_writes_and_others_read_them_after_it(store: AnyStore) -> None:
    with store.write() as txn:
        txn.put(THINGS, ("a",), Thing(n=1, data={"x": [1, "y", None, 1.5]}))
        assert txn.get(THINGS, ("a",)) == Thing(n=1, data={"x": [1, "y", None, 1.5]})
        txn.put(THINGS, ("a",), Thing(n=2))
    with store.read() as txn:
        assert txn.get(THINGS, ("a",)) == Thing(n=2)
        assert txn.get(OTHERS, ("a",)) is None


def test_an_exception_leaves_nothing(store: AnyStore) -> None:
    with store.write() as txn:
        txn.put(THINGS, ("a",), Thing(n=1))
        txn.put(THINGS, ("b",), Thing(n=1))

    def change_and_fail(txn: Txn) -> None:
        txn.put(THINGS, ("a",), Thing(n=2))
        txn.put(THINGS, ("c",), Thing(n=2))
        txn.delete(THINGS, ("b",))
        txn.put(OTHERS, ("b",), Thing(n=2))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), store.write() as txn:
        change_and_fail(txn)
    with store.read() as txn:
        assert list(txn.scan(THINGS)) == [(("a",), Thing(n=1)), (("b",), Thing(n=1))]
        assert list(txn.scan(OTHERS)) == []


def test_transact_gives_the_result_after_the_commit(store: AnyStore) -> None:
    assert store.transact(lambda txn: (txn.put(THINGS, ("a",), Thing(n=7)), "done")[1]) == "done"
    with store.read() as txn:
        assert txn.get(THINGS, ("a",)) == Thing(n=7)


def test_delete_says_whether_there_was_something(store: AnyStore) -> None:
    with store.write() as txn:
        txn.put(THINGS, ("a", 1), Thing())
        assert txn.delete(THINGS, ("a", 1))
        assert not txn.delete(THINGS, ("a", 1))


@pytest.mark.parametrize("rows", [0, 1, 16, 17, 40])
def test_a_scan_again_sees_what_changed_since(store: AnyStore, rows: int) -> None:
    """However short a scan was, and whether it was read to its end."""
    keys: list[tuple[str | int, ...]] = [("a", n) for n in range(rows)]
    with store.write() as txn:
        for key in keys:
            txn.put(THINGS, key, Thing(n=1))
        for _ in range(2):
            assert [key for key, _ in txn.scan(THINGS, ("a",))] == keys
            assert next(iter(txn.scan(THINGS, ("a",))), (None,))[0] == txn.first(THINGS, ("a",))
        txn.put(THINGS, ("a", rows), Thing(n=2))
        assert [key for key, _ in txn.scan(THINGS, ("a",))] == [*keys, ("a", rows)]
        txn.delete(THINGS, ("a", rows))
        assert [(key, row.n) for key, row in txn.scan(THINGS, ("a",))] == [(key, 1) for key in keys]


def test_scans(store: AnyStore) -> None:
    keys: list[tuple[str | int, ...]] = [("a", 1), ("a", 2), ("a", 10), ("ab", 1), ("b",), ("b", "x"), ("b", "x", 1)]
    with store.write() as txn:
        for key in keys:
            txn.put(THINGS, key, Thing())

    def found(*args: Any, **kwargs: Any) -> list[tuple[str | int, ...]]:
        return [key for key, _ in txn.scan(THINGS, *args, **kwargs)]

    with store.read() as txn:
        assert found() == keys
        assert found(reverse=True) == keys[::-1]
        assert found(("a",)) == [("a", 1), ("a", 2), ("a", 10)]
        assert found(("a",), reverse=True) == [("a", 10), ("a", 2), ("a", 1)]
        assert found(("a",), after=("a", 2)) == [("a", 10)]
        assert found(("a",), after=("a", 5)) == [("a", 10)]
        assert found(("a",), after=("a", 2), reverse=True) == [("a", 1)]
        assert found(("a",), after=("a", 10)) == []
        assert found(("a",), after=("a", 1), reverse=True) == []
        assert found(("b",), after=("a",)) == [("b",), ("b", "x"), ("b", "x", 1)]
        assert found(("b",), after=("b",)) == [("b", "x"), ("b", "x", 1)]
        assert found(("a",), after=("z",)) == []
        assert found(("a",), after=("z",), reverse=True) == [("a", 10), ("a", 2), ("a", 1)]
        assert found(("b",), after=("a",), reverse=True) == []
        assert found(after=()) == keys
        assert found(("zz",)) == []
        assert found(("b", "x", 1)) == [("b", "x", 1)]


def test_a_table_that_changes_under_a_scan_is_an_error(store: AnyStore) -> None:
    with store.write() as txn:
        txn.put(THINGS, ("a",), Thing())
        txn.put(THINGS, ("b",), Thing())
        scan = txn.scan(THINGS)
        key, row = next(scan)
        txn.put(THINGS, (*key, 1), row)
        with pytest.raises(RuntimeError, match="take a list first"):
            next(scan)
        for key, row in list(txn.scan(THINGS)):
            txn.put(OTHERS, key, row)
        for key, _ in list(txn.scan(OTHERS)):
            txn.delete(OTHERS, key)


def test_another_table_may_change_under_a_scan(store: AnyStore) -> None:
    with store.write() as txn:
        txn.put(THINGS, ("a",), Thing(n=1))
        txn.put(THINGS, ("b",), Thing(n=2))
        for key, row in txn.scan(THINGS):
            txn.put(OTHERS, key, row)
        assert list(txn.scan(OTHERS)) == list(txn.scan(THINGS))


def test_bad_keys_are_refused_before_anything_changes(store: AnyStore) -> None:
    with store.write() as txn:
        for key in [(), ("x" * 600,), ("a\0",), (-1,)]:
            with pytest.raises(BadKey):
                txn.put(THINGS, key, Thing())
            with pytest.raises(BadKey):
                txn.get(THINGS, key)
            with pytest.raises(BadKey):
                txn.delete(THINGS, key)
        assert list(txn.scan(THINGS)) == []


def test_a_read_transaction_and_an_ended_one_write_nothing(store: AnyStore) -> None:
    with store.read() as txn, pytest.raises(AssertionError):
        txn.put(THINGS, ("a",), Thing())
    with pytest.raises(AssertionError):
        txn.get(THINGS, ("a",))


def test_a_row_of_another_table_is_refused(store: AnyStore) -> None:
    class Stranger(msgspec.Struct, frozen=True):
        n: int = 0

    with store.write() as txn, pytest.raises(AssertionError):
        txn.put(THINGS, ("a",), Stranger())  # type: ignore[type-var, misc]


names = st.sampled_from(["a", "ab", "b", "", "\x01", "é", "\U0001f600"])
parts = names | st.integers(0, 3) | st.sampled_from([255, 256, 2**63 - 1])
keys = st.lists(parts, min_size=1, max_size=3).map(tuple)
prefixes = st.lists(parts, max_size=2).map(tuple)


def in_order(key: tuple[str | int, ...]) -> list[tuple[int, str | int]]:
    return [(isinstance(part, str), part) for part in key]


class StoreAgainstModel(RuleBasedStateMachine):
    """Random transactions against a dict; an aborted one must leave the model of before."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.store = self.stack.enter_context(opened(self.kind))
        self.committed: dict[tuple[str | int, ...], Thing] = {}
        self.begin()

    def begin(self) -> None:
        self.writing = self.store.write()
        self.txn = self.writing.__enter__()
        self.model = dict(self.committed)

    @rule(key=keys, n=st.integers(-(2**63), 2**64 - 1), data=st.none() | st.text(max_size=3) | st.lists(st.booleans()))
    def put(self, key: tuple[str | int, ...], n: int, data: Any) -> None:
        self.txn.put(THINGS, key, Thing(n=n, data=data))
        self.model[key] = Thing(n=n, data=data)

    @rule(key=keys)
    def delete(self, key: tuple[str | int, ...]) -> None:
        assert self.txn.delete(THINGS, key) == (self.model.pop(key, None) is not None)

    @rule(key=keys)
    def get(self, key: tuple[str | int, ...]) -> None:
        assert self.txn.get(THINGS, key) == self.model.get(key)

    @rule(prefix=prefixes, after=st.none() | keys, reverse=st.booleans())
    def scan(self, prefix: tuple[str | int, ...], after: tuple[str | int, ...] | None, reverse: bool) -> None:
        expected = sorted((k for k in self.model if k[: len(prefix)] == prefix), key=in_order, reverse=reverse)
        if after is not None:
            bound = in_order(after)
            expected = [k for k in expected if (in_order(k) < bound if reverse else in_order(k) > bound)]
        first = self.txn.first(THINGS, prefix, after=after, reverse=reverse)
        assert first == (expected[0] if expected else None)
        assert list(self.txn.scan(THINGS, prefix, after=after, reverse=reverse)) == [
            (k, self.model[k]) for k in expected
        ]

    @rule()
    def commit(self) -> None:
        self.writing.__exit__(None, None, None)
        self.committed = self.model
        with self.store.read() as txn:
            assert dict(txn.scan(THINGS)) == self.committed
        self.begin()

    @rule()
    @precondition(lambda self: self.model != self.committed)
    def abort(self) -> None:
        error = KeyError("abort")
        with contextlib.suppress(KeyError):
            self.writing.__exit__(KeyError, error, None)
        self.begin()

    @invariant()
    def everything_is_there(self) -> None:
        assert dict(self.txn.scan(THINGS)) == self.model

    def teardown(self) -> None:
        self.writing.__exit__(None, None, None)
        self.stack.close()


@pytest.mark.parametrize("kind", ["lmdb", "memory", "memory-encoded"])
def test_random_transactions_equal_the_model(kind: str) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Machine", (StoreAgainstModel,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None))
