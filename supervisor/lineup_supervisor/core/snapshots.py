"""State snapshots (feature ``app.instance-state.v1``): one small object per instance that outlives its workers.

Owns ``SNAPSHOTS``. A snapshot satisfies its manifest's schema or is not taken. It never brings a closed instance back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.schema import compile_schema
from lineup_protocol.shapes import shape
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import quotas
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import BUNDLES, SNAPSHOTS, Instance, Snapshot
from lineup_supervisor.core.tables import InstanceState
from lineup_supervisor.core.txn import Txn

replace = msgspec.structs.replace

FEATURE = "app.instance-state.v1"
RETAIN = "retain_readonly"  # the other retention is "delete"


def save(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``state.save``: replace the snapshot; returns its new ``revision``.

    Raises:
        LineUpError: ``app_closed``, ``state_invalid`` (no such feature, or ``{path, rule}``), ``state_too_large``,
            ``state_conflict`` with the current ``{revision}``; nothing changes.
    """
    declared = _declared(ctx, instance)
    before = current(ctx.txn, instance.instance_id)
    if instance.state == InstanceState.CLOSED or (before is not None and before.read_only):
        raise LineUpError("app_closed", "the instance is closed; its snapshot is history and can only be read")
    revision = before.revision if before is not None else 0
    base = body.get("base_revision")
    if base is not None and base != revision:
        raise LineUpError(
            "state_conflict",
            f"the snapshot was made on revision {base}, the saved one is {revision}",
            detail={"revision": revision},
        )
    _check_shape(body["state"])
    state = compile_schema(declared.get("state_schema") or {"type": "object"}).validate(
        body["state"], code="state_invalid"
    )
    size = len(canonical_json(state))
    most = min(int(declared.get("max_bytes") or limits.STATE_BYTES_MAX), limits.STATE_BYTES_MAX)
    if size > most:
        raise LineUpError(
            "state_too_large",
            f"the snapshot has {size} bytes, at most {most}",
            detail={"bytes": size, "bytes_max": most},
        )
    grown = size - (before.bytes if before is not None else 0)
    quotas.check_room(ctx, instance, quotas.STATE, grown)
    ctx.cause = instance.cause
    snapshot = Snapshot(
        instance_id=instance.instance_id,
        state=state,
        revision=revision + 1,
        schema_version=int(declared.get("state_schema_version") or 1),
        saved_ms=ctx.now.wall_ms,
        bytes=size,
    )
    ctx.put(SNAPSHOTS, (instance.instance_id,), snapshot)
    quotas.charge(ctx, instance.app_scope, quotas.STATE, grown)
    audit(ctx, "state.saved", instance.instance_id, revision=snapshot.revision, bytes=size, state=digest(state))
    return {"revision": snapshot.revision}


def current(txn: Txn, instance_id: str) -> Snapshot | None:
    """What was saved last, or None."""
    return txn.get(SNAPSHOTS, (instance_id,))


def owner_closed(ctx: Ctx, instance: Instance) -> None:
    """The instance ends: its snapshot becomes read-only history, or goes, as the manifest says."""
    snapshot = current(ctx.txn, instance.instance_id)
    if snapshot is None or snapshot.read_only:
        return
    quotas.charge(ctx, instance.app_scope, quotas.STATE, -snapshot.bytes)
    if _declared(ctx, instance).get("retention", RETAIN) == RETAIN:
        ctx.put(SNAPSHOTS, (instance.instance_id,), replace(snapshot, read_only=True))
        audit(ctx, "state.retained", instance.instance_id, revision=snapshot.revision)
    else:
        ctx.delete(SNAPSHOTS, (instance.instance_id,))
        audit(ctx, "state.dropped", instance.instance_id, revision=snapshot.revision)


def public(snapshot: Snapshot) -> dict[str, Any]:
    """The record as Hosts read it, for the history of a closed instance too."""
    return {
        "instance_id": snapshot.instance_id,
        "state": snapshot.state,
        "revision": snapshot.revision,
        "schema_version": snapshot.schema_version,
        "saved_at": to_rfc3339(snapshot.saved_ms),
        "read_only": snapshot.read_only,
    }


def _check_shape(state: Any) -> None:
    """It has to fit into every message that will carry it."""
    nodes, depth = shape(state)
    if nodes > limits.STATE_NODES_MAX:
        detail = {"nodes": nodes, "nodes_max": limits.STATE_NODES_MAX}
        raise LineUpError("state_too_large", f"the snapshot has {nodes} values and keys", detail=detail)
    if depth > limits.VALUE_DEPTH_MAX:
        rule = f"must not be nested deeper than {limits.VALUE_DEPTH_MAX}"
        raise LineUpError("state_invalid", f"/: {rule}", detail={"path": "/", "rule": rule})


def _declared(ctx: Ctx, instance: Instance) -> dict[str, Any]:
    """The manifest's ``instance_state``."""
    manifest = ctx.need(BUNDLES, (instance.digest,)).manifest
    declared = manifest.get("instance_state")
    if FEATURE not in (manifest.get("features") or ()) or declared is None:
        raise LineUpError(
            "state_invalid", f"miniapp.json of {instance.app_scope} does not declare the feature {FEATURE}"
        )
    return dict(declared)
