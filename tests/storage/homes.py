"""What the storage tests compare: every row of a store, and whether it is whole."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb

from lineup_hostshell.cli.audit_chain import ChainCheck
from lineup_supervisor.core import invariants
from lineup_supervisor.core.audit import NO_HASH, public
from lineup_supervisor.core.schema import AUDIT, META, SCHEMA_VERSION, TABLES
from lineup_supervisor.edges.store import Store
from lineup_supervisor.edges.store_file import DATA_NAME, forget_sum

MAP_BYTES = 4 << 20  # small files, so that hundreds of them can be written

Rows = dict[str, list[tuple[Any, Any]]]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


def job(*arguments: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """One job of the supervisor's command line."""
    command = [sys.executable, "-m", "lineup_supervisor", *map(str, arguments), "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def child(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def open_store(directory: Path) -> Store:
    return Store.open(directory, TABLES, schema_version=SCHEMA_VERSION, map_bytes=MAP_BYTES)


def hide_table(directory: Path, name: str) -> None:
    """As a damaged page of names would: the store is sound for LMDB, and this table is not in it."""
    env = lmdb.open(str(directory), max_dbs=len(TABLES) + 1)
    gone, meta = env.open_db(name.encode(), create=False), env.open_db(b"_store", create=False)
    with env.begin(write=True) as txn:
        txn.drop(gone)
        txn.put(b"txn_id", str(txn.id()).encode(), db=meta)
    env.close()
    forget_sum(directory / DATA_NAME)


def dump(store: Any) -> Rows:
    """Every row of every table."""
    with store.read() as txn:
        return {table.name: list(txn.scan(table)) for table in TABLES}


def faults_of(store: Any) -> list[str]:
    """What does not hold in it: the rules between the tables, the audit's chain."""
    with store.read() as txn:
        faults = invariants.find_faults(txn)
        meta = txn.get(META, ("runtime",))
        if meta is None:
            return faults
        check = ChainCheck(meta.audit_anchor_seq, meta.audit_anchor_hash or NO_HASH)
        for _, row in txn.scan(AUDIT):
            check.take(public(row))
        check.end({"seq": meta.audit_seq, "hash": meta.audit_hash or NO_HASH})
    return faults if check.broken is None else [*faults, f"the audit is broken: {check.broken}"]


def fingerprint(rows: Rows) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def fingerprints_elsewhere(directories: Sequence[Path]) -> list[str]:
    """Open each in another process, which a damaged map may kill: the fingerprint of its rows, or what went wrong."""
    found: list[str] = []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    while len(found) < len(directories):
        rest = [str(directory) for directory in directories[len(found) :]]
        done = subprocess.run(
            [sys.executable, "-m", "storage.homes", *rest], env=environment, capture_output=True, text=True, timeout=120
        )
        found += done.stdout.splitlines()
        if done.returncode:
            found.append(f"ended with {done.returncode}")
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            opened = open_store(Path(name))
            print(fingerprint(dump(opened)) if not faults_of(opened) else "faults", flush=True)
            opened.close()
        except (Exception, AssertionError) as error:
            print(type(error).__name__, flush=True)
