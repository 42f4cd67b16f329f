"""The audit is read in pages of a bounded length, however many rows are asked for; together they are the chain."""

from __future__ import annotations

from typing import Any

from core.harness import Core
from lineup_hostshell.cli.audit_chain import ChainCheck
from lineup_supervisor.core.queries import AUDIT_PAGE_ROWS_MAX


def page(core: Core, **args: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = core.query("audit.page", **args)["rows"]
    return rows


def test_a_page_is_short_and_the_pages_are_the_whole_chain() -> None:
    core = Core()
    core.connect("a1")
    while core.query("status")["audit_rows"] <= 2 * AUDIT_PAGE_ROWS_MAX:
        core.call("no.such", call_id=core.new_id())
    head = core.query("audit.page")["head"]
    chain, after = ChainCheck(), 0
    lengths = []
    while rows := page(core, after=after, limit=1_000_000):
        for row in rows:
            chain.take(row)
        after = rows[-1]["seq"]
        lengths.append(len(rows))
    chain.end(head)
    assert chain.broken is None
    assert lengths[:2] == [AUDIT_PAGE_ROWS_MAX, AUDIT_PAGE_ROWS_MAX]
    assert [row["seq"] for row in page(core, after=5, limit=3)] == [6, 7, 8]
