"""The tables of ``protocol/SPEC.md``, printed from the code: ``python -m lineup_protocol.spec``.

``--write FILE`` puts each table between its two markers in FILE (``<!-- table: NAME -->`` … ``<!-- end -->``); a test
fails while the file and the code say different things.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lineup_protocol import limits
from lineup_protocol.errors import CODES
from lineup_protocol.messages import AGENT_LINK, HOST_LINK, WORKER_LINK, FieldKind, Message

_MARKED = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Limit:
    """One constant of ``limits``: its name, value and reason."""

    name: str
    value: int | float
    reason: str


def read_limits() -> list[Limit]:
    """The constants of ``limits.py`` that have a reason, in the order of the file."""
    body = ast.parse(Path(limits.__file__).read_text(encoding="utf-8")).body
    found = []
    for node, behind in itertools.pairwise(body):
        if not isinstance(node, ast.Assign) or not isinstance(behind, ast.Expr):
            continue
        name, reason = node.targets[0], behind.value
        if isinstance(name, ast.Name) and isinstance(reason, ast.Constant) and isinstance(reason.value, str):
            found.append(Limit(name.id, getattr(limits, name.id), reason.value))
    return found


def tables() -> dict[str, str]:
    """Every table as Markdown, by its name in SPEC.md."""
    return {
        "agent-messages": _messages(AGENT_LINK),
        "worker-messages": _messages(WORKER_LINK),
        "host-messages": _messages(HOST_LINK),
        "errors": _table(("code", "retry", "meaning"), ((f"`{c.code}`", c.retry, c.meaning) for c in CODES.values())),
        "limits": _table(
            ("limit", "value", "reason"), ((f"`{x.name}`", _number(x.value), x.reason) for x in read_limits())
        ),
    }


def rewrite(text: str) -> str:
    """SPEC.md with every marked table made anew."""
    made = tables()
    return _MARKED.sub(lambda match: f"{match[1]}{made[match['name']]}{match[4]}", text)


def marked_tables(text: str) -> dict[str, str]:
    """The tables as they stand in SPEC.md."""
    return {match["name"]: match["table"] for match in _MARKED.finditer(text)}


def _messages(link: tuple[Message, ...]) -> str:
    columns = ("type", "source", "target", "answered by", "durable", "fields", "note")
    return _table(columns, (_row(message) for message in link))


def _row(message: Message) -> tuple[str, ...]:
    return (
        f"`{message.type}`",
        message.source,
        message.target,
        ", ".join(f"`{answer}`" for answer in message.answered_by) or "–",
        "yes" if message.durable else "no",
        ", ".join(_field(name, field.kind, field.required) for name, field in message.fields.items()) or "none",
        message.note,
    )


def _field(name: str, kind: FieldKind, required: bool) -> str:
    words = " \\| ".join(kind) if isinstance(kind, tuple) else kind
    return f"`{name}{'' if required else '?'}`: {words}"


def _number(value: int | float) -> str:
    return f"{value:,}"


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lineup_protocol.spec", description="Tables of SPEC.md.")
    parser.add_argument("--write", metavar="FILE", type=Path, help="rewrite the marked tables of FILE")
    file: Path | None = parser.parse_args().write
    if file is None:
        for name, table in tables().items():
            print(f"<!-- table: {name} -->\n{table}<!-- end -->\n")
    else:
        file.write_text(rewrite(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
