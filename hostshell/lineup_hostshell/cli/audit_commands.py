"""``lineup audit verify`` and ``lineup audit export``: the append-only record of every decision and refusal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.audit_chain import NO_HASH, ChainCheck, check_archive
from lineup_hostshell.cli.failure import CommandFailure
from lineup_hostshell.cli.group import ExampleGroup, command, home_option, json_option
from lineup_hostshell.cli.output import print_json, print_json_line

_TRIES = 5  # a busy Runtime archives ten thousand rows at once, which takes it a second


class RowsMoved(CommandFailure):
    """What was about to be read went into the archive meanwhile."""


@click.group("audit", cls=ExampleGroup, examples=("lineup audit verify", "lineup audit export > audit.jsonl"))
def audit() -> None:
    """Check the audit's hash chain, or export it."""


class _Pages:
    """Reads page by page up to the head that the first page names, so that a busy Runtime is no endless read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.head: Any = None
        self.anchor: dict[str, Any] = {"seq": 0, "hash": NO_HASH}

    def rows(self, after: int) -> Iterator[dict[str, Any]]:
        from lineup_hostshell.cli.link import open_reader

        with open_reader(self.home) as reader:
            while True:
                page = reader.query("audit.page", {"after": after})
                if self.head is None:
                    self.head = page.get("head")
                    self.anchor = page.get("anchor") or self.anchor
                    after = max(after, self.anchor["seq"])
                elif (page.get("anchor") or self.anchor)["seq"] > after:
                    raise RowsMoved("rows moved into the archive while they were being read", "try again")
                end = self.head.get("seq") if isinstance(self.head, dict) else None
                for row in page["rows"]:
                    if isinstance(end, int) and row["seq"] > end:
                        return
                    yield row
                    after = row["seq"]
                if not page["rows"] or after == end:
                    return


def _check(home: Path) -> tuple[ChainCheck, ChainCheck | None, int]:
    """The store's chain, that of the archive's files if there are any, and how many rows were ever archived."""
    pages = _Pages(home)
    rows = pages.rows(0)
    first = next(rows, None)  # with it comes the anchor
    check = ChainCheck(pages.anchor["seq"], pages.anchor["hash"])
    past = check_archive(home / "logs", pages.anchor) if pages.anchor["seq"] else None
    if past is not None and past.broken is not None:
        check.broken = past.broken
    for row in chain([] if first is None else [first], rows):
        check.take(row)
        if check.broken is not None:
            break
    check.end(pages.head)
    return check, past, pages.anchor["seq"]


@command("verify", "lineup audit verify", "lineup audit verify --json")
@home_option
@json_option
def verify(home: Path, as_json: bool) -> int:
    """Recompute the whole hash chain, archived rows included; name the first changed, removed or reordered row."""
    for tries_left in range(_TRIES, -1, -1):
        try:
            check, past, archived = _check(home)
            break
        except RowsMoved:
            if not tries_left:
                raise
    if as_json:
        broken = None if check.broken is None else {"seq": check.broken.seq, "reason": check.broken.reason}
        report: dict[str, Any] = {"ok": broken is None, "rows": check.rows, "hash": check.hash, "broken": broken}
        if archived:
            report["archived"] = {"seq": archived, "checked": past.rows if past is not None else 0}
        print_json(report)
        return 0 if broken is None else 1
    if check.broken is not None:
        intact = check.broken.seq - 1
        raise CommandFailure(
            f"the audit is broken at row {check.broken.seq}: {check.broken.reason}",
            f"the {intact} rows before it are intact; keep the home as it is and compare it with a backup",
        )
    found = past.rows if past is not None else 0
    click.echo(f"The audit is intact: {found + check.rows} rows, head {check.hash}.")
    if archived:
        where = "all of them checked" if found == archived else f"{found} of them here and checked"
        click.echo(f"Rows 1 to {archived} are in the archive, {where}.")
    return 0


@command("export", "lineup audit export > audit.jsonl", "lineup audit export --after 1000")
@home_option
@click.option(
    "--after", type=click.IntRange(0), default=0, show_default=True, metavar="SEQ", help="Only rows after this one."
)
def export(home: Path, after: int) -> None:
    """Print every row of the store as one line of JSON; older ones are in logs/audit-*.jsonl in the same form."""
    for row in _Pages(home).rows(after):
        print_json_line(row)


audit.add_command(verify)
audit.add_command(export)
