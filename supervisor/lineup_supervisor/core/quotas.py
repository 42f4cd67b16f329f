"""How much of what a MiniApp keeps in the Runtime, and how much its manifest allows. Owns ``USAGE``."""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import BUNDLES, USAGE, Instance, Usage
from lineup_supervisor.core.txn import Txn

# What is counted → (its name in the manifest's limits, the default in MiB, the refusal).
STATE = "state"  # snapshots and surfaces of live instances
ARTIFACTS = "artifacts"
QUESTIONS = "questions"  # requests that wait for a person; no manifest may ask for more
ASKED = "asked"  # requests of an agent that wait for a person, by conversation
INBOX = "inbox"  # deliveries that wait for a worker; likewise
_KINDS = {
    STATE: ("state_mb", limits.WORKER_STATE_MB_DEFAULT, "state_too_large"),
    ARTIFACTS: ("artifacts_mb", limits.WORKER_ARTIFACTS_MB_DEFAULT, "artifact_quota_exceeded"),
}


def used(txn: Txn, app_scope: str, kind: str) -> int:
    """Bytes in use."""
    row = txn.get(USAGE, (app_scope, kind))
    return row.bytes if row is not None else 0


def allowed(ctx: Ctx, manifest: dict[str, Any], kind: str) -> int:
    """Bytes that the manifest allows, and the operator too."""
    name, default_mb, _ = _KINDS[kind]
    return int(ctx.policy.limits_of({"limits": {name: default_mb} | (manifest.get("limits") or {})})[name]) * limits.MIB


def check_room(ctx: Ctx, instance: Instance, kind: str, more: int) -> None:
    """Refuse ``more`` bytes that do not fit.

    Raises:
        LineUpError: the kind's own code, with ``{used, more, allowed}`` in bytes.
    """
    if more <= 0:
        return
    now_used = used(ctx.txn, instance.app_scope, kind)
    most = allowed(ctx, ctx.need(BUNDLES, (instance.digest,)).manifest, kind)
    if now_used + more > most:
        raise LineUpError(
            _KINDS[kind][2],
            f"{instance.app_scope} keeps {now_used} bytes of {kind}, {more} more do not fit into {most}",
            detail={"used": now_used, "more": more, "allowed": most},
        )


def check_questions(ctx: Ctx, app_scope: str, more: int) -> None:
    """Refuse a question of a MiniApp whose ``more`` bytes do not fit beside those that wait for a person already.

    Raises:
        LineUpError: ``rate_limited``, with ``{used, more, allowed}`` in bytes.
    """
    now_used, most = used(ctx.txn, app_scope, QUESTIONS), limits.INTERACTIONS_PENDING_BYTES_PER_APP_MAX
    if now_used + more > most:
        raise LineUpError(
            "rate_limited",
            f"questions of {app_scope} that wait for a person take {now_used} bytes, {more} more do not fit into "
            f"{most}; ask again when some are answered or cancelled, or ask shorter",
            detail={"used": now_used, "more": more, "allowed": most},
        )


def check_asked(ctx: Ctx, conversation_id: str, more: int) -> None:
    """Refuse a question of an agent whose ``more`` bytes do not fit beside those that wait in this conversation.

    Raises:
        LineUpError: ``rate_limited``, with ``{used, more, allowed}`` in bytes.
    """
    now_used, most = used(ctx.txn, conversation_id, ASKED), limits.INTERACTIONS_PENDING_BYTES_PER_CONVERSATION_MAX
    if now_used + more > most:
        raise LineUpError(
            "rate_limited",
            f"questions that wait for a person in {conversation_id} take {now_used} bytes, {more} more do not fit into "
            f"{most}; ask again when some are answered or cancelled, or ask shorter",
            detail={"used": now_used, "more": more, "allowed": most},
        )


def check_inbox(ctx: Ctx, app_scope: str, more: int) -> None:
    """Refuse a delivery whose ``more`` bytes do not fit beside those that wait for this MiniApp already.

    Raises:
        LineUpError: ``rate_limited``, with ``{used, more, allowed}`` in bytes.
    """
    now_used, most = used(ctx.txn, app_scope, INBOX), limits.INBOX_BYTES_PER_APP_MAX
    if now_used + more > most:
        raise LineUpError(
            "rate_limited",
            f"{now_used} bytes wait for {app_scope} already, {more} more do not fit into {most}; "
            "send again when it has taken some of them over",
            detail={"used": now_used, "more": more, "allowed": most},
        )


def charge(ctx: Ctx, app_scope: str, kind: str, more: int) -> None:
    """Count ``more`` bytes for a MiniApp (``ASKED``: for a conversation), or give them back if it is negative."""
    if more:
        row = ctx.get(USAGE, (app_scope, kind)) or Usage()
        assert row.bytes + more >= 0, f"{app_scope} would use fewer than no bytes of {kind}"
        if row.bytes + more or kind != ASKED:
            ctx.put(USAGE, (app_scope, kind), msgspec.structs.replace(row, bytes=row.bytes + more))
        else:  # conversations come and go
            ctx.delete(USAGE, (app_scope, kind))
