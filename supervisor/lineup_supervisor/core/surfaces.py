"""Surfaces: an instance's pages, each with one durable state that the MiniApp and the person's page both patch.

Owns ``SURFACES`` and ``OPEN_SURFACES``; how a state is stored is ``merge_patch``'s business. Which surface a message of
a Host speaks for is said by the edge that holds the page's port; nothing inside a payload is believed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.shapes import shape
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import inbox, instances, merge_patch, quotas, retention
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.decoded import copy_decoded
from lineup_supervisor.core.schema import (
    BUNDLES,
    INSTANCES,
    OPEN_SURFACES,
    SURFACES,
    WORKERS,
    Instance,
    Mark,
    Surface,
)
from lineup_supervisor.core.tables import SURFACE, InstanceState, SurfaceEvent, SurfaceState, WorkerState
from lineup_supervisor.core.txn import Txn

replace = msgspec.structs.replace
_MARK = Mark()
_measured = msgspec.json.Encoder().encode
_MESSAGE = 1_000  # a budget counts thousandths of a message, so that whole milliseconds refill it exactly
ROWS_AT_ONCE = 16  # of a state that go with their surface; the rest in sweeps, so that many may close in one event
CLOSED_BY_PERSON = "lineup.closed"  # names that start with "lineup." are the Runtime's own


# what the MiniApp may do


def open_from_app(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``surface.open``: show one of the bundle's pages.

    An entry that is open already is found again as it is; its state its MiniApp has, and it is not said again (asking
    costs nothing, and a large state costs everybody). A new one has the state that was given.

    Raises:
        LineUpError: ``app_closed``, ``message_invalid``, ``rate_limited``, ``state_invalid``, ``state_too_large``.
    """
    _check_live(instance)
    entry, declared = body["entry"], _declared(ctx, instance, body["entry"])
    title = _title(body.get("title") or declared.get("title") or "")
    opened = [ctx.need(SURFACES, (key[1],)) for key, _ in ctx.txn.scan(OPEN_SURFACES, (instance.instance_id,))]
    for known in opened:
        if known.entry == entry:
            return _named(known)
    if len(opened) >= limits.SURFACES_PER_INSTANCE_MAX:
        raise LineUpError("rate_limited", f"{len(opened)} surfaces of this instance are open; close one first")
    inbox.check_room(ctx, instance)  # it will be told when a person closes the page
    surface_id = ctx.new_id("f")
    state: Any = body.get("state") or {}
    if fault := _unfit(*shape(state), "/state"):
        raise fault
    state = copy_decoded(state, "/state")
    change = merge_patch.Change.create(ctx.txn, surface_id, state, _state_schema(declared))
    _check_size(ctx, instance, change, before=None)
    ctx.cause = instance.cause
    surface = Surface(
        surface_id=surface_id,
        instance_id=instance.instance_id,
        conversation_id=instance.conversation_id,
        app_scope=instance.app_scope,
        digest=instance.digest,
        entry=entry,
        title=title,
        state=SurfaceState.OPEN,
        bytes=change.root.bytes,
        created_ms=ctx.now.wall_ms,
        cause=ctx.cause,
        app_budget=_full_budget(),
        app_budget_ms=ctx.now.steady_ms,
        person_budget=_full_budget(),
        person_budget_ms=ctx.now.steady_ms,
    )
    change.commit(ctx)
    ctx.put(SURFACES, (surface_id,), surface)
    ctx.put(OPEN_SURFACES, (instance.instance_id, surface_id), _MARK)
    quotas.charge(ctx, instance.app_scope, quotas.STATE, surface.bytes)
    audit(ctx, "surface.opened", surface_id, instance.instance_id, entry=entry, bytes=surface.bytes)
    ctx.touch(instance.instance_id)
    return _named(surface)


