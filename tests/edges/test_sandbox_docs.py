"""docs/isolation.md says what is measured: its tables against the probe, the limits and the reasons of the gate.

And docs/catalogue-isolation.md names tests that there are.
"""

from __future__ import annotations

import re
from pathlib import Path

from lineup_supervisor.edges import probe
from lineup_supervisor.edges.sandbox_policy import CEILINGS, WorkerLimits

PAGE = Path(__file__).parents[2] / "docs" / "isolation.md"
EDGES = Path(probe.__file__).parent


def rows(first_cell: str) -> dict[str, list[str]]:
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(first_cell, cells[0]):
            found[cells[0].strip("`")] = cells[1:]
    return found


def test_every_attempt_stands_there_as_it_is_measured(tmp_path: Path) -> None:
    # S3 by the default way; S2 by a bubblewrap that is none.
    s3 = probe.probe_isolation(tmp_path / "run", tmp_path / "data").attempts["S3"]
    s2 = probe.probe_isolation(tmp_path / "run", tmp_path / "data", allow_s2=True, bwrap="/bin/false").attempts["S2"]
    table = {name: cells for name, cells in rows(r"`\w+`").items() if cells[-1] in ("open", "denied")}
    assert set(table) == set(s3) == set(s2)
    for name, (_what, said_s3, said_s2, _said_s1) in table.items():
        assert s3[name].split(":")[0] == said_s3, name
        assert s2[name].split(":")[0] == said_s2, name


def in_words(value: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size and value % size == 0 and value >= 8192:
            return f"{int(value) // size} {unit}"
    return f"{value:,}"


def test_every_limit_stands_there_with_default_and_ceiling() -> None:
    table = rows(r"`[a-z_]+`")
    for name in WorkerLimits.__dataclass_fields__:
        assert table[name][:2] == [in_words(getattr(WorkerLimits(), name)), in_words(getattr(CEILINGS, name))], name


def test_every_reason_of_the_gate_stands_there() -> None:
    source = (EDGES / "zmtp.py").read_text() + (EDGES / "gate.py").read_text()
    reasons = set(re.findall(r'(?:_Violation|_cut)\(\s*"(\w+)"', source)) - {"accept_failed"}
    page = PAGE.read_text(encoding="utf-8")
    assert reasons
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()


def test_every_line_of_the_catalogue_is_shown_by_tests_that_exist() -> None:
    repo = PAGE.parents[1]
    lines = re.findall(
        r"^\| ([BC]\d+) \|.*\| (.+) \|$", (PAGE.parent / "catalogue-isolation.md").read_text(), re.MULTILINE
    )
    assert [line for line, _ in lines] == [f"B{n}" for n in range(1, 17)] + [f"C{n}" for n in range(1, 14)]
    for line, shown in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(?:(\w+)::)?(test_\w+)`", shown)
        assert named, line
        assert len(named) == shown.count("`") // 2, line
        for path, group, test in named:
            source = (repo / path).read_text()
            assert re.search(rf"def {test}\(", source), (line, path, test)
            assert not group or f"class {group}:" in source, (line, path, group)
