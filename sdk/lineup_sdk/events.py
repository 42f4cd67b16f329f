"""What a worker's session reports to whoever drives it: plain values, in the order in which they became true."""

from __future__ import annotations

from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import InboxMessage, Interaction, MiniAppContext, Operation, Surface, ToolCall
from lineup_sdk.values import Value


class Welcomed(Value):
    """The link is open; load ``entry`` (``module:attr``), then call ``WorkerSession.ready``."""

    entry: str


class Refused(Value):
    """The Runtime does not want this worker; it exits."""

    code: str
    message: str


class CallStarted(Value):
    """Run the tool's handler now, then call ``WorkerSession.finished``."""

    call: ToolCall


class ClaimRefused(Value):
    """The Runtime did not let this worker have the call; nothing may be run for it."""

    call: ToolCall
    receipt: CommandReceipt


class CancelAsked(Value):
    """The agent wants the call to end. ``started`` is false if its handler was never run (and never will be).

    Confirm with the command ``tool.cancel`` (or end the call in another way), then acknowledge ``seq``.
    """

    call: ToolCall
    seq: int
    reason: str | None
    started: bool


class MessageDelivered(Value):
    """Handle it, then acknowledge its ``seq``."""

    message: InboxMessage


class Answered(Value):
    """The receipt of one command."""

    command_id: str
    receipt: CommandReceipt


class ContextChanged(Value):
    context: MiniAppContext


class OperationChanged(Value):
    operation: Operation


class InteractionChanged(Value):
    interaction: Interaction


class SurfaceChanged(Value):
    """The surface's state changed on the other side."""

    surface: Surface


class StopAsked(Value):
    """Finish and exit within ``grace_ms``."""

    reason: str
    grace_ms: int


SessionEvent = (
    Welcomed
    | Refused
    | CallStarted
    | ClaimRefused
    | CancelAsked
    | MessageDelivered
    | Answered
    | ContextChanged
    | OperationChanged
    | InteractionChanged
    | SurfaceChanged
    | StopAsked
)
