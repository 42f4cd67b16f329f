"""What an instance's beginning, leaving the screen and end mean for everything that belongs to it."""

from __future__ import annotations

from typing import Any

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import budgets, calls, inbox, interactions, operations, snapshots, surfaces, timeline
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    BUNDLES,
    CALLS,
    CONVERSATIONS,
    INSTANCES,
    INTERACTIONS,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    Conversation,
    Instance,
)
from lineup_supervisor.core.tables import CALL, CallEvent


def open_session(ctx: Ctx, instance: Instance) -> str:
    bundle = ctx.need(BUNDLES, (instance.digest,))
    return timeline.open_session(ctx, instance, str(bundle.manifest.get("title") or instance.app_scope))


def left_screen(ctx: Ctx, instance: Instance) -> None:
    """Something else is on top now."""
    operations.left_screen(ctx, instance)


def settle_everything(
    ctx: Ctx, instance: Instance, code: str, reason: str, detail: dict[str, Any] | None = None
) -> None:
    """Before an instance closes: every call its result, every question its end, nothing left to deliver.

    Operations come first: a call that stands for one gets the operation's result and is never rewritten.
    """
    call_code = code if code in ("app_crashed", "app_start_failed", "isolation_insufficient") else "app_closed"
    operations.instance_closing(ctx, instance, call_code)
    for key, _ in list(ctx.txn.scan(OPEN_CALLS, (instance.instance_id,))):
        call = ctx.need(CALLS, key[1:])
        if CALL.is_final(call.status):
            continue
        error = LineUpError(call_code, reason or "the MiniApp was closed before the call ended", detail=detail)
        calls.settle(ctx, call, CallEvent.CANCEL if call_code == "app_closed" else CallEvent.FAIL, error=error)
    interactions.owner_closed(ctx, instance)
    surfaces.owner_closed(ctx, instance)
    snapshots.owner_closed(ctx, instance)
    budgets.forget(ctx, instance.instance_id)
    inbox.owner_closed(ctx, instance)
    timeline.end_session(ctx, instance.session_id, reason or code)


# what an app may ask of its own life


def check_may_take_screen(ctx: Ctx, instance: Instance) -> None:
    """An app may come to the front while an agent's call of it is open, or while only Interact is above it; never to
    steal the screen: what a person has chosen stays until they, or a call that came after that, want something else.

    Raises:
        LineUpError: ``lifecycle_denied``.
    """
    if instance.kind == "system":
        raise LineUpError("lifecycle_denied", "Interact comes back when what is above it leaves")
    if not any(True for _ in ctx.txn.scan(OPEN_CALLS, (instance.instance_id,))):
        raise LineUpError("lifecycle_denied", "no open call of this MiniApp needs the screen")
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    top = conversation.focus[-1:]
    if top and top[0] not in (instance.instance_id, conversation.chat_instance_id):
        other = ctx.need(INSTANCES, (top[0],))
        if operations.is_focusing(ctx, other.instance_id):
            raise LineUpError("lifecycle_denied", f"{other.app_scope} has a focusing operation in the foreground")
    if (
        top == (conversation.chosen,)
        and top[0] != instance.instance_id
        and not _has_call_since(ctx, instance, conversation)
    ):
        raise LineUpError(
            "lifecycle_denied", "a person has chosen what is in the foreground, and no call has come since"
        )


def _has_call_since(ctx: Ctx, instance: Instance, conversation: Conversation) -> bool:
    """Whether a call of it is open that came after a person's last choice."""
    calls = (ctx.need(CALLS, key[1:]) for key, _ in ctx.txn.scan(OPEN_CALLS, (instance.instance_id,)))
    return any(call.created_ms > conversation.chosen_ms for call in calls)


def check_may_leave_screen(ctx: Ctx, instance: Instance) -> None:
    """Leaving the screen would interrupt a focusing operation; only people and agents may do that."""
    if operations.is_focusing(ctx, instance.instance_id):
        raise LineUpError(
            "lifecycle_denied", "a focusing operation is under way; only its end or a person may leave it"
        )


def check_may_close(ctx: Ctx, instance: Instance) -> None:
    """An app may close itself when nothing of it is open: no call, no question, no operation.

    Raises:
        LineUpError: ``lifecycle_denied`` with what stands in the way.
    """
    if instance.kind == "system":
        raise LineUpError("lifecycle_denied", "Interact is never closed")
    if operations.is_focusing(ctx, instance.instance_id):
        raise LineUpError("lifecycle_denied", "a focusing operation is under way", detail={"why": "operation"})
    pending = [str(key[2]) for key, _ in ctx.txn.scan(OPEN_CALLS, (instance.instance_id,))]
    if pending:
        raise LineUpError(
            "lifecycle_denied",
            f"{len(pending)} call(s) are open; complete, fail or cancel them first",
            detail={"why": "calls", "call_ids": pending[:16]},
        )
    waiting = [ctx.need(INTERACTIONS, (key[1],)) for key, _ in ctx.txn.scan(OPEN_INTERACTIONS, (instance.instance_id,))]
    # A question for consent is the Runtime's own, which no app can cancel; it ends with the instance.
    questions = [question.interaction_id for question in waiting if question.source != "runtime_policy"]
    if questions:
        raise LineUpError(
            "lifecycle_denied",
            f"{len(questions)} question(s) wait for a person; cancel them first",
            detail={"why": "interactions", "interaction_ids": questions[:16]},
        )
