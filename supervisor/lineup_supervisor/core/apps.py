"""Installed MiniApps: install, upgrade, enable, disable, quarantine, remove; each change shows in the inventory.

Owns ``APPS`` and ``BUNDLES``. A manifest comes here validated for itself; what concerns several bundles, or this
machine, is checked here. Instances keep the bundle that they started with: an upgrade never changes what runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.codec import canonical_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import capabilities, instances, inventory
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import Bundle
from lineup_supervisor.core.schema import APPS, BUNDLES, LIVE_INSTANCES, App, BundleRow

replace = msgspec.structs.replace

INSTALLED = "installed"
# Isolation levels, weakest first; one that this run does not know is below all of them.
_LEVELS = ("", "S1", "S2", "S3")


def install_own(ctx: Ctx, bundles: Iterable[Bundle]) -> None:
    """Install the Runtime's own distribution, whatever else is installed: a new version of it always starts."""
    for bundle in bundles:
        install(ctx, bundle, trusted=True)
    _let_strangers_give_way(ctx)


def install(ctx: Ctx, bundle: Bundle, *, trusted: bool) -> App:
    """Install a bundle, or a new version of it. The same one again changes nothing.

    ``trusted`` is for the Runtime's own distribution: it takes the tool ids that it needs, and whether this machine can
    isolate it is looked at when a call comes.

    Raises:
        LineUpError: ``manifest_invalid`` with ``{faults: [{path, rule}]}``, ``isolation_insufficient`` with
            ``{needed, have}``, ``conflict`` if too many are installed; nothing changes.
    """
    manifest = bundle.manifest
    scope = str(manifest["app_scope"])
    before = ctx.get(APPS, (scope,))
    if not trusted:
        _check_scope(manifest, before)
        check_isolation(ctx, manifest)
    rivals = _rivals(ctx, scope, manifest, trusted=trusted)
    if not trusted:
        _check_inventory_size(ctx, scope, manifest)
    if before is None and not trusted and sum(1 for _ in ctx.txn.scan(APPS)) >= limits.BUNDLES_MAX:
        raise LineUpError("conflict", f"{limits.BUNDLES_MAX} MiniApps are installed; remove one first")
    for rival in rivals:
        _remove(ctx, rival, f"its tools now belong to {scope} of the Runtime's own distribution")
    ctx.put(BUNDLES, (bundle.digest,), BundleRow(digest=bundle.digest, path=bundle.path, manifest=manifest))
    app = _described(before, bundle, ctx.now.wall_ms)
    if app != before:
        ctx.put(APPS, (scope,), app)
        kind = "app.installed" if before is None else "app.upgraded"
        was = before.digest if before is not None else None
        audit(ctx, kind, scope, version=app.version, digest=app.digest, was=was, trusted=trusted)
    inventory.refresh(ctx)
    return app


def remove(ctx: Ctx, app_scope: str) -> None:
    """Uninstall: its instances close, their calls end as ``app_closed``, what was before comes back to the front.

    Raises:
        LineUpError: ``app_not_found``; ``conflict`` for what belongs to the distribution.
    """
    app = _existing(ctx, app_scope)
    if app.kind != INSTALLED:
        raise LineUpError("conflict", f"{app_scope} belongs to the Runtime's own distribution; it can only be disabled")
    _remove(ctx, app, "the MiniApp was removed")
    inventory.refresh(ctx)


def enable(ctx: Ctx, app_scope: str) -> App:
    """Let agents call it (again); lifts a quarantine.

    Raises:
        LineUpError: ``app_not_found``; ``conflict`` if the inventory has no room for its tools.
    """
    app = _existing(ctx, app_scope)
    if app.kind == INSTALLED and (app.quarantined or not app.enabled):
        own = [tool.descriptor for tool in inventory.tool_index(ctx.txn).values() if tool.app.app_scope == app_scope]
        size = _inventory_size([*_open_tools(ctx), *own])
        if size > limits.INVENTORY_BYTES_MAX:
            rule = f"the tools of {app_scope} would make the inventory {_too_large(size)}"
            raise LineUpError("conflict", f"{rule}: disable or remove another MiniApp first")
    after = replace(app, enabled=True, quarantined=False, quarantine_reason="", crashes=())
    after = _changed(ctx, app, after, "app.enabled")
    _let_strangers_give_way(ctx)
    return after


