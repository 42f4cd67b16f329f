"""Restart intensity: an instance whose process keeps ending is closed, and not started again; and who may start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from checkers.history import Fault, History

WINDOW_MS = 60_000
LATE_STARTS_MAX = 2
PEACEFUL = ("stopped", "supervisor killed", "start_failed", "unconfined")


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


def check_late_starts(history: History) -> Iterator[Fault]:
    """Who is never ready in time is not started for ever."""
    late: Counter[str] = Counter()
    killed: set[str] = set()
    for row in history.audit:
        subject = row["subjects"][0] if row["subjects"] else ""
        if row["kind"] == "worker.start_timeout":
            killed.add(subject)
        elif row["kind"] in ("worker.ready", "worker.stopping"):
            killed.discard(subject)
            if row["kind"] == "worker.ready":
                late.pop(subject, None)
        elif row["kind"] == "worker.exited" and subject in killed:
            killed.discard(subject)
            late[subject] += row["detail"]["reason"] != "runtime_restart"
        elif row["kind"] == "worker.starting" and late[subject] > LATE_STARTS_MAX:
            yield Fault("restarts", f"{subject} was started again after {late[subject]} late starts")


def check_share(history: History) -> Iterator[Fault]:
    """No MiniApp has more than half of the starts under way, at least one."""
    most = max(1, history.starting_max // 2)
    app_of: dict[str, str] = {}
    under_way: dict[str, str] = {}  # instance → its MiniApp, while a process of it starts
    for row in history.audit:
        subject = row["subjects"][0] if row["subjects"] else ""
        if row["kind"] == "instance.created":
            app_of[subject] = row["detail"]["app"]
        elif row["kind"] == "worker.starting":
            app = app_of.get(subject, "")
            under_way[subject] = app
            if app and list(under_way.values()).count(app) > most:
                yield Fault("restarts", f"more than {most} starts of {app} are under way with {subject}")
        elif row["kind"] in ("worker.ready", "worker.stopping", "worker.exited"):
            under_way.pop(subject, None)
