"""Prints the state diagrams of docs/states.md from the transition tables, so that the two cannot differ."""

from __future__ import annotations

import sys
from pathlib import Path

from lineup_supervisor.core.machine import Ignore, Machine, Refuse
from lineup_supervisor.core.tables import MACHINES

HEAD = """# Life cycles

Generated from `supervisor/lineup_supervisor/core/tables.py` by `scripts/draw-states`; a check holds the two together.
"""


def document() -> str:
    """The whole page."""
    return HEAD + "".join(section(machine) for machine in MACHINES)


def section(machine: Machine) -> str:  # type: ignore[type-arg]
    """One machine: its diagram and what it refuses."""
    moves, refusals = [], []
    for (state, event), entry in machine.table.items():
        if isinstance(entry, Refuse):
            refusals.append((state, event, entry.code))
        elif not isinstance(entry, Ignore):
            moves.append(f"    {state} --> {entry}: {event}")
    lines = [f"\n## {machine.name}\n", "```mermaid", "stateDiagram-v2", f"    [*] --> {machine.initial}", *moves]
    lines += [f"    {state} --> [*]" for state in machine.states if machine.is_final(state)]
    lines += ["```", "", "| state | refused events | code |", "|---|---|---|"]
    by_row: dict[tuple[str, str], list[str]] = {}
    for state, event, code in refusals:
        by_row.setdefault((state, code), []).append(event)
    lines += [f"| `{state}` | {', '.join(events)} | `{code}` |" for (state, code), events in by_row.items()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    page = Path("docs/states.md")
    if "--check" in arguments:
        if page.read_text(encoding="utf-8") != document():
            print("docs/states.md differs from the tables: run scripts/draw-states", file=sys.stderr)
            return 1
        return 0
    page.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
