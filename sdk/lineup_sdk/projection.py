"""What this worker knows of its instance: a projection of the Runtime's tables, never a source of truth.

Owns the tables that an app reads synchronously (``sdk.ui.get`` …) and how receipts and changes move them. Knows nothing
of delivery or acknowledgement (see ``session``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import (
    CapabilityResult,
    InboxMessage,
    Interaction,
    MiniAppContext,
    Operation,
    Surface,
    ToolCall,
    merge_patch,
)

SETTLED_KEPT_MAX = 256  # settled interactions and capability requests still found here; the Runtime keeps them all

# The call has its result, whoever gave it: it is open no longer.
_CALL_IS_OVER = frozenset({"call_already_final", "call_not_found", "app_scope_mismatch", "app_closed"})
_ENDS_CALL = frozenset({"tool.complete", "tool.fail", "tool.cancel"})


class Projection:
    """Every table is keyed by the Runtime's id and holds immutable records."""

    def __init__(self) -> None:
        self.context = MiniAppContext("", "", "", "", "starting")
        self.limits: dict[str, Any] = {}
        self.state: dict[str, Any] | None = None
        self.state_revision = 0
        self.calls: dict[str, ToolCall] = {}
        self.inbox: dict[str, InboxMessage] = {}
        self.interactions: dict[str, Interaction] = {}
        self.operations: dict[str, Operation] = {}
        self.surfaces: dict[str, Surface] = {}
        self.capabilities: dict[str, CapabilityResult] = {}

    def load(self, welcome: Mapping[str, Any]) -> None:
        """Take over the body of ``worker.welcome``."""
        context = welcome["context"]
        self.context = MiniAppContext(
            app_scope=context["app_scope"],
            instance_id=context["instance_id"],
            conversation_id=context["conversation_id"],
            app_version=context["app_version"],
            state=context["state"],
            mode=context.get("mode"),
        )
        self.limits = welcome["limits"]
        self.state = welcome.get("state")
        self.state_revision = welcome["state_revision"]
        self.calls = {row["call_id"]: ToolCall.from_body(row) for row in welcome["calls"]}
        self.interactions = {row["interaction_id"]: Interaction.from_body(row) for row in welcome["interactions"]}
        self.operations = {row["operation_id"]: Operation.from_body(row) for row in welcome["operations"]}
        self.surfaces = {row["surface_id"]: Surface.from_body(row) for row in welcome["surfaces"]}

    def change_context(self, state: str) -> MiniAppContext:
        self.context = self.context.replace(state=state)
        return self.context

    def put_call(self, call: ToolCall, row: Mapping[str, Any]) -> None:
        """A delivered call is open; one that stands for an operation brings it along."""
        self.calls[call.call_id] = call
        if (operation := row.get("operation")) is not None and call.operation_id not in self.operations:
            self.put_operation(operation)

    def put_operation(self, row: Mapping[str, Any]) -> Operation:
        operation = Operation.from_body(row)
        self.operations[operation.operation_id] = operation
        if operation.state != "focusing":  # the Runtime has ended the operation's call with it
            ended = [call.call_id for call in self.calls.values() if call.operation_id == operation.operation_id]
            for call_id in ended:
                del self.calls[call_id]
        return operation

    def put_interaction(self, row: Mapping[str, Any]) -> Interaction:
        """Newest last; of the settled ones only the newest are kept."""
        interaction = Interaction.from_body(row)
        self.interactions.pop(interaction.interaction_id, None)
        self.interactions[interaction.interaction_id] = interaction
        if interaction.settled and len(self.interactions) > SETTLED_KEPT_MAX:
            settled = [id_ for id_, kept in self.interactions.items() if kept.settled]
            for id_ in settled[:-SETTLED_KEPT_MAX]:
                del self.interactions[id_]
        return interaction

    def put_capability(self, row: Mapping[str, Any]) -> CapabilityResult:
        """What came of a request; kept for a while, as it may come before the app has begun to wait for it."""
        result = CapabilityResult.from_body(row)
        self.capabilities[result.request_id] = result
        while len(self.capabilities) > SETTLED_KEPT_MAX:
            del self.capabilities[next(iter(self.capabilities))]
        return result

    def patch_surface(self, surface_id: str, patch: Mapping[str, Any], revision: int) -> Surface | None:
        """Apply one patch; None if the surface is not open any more or has seen it already."""
        surface = self.surfaces.get(surface_id)
        if surface is None or revision <= surface.revision:
            return None
        merge_patch(surface.state, patch)
        self.surfaces[surface_id] = surface = surface.replace(revision=revision)
        return surface

    @staticmethod
    def keep(command: str, body: dict[str, Any]) -> dict[str, Any]:
        """What ``settle`` needs of a command, as it was sent: the app may go on to change the objects that it gave."""
        try:
            return _own(body) if command in _EFFECTS else body
        except Exception:  # whatever an object's own methods raise: it cannot be sent either
            return body

    def settle(self, command: str, body: Mapping[str, Any], receipt: CommandReceipt) -> None:
        """What one receipt says about the tables."""
        if command in _ENDS_CALL:
            if receipt.accepted or receipt.code in _CALL_IS_OVER:
                self.calls.pop(body["call_id"], None)
        elif receipt.accepted and (effect := _EFFECTS.get(command)) is not None:
            detail = receipt.detail if isinstance(receipt.detail, dict) else {}
            effect(self, body, detail)

    def _state_saved(self, body: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        self.state = body["state"]
        self.state_revision = detail.get("revision", self.state_revision + 1)

    def _interaction_made(self, body: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        row = detail.get("interaction")
        if row is None and "interaction_id" in detail:
            row = {"request": body["request"], "status": "pending", **detail}
        if row is not None:
            self.put_interaction(row)

    def _surface_opened(self, body: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        if "surface_id" in detail:
            surface = Surface.from_body({**body, "state": dict(body.get("state") or {}), **detail})
            self.surfaces.setdefault(surface.surface_id, surface)

    def _surface_updated(self, body: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        surface = self.surfaces.get(body["surface_id"])
        if surface is not None:
            self.patch_surface(surface.surface_id, body["patch"], detail.get("revision", surface.revision + 1))

    def _surface_closed(self, body: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        self.surfaces.pop(body["surface_id"], None)


def _own(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _own(item) for name, item in value.items()}
    return [_own(item) for item in value] if isinstance(value, list | tuple) else value


_EFFECTS = {
    "state.save": Projection._state_saved,
    "ui.request": Projection._interaction_made,
    "surface.open": Projection._surface_opened,
    "surface.update": Projection._surface_updated,
    "surface.close": Projection._surface_closed,
}
