"""``lineup doctor``: what this machine can do, what it cannot, why, and how to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.doctor_checks import Check, local_checks
from lineup_hostshell.cli.failure import EXIT_FAILURE, CommandFailure
from lineup_hostshell.cli.group import command, home_option, json_option
from lineup_hostshell.cli.homes import find_runtime
from lineup_hostshell.cli.output import print_json, safe_line, size
from lineup_protocol.errors import LineUpError

_MARKS = {"ok": "ok     ", "warning": "WARNING", "fault": "FAULT  "}
_COLOURS = {"ok": "green", "warning": "yellow", "fault": "red"}


@command("doctor", "lineup doctor", "lineup doctor --json")
@home_option
@json_option
def doctor(home: Path, as_json: bool) -> int:
    """Examine this machine: isolation, ports, store, disk, clock. Exit code 1 if something is at fault."""
    report, isolation_checks = _isolation(home)
    checks = [*isolation_checks, *local_checks(home), _store(home)]
    healthy = all(check.verdict != "fault" for check in checks)
    if as_json:
        print_json(
            {
                "ok": healthy,
                "isolation": _level(report),
                "probe": report,
                "checks": [check.as_dict() for check in checks],
            }
        )
    else:
        _print(report, checks)
    return 0 if healthy else EXIT_FAILURE


def _isolation(home: Path) -> tuple[dict[str, Any], list[Check]]:
    """The probe's report: the daemon's own if one runs, else that of a probe started for this."""
    try:
        report = _ask_or_probe(home)
    except (LineUpError, CommandFailure) as error:
        return {}, [Check("isolation", "fault", f"it could not be probed: {error}", "`lineup logs` may say more")]
    return report, list(probe_checks(report))


def _ask_or_probe(home: Path) -> dict[str, Any]:
    if find_runtime(home) is not None:
        from lineup_hostshell.cli.link import ask

        answer = ask(home, "doctor", {})
    else:
        from lineup_hostshell.cli.supervisor_process import run_json_job

        answer = run_json_job("doctor", "--json", home=home)
    if not isinstance(answer, dict):
        raise CommandFailure("the probe's report is no object")
    return answer


def probe_checks(report: dict[str, Any]) -> list[Check]:
    """One check per layer that was probed: ``{name, ok, cause, fix}``.

    A layer that fails lowers the level, which is no fault: what needs more is refused by name. No level at all is one.
    """
    layers = report.get("layers", report.get("checks", []))
    checks = [
        Check(
            str(layer.get("name", "isolation")),
            "ok" if layer.get("ok") else "warning",
            str(layer.get("cause") or ("holds" if layer.get("ok") else "does not hold")),
            "" if layer.get("ok") else str(layer.get("fix") or ""),
        )
        for layer in layers
    ]
    if _level(report) in (None, "none"):
        checks.append(Check("isolation", "fault", "no level holds, so no MiniApp can run", "mend a layer named above"))
    return checks


def _level(report: dict[str, Any]) -> str | None:
    level = report.get("level", report.get("isolation"))
    return level if isinstance(level, str) else None


def _store(home: Path) -> Check:
    path = home / "data" / "data.mdb"
    try:
        used = path.stat().st_blocks * 512
    except (FileNotFoundError, NotADirectoryError):
        return Check("store", "ok", "there is none yet")
    except OSError as error:
        return Check("store", "fault", f"{path}: {error.strerror}", "make it readable for you again")
    return Check("store", "ok", f"{size(used)} in {path}")


def _print(report: dict[str, Any], checks: list[Check]) -> None:
    level = _level(report)
    if level:
        click.echo(f"Isolation level {safe_line(level)}.")
        if report.get("summary"):
            click.echo(safe_line(report["summary"]))
        click.echo()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = click.style(_MARKS[check.verdict], fg=_COLOURS[check.verdict])
        click.echo(f"{mark}  {check.name:<{width}}  {safe_line(check.found)}")
        if check.fix:
            click.echo(f"{'':7}  {'':<{width}}  fix: {safe_line(check.fix)}")
