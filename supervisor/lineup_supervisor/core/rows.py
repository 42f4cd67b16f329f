"""What every row is, and the rows that say what has been: the audit, and answers that are given again.

The tables, and all other rows, are in ``schema``.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class AuditRow(Row, frozen=True, kw_only=True):
    """Key ``(seq,)``: append-only; ``hash`` covers the row and ``prev``."""

    seq: int
    at_ms: int
    actor: str
    kind: str
    subjects: tuple[str, ...]
    cause: str
    detail: dict[str, Any]
    prev: str
    hash: str


class ActionResult(Row, frozen=True, kw_only=True):
    """Key ``(action_id,)``: what a host action was answered, so that a resend has no second effect."""

    accepted: bool
    at_ms: int
    code: str | None = None
    message: str | None = None
    detail: Any = None


class Said(Row, frozen=True, kw_only=True):
    """Key ``(subject_id,)``, a surface or a question: the newest actions about it that were taken, the oldest first,
    with the revision that each made or 0. They are too many to be remembered one by one for a day.
    """

    revisions: dict[str, int] = {}
