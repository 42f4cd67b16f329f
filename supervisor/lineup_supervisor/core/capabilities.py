"""The capability gateway: what MiniApps may ask of the machine, who decides, and what came of it.

Owns ``GRANTS``, ``PENDING_CONSENT`` and ``NOTIFICATIONS``. The catalogue is data; a capability that this Runtime does
not offer is in it all the same, so that asking gets a reason. Every accepted request ends in exactly one
``capability.result`` in its instance's inbox.

Order of decision: known, Host support, policy, requested by the manifest, arguments, instance state, MiniApp state, a
person's standing word, else the person is asked. The rules of state hold again when the person has answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.schema import compile_schema
from lineup_protocol.shown_text import is_prose
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core import artifacts, inbox, interactions
from lineup_supervisor.core.audit import audit, digest
from lineup_supervisor.core.canonical import canonical
from lineup_supervisor.core.ctx import META_KEY, Ctx
from lineup_supervisor.core.schema import (
    APPS,
    ARTIFACTS,
    BUNDLES,
    CONVERSATIONS,
    GRANTS,
    INSTANCES,
    META,
    NOTIFICATIONS,
    NOTIFICATIONS_OF,
    OPEN_INTERACTIONS,
    PENDING_CONSENT,
    App,
    Grant,
    Instance,
    Interaction,
    Mark,
    Notification,
    Ref,
)
from lineup_supervisor.core.tables import InstanceState, InteractionState
from lineup_supervisor.core.txn import Txn

replace = msgspec.structs.replace
_MARK = Mark()

ONCE, SESSION, ALWAYS, DENY = "once", "session", "always", "deny"
DENIED = "denied"  # a grant of this scope is a standing no
_NO_CONSENT = {
    InteractionState.CANCELLED: "consent_cancelled",
    InteractionState.EXPIRED: "consent_expired",
    InteractionState.FAILED: "consent_cancelled",
}


@dataclass(frozen=True)
class Capability:
    """One row of the catalogue. ``run`` None: this Runtime does not offer it, ``why_not`` says why."""

    name: str
    what: str  # completes "<MiniApp> would like to …"
    needs_foreground: bool = False
    arguments: dict[str, Any] | None = None
    run: Callable[[Ctx, Instance, dict[str, Any]], dict[str, Any]] | None = None
    why_not: str = ""


# the decisions


def request(ctx: Ctx, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """``capability.request``: decide at once, or ask the person. Returns ``{request_id, pending, …}``.

    Raises:
        LineUpError: ``capability_denied`` with ``{capability, why}``, ``message_invalid``, ``rate_limited``; nothing
            changes.
    """
    name, reason = body["capability"], body["reason"]
    manifest = ctx.need(BUNDLES, (instance.digest,)).manifest
    capability = _offered(ctx, manifest, name)
    if not reason.strip() or len(reason) > limits.REASON_LENGTH_MAX or not is_prose(reason):
        rule = f"must be 1 to {limits.REASON_LENGTH_MAX} characters, with no control characters"
        raise LineUpError("message_invalid", f"/reason: {rule}", detail={"path": "/reason", "rule": rule})
    arguments = compile_schema(capability.arguments or {"type": "object"}).validate(
        body["arguments"], code="message_invalid", path="/arguments"
    )
    _check_state(ctx, instance, capability)
    inbox.check_room(ctx, instance, len(canonical(arguments)) + limits.REASON_LENGTH_MAX)
    grant = standing(ctx, instance.app_scope, name)
    if grant is not None and grant.scope == DENIED:
        raise _denied(name, "denied_by_person", "the person has refused it a moment ago")
    if grant is None:
        _check_may_ask(ctx, instance, name)
    ctx.cause = instance.cause
    request_id = ctx.new_id("p")
    audit(ctx, "capability.requested", request_id, instance.instance_id, capability=name, arguments=digest(arguments))
    purpose = {"request_id": request_id, "capability": name, "arguments": arguments, "reason": reason}
    if grant is not None:
        return {"request_id": request_id, "pending": False, **_run(ctx, instance, purpose, by=grant.scope)}
    _ask(ctx, instance, capability, manifest, purpose)
    return {"request_id": request_id, "pending": True}


def consent_given(ctx: Ctx, interaction: Interaction) -> None:
    """The question to the person is closed: answered, cancelled or expired. Called by ``interactions`` alone."""
    purpose = interaction.purpose
    assert purpose is not None, f"{interaction.interaction_id} asks for no purpose"
    instance = ctx.need(INSTANCES, (interaction.instance_id,))
    name = str(purpose["capability"])
    ctx.delete(PENDING_CONSENT, (instance.instance_id, name))
    if interaction.status != InteractionState.SUBMITTED:
        why = _NO_CONSENT[interaction.status]
        _deliver(ctx, instance, purpose, _refusal(_denied(name, why, interaction.reason or "nobody agreed")))
        return
    assert interaction.result is not None
    answer = interaction.result["action_ids"][0]
    interactions.delivered(ctx, interaction.interaction_id)
    if answer != ONCE:
        _keep(ctx, instance.app_scope, name, answer)
    if answer == DENY:
        _deliver(ctx, instance, purpose, _refusal(_denied(name, "denied_by_person", "the person has refused it")))
    else:
        _run(ctx, instance, purpose, by=answer)


def permission_check(ctx: Ctx, app: App, manifest: dict[str, Any], tool: dict[str, Any]) -> None:
    """A tool that needs what its MiniApp can never have is not called at all.

    Raises:
        LineUpError: ``capability_denied`` with ``{capability, why}``.
    """
    for name in tool.get("permissions") or ():
        _offered(ctx, manifest, name)


def standing(ctx: Ctx, app_scope: str, name: str) -> Grant | None:
    """What a person has said for more than once, if it still counts."""
    grant = ctx.get(GRANTS, (app_scope, name))
    return grant if grant is not None and _counts(grant, ctx.meta.boot_id, ctx.now.wall_ms) else None


def revoke(ctx: Ctx, app_scope: str, capability: str) -> None:
    """The person takes a standing word back; the next request finds nothing.

    Raises:
        LineUpError: ``not_found``.
    """
    grant = ctx.get(GRANTS, (app_scope, capability))
    if grant is None:
        raise LineUpError("not_found", f"{app_scope} has no grant for {capability}")
    ctx.delete(GRANTS, (app_scope, capability))
    audit(ctx, "capability.revoked", app_scope, capability=capability, scope=grant.scope)


def app_removed(ctx: Ctx, app_scope: str) -> None:
    """Whoever installs something under this name later starts with nothing."""
    for key, _ in list(ctx.txn.scan(GRANTS, (app_scope,))):
        revoke(ctx, app_scope, str(key[1]))
    for key, _ in list(ctx.txn.scan(NOTIFICATIONS_OF, (app_scope,))):
        _drop_notification(ctx, str(key[2]))


def grants(txn: Txn) -> list[dict[str, Any]]:
    """Every standing word of a person that this run goes by; one that has run out is shown until it is said anew."""
    meta = txn.get(META, META_KEY)
    boot_id = meta.boot_id if meta is not None else ""
    return [public(grant) for _, grant in txn.scan(GRANTS) if grant.boot_id in ("", boot_id)]


def public(grant: Grant) -> dict[str, Any]:
    body: dict[str, Any] = {
        "app_scope": grant.app_scope,
        "capability": grant.capability,
        "scope": grant.scope,
        "granted_at": to_rfc3339(grant.granted_ms),
    }
    if grant.expires_ms is not None:
        body["expires_at"] = to_rfc3339(grant.expires_ms)
    return body


def _counts(grant: Grant, boot_id: str, wall_ms: int) -> bool:
    of_this_run = grant.boot_id in ("", boot_id)
    return of_this_run and (grant.expires_ms is None or wall_ms < grant.expires_ms)


def _offered(ctx: Ctx, manifest: dict[str, Any], name: str) -> Capability:
    """The catalogue's row, if this MiniApp may have it at all."""
    capability = CATALOGUE.get(name)
    if capability is None:
        raise _denied(name, "unknown_capability", "no such capability")
    if capability.run is None:
        raise _denied(name, "host_unsupported", capability.why_not)
    if name in ctx.policy.capabilities_denied:
        raise _denied(name, "policy", "the operator allows it to no MiniApp")
    if name not in (manifest.get("requested_capabilities") or ()):
        raise _denied(name, "not_requested", "miniapp.json does not list it under requested_capabilities")
    return capability


