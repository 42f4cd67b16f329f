"""``config.toml``: what an operator may set, with its bounds and defaults.

This file owns the names, the checks and the sentences about faults. It must not know what a setting does.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.policy import Policy

CONFIG_BYTES_MAX = 262_144  # a hand-written file has a few hundred bytes
DEFAULT_PORT = 8617  # unassigned; people bookmark it
_MIB = 1024 * 1024
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Config:
    """Every setting; the field ``a_b`` of the table ``[x]`` stands here as ``x_a_b``."""

    web_port: int = DEFAULT_PORT
    isolation_minimum: str = "S3"
    isolation_allow_bare_system_apps: bool = False
    workers_heartbeat_ms: int = 5_000
    workers_missed_heartbeats_max: int = 3
    workers_memory_bytes_max: int = 1024 * _MIB
    workers_stop_grace_ms: int = Policy().worker_stop_grace_ms
    workers_idle_ms: int = Policy().worker_idle_ms
    workers_max: int = Policy().workers_max
    restarts_max: int = Policy().restarts_max
    restarts_window_ms: int = Policy().restart_window_ms
    restarts_quarantine_after: int = Policy().quarantine_closures_max
    restarts_quarantine_window_ms: int = Policy().quarantine_window_ms
    limits_memory_mb: int = limits.WORKER_MEMORY_MB_MAX
    limits_cpu_share: float = limits.WORKER_CPU_SHARE_MAX
    limits_processes: int = limits.WORKER_PROCESSES_MAX
    limits_open_files: int = limits.WORKER_OPEN_FILES_MAX
    limits_file_size_mb: int = limits.WORKER_FILE_SIZE_MB_MAX
    limits_tmp_mb: int = limits.WORKER_TMP_MB_MAX
    limits_state_mb: int = limits.WORKER_STATE_MB_MAX
    limits_artifacts_mb: int = limits.WORKER_ARTIFACTS_MB_MAX
    limits_stdout_kb_per_second: int = limits.WORKER_STDOUT_KB_PER_SECOND_MAX
    retention_calls_days: int = Policy().calls_kept_ms // _DAY_MS
    retention_calls_max: int = Policy().calls_kept_max
    retention_calls_mb_max: int = Policy().calls_kept_bytes_max // _MIB
    retention_interactions_days: int = Policy().interactions_kept_ms // _DAY_MS
    retention_interactions_max: int = Policy().interactions_kept_max
    retention_interactions_mb_max: int = Policy().interactions_kept_bytes_max // _MIB
    retention_sessions_days: int = Policy().sessions_kept_ms // _DAY_MS
    retention_sessions_max: int = Policy().sessions_kept_max
    retention_sessions_mb_max: int = Policy().sessions_kept_bytes_max // _MIB
    retention_timeline_entries_max: int = Policy().timeline_entries_max
    retention_audit_rows_max: int = Policy().audit_rows_max
    log_level: str = "info"

    def policy(self) -> Policy:
        """What of it the core keeps to."""
        return Policy(
            worker_stop_grace_ms=self.workers_stop_grace_ms,
            worker_idle_ms=self.workers_idle_ms,
            workers_max=self.workers_max,
            restarts_max=self.restarts_max,
            restart_window_ms=self.restarts_window_ms,
            quarantine_closures_max=self.restarts_quarantine_after,
            quarantine_window_ms=self.restarts_quarantine_window_ms,
            calls_kept_ms=self.retention_calls_days * _DAY_MS,
            calls_kept_max=self.retention_calls_max,
            calls_kept_bytes_max=self.retention_calls_mb_max * _MIB,
            interactions_kept_ms=self.retention_interactions_days * _DAY_MS,
            interactions_kept_max=self.retention_interactions_max,
            interactions_kept_bytes_max=self.retention_interactions_mb_max * _MIB,
            sessions_kept_ms=self.retention_sessions_days * _DAY_MS,
            sessions_kept_max=self.retention_sessions_max,
            sessions_kept_bytes_max=self.retention_sessions_mb_max * _MIB,
            timeline_entries_max=self.retention_timeline_entries_max,
            audit_rows_max=self.retention_audit_rows_max,
            limits_max=tuple(
                (name, most)
                for name, rule in RULES["limits"].items()
                if (most := getattr(self, f"limits_{name}")) < rule.high
            ),
        )


@dataclass(frozen=True)
class _Rule:
    """``low`` and ``high`` bound an integer, or a number if ``high`` is a float; ``choices`` list the strings; neither:
    true or false.
    """

    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    def fault(self, value: object) -> str | None:
        if self.choices:
            ok = isinstance(value, str) and value in self.choices
            return None if ok else f"must be one of {', '.join(map(repr, self.choices))}"
        if self.high:
            kind, word = (int | float, "a number") if isinstance(self.high, float) else (int, "an integer")
            ok = isinstance(value, kind) and not isinstance(value, bool) and self.low <= value <= self.high
            return None if ok else f"must be {word} from {self.low} to {self.high}"
        return None if isinstance(value, bool) else "must be true or false"


RULES: dict[str, dict[str, _Rule]] = {
    "web": {"port": _Rule(0, 65_535)},
    "isolation": {
        # The weakest level on which MiniApps are run at all; what is weaker than S3 is the operator's own decision.
        "minimum": _Rule(choices=("S3", "S2", "S1")),
        "allow_bare_system_apps": _Rule(),
    },
    "workers": {
        "heartbeat_ms": _Rule(100, 60_000),
        "missed_heartbeats_max": _Rule(1, 100),
        "memory_bytes_max": _Rule(64 * _MIB, 1 << 44),
        "stop_grace_ms": _Rule(0, 60_000),
        "idle_ms": _Rule(0, 86_400_000),
        "max": _Rule(1, 1_000),
    },
    "restarts": {
        "max": _Rule(0, 1_000),
        "window_ms": _Rule(1_000, 86_400_000),
        "quarantine_after": _Rule(1, 1_000),
        "quarantine_window_ms": _Rule(1_000, 86_400_000),
    },
    # The most that any MiniApp gets, in its manifest's own names and units; the lows are those of a manifest.
    "limits": {
        "memory_mb": _Rule(64, limits.WORKER_MEMORY_MB_MAX),
        "cpu_share": _Rule(0.05, limits.WORKER_CPU_SHARE_MAX),
        "processes": _Rule(8, limits.WORKER_PROCESSES_MAX),
        "open_files": _Rule(32, limits.WORKER_OPEN_FILES_MAX),
        "file_size_mb": _Rule(1, limits.WORKER_FILE_SIZE_MB_MAX),
        "tmp_mb": _Rule(1, limits.WORKER_TMP_MB_MAX),
        "state_mb": _Rule(1, limits.WORKER_STATE_MB_MAX),
        "artifacts_mb": _Rule(1, limits.WORKER_ARTIFACTS_MB_MAX),
        "stdout_kb_per_second": _Rule(1, limits.WORKER_STDOUT_KB_PER_SECOND_MAX),
    },
    # What is over and how long it is kept; 0 days and 0 entries mean for ever. The lows leave a resend its time.
    "retention": {
        "calls_days": _Rule(1, 36_500),
        "calls_max": _Rule(1_000, 10_000_000),
        "calls_mb_max": _Rule(16, 1 << 20),
        "interactions_days": _Rule(0, 36_500),
        "interactions_max": _Rule(1_000, 10_000_000),
        "interactions_mb_max": _Rule(16, 1 << 20),
        "sessions_days": _Rule(0, 36_500),
        "sessions_max": _Rule(100, 1_000_000),
        "sessions_mb_max": _Rule(16, 1 << 20),
        "timeline_entries_max": _Rule(0, 10_000_000),
        "audit_rows_max": _Rule(10_000, 100_000_000),
    },
    "log": {"level": _Rule(choices=("debug", "info", "warning", "error"))},
}


def read_config(path: Path) -> Config:
    """The file's settings over the defaults; no file means all defaults.

    Raises:
        LineUpError: ``config_invalid``, naming file, line and fault.
    """
    try:
        # Without waiting: a pipe that somebody left there has no writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _invalid(path, None, "is no regular file")
            raw = file.read(CONFIG_BYTES_MAX + 1)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise _invalid(path, None, f"cannot be read ({error.strerror})") from error
    if len(raw) > CONFIG_BYTES_MAX:
        raise _invalid(path, None, f"has more than {CONFIG_BYTES_MAX} bytes")
    try:
        text = raw.decode()
        tables = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise _invalid(path, raw[: error.start].count(b"\n") + 1, "is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        sentence = re.sub(r"\s*\(at .*\)$", "", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise _invalid(path, line, f"is not TOML: {sentence[:1].lower()}{sentence[1:]}") from error
    return _apply(path, text, tables)


def _apply(path: Path, text: str, tables: dict[str, Any]) -> Config:
    known = {field.name for field in fields(Config)}
    changes: dict[str, Any] = {}
    for table, settings in tables.items():
        if table not in RULES:
            raise _invalid(
                path, _line_of(text, None, table), f"has the unknown table [{table}]; there are {_names(RULES)}"
            )
        if not isinstance(settings, dict):
            raise _invalid(path, _line_of(text, None, table), f"has {table} as a value; it must be the table [{table}]")
        for name, value in settings.items():
            rule = RULES[table].get(name)
            line = _line_of(text, table, name)
            if rule is None:
                raise _invalid(
                    path, line, f"has the unknown setting {name} in [{table}]; there are {_names(RULES[table])}"
                )
            if (fault := rule.fault(value)) is not None:
                raise _invalid(path, line, f"has {table}.{name} = {value!r}, which {fault}")
            changes[f"{table}_{name}"] = value
    assert changes.keys() <= known
    return replace(Config(), **changes)


def _line_of(text: str, table: str | None, name: str) -> int | None:
    """The line that sets ``name`` in ``[table]`` (or starts the table), by its plain spelling; None if unclear."""
    current: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w.\"'-]+)\s*\]", line)
        if header:
            current = header[1].strip("\"'")
            if table is None and current.split(".")[0] == name:
                return number
        elif (re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[=.]", line) and (current == table or table is None)) or (
            table is not None
            and re.match(rf"\s*{re.escape(table)}\s*(\.\s*{re.escape(name)}\b|=.*\b{re.escape(name)}\b)", line)
        ):
            return number
    return None


def _names(table: dict[str, Any]) -> str:
    return ", ".join(table)


def _invalid(path: Path, line: int | None, fault: str) -> LineUpError:
    where = f"{path}, line {line}," if line is not None else f"{path}"
    return LineUpError(
        "config_invalid", f"{where} {fault}; mend or remove it", detail={"path": str(path), "line": line}
    )
