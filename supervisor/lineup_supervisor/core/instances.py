"""Instances and their place on screen: create, bring to the front, send back, close.

Owns ``INSTANCES``, ``LIVE_INSTANCES``, ``SHOWN`` and ``Conversation.focus``. Processes are ``embodiment``'s business.
The bottom of a focus stack is always the conversation's Interact, so that focus never points into the void.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import closing, retention
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    APPS,
    CONVERSATIONS,
    INSTANCES,
    LIVE_INSTANCES,
    SHOWN,
    SURFACES,
    App,
    Conversation,
    Instance,
    Mark,
)
from lineup_supervisor.core.tables import INSTANCE, InstanceEvent, InstanceState, SurfaceState

replace = msgspec.structs.replace
CHAT_SCOPE = "chat"


def open_conversation(
    ctx: Ctx, conversation_id: str, agent_id: str, *, opened_by: str, title: str = ""
) -> Conversation:
    """Create a conversation with its Interact in the foreground.

    Raises:
        LineUpError: ``rate_limited`` if there are too many; nothing changes.
    """
    check_room(ctx)
    ctx.set_meta(conversations=ctx.meta.conversations + 1)
    conversation = Conversation(
        conversation_id=conversation_id,
        agent_id=agent_id,
        title=title,
        opened_by=opened_by,
        created_ms=ctx.now.wall_ms,
        updated_ms=ctx.now.wall_ms,
    )
    ctx.put(CONVERSATIONS, (conversation_id,), conversation)
    audit(ctx, "conversation.opened", conversation_id, agent_id, by=opened_by)
    app = ctx.get(APPS, (CHAT_SCOPE,))
    if app is not None:
        chat = create(ctx, app, conversation)
        conversation = replace(ctx.need(CONVERSATIONS, (conversation_id,)), chat_instance_id=chat.instance_id)
        ctx.put(CONVERSATIONS, (conversation_id,), conversation)
        _shift(ctx, chat, InstanceEvent.FRONT)
        conversation = replace(conversation, focus=(chat.instance_id,))
        ctx.put(CONVERSATIONS, (conversation_id,), conversation)
    return conversation


def check_room(ctx: Ctx) -> None:
    """Refuse (``rate_limited``) one more conversation if there are too many."""
    if ctx.meta.conversations >= limits.CONVERSATIONS_MAX:
        raise LineUpError("rate_limited", f"{limits.CONVERSATIONS_MAX} conversations exist already")


def create(ctx: Ctx, app: App, conversation: Conversation) -> Instance:
    """A new instance in state ``starting``; it stays on the bundle version that is current now."""
    instance = Instance(
        instance_id=ctx.new_id("i"),
        app_scope=app.app_scope,
        conversation_id=conversation.conversation_id,
        digest=app.digest,
        kind=app.kind,
        state=InstanceState.STARTING,
        created_ms=ctx.now.wall_ms,
        cause=ctx.cause,
        last_used_ms=ctx.now.steady_ms,
    )
    if app.kind != "system":
        instance = replace(instance, session_id=closing.open_session(ctx, instance))
    ctx.put(INSTANCES, (instance.instance_id,), instance)
    ctx.put(LIVE_INSTANCES, (instance.conversation_id, instance.app_scope, instance.instance_id), Mark())
    audit(
        ctx,
        "instance.created",
        instance.instance_id,
        conversation.conversation_id,
        app=app.app_scope,
        digest=app.digest,
    )
    return instance


def live(ctx: Ctx, conversation_id: str, app_scope: str) -> Instance | None:
    """The conversation's live instance of a MiniApp, the newest of several (an upgrade leaves the older ones be)."""
    return next(iter(all_live(ctx, conversation_id, app_scope)), None)


def all_live(ctx: Ctx, conversation_id: str, app_scope: str) -> list[Instance]:
    """The newest first."""
    found = [ctx.need(INSTANCES, (key[2],)) for key, _ in ctx.txn.scan(LIVE_INSTANCES, (conversation_id, app_scope))]
    return sorted(found, key=lambda instance: (instance.created_ms, instance.instance_id), reverse=True)