def update_from_app(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``surface.update``: a merge patch. Without ``base_revision`` it goes on top of whatever the state is now.

    Raises:
        LineUpError: ``surface_not_found``, ``app_scope_mismatch``, ``patch_conflict``, ``message_invalid``,
            ``message_too_large``, ``rate_limited``, ``state_invalid``, ``state_too_large``; nothing changes.
    """
    surface = _own(ctx, instance, body["surface_id"])
    surface = _patch(ctx, surface, body.get("base_revision"), body["patch"], side="app")
    return {"surface_id": surface.surface_id, "revision": surface.revision}


def close_from_app(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> None:
    """``surface.close``."""
    _close(ctx, _own(ctx, instance, body["surface_id"]), "closed by its MiniApp")


# what a person's page may do


def patch_from_host(ctx: Ctx, surface_id: str, base_revision: int | None, patch: Any) -> dict[str, Any]:
    """The page patches its state; the MiniApp hears of it. Refusals as for ``update_from_app``."""
    surface = _patch(ctx, _existing(ctx, surface_id), base_revision, patch, side="person")
    instances.wake(ctx, surface.instance_id)
    _tell_worker(ctx, surface, patch)
    return {"surface_id": surface_id, "revision": surface.revision}


def event_from_host(ctx: Ctx, surface_id: str, name: Any, payload: Any) -> None:
    """The page says that something happened."""
    if not isinstance(name, str) or not 1 <= len(name) <= limits.SURFACE_EVENT_NAME_LENGTH_MAX:
        raise _invalid("/name", f"must be a string of 1 to {limits.SURFACE_EVENT_NAME_LENGTH_MAX} characters")
    if name.startswith("lineup."):
        raise _invalid("/name", "must not start with lineup.")
    surface = _input(ctx, surface_id, "surface.event", payload, {"name": name})
    audit(ctx, "surface.event", surface_id, surface.instance_id, name=name, payload=digest(payload))


def submit_from_host(ctx: Ctx, surface_id: str, payload: Any) -> None:
    """The page hands in its result."""
    surface = _input(ctx, surface_id, "surface.submit", payload, {})
    audit(ctx, "surface.submit", surface_id, surface.instance_id, payload=digest(payload))


def close_from_host(ctx: Ctx, surface_id: str) -> None:
    """A person closes the page; its MiniApp is told by the event ``lineup.closed``."""
    surface = _existing(ctx, surface_id)
    SURFACE.next(surface.state, SurfaceEvent.CLOSE)
    body = {"surface_id": surface_id, "name": CLOSED_BY_PERSON, "payload": None}
    inbox.append(ctx, surface.instance_id, "surface.event", body, owed=True)
    _close(ctx, surface, "closed by the person")


# what the Runtime does and reads


def owner_closed(ctx: Ctx, instance: Instance) -> None:
    """The instance ends, and its pages with it."""
    for key, _ in list(ctx.txn.scan(OPEN_SURFACES, (instance.instance_id,))):
        _close(ctx, ctx.need(SURFACES, (key[1],)), "its MiniApp was closed")


def open_surfaces(ctx: Ctx, instance_id: str) -> list[dict[str, Any]]:
    """Every open surface with its state, as a new worker needs it."""
    rows = [ctx.need(SURFACES, (key[1],)) for key, _ in ctx.txn.scan(OPEN_SURFACES, (instance_id,))]
    return [_with_state(ctx, surface) for surface in rows]


def full_state(txn: Txn, surface_id: str) -> dict[str, Any]:
    """The whole state of an open surface.

    Raises:
        LineUpError: ``surface_not_found``.
    """
    surface = txn.get(SURFACES, (surface_id,))
    if surface is None or surface.state == SurfaceState.CLOSED:
        raise LineUpError("surface_not_found", f"no open surface {surface_id}")
    return merge_patch.load(txn, surface_id)


def public(surface: Surface) -> dict[str, Any]:
    """The record as Hosts and the operator read it; the state comes from ``full_state``, then in patches."""
    body: dict[str, Any] = {
        "surface_id": surface.surface_id,
        "instance_id": surface.instance_id,
        "conversation_id": surface.conversation_id,
        "app_scope": surface.app_scope,
        "digest": surface.digest,
        "entry": surface.entry,
        "title": surface.title,
        "status": str(surface.state),
        "revision": surface.revision,
        "bytes": surface.bytes,
        "created_at": to_rfc3339(surface.created_ms),
    }
    if surface.closed_ms is not None:
        body["closed_at"] = to_rfc3339(surface.closed_ms)
    return body


# inside


def _named(surface: Surface) -> dict[str, Any]:
    return {
        "surface_id": surface.surface_id,
        "entry": surface.entry,
        "title": surface.title,
        "revision": surface.revision,
    }


def _with_state(ctx: Ctx, surface: Surface) -> dict[str, Any]:
    return {**_named(surface), "state": merge_patch.load(ctx.txn, surface.surface_id)}


def _check_live(instance: Instance) -> None:
    if instance.state == InstanceState.CLOSED:
        raise LineUpError("app_closed", f"instance {instance.instance_id} is closed")


def _declared(ctx: Ctx, instance: Instance, entry: str) -> dict[str, Any]:
    declared: list[dict[str, Any]] = ctx.need(BUNDLES, (instance.digest,)).manifest.get("surfaces") or []
    for page in declared:
        if page["entry"] == entry:
            return page
    raise _invalid("/entry", "is not one of the surfaces that the manifest declares")


def _state_schema(declared: dict[str, Any]) -> merge_patch.Schema:
    """It was checked with its manifest; the compiled form is of no use here, as no patch checks a whole state."""
    schema: merge_patch.Schema = declared.get("state_schema")
    return schema


def _title(title: str) -> str:
    if len(title) > limits.TITLE_LENGTH_MAX:
        raise _invalid("/title", f"must have at most {limits.TITLE_LENGTH_MAX} characters")
    if not title.isprintable():
        raise _invalid("/title", "must be one line of printable characters")
    return title


def _existing(ctx: Ctx, surface_id: str) -> Surface:
    surface = ctx.get(SURFACES, (surface_id,))
    if surface is None:
        raise LineUpError("surface_not_found", f"no surface {surface_id}")
    return surface


def _own(ctx: Ctx, instance: Instance, surface_id: str) -> Surface:
    surface = _existing(ctx, surface_id)
    if surface.instance_id != instance.instance_id:
        raise LineUpError("app_scope_mismatch", f"surface {surface_id} is not one of this instance")
    return surface


def _patch(ctx: Ctx, surface: Surface, base_revision: int | None, patch: Any, *, side: str) -> Surface:
    """Check everything, then write: one revision more."""
    state = SURFACE.next(surface.state, SurfaceEvent.UPDATE)
    surface = replace(_charged(ctx, surface, side, patch, "/patch"), state=state)
    if base_revision is not None and base_revision != surface.revision:
        raise LineUpError(
            "patch_conflict",
            f"the patch was made on revision {base_revision}, the surface is at {surface.revision}",
            detail={"surface_id": surface.surface_id, "revision": surface.revision},
        )
    if not isinstance(patch, dict):
        raise _invalid("/patch", "must be an object")
    patch = copy_decoded(patch, "/patch")
    size = len(_measured(patch))
    if size > limits.SURFACE_PATCH_BYTES_MAX:
        raise _too_large("/patch", size, limits.SURFACE_PATCH_BYTES_MAX)
    instance = ctx.need(INSTANCES, (surface.instance_id,))
    schema = _state_schema(_declared(ctx, instance, surface.entry))
    change = merge_patch.Change.patch(ctx.txn, surface.surface_id, patch, schema)
    _check_size(ctx, instance, change, before=surface)
    change.commit(ctx)
    quotas.charge(ctx, surface.app_scope, quotas.STATE, change.root.bytes - surface.bytes)
    surface = replace(surface, revision=surface.revision + 1, bytes=change.root.bytes)
    ctx.put(SURFACES, (surface.surface_id,), surface)
    row = {"surface_id": surface.surface_id, "revision": surface.revision, "patch": patch}
    ctx.extra_changes.append({"kind": "surface_patch", "id": surface.surface_id, "row": row})
    audit(
        ctx,
        "surface.patched",
        surface.surface_id,
        surface.instance_id,
        by=side,
        revision=surface.revision,
        patch=digest(patch),
        bytes=surface.bytes,
    )
    return surface


def _input(ctx: Ctx, surface_id: str, kind: str, payload: Any, more: dict[str, Any]) -> Surface:
    """Check what a page says beside patches, count it and deliver it.

    Raises:
        LineUpError: ``surface_not_found``, ``message_invalid``, ``message_too_large``; ``rate_limited`` if it says too
            much in a second, or too much waits for its MiniApp already; nothing changes but that count.
    """
    surface = _existing(ctx, surface_id)
    SURFACE.next(surface.state, SurfaceEvent.INPUT)
    surface = _charged(ctx, surface, "person", payload, "/payload")
    size = len(_measured(copy_decoded(payload, "/payload")))
    if size > limits.SURFACE_PAYLOAD_BYTES_MAX:
        raise _too_large("/payload", size, limits.SURFACE_PAYLOAD_BYTES_MAX)
    inbox.append(ctx, surface.instance_id, kind, {"surface_id": surface_id, **more, "payload": payload})
    return surface


def _tell_worker(ctx: Ctx, surface: Surface, patch: Any) -> None:
    """A worker that is not there yet reads the whole state when it says hello."""
    worker = ctx.get(WORKERS, (surface.instance_id,))
    if worker is not None and (worker.state == WorkerState.READY or worker.welcomed):
        body = {"surface_id": surface.surface_id, "revision": surface.revision, "patch": patch}
        ctx.send_worker(surface.instance_id, worker.incarnation, {"type": "surface.changed", "body": body})


def _close(ctx: Ctx, surface: Surface, reason: str) -> None:
    state = SURFACE.next(surface.state, SurfaceEvent.CLOSE)
    _, is_gone = merge_patch.drop(ctx, surface.surface_id, ROWS_AT_ONCE)
    if not is_gone:
        retention.retire(ctx, retention.STATE, surface.surface_id)
    quotas.charge(ctx, surface.app_scope, quotas.STATE, -surface.bytes)
    ctx.delete(OPEN_SURFACES, (surface.instance_id, surface.surface_id))
    ctx.put(SURFACES, (surface.surface_id,), replace(surface, state=state, bytes=0, closed_ms=ctx.now.wall_ms))
    retention.retire(ctx, retention.SURFACE, surface.surface_id)
    audit(ctx, "surface.closed", surface.surface_id, surface.instance_id, reason=reason, revision=surface.revision)
    ctx.touch(surface.instance_id)


def _check_size(ctx: Ctx, instance: Instance, change: merge_patch.Change, *, before: Surface | None) -> None:
    """All surfaces of one instance together: they travel in one message whenever a worker starts. What makes a state
    smaller is always welcome.
    """
    total, nodes, parts = change.root.bytes, change.root.nodes, change.root.rows
    for key, _ in ctx.txn.scan(OPEN_SURFACES, (instance.instance_id,)):
        if before is None or key[1] != before.surface_id:
            other = merge_patch.root_of(ctx.txn, str(key[1]))
            total, nodes, parts = total + other.bytes, nodes + other.nodes, parts + other.rows
    grown = change.root.bytes - (before.bytes if before is not None else 0)
    if grown > 0 and total > limits.SURFACE_STATE_BYTES_MAX:
        raise _too_large("/state", total, limits.SURFACE_STATE_BYTES_MAX, code="state_too_large")
    for now, was, found, most, what in (
        (change.root.nodes, change.before.nodes, nodes, limits.SURFACE_STATE_NODES_MAX, "values and keys"),
        (change.root.rows, change.before.rows, parts, limits.SURFACE_PARTS_MAX, "parts: keep fewer objects in objects"),
    ):
        if now > was and found > most:
            rule = f"the surfaces of one instance may have {most} {what}"
            raise LineUpError("state_too_large", f"/state: {rule}", detail={"path": "/state", "rule": rule})
    quotas.check_room(ctx, instance, quotas.STATE, grown)


def _full_budget() -> int:
    """One second's worth."""
    return limits.SURFACE_PATCHES_PER_SECOND_MAX * _MESSAGE


def _charged(ctx: Ctx, surface: Surface, side: str, value: Any, path: str) -> Surface:
    """The surface with one message less in that side's budget, which refills with steady time; a large one is several.
    It is kept at once, as what is refused later costs as much.

    Raises:
        LineUpError: ``rate_limited``, or ``message_invalid`` for what no budget would have room for.
    """
    nodes, depth = shape(value)
    unfit = _unfit(nodes, depth, path)
    budget, since_ms = (
        (surface.app_budget, surface.app_budget_ms)
        if side == "app"
        else (surface.person_budget, surface.person_budget_ms)
    )
    refill = (ctx.now.steady_ms - since_ms) * limits.SURFACE_PATCHES_PER_SECOND_MAX
    counts = min(1 + (nodes - 1) // limits.SURFACE_NODES_PER_PATCH, limits.SURFACE_PATCHES_PER_SECOND_MAX)
    budget = min(_full_budget(), budget + refill) - counts * _MESSAGE
    if budget < 0 and unfit is None:
        raise LineUpError(
            "rate_limited",
            f"more than {limits.SURFACE_PATCHES_PER_SECOND_MAX} messages a second for this surface; "
            f"this one of {nodes} values and keys counts as {counts}, one for each {limits.SURFACE_NODES_PER_PATCH}",
        )
    budget = max(0, budget)
    if side == "app":
        surface = replace(surface, app_budget=budget, app_budget_ms=ctx.now.steady_ms)
    else:
        surface = replace(surface, person_budget=budget, person_budget_ms=ctx.now.steady_ms)
    ctx.put_kept(SURFACES, (surface.surface_id,), surface)
    if unfit is not None:
        raise unfit
    return surface


def _unfit(nodes: int, depth: int, path: str) -> LineUpError | None:
    """The refusal of what does not fit into every message that would carry it, None for what does."""
    if depth > limits.VALUE_DEPTH_MAX:
        return _invalid(path, f"must not be nested deeper than {limits.VALUE_DEPTH_MAX}")
    if nodes > limits.SURFACE_MESSAGE_NODES_MAX:
        return _invalid(
            path, f"must have at most {limits.SURFACE_MESSAGE_NODES_MAX} values and keys; say it in several"
        )
    return None


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})


def _too_large(path: str, size: int, most: int, *, code: str = "message_too_large") -> LineUpError:
    return LineUpError(
        code, f"{path}: {size} bytes, at most {most} are allowed", detail={"bytes": size, "bytes_max": most}
    )
