"""Restart intensity: an instance whose process keeps ending is closed, and not started again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from checkers.history import Fault, History

WINDOW_MS = 60_000
PEACEFUL = ("stopped", "supervisor killed")


def check_restarts(history: History) -> Iterator[Fault]:
    ends: dict[str, list[int]] = defaultdict(list)
    # Ends that a restart of the supervisor hid, or that were asked for, do not count.
    hidden = {
        (row["subjects"][0], row["detail"]["incarnation"])
        for row in history.audit
        if row["kind"] == "worker.stopping"
        or (row["kind"] == "worker.exited" and row["detail"]["reason"] == "runtime_restart")
    }
    for log in history.workers.values():
        for entry in log.entries:
            if (
                entry.what == "exited"
                and entry.data not in PEACEFUL
                and (log.instance_id, log.incarnation) not in hidden
            ):
                ends[log.instance_id].append(entry.steady_ms)
    for instance_id, times in ends.items():
        times.sort()
        for first, last in zip(times, times[history.restarts_max + 1 :], strict=False):
            if last - first < WINDOW_MS:
                yield Fault(
                    "restarts", f"{instance_id} ended more than {history.restarts_max + 1} times in {last - first} ms"
                )
                break


def check_closed(history: History) -> Iterator[Fault]:
    """No process of an instance starts after its end."""
    closed: dict[str, int] = {}
    for row in history.audit:
        if row["kind"] == "instance.closed":
            closed[row["subjects"][0]] = row["seq"]
        elif row["kind"] == "worker.starting" and row["subjects"][0] in closed:
            yield Fault("restarts", f"{row['subjects'][0]} was started after it was closed")
