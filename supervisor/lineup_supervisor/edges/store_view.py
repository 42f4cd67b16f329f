"""The store of a stopped Runtime, to be looked at: one snapshot, and not one byte of the store is written.

This file owns the opening of a store that is not going to be used. It shares the home's lock with others that look
meanwhile, so that no daemon starts under it, and checks the file as thoroughly as ``store`` does. It must not know
what a row means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.txn import Table
from lineup_supervisor.edges.store import (
    META_TABLE,
    TABLES_MAX,
    check_content,
    damaged,
    made_tables,
    opening,
)
from lineup_supervisor.edges.store_file import DATA_NAME, StoreLock, read_header
from lineup_supervisor.edges.store_pages import check_pages
from lineup_supervisor.edges.store_rows import Unreadable
from lineup_supervisor.edges.store_txn import LmdbTxn


@contextmanager
def view_store(directory: Path, tables: Sequence[Table[Any]], *, schema_version: int) -> Iterator[LmdbTxn]:
    """The last commit in ``directory``.

    Raises:
        LineUpError: ``store_locked``, ``store_newer``, ``store_damaged``, ``home_unusable``; ``conflict`` for a store
            that a newer program has to bring up to date first.
    """
    with opening(directory):
        lock = StoreLock(directory, to_read=True)
    try:
        with opening(directory):
            path = directory / DATA_NAME
            header = read_header(path)
            check_pages(path, header)
            version = check_content(path, header.txn_id, schema_version)
            if version < schema_version:
                raise _older(directory)
            env = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=TABLES_MAX, map_size=0)
        try:
            with env.begin() as inner:
                txn = LmdbTxn(inner, _databases(directory, env, inner, tables), writable=False)
                yield txn
                txn.close()
        except Unreadable as met:
            raise met.error from met
        except lmdb.Error as error:  # nothing is written: what it has read is not what was
            raise damaged(directory, str(error)) from error
        finally:
            env.close()
    finally:
        lock.release()


def _databases(
    directory: Path, env: lmdb.Environment, txn: lmdb.Transaction, tables: Sequence[Table[Any]]
) -> dict[str, Any]:
    made = made_tables(txn, env.open_db(META_TABLE, txn=txn, create=False))
    found = {}
    for table in tables:
        try:
            found[table.name] = env.open_db(table.name.encode(), txn=txn, create=False)
        except lmdb.NotFoundError as error:
            if table.name in made:
                raise damaged(directory, f"its table {table.name} is gone") from error
            raise _older(directory) from error
    return found


def _older(directory: Path) -> LineUpError:
    return LineUpError(
        "conflict",
        f"the store in {directory} was last open in an older version of this program; "
        "start it once with `lineup up`, which brings it up to date",
    )
