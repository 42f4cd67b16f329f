"""What is measured, written as CSV while it happens, and drawn at the end."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from endurance.verdict import Curve

# How much a curve may grow over the whole run: a share of its middle, or so much, whichever is more.
CURVES = (
    Curve("supervisor_rss_mib", "MiB", 0.10, 6),
    Curve("supervisor_private_mib", "MiB", 0.10, 4),  # without the mapped pages of the store
    Curve("supervisor_fds", "descriptors", 0.05, 4),
    Curve("hostshell_rss_mib", "MiB", 0.15, 12),
    Curve("processes", "processes", 0.10, 2),
    Curve("store_mib", "MiB", 0.05, 3),
    Curve("p50_ms", "ms", 0.50, 4),
    Curve("p99_ms", "ms", 1.00, 40),
)
COLUMNS = ("at_s", *(curve.name for curve in CURVES), "calls", "rate_per_s", "audit_rows", "audit_in_store")
MIB = 1 << 20


class Samples:
    """Rows of ``COLUMNS``, kept and written to ``path`` line by line."""

    def __init__(self, path: Path) -> None:
        self.rows: list[dict[str, float]] = []
        self._file = path.open("w", newline="")
        self._writer = csv.DictWriter(self._file, COLUMNS)
        self._writer.writeheader()

    def add(self, row: dict[str, float]) -> None:
        self.rows.append(row)
        self._writer.writerow({name: f"{row[name]:.6g}" for name in COLUMNS})
        self._file.flush()

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.rows]

    def close(self) -> None:
        self._file.close()


def measure(pid: int, status: dict[str, Any], audit: dict[str, Any], latencies: Sequence[float]) -> dict[str, float]:
    """One sample of the Runtime's processes, its store and the calls since the last one."""
    supervisor = psutil.Process(pid)
    hostshell = next((service["pid"] for service in status["services"] if service["name"] == "hostshell"), None)
    ordered = sorted(latencies) or [0.0]
    return {
        "supervisor_rss_mib": supervisor.memory_info().rss / MIB,
        "supervisor_private_mib": _private(pid) / MIB,
        "supervisor_fds": supervisor.num_fds(),
        "hostshell_rss_mib": _rss(hostshell) / MIB,
        "processes": len(supervisor.children(recursive=True)),
        "store_mib": status["store"]["bytes"] / MIB,
        "p50_ms": statistics.median(ordered) * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99) - (len(ordered) > 1)] * 1000,
        "audit_rows": audit["head"]["seq"],
        "audit_in_store": audit["head"]["seq"] - audit["anchor"]["seq"],
    }


def _private(pid: int) -> int:
    """What belongs to the process alone, from the kernel's own count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _rss(pid: int | None) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid else 0
    except psutil.NoSuchProcess:
        return 0


def draw(samples: Samples, title: str, path: Path) -> bool:
    """A picture of all curves; False if there is nothing to draw with."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = (*(curve.name for curve in CURVES), "rate_per_s")
    figure, axes = pyplot.subplots(3, 3, figsize=(16, 11), sharex=True, constrained_layout=True)
    figure.suptitle(title)
    minutes = [at / 60 for at in samples.column("at_s")]
    units = {curve.name: curve.unit for curve in CURVES}
    for name, axis in zip(names, axes.flat, strict=True):
        axis.plot(minutes, samples.column(name), linewidth=1)
        axis.set_title(name, fontsize=10)
        axis.set_ylabel(units.get(name, "calls/s"))
        axis.set_ylim(0, 1.1 * max(samples.column(name)) or 1)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("minutes")
    figure.savefig(path, dpi=110)
    return True
