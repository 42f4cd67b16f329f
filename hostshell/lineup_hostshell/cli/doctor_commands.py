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
                "isolation": report.get("isolation", report.get("level")),
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
    """One check per layer of the probe: ``{name, ok, found|cause|detail, fix}``, a layer that failed is a warning.

    A missing layer lowers the level, it does not break the Runtime; what needs more is refused by name.
    """
    layers = report.get("checks", report.get("layers", report.get("probes", [])))
    if isinstance(layers, dict):
        layers = [
            {"name": name, **(layer if isinstance(layer, dict) else {"ok": bool(layer)})}
            for name, layer in layers.items()
        ]
    checks = []
    for layer in layers:
        ok = bool(layer.get("ok", layer.get("verdict") == "ok"))
        found = layer.get("found") or layer.get("cause") or layer.get("detail") or ("works" if ok else "does not work")
        checks.append(
            Check(
                str(layer.get("name", "isolation")),
                "ok" if ok else "warning",
                str(found),
                "" if ok else str(layer.get("fix") or ""),
            )
        )
    return checks


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
    level = report.get("isolation", report.get("level"))
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