def _check_state(ctx: Ctx, instance: Instance, capability: Capability) -> None:
    if instance.state == InstanceState.CLOSED:
        raise LineUpError("app_closed", f"instance {instance.instance_id} is closed")
    if capability.needs_foreground and instance.state != InstanceState.FOREGROUND:
        raise _denied(
            capability.name, "not_in_foreground", f"it is for the foreground, the instance is {instance.state}"
        )
    app = ctx.get(APPS, (instance.app_scope,))
    if app is None or not app.enabled or app.quarantined:
        raise _denied(capability.name, "app_disabled", f"{instance.app_scope} is disabled, quarantined or removed")


def _check_may_ask(ctx: Ctx, instance: Instance, name: str) -> None:
    """One question for one capability at a time, and no more questions than an app may have."""
    if ctx.get(PENDING_CONSENT, (instance.instance_id, name)) is not None:
        raise LineUpError("rate_limited", f"the person is being asked for {name} already", detail={"capability": name})
    pending = sum(1 for _ in ctx.txn.scan(OPEN_INTERACTIONS, (instance.instance_id,)))
    if pending >= limits.INTERACTIONS_PENDING_PER_INSTANCE_MAX:
        raise LineUpError("rate_limited", f"{pending} questions of this instance wait for a person already")


def _ask(
    ctx: Ctx, instance: Instance, capability: Capability, manifest: dict[str, Any], purpose: dict[str, Any]
) -> None:
    title = str(manifest.get("title") or instance.app_scope)
    question = {
        "kind": "choice",
        "title": f"{title} would like to {capability.what}",
        "prompt": f"{title} says: {purpose['reason']}",
        "mode": "button",
        "actions": [
            {"id": ONCE, "label": "Allow once"},
            {"id": SESSION, "label": "Allow for this session"},
            {"id": ALWAYS, "label": "Always allow"},
            {"id": DENY, "label": "Deny"},
        ],
    }
    interaction = interactions.ask(
        ctx,
        instance,
        question,
        source="runtime_policy",
        expires_ms=ctx.now.wall_ms + limits.CONSENT_MS_MAX,
        purpose=purpose,
    )
    ctx.put(PENDING_CONSENT, (instance.instance_id, capability.name), Ref(ref=interaction.interaction_id))


