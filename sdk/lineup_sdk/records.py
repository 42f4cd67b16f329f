"""What the Runtime tells a MiniApp, as immutable values. Owns their shapes; holds no state and sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lineup_sdk.values import Value

ANSWERED = frozenset({"submitted", "completed"})
SETTLED = ANSWERED | {"cancelled", "expired", "failed"}


class MiniAppContext(Value):
    """Who this instance is. Comes from the Runtime alone.

    ``state``: ``starting`` | ``foreground`` | ``background`` | ``suspended``; ``mode``: ``im`` for Interact.
    """

    app_scope: str
    instance_id: str
    conversation_id: str
    app_version: str
    state: str
    mode: str | None = None


class ToolCall(Value):
    """One call of one of this MiniApp's tools.

    ``attempt`` counts from 1; it is higher when an earlier worker died while it ran this (``retry_safe``) call.
    ``operation_id`` names the deadline operation that the Runtime keeps for the call, if there is one; the Runtime ends
    such a call itself (see ``sdk.operations``).
    """

    call_id: str
    tool_id: str
    input: dict[str, Any]
    attempt: int = 1
    retry_safe: bool = False
    inventory_revision: str = ""
    conversation_id: str = ""
    created_at: str = ""
    operation_id: str | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> ToolCall:
        return cls(
            call_id=body["call_id"],
            tool_id=body["tool_id"],
            input=body["input"],
            attempt=body.get("attempt", 1),
            retry_safe=body.get("retry_safe", False),
            inventory_revision=body.get("inventory_revision", ""),
            conversation_id=body.get("conversation_id", ""),
            created_at=body.get("created_at", ""),
            operation_id=body.get("operation_id") or (body.get("operation") or {}).get("operation_id"),
        )


class InboxMessage(Value):
    """One delivery that is not a tool call; kept by the Runtime until acknowledged. ``kind`` decides ``body``."""

    seq: int
    message_id: str
    kind: str
    body: dict[str, Any]


class TextMessage(Value):
    """A text of the conversation. ``sender``: ``person`` or ``agent``; ``format``: ``plain`` or ``markdown``."""

    message_id: str
    text: str
    format: str
    at: str
    sender: str

    @classmethod
    def from_message(cls, message: InboxMessage) -> TextMessage:
        body = message.body
        return cls(
            message.message_id,
            body["text"],
            body.get("format", "plain"),
            body.get("at", ""),
            body.get("from", "agent"),
        )


class SurfaceEvent(Value):
    """Something that happened on a surface: a named event, or (``name`` None) a submission."""

    surface_id: str
    name: str | None
    payload: Any

    @classmethod
    def from_message(cls, message: InboxMessage) -> SurfaceEvent:
        body = message.body
        return cls(body.get("surface_id", ""), body.get("name"), body.get("payload"))


class CapabilityResult(Value):
    """What came of one capability request. ``code`` says why not when ``granted`` is false; ``detail`` is the rest."""

    request_id: str
    capability: str
    granted: bool
    code: str | None
    detail: dict[str, Any]

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> CapabilityResult:
        known = ("request_id", "capability", "granted", "code")
        return cls(
            body["request_id"],
            body.get("capability", ""),
            bool(body.get("granted")),
            body.get("code"),
            {name: value for name, value in body.items() if name not in known},
        )


class Interaction(Value):
    """One standard interaction. ``owner`` was stamped by the Runtime.

    ``status``: ``pending`` | ``presented`` | ``submitted`` | ``completed`` | ``cancelled`` | ``expired`` | ``failed``.
    A ``submitted`` one has its answer; it is ``completed`` once this MiniApp has taken the answer over.
    """

    interaction_id: str
    kind: str
    request: dict[str, Any]
    status: str
    owner: dict[str, Any]
    result: dict[str, Any] | None = None
    created_at: str = ""
    updated_at: str = ""
    expires_at: str | None = None
    reason: str | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Interaction:
        request = body.get("request") or {}
        return cls(
            interaction_id=body["interaction_id"],
            kind=body.get("kind") or request.get("kind", ""),
            request=request,
            status=body["status"],
            owner=body.get("owner") or {},
            result=body.get("result"),
            created_at=body.get("created_at", ""),
            updated_at=body.get("updated_at", ""),
            expires_at=body.get("expires_at"),
            reason=body.get("reason"),
        )

    @property
    def source(self) -> str:
        """``agent_tool`` | ``miniapp_tool`` | ``runtime_policy``."""
        return str(self.owner.get("source", ""))

    @property
    def parent_call_id(self) -> str | None:
        return self.owner.get("parent_call_id")

    @property
    def settled(self) -> bool:
        """True once nothing more will come of it."""
        return self.status in SETTLED

    @property
    def answered(self) -> bool:
        """True if the person answered (and did not cancel or let it expire)."""
        return self.status in ANSWERED

    @property
    def acknowledged(self) -> bool:
        """``notice``: the person has seen it."""
        return bool(self._answer("acknowledged", False))

    @property
    def approved(self) -> bool:
        """``confirm``: the person agreed. False as well when they cancelled or it expired."""
        return bool(self._answer("approved", False))

    @property
    def action_ids(self) -> list[str]:
        """``choice``: what was chosen, in order."""
        return list(self._answer("action_ids", ()))

    @property
    def values(self) -> dict[str, Any]:
        """``input``: the values by field id."""
        return dict(self._answer("values", {}))

    def _answer(self, name: str, otherwise: Any) -> Any:
        return (self.result or {}).get(name, otherwise) if self.answered else otherwise


class Operation(Value):
    """A deadline that the Runtime keeps: ``state`` is ``focusing`` | ``completed`` | ``interrupted``. Read only."""

    operation_id: str
    state: str
    started_at: str = ""
    ends_at: str = ""
    ended_at: str | None = None
    activity: str | None = None
    duration_seconds: int | None = None
    interruption_reason: str | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Operation:
        return cls(**{name: body[name] for name in cls.__match_args__ if name in body})


class Surface(Value):
    """One open surface: its state as the Runtime has it, at ``revision``. The state is shared: do not change it."""

    surface_id: str
    entry: str
    title: str
    state: dict[str, Any]
    revision: int

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Surface:
        return cls(
            body["surface_id"],
            body.get("entry", ""),
            body.get("title") or "",
            body.get("state") or {},
            body.get("revision", 0),
        )


def merge_patch(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a JSON Merge Patch (RFC 7396) to ``target`` in place: the cost is that of the patch, not of the target."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            old = target.get(name)
            if not isinstance(old, dict):
                old = target[name] = {}
            merge_patch(old, value)
        else:
            target[name] = value