def front(ctx: Ctx, instance_id: str, *, borrow: bool | None = None) -> None:
    """Put an instance on top of its conversation's focus stack.

    ``borrow`` is a call's: True if it gives the screen back at its end (``calls``), False if it is for good. A person's
    switch is for good too; to where the person is already, it changes nothing.

    Raises:
        LineUpError: ``app_closed``, or ``lifecycle_denied`` if the stack is at its depth limit; nothing changes.
    """
    instance = ctx.need(INSTANCES, (instance_id,))
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    if conversation.focus and conversation.focus[-1] == instance_id:
        wake(ctx, instance_id)
        if borrow is False:
            _set_borrowed(ctx, instance_id, False)
        return
    if not INSTANCE.allows(instance.state, InstanceEvent.FRONT):
        INSTANCE.next(instance.state, InstanceEvent.FRONT)
    if instance_id not in conversation.focus and len(conversation.focus) >= limits.FOCUS_DEPTH_MAX:
        raise LineUpError(
            "lifecycle_denied",
            f"{limits.FOCUS_DEPTH_MAX} MiniApps are already open in this conversation; close one first",
        )
    wake(ctx, instance_id)
    _set_borrowed(ctx, instance_id, bool(borrow))
    below = tuple(i for i in conversation.focus if i != instance_id)
    ctx.put(CONVERSATIONS, (conversation.conversation_id,), replace(conversation, focus=(*below, instance_id)))
    for other in below[-1:]:
        _leave_screen(ctx, other)
    _enter_screen(ctx, instance_id)
    depth = len(ctx.need(CONVERSATIONS, (conversation.conversation_id,)).focus)  # whoever left may have been closed
    audit(ctx, "focus.changed", instance_id, conversation.conversation_id, depth=depth)


def give_back(ctx: Ctx, instance_id: str) -> None:
    """Nobody needs the place in the focus any more that a call has borrowed: also one below the top, so that it does
    not come to the front later."""
    instance = ctx.need(INSTANCES, (instance_id,))
    if instance.borrowed and instance.state != InstanceState.CLOSED:
        _set_borrowed(ctx, instance_id, False)
        if instance_id in ctx.need(CONVERSATIONS, (instance.conversation_id,)).focus:
            back(ctx, instance_id)


def _set_borrowed(ctx: Ctx, instance_id: str, borrowed: bool) -> None:
    instance = ctx.need(INSTANCES, (instance_id,))
    if instance.borrowed != borrowed:
        ctx.put(INSTANCES, (instance_id,), replace(instance, borrowed=borrowed))


def back(ctx: Ctx, instance_id: str) -> None:
    """Take an instance from the top of the stack; what was below comes to the front. It stays in the conversation."""
    instance = ctx.need(INSTANCES, (instance_id,))
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    if instance_id == conversation.chat_instance_id:
        raise LineUpError(
            "lifecycle_denied", "Interact is the ground of its conversation; bring something else to the front"
        )
    was_top = bool(conversation.focus) and conversation.focus[-1] == instance_id
    _remove_from_focus(ctx, conversation, instance_id)
    if was_top or instance.state == InstanceState.STARTING:
        _leave_screen(ctx, instance_id)


def close(ctx: Ctx, instance_id: str, code: str, reason: str, detail: dict[str, Any] | None = None) -> None:
    """End an instance for good: settle what is open, end its session, restore the previous one. Idempotent.

    ``detail`` is that of the error with which its open calls end.
    """
    instance = ctx.need(INSTANCES, (instance_id,))
    if instance.state == InstanceState.CLOSED:
        return
    closing.settle_everything(ctx, instance, code, reason, detail)
    instance = ctx.need(INSTANCES, (instance_id,))
    closed = replace(
        instance,
        state=INSTANCE.next(instance.state, InstanceEvent.CLOSE),
        closed_ms=ctx.now.wall_ms,
        close_code=code,
        close_reason=reason,
    )
    ctx.put(INSTANCES, (instance_id,), closed)
    ctx.delete(LIVE_INSTANCES, (instance.conversation_id, instance.app_scope, instance_id))
    ctx.delete(SHOWN, (instance_id,))
    retention.retire(ctx, retention.INSTANCE, instance_id)
    audit(ctx, "instance.closed", instance_id, instance.conversation_id, code=code, reason=reason or None)
    _remove_from_focus(ctx, ctx.need(CONVERSATIONS, (instance.conversation_id,)), instance_id)
    ctx.touch(instance_id)


def started(ctx: Ctx, instance: Instance) -> None:
    """Its worker is ready: a starting instance takes its place, a suspended one is back."""
    if instance.state not in (InstanceState.STARTING, InstanceState.SUSPENDED):
        return
    conversation = ctx.need(CONVERSATIONS, (instance.conversation_id,))
    on_top = bool(conversation.focus) and conversation.focus[-1] == instance.instance_id
    _shift(ctx, instance, InstanceEvent.FRONT if on_top else InstanceEvent.BACK)


def suspend(ctx: Ctx, instance: Instance) -> None:
    """Its process was let go while it was not on screen."""
    if instance.state == InstanceState.BACKGROUND:
        _shift(ctx, instance, InstanceEvent.SUSPEND)


def rest(ctx: Ctx, instance_id: str) -> None:
    """Its process is let go of while it waits for a person; it is not missed before one comes."""
    _set_rests(ctx, instance_id, True)


