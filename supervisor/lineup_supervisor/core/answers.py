"""How large an answer may get: every query that lists has room for so many bytes, however large its rows are.

Owns the measure, the places where a list goes on, and the short forms of what may be large. It must not know any query.
A row is measured as JSON, which is cheap and no smaller than half of its values count, so that a bound in bytes is also
one in values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_supervisor.core.txn import Key

PAGE_ROWS_MAX = 1_000
TEXT_SHOWN_MAX = 200  # characters of a question's title and text that a short row keeps
SMALL_BYTES = 2 * limits.KIB  # cutting a row that is no larger would save little and cost another question
_encode = msgspec.json.Encoder().encode


def size_of(row: object) -> int:
    """About how many bytes a row takes in an answer."""
    return len(_encode(row))


class Room:
    """What one answer may still take; ``full`` once something did not fit: the list ends there, without a gap."""

    __slots__ = ("_empty", "full", "left")

    def __init__(self, size: int | None = None) -> None:
        self.left = limits.ANSWER_ROWS_BYTES_MAX if size is None else size
        self.full = False
        self._empty = True

    def take(self, *rows: object) -> bool:
        """True if these rows fit; the first always do, for else a reader would never get past them."""
        size = sum(map(size_of, rows))
        self.full = self.full or (size > self.left and not self._empty)
        if not self.full:
            self.left -= size
            self._empty = False
        return not self.full

    def has(self, size: int) -> bool:
        return size <= self.left


class Spare:
    """Room for whole rows in an answer that may show large ones short."""

    def __init__(self, size: int | None = None) -> None:
        self._left = limits.ANSWER_ROWS_BYTES_MAX // 2 if size is None else size

    def whole_or(self, row: dict[str, Any], short: dict[str, Any]) -> dict[str, Any]:
        """The row itself if it is small anyway or there is room for it, else its short form."""
        size = size_of(row)
        if size <= SMALL_BYTES:
            return row
        if size > self._left:
            return short
        self._left -= size
        return row


def fitting(rows: Iterable[dict[str, Any]], size: int | None = None) -> tuple[list[dict[str, Any]], bool]:
    """The first rows, as many as there is room for, and whether there are more."""
    room, kept = Room(size), list[dict[str, Any]]()
    for row in rows:
        if not room.take(row):
            return kept, True
        kept.append(row)
    return kept, False


def parts(lists: dict[str, tuple[list[dict[str, Any]], bool]]) -> dict[str, Any]:
    """Several lists of one answer, and the names of those that are not whole."""
    return {name: rows for name, (rows, _) in lists.items()} | {
        "truncated": [name for name, (_, more) in lists.items() if more]
    }


def paged(name: str, rows: Iterable[tuple[Key, dict[str, Any]]], most: int = PAGE_ROWS_MAX) -> dict[str, Any]:
    """A page of ``(key, row)``: as many as fit, ``most`` at most, with ``next`` if there are more."""
    room, kept, last = Room(), list[dict[str, Any]](), ""
    for key, row in rows:
        if len(kept) >= most or not room.take(row):
            return {name: kept, "next": last}
        kept.append(row)
        last = cursor(key)
    return {name: kept}


def short_interaction(row: dict[str, Any]) -> dict[str, Any]:
    """An interaction's record without what may be large, marked ``cut``; ``interaction`` has all of it.

    The Runtime's own questions stay whole: they are short, and what a person consents to is never shown in part.
    """
    if row["owner"]["source"] == "runtime_policy":
        return row
    request = row["request"]
    shown = {"kind": row["kind"], "title": _begin(request.get("title"))}
    shown |= {name: _begin(request[name]) for name in ("message", "prompt") if name in request}
    shown |= {name: request[name] for name in ("mode",) if name in request}
    shown |= {name: [] for name in ("actions", "fields") if name in request}
    kept = {name: value for name, value in row.items() if name not in ("request", "draft", "result")}
    return kept | {"request": shown, "cut": True}


def _begin(text: object) -> str:
    text = str(text or "")
    return text if len(text) <= TEXT_SHOWN_MAX else f"{text[:TEXT_SHOWN_MAX]}…"


def short_call(row: dict[str, Any]) -> dict[str, Any]:
    """A call's record without its input, result and error, marked ``cut``; ``call`` has all of it."""
    return {name: value for name, value in row.items() if name not in ("input", "result", "error")} | {"cut": True}


def cursor(key: Key) -> str:
    """Where a list goes on, as ``after`` takes it. Ids have no slash."""
    return "/".join(map(str, key))


def after(args: dict[str, Any], *form: type) -> Key | None:
    """The key in ``args["after"]``, ``None`` if there is none. ``form``: the types of its parts.

    Raises:
        LineUpError: ``message_invalid`` for what no answer has named.
    """
    value = args.get("after")
    if value is None:
        return None
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != len(form):
        raise _no_cursor()
    return tuple(_part(part, kind) for part, kind in zip(parts, form, strict=True))


def _part(text: str, kind: type) -> str | int:
    if kind is int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 16):
            raise _no_cursor()
        return int(text)
    if not is_id(text):
        raise _no_cursor()
    return text


def _no_cursor() -> LineUpError:
    return LineUpError("message_invalid", "/args/after: is no place in this list", detail={"path": "/args/after"})
