"""How the commands print: JSON, tables, times and sizes, and text of others made safe for a terminal.

This file owns the look. It must not know what is printed. Agents, MiniApps and file names are not trusted with the
terminal: a control character of theirs is shown as an escape, never sent.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from lineup_hostshell.cli.hints import with_home
from lineup_protocol.times import from_rfc3339, to_rfc3339

if TYPE_CHECKING:
    from rich.console import Console

# C0 without tab and newline, DEL, C1, and the characters that reorder or hide text (bidi controls, zero-width
# space). The joiners of scripts and emoji stay.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def safe_text(text: object) -> str:
    """``text`` with every character that could drive or deceive a terminal written as ``\\xNN`` or ``\\uNNNN``."""
    return _UNSAFE.sub(_escape, str(text))


def _escape(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def safe_line(text: object) -> str:
    """The same in one line."""
    return safe_text(text).replace("\n", "\\n").replace("\t", " ")


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON that a terminal can show: readable letters stay, unsafe characters become ``\\uNNNN``."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False, default=_as_json)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(value: Any) -> None:
    click.echo(to_json(value))


def print_json_line(value: Any) -> None:
    click.echo(to_json(value, indent=None))


def note(text: str) -> None:
    """A remark beside the data: stderr, so that stdout stays what was asked for."""
    click.echo(safe_text(with_home(text)), err=True)


def say(text: str) -> None:
    """A sentence for a person on stdout; a command that it names gets this command's --home."""
    click.echo(safe_text(with_home(text)))


def console(*, stderr: bool = False) -> Console:
    """A rich console that never reads markup or emoji codes out of other people's text."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 10_000  # a pipe gets whole lines
    return Console(file=stream, markup=False, emoji=False, highlight=False, width=width)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Columns under a head; ``empty`` is said instead when there is no row."""
    lines = [[safe_line("" if cell is None else cell) for cell in row] for row in rows]
    if not lines:
        say(empty)
        return
    if sys.stdout.isatty():
        _print_rich_table(columns, lines)
        return
    from rich.cells import cell_len

    widths = [max(cell_len(line[i]) for line in [list(columns), *lines]) for i in range(len(columns))]
    for line in [[name.upper() for name in columns], *lines]:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """``name   value`` lines, aligned; facts without a value are left out."""
    kept = [(name, safe_line(value)) for name, value in facts if value not in (None, "")]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        click.echo(f"{name:<{width}}  {value}")


def wall_ms(at: object) -> int | None:
    """A record's moment in milliseconds: RFC 3339 text, or already a number."""
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    if isinstance(at, str):
        try:
            return from_rfc3339(at)
        except ValueError:
            return None
    return None


def local_time(at: object, *, date: bool = True) -> str:
    """A moment in the reader's own time zone, to the second."""
    ms = wall_ms(at)
    if ms is None:
        return str(at)
    try:
        moment = time.localtime(ms / 1000)
    except (OverflowError, OSError, ValueError):
        return to_rfc3339(ms)
    return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S", moment)


def duration(ms: float) -> str:
    """``340 ms``, ``2.5 s``, ``3 min 20 s``, ``5 h 2 min``, ``3 d 4 h``: two units at most."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, small_size, small_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    raise AssertionError("whole is at least 60")


def ago(at: object, *, now_ms: int | None = None) -> str:
    ms = wall_ms(at)
    if ms is None:
        return ""
    passed = (int(time.time() * 1000) if now_ms is None else now_ms) - ms
    return f"{duration(passed)} ago" if passed >= 0 else f"in {duration(-passed)}"


def size(count: object) -> str:
    """Bytes in binary units."""
    if not isinstance(count, int | float) or isinstance(count, bool):
        return str(count)
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