def _keep(ctx: Ctx, app_scope: str, name: str, answer: str) -> None:
    """Remember what a person has said for more than once."""
    scope, lasts_ms = {
        SESSION: (SESSION, limits.SESSION_GRANT_MS_MAX),
        ALWAYS: (ALWAYS, limits.ALWAYS_GRANT_MS_MAX),
        DENY: (DENIED, limits.DENIED_GRANT_MS),
    }[answer]
    grant = Grant(
        app_scope=app_scope,
        capability=name,
        scope=scope,
        boot_id="" if scope == ALWAYS else ctx.meta.boot_id,
        granted_ms=ctx.now.wall_ms,
        expires_ms=ctx.now.wall_ms + lasts_ms,
    )
    ctx.put(GRANTS, (app_scope, name), grant)
    audit(ctx, "capability.grant_kept", app_scope, capability=name, scope=scope)


def _run(ctx: Ctx, instance: Instance, purpose: dict[str, Any], *, by: str) -> dict[str, Any]:
    """Do it and deliver what came of it. What stands in the way now is the outcome, not an error."""
    capability = CATALOGUE[str(purpose["capability"])]
    assert capability.run is not None
    try:
        _check_state(ctx, instance, capability)
        result = ctx.attempt(capability.run, ctx, instance, purpose["arguments"])
        outcome: dict[str, Any] = {"granted": True, "result": result}
    except LineUpError as error:
        outcome = _refusal(error)
    return _deliver(ctx, instance, purpose, outcome, by=by)


def _deliver(
    ctx: Ctx, instance: Instance, purpose: dict[str, Any], outcome: dict[str, Any], *, by: str = ""
) -> dict[str, Any]:
    audit(
        ctx,
        "capability.granted" if outcome["granted"] else "capability.refused",
        str(purpose["request_id"]),
        instance.instance_id,
        capability=purpose["capability"],
        by=by or None,
        code=outcome.get("code"),
        why=(outcome.get("detail") or {}).get("why"),
    )
    if instance.state != InstanceState.CLOSED:
        body = {"request_id": purpose["request_id"], "capability": purpose["capability"], **outcome}
        inbox.append(ctx, instance.instance_id, "capability.result", body, owed=True)
    return outcome


def _refusal(error: LineUpError) -> dict[str, Any]:
    return {"granted": False, **error.as_dict()}


def _denied(name: str, why: str, words: str) -> LineUpError:
    return LineUpError("capability_denied", f"{name}: {words}", detail={"capability": name, "why": why})


# what is offered