def disable(ctx: Ctx, app_scope: str) -> App:
    """New calls are refused from now on; what runs goes on to its end.

    Raises:
        LineUpError: ``app_not_found``; ``conflict`` for Interact, without which nobody could be asked anything.
    """
    app = _existing(ctx, app_scope)
    if app.kind == "system":
        raise LineUpError("conflict", f"{app_scope} is part of every conversation and cannot be disabled")
    return _changed(ctx, app, replace(app, enabled=False), "app.disabled")


def quarantine(ctx: Ctx, app_scope: str, reason: str) -> None:
    """It broke too often: no new call until the operator enables it. Instances that run go on."""
    app = ctx.get(APPS, (app_scope,))
    if app is not None and not app.quarantined:
        after = replace(app, quarantined=True, quarantine_reason=reason[: limits.REASON_LENGTH_MAX])
        _changed(ctx, app, after, "app.quarantined", reason=after.quarantine_reason)


def check_isolation(ctx: Ctx, manifest: dict[str, Any]) -> None:
    """Refuse what this machine cannot isolate as the bundle demands.

    Raises:
        LineUpError: ``isolation_insufficient`` with ``{needed, have}``.
    """
    needed, have = str(manifest.get("min_isolation") or "S3"), ctx.meta.isolation
    if _rank(have) < _rank(needed):
        raise LineUpError(
            "isolation_insufficient",
            f"{manifest['app_scope']} needs isolation {needed}, this machine has {have or 'none'}: see `lineup doctor`",
            detail={"needed": needed, "have": have},
        )


def public(app: App) -> dict[str, Any]:
    """The record as Hosts and the operator read it."""
    body: dict[str, Any] = {
        "app_scope": app.app_scope,
        "version": app.version,
        "title": app.title,
        "kind": app.kind,
        "enabled": app.enabled,
        "quarantined": app.quarantined,
        "quarantine_reason": app.quarantine_reason,
        "digest": app.digest,
        "tools": list(app.tools),
        "requested_capabilities": list(app.capabilities),
        "min_isolation": app.min_isolation,
        "installed_at": to_rfc3339(app.installed_ms),
    }
    return body


# inside


def _existing(ctx: Ctx, app_scope: str) -> App:
    app = ctx.get(APPS, (app_scope,))
    if app is None:
        raise LineUpError("app_not_found", f"no MiniApp {app_scope} is installed")
    return app


def _changed(ctx: Ctx, before: App, after: App, kind: str, **detail: Any) -> App:
    if after != before:
        ctx.put(APPS, (after.app_scope,), after)
        audit(ctx, kind, after.app_scope, **detail)
        inventory.refresh(ctx)
    return after


def _described(before: App | None, bundle: Bundle, wall_ms: int) -> App:
    """The row of a MiniApp at this bundle. A new version starts without its predecessor's crashes and quarantine."""
    manifest = bundle.manifest
    described: dict[str, Any] = {
        "digest": bundle.digest,
        "kind": manifest["kind"],
        "version": str(manifest["version"]),
        "title": str(manifest.get("title") or manifest["app_scope"]),
        "tools": tuple(tool["id"] for tool in manifest["tools"]),
        "capabilities": tuple(manifest.get("requested_capabilities") or ()),
        "min_isolation": str(manifest.get("min_isolation") or "S3"),
    }
    if before is None:
        return App(app_scope=manifest["app_scope"], installed_ms=wall_ms, **described)
    if before.digest != bundle.digest:
        described |= {"installed_ms": wall_ms, "crashes": (), "quarantined": False, "quarantine_reason": ""}
    return replace(before, **described)


def _check_scope(manifest: dict[str, Any], before: App | None) -> None:
    if manifest["kind"] != INSTALLED:
        raise _faults([("/kind", "must be installed: the other kinds are for the Runtime's own distribution")])
    if before is not None and before.kind != INSTALLED:
        raise _faults([("/app_scope", "belongs to the Runtime's own distribution")])


