"""What a person (through a Host) or the operator (through the CLI) may do. Each action has an id; a resend gets the
same answer.

A Host holds no authority: it asks here like everybody else, and the same rules decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.messages import LENGTHS
from lineup_protocol.strict_json import canonical_json
from lineup_supervisor.core import (
    apps,
    artifacts,
    calls,
    capabilities,
    conversations,
    instances,
    intake,
    interactions,
    outbox,
    sessions,
    surfaces,
    timers,
)
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.events import HostAction
from lineup_supervisor.core.rows import ActionResult, Said
from lineup_supervisor.core.schema import (
    ACTION_RESULTS,
    CALLS,
    CONVERSATIONS,
    INSTANCES,
    SAID,
    Conversation,
    Instance,
)
from lineup_supervisor.core.tables import InstanceState

replace = msgspec.structs.replace
SAID_MAX = 256  # of each subject: the workspace lets a tab have 128 without an answer, and there may be two
Action = Callable[[Ctx, HostAction, dict[str, Any]], Any]


def handle(ctx: Ctx, event: HostAction) -> None:
    """Carry out one action, once. A refusal after which the same action may come again is no answer to its resend."""
    ctx.actor = event.actor
    known = _known(ctx, event)
    if known is not None:
        ctx.reply_host(event.reply_to, known.accepted, code=known.code, message=known.message, detail=known.detail)
        return
    subject = _FREQUENT.get(event.name)
    is_kept = subject is None and event.name not in _REPEATABLE
    try:
        rule = _ACTIONS.get(event.name)
        if rule is None:
            raise LineUpError("message_invalid", f"/name: no action {event.name[:64]!r}", detail={"path": "/name"})
        if event.fault is not None:
            raise LineUpError(event.fault["code"], event.fault["message"], detail=event.fault.get("detail"))
        detail = ctx.attempt(rule, ctx, event, event.args)
        answer = ActionResult(accepted=True, at_ms=ctx.now.wall_ms, detail=detail)
        if subject is not None:
            _remember(ctx, event.args[subject], event.action_id, detail)
    except LineUpError as error:
        audit(ctx, "action.refused", *_named(event.args), action=event.name, code=error.code, rule=error.message)
        is_kept = is_kept and error.retry != "same"  # the same action may succeed later
        answer = ActionResult(
            accepted=False, at_ms=ctx.now.wall_ms, code=error.code, message=error.message, detail=error.detail
        )
    if is_kept:
        ctx.put(ACTION_RESULTS, (event.action_id,), answer)
        timers.set_timer(ctx, "steady", ctx.now.steady_ms + ctx.policy.actions_kept_ms, "action", event.action_id)
    ctx.reply_host(event.reply_to, answer.accepted, code=answer.code, message=answer.message, detail=answer.detail)


def _known(ctx: Ctx, event: HostAction) -> ActionResult | None:
    """What this very action was answered before."""
    subject = _FREQUENT.get(event.name)
    subject_id = event.args.get(subject) if subject is not None else None
    said = ctx.get(SAID, (subject_id,)) if is_id(subject_id) else None
    revision = said.revisions.get(event.action_id) if said is not None else None
    if subject is None or revision is None:
        return ctx.get(ACTION_RESULTS, (event.action_id,))
    detail = {subject: subject_id, "revision": revision} if revision else None
    return ActionResult(accepted=True, at_ms=ctx.now.wall_ms, detail=detail)


def _remember(ctx: Ctx, subject_id: str, action_id: str, detail: Any) -> None:
    said = ctx.get(SAID, (subject_id,)) or Said()
    revisions = {**said.revisions, action_id: detail["revision"] if detail else 0}
    for oldest in list(revisions)[: max(0, len(revisions) - SAID_MAX)]:
        del revisions[oldest]
    ctx.put(SAID, (subject_id,), Said(revisions=revisions))


def forget(ctx: Ctx, action_id: str) -> None:
    ctx.delete(ACTION_RESULTS, (action_id,))


def _named(args: dict[str, Any]) -> list[str]:
    names = ("call_id", "interaction_id", "instance_id", "conversation_id", "surface_id", "app_scope")
    return [args[name] for name in names if is_id(args.get(name))]


def _id(args: dict[str, Any], name: str) -> str:
    value = args.get(name)
    if not is_id(value):
        raise LineUpError("message_invalid", f"/args/{name}: must be an id", detail={"path": f"/args/{name}"})
    return value


def _optional_id(args: dict[str, Any], name: str) -> str | None:
    return None if args.get(name) is None else _id(args, name)


def _text(args: dict[str, Any], name: str, default: str | None = None, *, kind: str = "reason") -> str:
    """A string of what its kind (``LENGTHS``) may have."""
    value = args.get(name, default)
    if not isinstance(value, str):
        raise LineUpError("message_invalid", f"/args/{name}: must be a string", detail={"path": f"/args/{name}"})
    length_max, code = LENGTHS[kind]
    if len(value) > length_max:
        rule = f"must have at most {length_max} characters"
        raise LineUpError(code, f"/args/{name}: {rule}", detail={"path": f"/args/{name}", "rule": rule})
    return value


def _object(args: dict[str, Any], name: str) -> dict[str, Any]:
    value = args.get(name)
    if not isinstance(value, dict):
        raise LineUpError("message_invalid", f"/args/{name}: must be an object", detail={"path": f"/args/{name}"})
    return value


# calls, as the operator


def _call_start(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    _operator_only(event)
    call_id = _id(args, "call_id")
    payload = {"call_id": call_id, "tool_id": _text(args, "tool_id", kind="name"), "input": args.get("input")}
    newest = ctx.meta.inventory_revision
    payload["inventory_revision"] = (
        _text(args, "inventory_revision", kind="name") if args.get("inventory_revision") else newest
    )
    answer = intake.submit(ctx, outbox.OPERATOR, _id(args, "conversation_id"), payload)
    record = calls.record(ctx.need(CALLS, (outbox.OPERATOR, call_id)))
    return {"receipt": answer, "record": record}


def _call_cancel(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    call = calls.one(ctx.txn, _id(args, "call_id"), _optional_id(args, "agent_id") or "")
    call = calls.cancel(ctx, call, _text(args, "reason", f"cancelled by the {event.actor}"))
    return {"record": calls.record(call)}


# conversations and texts


def _person_text(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    session_id = _optional_id(args, "session_id") or ""
    entry = conversations.person_text(
        ctx, _id(args, "conversation_id"), _text(args, "text", kind="text"), event.action_id, session_id
    )
    return {"n": entry.n, "conversation_id": entry.conversation_id}


def _conversation_open(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    title = _text(args, "title", "", kind="text")[: limits.TITLE_LENGTH_MAX]
    conversation = conversations.open_by_person(ctx, _optional_id(args, "agent_id"), title)
    return {"conversation_id": conversation.conversation_id, "agent_id": conversation.agent_id}


def _conversation_rename(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    conversation = conversations.existing(ctx, _id(args, "conversation_id"))
    title = _text(args, "title", kind="text")[: limits.TITLE_LENGTH_MAX]
    ctx.put(CONVERSATIONS, (conversation.conversation_id,), replace(conversation, title=title))


def _conversation_home(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    conversation = conversations.existing(ctx, _id(args, "conversation_id"))
    audit(ctx, "person.returned_to_interact", conversation.conversation_id)
    instances.home(ctx, conversation.conversation_id)
    instances.chosen(ctx, conversation)


# interactions


def _interaction_answer(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    return {"result": interactions.answer(ctx, _id(args, "interaction_id"), args.get("result"))}


def _interaction_cancel(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    interactions.cancel(ctx, _id(args, "interaction_id"), _text(args, "reason", "cancelled by the person"))


def _interaction_present(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    interactions.present(ctx, _id(args, "interaction_id"))


def _interaction_draft(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    draft = _object(args, "draft")
    if len(canonical_json(draft)) > limits.INTERACTION_BYTES_MAX:
        raise LineUpError("message_too_large", f"/args/draft: at most {limits.INTERACTION_BYTES_MAX} bytes")
    interactions.keep_draft(ctx, _id(args, "interaction_id"), draft)


# instances


def _live(ctx: Ctx, args: dict[str, Any]) -> tuple[Instance, Conversation]:
    instance = ctx.get(INSTANCES, (_id(args, "instance_id"),))
    if instance is None:
        raise LineUpError("app_instance_not_found", f"no instance {args['instance_id']}")
    if instance.state == InstanceState.CLOSED:
        raise LineUpError("app_closed", f"instance {instance.instance_id} is closed")
    return instance, ctx.need(CONVERSATIONS, (instance.conversation_id,))


def _instance_front(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    instance, conversation = _live(ctx, args)
    audit(ctx, "person.switched", instance.instance_id, instance.conversation_id)
    instances.front(ctx, instance.instance_id)
    instances.chosen(ctx, conversation)


def _instance_back(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    instance, conversation = _live(ctx, args)
    instances.back(ctx, instance.instance_id)
    instances.chosen(ctx, conversation)


def _instance_close(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    """A person closes a MiniApp. One that wants to be asked (an unfinished task) gets the chance, unless ``force``."""
    instance, _ = _live(ctx, args)
    if instance.kind == "system":
        raise LineUpError("lifecycle_denied", "Interact is never closed")
    audit(ctx, "person.closed", instance.instance_id, instance.conversation_id, force=bool(args.get("force")) or None)
    if not args.get("force") and sessions.ask_before_close(ctx, instance):
        return {"asked": True}
    instances.close(ctx, instance.instance_id, "closed_by_person", "closed by the person")
    return {"asked": False}


def _session_continue(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    return sessions.continue_session(ctx, _id(args, "session_id"))


# surfaces


def _surface_patch(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    base = args.get("base_revision")
    if base is not None and (isinstance(base, bool) or not isinstance(base, int)):
        raise LineUpError(
            "message_invalid", "/args/base_revision: must be an integer", detail={"path": "/args/base_revision"}
        )
    return surfaces.patch_from_host(ctx, _id(args, "surface_id"), base, _object(args, "patch"))


def _surface_event(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    surfaces.event_from_host(ctx, _id(args, "surface_id"), _text(args, "name", kind="text"), args.get("payload"))


def _surface_submit(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    surfaces.submit_from_host(ctx, _id(args, "surface_id"), args.get("payload"))


def _surface_torn(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    surfaces.close_from_host(ctx, _id(args, "surface_id"))


def _pages_shown(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    """The Host's own word, not a page's: hostshell lets no tab say it."""
    ids = args.get("surface_ids")
    if not isinstance(ids, list) or len(ids) > limits.PAGES_SHOWN_MAX or not all(map(is_id, ids)):
        rule = f"must be a list of at most {limits.PAGES_SHOWN_MAX} ids"
        raise LineUpError("message_invalid", f"/args/surface_ids: {rule}", detail={"path": "/args/surface_ids"})
    instances.look_at(ctx, ids)


# MiniApps and grants


def _operator_only(event: HostAction) -> None:
    if event.actor != "operator":
        raise LineUpError("unauthorized", f"{event.name} is for the operator: use the command line")


def _apps_add(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> dict[str, Any]:
    _operator_only(event)
    assert event.bundle is not None, "the edge reads the bundle before the core hears of it"
    apps.install(ctx, event.bundle, trusted=False)
    return {"app_scope": event.bundle.manifest["app_scope"], "digest": event.bundle.digest}


def _apps_remove(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    _operator_only(event)
    apps.remove(ctx, _id(args, "app_scope"))


def _apps_enable(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    _operator_only(event)
    apps.enable(ctx, _id(args, "app_scope"))


def _apps_disable(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    _operator_only(event)
    apps.disable(ctx, _id(args, "app_scope"))


def _grant_revoke(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    capabilities.revoke(ctx, _id(args, "app_scope"), _id(args, "capability"))


def _notification_dismiss(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    capabilities.dismiss_notification(ctx, _id(args, "notification_id"))


def _artifact_remove(ctx: Ctx, event: HostAction, args: dict[str, Any]) -> None:
    artifacts.remove(ctx, _id(args, "artifact_id"))


# Safe to do twice, and too frequent to remember.
_REPEATABLE = frozenset(("interaction.present", "pages.shown"))
# Too frequent to remember for a day, and what they say may not come again behind something newer: the last ones of each
# subject are known, more than a page has under way. The argument that names the subject.
_FREQUENT = {
    "interaction.draft": "interaction_id",
    "surface.event": "surface_id",
    "surface.patch": "surface_id",
    "surface.submit": "surface_id",
}

_ACTIONS: dict[str, Action] = {
    "call.start": _call_start,
    "call.cancel": _call_cancel,
    "person.text": _person_text,
    "conversation.open": _conversation_open,
    "conversation.rename": _conversation_rename,
    "conversation.home": _conversation_home,
    "interaction.answer": _interaction_answer,
    "interaction.cancel": _interaction_cancel,
    "interaction.present": _interaction_present,
    "interaction.draft": _interaction_draft,
    "instance.front": _instance_front,
    "instance.back": _instance_back,
    "instance.close": _instance_close,
    "session.continue": _session_continue,
    "surface.patch": _surface_patch,
    "surface.event": _surface_event,
    "surface.submit": _surface_submit,
    "surface.torn": _surface_torn,
    "pages.shown": _pages_shown,
    "apps.add": _apps_add,
    "apps.remove": _apps_remove,
    "apps.enable": _apps_enable,
    "apps.disable": _apps_disable,
    "grant.revoke": _grant_revoke,
    "notification.dismiss": _notification_dismiss,
    "artifact.remove": _artifact_remove,
}
