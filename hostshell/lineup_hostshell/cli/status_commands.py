"""``lineup status``: what runs just now. Owns its rendering; every figure comes from the Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.failure import EXIT_NO_RUNTIME
from lineup_hostshell.cli.group import command, home_option, json_option
from lineup_hostshell.cli.homes import find_runtime
from lineup_hostshell.cli.output import note, print_facts, print_json, print_table, safe_line, say, size

INSTANCES_SHOWN_MAX = 50  # in the table; each conversation has one at least


@command("status", "lineup status", "lineup status --json")
@home_option
@json_option
def status(home: Path, as_json: bool) -> int:
    """Is the Runtime up, how well is it isolated, and what runs in it. Exit code 7 if there is none."""
    info = find_runtime(home)
    if info is None:
        if as_json:
            print_json({"up": False, "home": str(home)})
        else:
            say(f"No Runtime is running for {home}. Start one with `lineup up`.")
        return EXIT_NO_RUNTIME
    from lineup_hostshell.cli.link import ask

    facts = ask(home, "status", {})
    report: dict[str, Any] = {"up": True, "home": str(home), **info.raw, **facts}
    report.setdefault("store", {"bytes": store_bytes(home)})
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0


def _print(report: dict[str, Any]) -> None:
    instances = _list(report.get("instances"))
    print_facts(
        [
            ("Runtime", f"up, version {report.get('version')}, pid {report.get('pid')}"),
            ("Home", report["home"]),
            ("Workspace", report.get("workspace_url")),
            ("Agents", report.get("agent_url")),
            ("Isolation", report.get("isolation")),
            ("Open calls", _count(report.get("open_calls"))),
            ("Outbox", _count(report.get("outbox"))),
            ("Store", _store(report)),
        ]
    )
    click.echo()
    print_table(
        ("app", "version", "state"),
        [(app.get("app_scope"), app.get("version"), app_state(app)) for app in _list(report.get("apps"))],
        empty="No MiniApp is installed.",
    )
    click.echo()
    print_table(
        ("instance", "app", "conversation", "state", "worker pid", "incarnation"),
        [
            (
                instance.get("instance_id"),
                instance.get("app_scope"),
                instance.get("conversation_id"),
                instance.get("state"),
                instance.get("worker_pid") or "none",
                instance.get("incarnation"),
            )
            for instance in instances[:INSTANCES_SHOWN_MAX]
        ],
        empty="No instance is live.",
    )
    if (more := len(instances) - INSTANCES_SHOWN_MAX) > 0:
        click.echo(f"and {more:,} more; --json has them all.")
    for name in report.get("truncated") or ():
        note(f"There are more {safe_line(name)} than are listed here.")


def app_state(app: dict[str, Any]) -> str:
    """One phrase for an installed MiniApp: on, off, or quarantined with its reason."""
    if app.get("quarantined"):
        reason = app.get("quarantine_reason")
        return f"quarantined: {safe_line(reason)}" if reason else "quarantined"
    return "enabled" if app.get("enabled", True) else "disabled"


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: Any) -> str:
    """A number, or how many there are, or the sum of a map's numbers."""
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, dict):
        return str(sum(v for v in value.values() if isinstance(v, int)))
    return "" if value is None else str(value)


def store_bytes(home: Path) -> int | None:
    """What the store takes on the disk; its file is sparse, so its length says nothing."""
    try:
        return (home / "data" / "data.mdb").stat().st_blocks * 512
    except OSError:
        return None


def _store(report: dict[str, Any]) -> str:
    store = report.get("store")
    used = store.get("bytes") if isinstance(store, dict) else None
    return size(used) if used is not None else ""