def _rivals(ctx: Ctx, scope: str, manifest: dict[str, Any], *, trusted: bool) -> list[App]:
    """Others that declare one of the same tool ids. Only the distribution may push one aside, and only a stranger's."""
    wanted = {tool["id"]: index for index, tool in enumerate(manifest["tools"])}
    faults: list[tuple[str, str]] = []
    if len(wanted) < len(manifest["tools"]):
        ids = [tool["id"] for tool in manifest["tools"]]
        faults += [(f"/tools/{n}/id", "is there twice") for n, name in enumerate(ids) if name in ids[:n]]
    rivals = []
    for _, other in ctx.txn.scan(APPS):
        taken = [name for name in other.tools if name in wanted]
        if other.app_scope == scope or not taken:
            continue
        if trusted and other.kind == INSTALLED:
            rivals.append(other)
        else:
            faults += [(f"/tools/{wanted[name]}/id", f"is a tool of {other.app_scope} already") for name in taken]
    if faults:
        raise _faults(faults)
    return rivals


def _check_inventory_size(ctx: Ctx, scope: str, manifest: dict[str, Any]) -> None:
    """All tools together have to fit into one frame of an agent's link, those of disabled MiniApps included, so that
    enabling one again finds room."""
    index = inventory.tool_index(ctx.txn)
    others = [tool.descriptor for tool in index.values() if tool.app.app_scope != scope]
    size = _inventory_size([*others, *manifest["tools"]])
    if size > limits.INVENTORY_BYTES_MAX:
        raise _faults([("/tools", f"make the inventory {_too_large(size)}")])


def _let_strangers_give_way(ctx: Ctx) -> None:
    """The distribution's own tools are always in the inventory. Where they have grown so far that a stranger's do not
    fit beside them any more, what was installed last is quarantined: it stays installed until the operator decides.
    """
    while (size := _inventory_size(_open_tools(ctx))) > limits.INVENTORY_BYTES_MAX:
        strangers = {tool.app for tool in inventory.tool_index(ctx.txn).values() if tool.open}
        newest = max(
            (app for app in strangers if app.kind == INSTALLED),
            key=lambda app: (app.installed_ms, app.app_scope),
            default=None,
        )
        if newest is None:
            return
        quarantine(ctx, newest.app_scope, f"its tools make the inventory {_too_large(size)}")


def _open_tools(ctx: Ctx) -> list[dict[str, Any]]:
    return [tool.descriptor for tool in inventory.tool_index(ctx.txn).values() if tool.open]


def _inventory_size(descriptors: list[dict[str, Any]]) -> int:
    """As it travels: a bound of a schema that is written 1.0 is shorter in canonical JSON."""
    tools = [inventory.public_descriptor(tool) for tool in descriptors]
    return max(len(canonical_json(tools)), len(msgspec.json.encode(tools)))


def _too_large(size: int) -> str:
    return f"{size} bytes, at most {limits.INVENTORY_BYTES_MAX} are allowed"


def _remove(ctx: Ctx, app: App, reason: str) -> None:
    """Close first, so that everything that an instance's end does still finds its MiniApp."""
    live = [str(key[2]) for key, _ in ctx.txn.scan(LIVE_INSTANCES) if key[1] == app.app_scope]
    for instance_id in live:
        instances.close(ctx, instance_id, "app_removed", reason)
    capabilities.app_removed(ctx, app.app_scope)
    ctx.delete(APPS, (app.app_scope,))
    audit(ctx, "app.removed", app.app_scope, digest=app.digest, reason=reason, closed=len(live) or None)


def _rank(level: str) -> int:
    return _LEVELS.index(level) if level in _LEVELS else 0


def _faults(faults: list[tuple[str, str]]) -> LineUpError:
    path, rule = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    detail = {"faults": [{"path": p, "rule": r} for p, r in faults[: limits.MANIFEST_FAULTS_MAX]]}
    return LineUpError("manifest_invalid", f"{path}: {rule}{more}", detail=detail)