def _show_notification(ctx: Ctx, instance: Instance, arguments: dict[str, Any]) -> dict[str, Any]:
    """One more of the same title falls into the one that is there; else the oldest makes room, of those for the agent
    in whose conversations there are most.
    """
    rows = [ctx.need(NOTIFICATIONS, (key[2],)) for key, _ in ctx.txn.scan(NOTIFICATIONS_OF, (instance.app_scope,))]
    title, body = arguments["title"], arguments.get("body", "")
    if not title.isprintable() or not is_prose(body):
        name = "title" if not title.isprintable() else "body"
        rule = "must have no control characters and no marks that reorder text"
        detail = {"path": f"/arguments/{name}", "rule": rule}
        raise LineUpError("message_invalid", f"/arguments/{name}: {rule}", detail=detail)
    same = next((row for row in rows if row.title == title and row.instance_id == instance.instance_id), None)
    if same is not None:
        _drop_index(ctx, same)
        row = replace(same, body=body, at_ms=ctx.now.wall_ms, count=same.count + 1, cause=ctx.cause)
    else:
        agents = [ctx.need(CONVERSATIONS, (each.conversation_id,)).agent_id for each in rows]
        while len(rows) >= limits.NOTIFICATIONS_PER_APP_MAX:
            at = agents.index(Counter(agents).most_common(1)[0][0])
            del agents[at]
            _drop_notification(ctx, rows.pop(at).notification_id)
        row = Notification(
            notification_id=ctx.new_id("n"),
            app_scope=instance.app_scope,
            instance_id=instance.instance_id,
            conversation_id=instance.conversation_id,
            title=title,
            body=body,
            at_ms=ctx.now.wall_ms,
            cause=ctx.cause,
        )
    ctx.put(NOTIFICATIONS, (row.notification_id,), row)
    ctx.put(NOTIFICATIONS_OF, (row.app_scope, row.at_ms, row.notification_id), _MARK)
    return {"notification_id": row.notification_id}


def dismiss_notification(ctx: Ctx, notification_id: str) -> None:
    """The person has seen it.

    Raises:
        LineUpError: ``not_found``.
    """
    if ctx.get(NOTIFICATIONS, (notification_id,)) is None:
        raise LineUpError("not_found", f"no notification {notification_id}")
    _drop_notification(ctx, notification_id)
    audit(ctx, "notification.dismissed", notification_id)


def notifications(txn: Txn) -> list[dict[str, Any]]:
    """Every notification that nobody has dismissed, oldest first."""
    rows = sorted((row for _, row in txn.scan(NOTIFICATIONS)), key=lambda row: (row.at_ms, row.notification_id))
    return [notification_public(row) for row in rows]


def notification_public(row: Notification) -> dict[str, Any]:
    return {
        "notification_id": row.notification_id,
        "app_scope": row.app_scope,
        "instance_id": row.instance_id,
        "conversation_id": row.conversation_id,
        "title": row.title,
        "body": row.body,
        "at": to_rfc3339(row.at_ms),
        "count": row.count,
    }


def _drop_notification(ctx: Ctx, notification_id: str) -> None:
    _drop_index(ctx, ctx.need(NOTIFICATIONS, (notification_id,)))
    ctx.delete(NOTIFICATIONS, (notification_id,))


def _drop_index(ctx: Ctx, row: Notification) -> None:
    ctx.delete(NOTIFICATIONS_OF, (row.app_scope, row.at_ms, row.notification_id))


def _export_artifact(ctx: Ctx, instance: Instance, arguments: dict[str, Any]) -> dict[str, Any]:
    artifact = ctx.get(ARTIFACTS, (arguments["artifact_id"],))
    if artifact is None or artifact.instance_id != instance.instance_id:
        raise LineUpError("not_found", f"no artifact {arguments['artifact_id']} of this instance")
    return {"artifact": artifacts.public(artifacts.export(ctx, artifact.artifact_id))}


_TEXT = {"type": "string", "minLength": 1, "maxLength": limits.TITLE_LENGTH_MAX}

CATALOGUE: dict[str, Capability] = {
    row.name: row
    for row in (
        Capability(
            "notification.show",
            "show you notifications",
            arguments={
                "type": "object",
                "properties": {
                    "title": _TEXT,
                    "body": {"type": "string", "maxLength": limits.NOTIFICATION_BODY_LENGTH_MAX},
                },
                "required": ["title"],
                "additionalProperties": False,
            },
            run=_show_notification,
        ),
        Capability(
            "artifact.export",
            "save a file into your folder of artifacts",
            needs_foreground=True,
            arguments={
                "type": "object",
                "properties": {"artifact_id": _TEXT},
                "required": ["artifact_id"],
                "additionalProperties": False,
            },
            run=_export_artifact,
        ),
        Capability("microphone", "use the microphone", why_not="this Runtime has no real audio yet"),
        Capability("camera", "use the camera", why_not="this Runtime has no real video yet"),
        Capability("files", "read files that you choose", why_not="MiniApps see no files but their bundle"),
        Capability("clipboard", "use the clipboard", why_not="the clipboard stays with the person"),
        Capability("network", "reach the network", why_not="workers have no network at any isolation level"),
    )
}
