"""At rest nothing is left: no open call, no outbox, no process, no unrest."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.history import Fault, History


def check_rest(history: History) -> Iterator[Fault]:
    for words in history.stale:
        yield Fault("projection", words)
    if history.unrest:
        yield Fault("rest", history.unrest)
    if not history.settled:
        return
    status = history.status
    for name in ("open_calls", "outbox"):
        if status[name]:
            yield Fault("rest", f"{name} is {status[name]}")
    if any(status["workers"].values()):
        yield Fault("rest", f"workers are counted: {status['workers']}")
    if history.processes:
        yield Fault("rest", f"processes are left: {history.processes}")
    for row in status["instances"]:
        if row["worker_pid"] is not None:
            yield Fault("rest", f"{row['instance_id']} has a worker")
