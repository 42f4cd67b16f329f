"""The audit: append-only, hash-chained rows, one for every decision and refusal, found again by subject or cause.

``hash`` = sha256 over the previous row's hash (32 bytes, zeros before the first) and the canonical JSON of the row
without ``prev`` and ``hash``. Details carry digests and codes, never what people or agents wrote. A reason or a
refusal may quote a peer, so each value is cut at ``AUDIT_TEXT_LENGTH_MAX`` here, whatever was checked before: a row is
for ever, and a page of rows has to fit one message.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from lineup_protocol.limits import AUDIT_TEXT_LENGTH_MAX
from lineup_supervisor.core.canonical import canonical
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.rows import AuditRow
from lineup_supervisor.core.schema import AUDIT, AUDIT_BY_SUBJECT, Mark

NO_HASH = "0" * 64
_MARK = Mark()


def audit(
    ctx: Ctx, kind: str, *subjects: str, actor: str | None = None, cause: str | None = None, **detail: Any
) -> None:
    """Append one row. ``subjects`` are the ids that it speaks of; details that are None are left out."""
    seq = ctx.meta.audit_seq + 1
    prev = ctx.meta.audit_hash or NO_HASH
    named = tuple(dict.fromkeys(s for s in subjects if s))
    row_cause = cause if cause is not None else ctx.cause
    body: dict[str, Any] = {
        "seq": seq,
        "at_ms": ctx.now.wall_ms,
        "actor": actor or ctx.actor,
        "kind": kind,
        "subjects": list(named),
        "cause": row_cause,
        "detail": {name: _bounded(value) for name, value in detail.items() if value is not None},
    }
    row_hash = chain(prev, body)
    row = AuditRow(
        seq=seq,
        at_ms=ctx.now.wall_ms,
        actor=body["actor"],
        kind=kind,
        subjects=named,
        cause=row_cause,
        detail=body["detail"],
        prev=prev,
        hash=row_hash,
    )
    ctx.add(AUDIT, (seq,), row)
    for subject in dict.fromkeys((*named, row_cause)):
        ctx.add(AUDIT_BY_SUBJECT, (subject, seq), _MARK)
    ctx.set_meta(audit_seq=seq, audit_hash=row_hash)


def _bounded(value: Any) -> Any:
    """The value, or the beginning of a long one with its length and digest behind a mark."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict | list | tuple):
        text = canonical(value).decode()
    else:
        return value
    if len(text) <= AUDIT_TEXT_LENGTH_MAX:
        return value
    return f"{text[:AUDIT_TEXT_LENGTH_MAX]}… ({len(text)} characters, sha256 {digest(value)})"


def chain(prev: str, body: dict[str, Any]) -> str:
    """The hash of a row whose predecessor has the hash ``prev``."""
    return hashlib.sha256(bytes.fromhex(prev) + canonical(body)).hexdigest()


def public(row: AuditRow) -> dict[str, Any]:
    """The row as it is exported: every field, so that anyone can check the chain."""
    body = msgspec.structs.asdict(row)
    body["subjects"] = list(row.subjects)
    return body


def digest(value: Any) -> str:
    """A short digest of a JSON value, for details: 16 hex digits of sha256 over its canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]