def wake(ctx: Ctx, instance_id: str) -> None:
    """A person has come: one that rests is started again."""
    _set_rests(ctx, instance_id, False)


def _set_rests(ctx: Ctx, instance_id: str, rests: bool) -> None:
    instance = ctx.need(INSTANCES, (instance_id,))
    if instance.rests != rests:
        ctx.put(INSTANCES, (instance_id,), replace(instance, rests=rests))
        ctx.touch(instance_id)


def look_at(ctx: Ctx, surface_ids: Iterable[str]) -> None:
    """A Host says which pages people have before them just now, and none beside these. Unknown ones are passed over."""
    surfaces = (ctx.get(SURFACES, (surface_id,)) for surface_id in surface_ids)
    shown = {surface.instance_id for surface in surfaces if surface is not None and surface.state == SurfaceState.OPEN}
    before = {str(key[0]) for key, _ in ctx.txn.scan(SHOWN)}
    for instance_id in sorted(before - shown):
        ctx.delete(SHOWN, (instance_id,))
        ctx.touch(instance_id)
    for instance_id in sorted(shown - before):
        ctx.put(SHOWN, (instance_id,), Mark())
        instance = ctx.need(INSTANCES, (instance_id,))
        ctx.put(INSTANCES, (instance_id,), replace(instance, last_used_ms=ctx.now.steady_ms))
        ctx.touch(instance_id)


def chosen(ctx: Ctx, before: Conversation) -> None:
    """A person has switched: they want what is in the foreground of this conversation now."""
    now = ctx.need(CONVERSATIONS, (before.conversation_id,))
    if now.focus != before.focus:
        row = replace(now, chosen=now.focus[-1] if now.focus else "", chosen_ms=ctx.now.wall_ms)
        ctx.put(CONVERSATIONS, (before.conversation_id,), row)


def home(ctx: Ctx, conversation_id: str) -> None:
    """A person returns to Interact: everything above it goes to the background."""
    conversation = ctx.need(CONVERSATIONS, (conversation_id,))
    if conversation.chat_instance_id:
        front(ctx, conversation.chat_instance_id)


def settle_into_place(ctx: Ctx, instance_id: str) -> None:
    """Give an instance that is already in the focus stack the state that its place there means."""
    instance = ctx.need(INSTANCES, (instance_id,))
    focus = ctx.need(CONVERSATIONS, (instance.conversation_id,)).focus
    _shift(ctx, instance, InstanceEvent.FRONT if focus[-1:] == (instance_id,) else InstanceEvent.BACK)


def _remove_from_focus(ctx: Ctx, conversation: Conversation, instance_id: str) -> None:
    if instance_id not in conversation.focus:
        return
    was_top = conversation.focus[-1] == instance_id
    rest = tuple(i for i in conversation.focus if i != instance_id)
    if not rest and conversation.chat_instance_id and conversation.chat_instance_id != instance_id:
        rest = (conversation.chat_instance_id,)
    ctx.put(CONVERSATIONS, (conversation.conversation_id,), replace(conversation, focus=rest))
    if was_top and rest:
        _enter_screen(ctx, rest[-1])
        audit(ctx, "focus.restored", rest[-1], conversation.conversation_id, depth=len(rest))
    elif not was_top and ctx.need(INSTANCES, (instance_id,)).state != InstanceState.CLOSED:
        audit(ctx, "focus.left", instance_id, conversation.conversation_id, depth=len(rest))


def _enter_screen(ctx: Ctx, instance_id: str) -> None:
    """On top now. One that never started stays ``starting`` until its worker is ready, unless it needs none."""
    instance = ctx.need(INSTANCES, (instance_id,))
    if instance.state != InstanceState.STARTING or instance.kind == "system":
        _shift(ctx, instance, InstanceEvent.FRONT)
    ctx.touch(instance_id)


def _leave_screen(ctx: Ctx, instance_id: str) -> None:
    instance = ctx.need(INSTANCES, (instance_id,))
    if instance.state in (InstanceState.FOREGROUND, InstanceState.STARTING):
        _shift(ctx, instance, InstanceEvent.BACK)
    closing.left_screen(ctx, instance)
    ctx.touch(instance_id)


def _shift(ctx: Ctx, instance: Instance, event: InstanceEvent) -> None:
    state = INSTANCE.next(instance.state, event)
    if state == instance.state:
        return
    ctx.put(
        INSTANCES,
        (instance.instance_id,),
        replace(ctx.need(INSTANCES, (instance.instance_id,)), state=state, last_used_ms=ctx.now.steady_ms),
    )
    audit(ctx, "instance.state", instance.instance_id, instance.conversation_id, before=instance.state, state=state)
    if state != InstanceState.CLOSED:
        ctx.tell_worker(instance.instance_id, "context.changed", {"state": str(state)})
