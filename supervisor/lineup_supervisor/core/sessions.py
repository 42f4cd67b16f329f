"""What a person does with an app session as a whole: close its app, continue it after its end."""

from __future__ import annotations

from typing import Any

import msgspec

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import inbox, instances, operations, timeline
from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    APPS,
    BUNDLES,
    CONVERSATIONS,
    INBOX,
    INSTANCES,
    OPEN_CALLS,
    OPEN_INTERACTIONS,
    SESSIONS,
    Instance,
)
from lineup_supervisor.core.tables import InstanceState, SessionState

replace = msgspec.structs.replace


def ask_before_close(ctx: Ctx, instance: Instance) -> bool:
    """True if the MiniApp declared that it wants to be asked, has open calls and was not asked yet.

    It then gets a ``close.request`` and may put a question to the person; a second close, or
    ``force``, closes it whatever it thinks.
    """
    bundle = ctx.need(BUNDLES, (instance.digest,))
    if "app.confirm-close.v1" not in (bundle.manifest.get("features") or []):
        return False
    if instance.close_asked and _still_deciding(ctx, instance):
        return False
    if operations.is_focusing(ctx, instance.instance_id):
        return False
    if not any(True for _ in ctx.txn.scan(OPEN_CALLS, (instance.instance_id,))):
        return False
    ctx.put(INSTANCES, (instance.instance_id,), replace(instance, close_asked=True))
    inbox.append(ctx, instance.instance_id, "close.request", {"reason": "closed by the person"}, owed=True)
    return True


def _still_deciding(ctx: Ctx, instance: Instance) -> bool:
    """The app has not answered the last request to close yet, or its question to the person is open."""
    key = (instance.instance_id,)
    return any(True for _ in ctx.txn.scan(INBOX, key)) or any(True for _ in ctx.txn.scan(OPEN_INTERACTIONS, key))


def continue_session(ctx: Ctx, session_id: str) -> dict[str, Any]:
    """A new instance and a new session of the same MiniApp; the ended ones stay as they are.

    Raises:
        LineUpError: ``not_found``; ``conflict`` if the session is still open; ``app_disabled`` or ``app_not_found``.
    """
    session = ctx.get(SESSIONS, (session_id,))
    if session is None:
        raise LineUpError("not_found", f"no app session {session_id}")
    if session.state != SessionState.READ_ONLY:
        raise LineUpError("conflict", "this app session is still open", detail={"instance_id": session.instance_id})
    app = ctx.get(APPS, (session.app_scope,))
    if app is None:
        raise LineUpError("app_not_found", f"{session.app_scope} is not installed any more")
    if not app.enabled or app.quarantined:
        raise LineUpError(
            "app_quarantined" if app.quarantined else "app_disabled", f"{session.app_scope} takes no calls"
        )
    live = instances.live(ctx, session.conversation_id, session.app_scope)
    if live is not None and live.state != InstanceState.CLOSED:
        raise LineUpError(
            "conflict",
            f"{session.app_scope} is open in this conversation already",
            detail={"instance_id": live.instance_id},
        )
    conversation = ctx.need(CONVERSATIONS, (session.conversation_id,))
    instance = instances.create(ctx, app, conversation)
    new_session = ctx.need(SESSIONS, (instance.session_id,))
    ctx.put(SESSIONS, (instance.session_id,), replace(new_session, continues=session_id, title=session.title))
    audit(ctx, "session.continued", session_id, instance.session_id, instance.instance_id)
    timeline.append(ctx, session.conversation_id, "continue", "person", session_id=instance.session_id, ref=session_id)
    instances.front(ctx, instance.instance_id)
    ctx.touch(instance.instance_id)
    return {"instance_id": instance.instance_id, "session_id": instance.session_id}
