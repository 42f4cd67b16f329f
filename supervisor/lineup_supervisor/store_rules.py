"""Whether what went wrong lies in the store: its rows are held against the core's own rules between them.

This file owns the step from a failure that nobody expected to ``store_damaged``. It reads, and only after a failure: a
row that is missing because a page is not the one that was written looks to the core like a fault of its own.
"""

from __future__ import annotations

from pathlib import Path

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.invariants import find_faults
from lineup_supervisor.core.txn import Txn
from lineup_supervisor.edges.store import Store, damaged


def contradiction(store: Store) -> LineUpError | None:
    """``store_damaged`` if its rows contradict each other or cannot be read, else None."""
    try:
        with store.read() as txn:
            return contradiction_in(txn, store.directory)
    except LineUpError as error:
        return error if error.code == "store_damaged" else None


def contradiction_in(txn: Txn, directory: Path) -> LineUpError | None:
    """The same of one snapshot."""
    try:
        faults = find_faults(txn)
    except LineUpError as error:
        return error
    except Exception as error:  # a row that the rules themselves take for granted
        faults = [repr(error)]
    return damaged(directory, f"its rows contradict each other ({faults[0][:200]})") if faults else None
