"""Which isolation level this run may use: the probe's word, remembered while nothing changes that could change it.

This file owns the remembering and the operator's say. It must not know how a level is probed or made.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineup_supervisor.config import Config
from lineup_supervisor.edges import sandbox
from lineup_supervisor.edges import sandbox_policy as policy
from lineup_supervisor.edges.probe import probe_isolation
from lineup_supervisor.home import Home, write_private

CACHE_NAME = "isolation.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SYSCTLS = (
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
)


@dataclass(frozen=True)
class Isolation:
    """``levels``: what workers may be started at. ``report``: for `lineup doctor`."""

    level: str
    levels: tuple[policy.Level, ...]
    why_not: str
    bwrap: str | None
    report: dict[str, Any]


def find_isolation(home: Home, config: Config, log: Any) -> Isolation:
    """Blocks for some 0.3 s unless the last probe's answer still stands. From the main thread only."""
    bwrap = sandbox.find_bwrap()
    cache = home.run / CACHE_NAME
    facts = _facts(config, bwrap)
    known = _remembered(cache, facts)
    if known is None:
        report = probe_isolation(home.run, home.data, allow_s2=config.isolation_minimum != "S3", bwrap=bwrap)
        known = {**_plain(report.as_dict()), "why_not": report.why_not}
        log.info("isolation probed", isolation=report.level, why_not=report.why_not)
        with contextlib.suppress(OSError):
            write_private(cache, json.dumps({"facts": facts, "report": known}).encode())
    level = str(known["level"])
    levels: list[policy.Level] = [each for each in policy.LEVELS if each == level]
    if config.isolation_allow_bare_system_apps and "S1" not in levels:
        levels.append("S1")
    return Isolation(level, tuple(levels), str(known["why_not"]), bwrap, known)


def probe_without_daemon() -> dict[str, Any]:
    """The report of a fresh probe that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="lineup-") as place:
        report = probe_isolation(Path(place, "run"), Path(place, "data"), allow_s2=True, bwrap=sandbox.find_bwrap())
    return {**_plain(report.as_dict()), "isolation": report.level, "why_not": report.why_not}


def _facts(config: Config, bwrap: str | None) -> dict[str, Any]:
    """Everything that a level can depend on; a new kernel boot, a new bubblewrap or a changed switch probes again."""
    found: dict[str, Any] = {"boot": _text(_BOOT_ID), "uid": os.geteuid(), "minimum": config.isolation_minimum}
    found |= {name: _text(Path("/proc/sys", name)) for name in _SYSCTLS}
    for name, path in (("bwrap", bwrap), ("probe", sandbox.__file__), ("policy", policy.__file__)):
        status = os.stat(path) if path is not None else None
        found[name] = None if status is None else [path, status.st_mtime_ns, status.st_size, status.st_mode]
    return found


def _remembered(cache: Path, facts: dict[str, Any]) -> dict[str, Any] | None:
    try:
        kept = json.loads(cache.read_bytes())
        report = kept["report"]
        return report if kept["facts"] == facts and report["level"] == "S3" else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _plain(report: dict[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(report))
    return found
