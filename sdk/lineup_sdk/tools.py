"""``sdk.tools``: the tool calls that this instance has open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lineup_sdk.link import Link, Listeners, Unsubscribe, given
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import ToolCall


class ToolsAPI:
    """A call is open until one of ``complete``, ``fail``, ``cancel`` is accepted, by whichever part of the app."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listeners: Listeners[ToolCall] = Listeners()

    def subscribe(self, listener: Callable[[ToolCall], None]) -> Unsubscribe:
        """Hear of every call that is started, beside its handler."""
        return self._listeners.subscribe(listener)

    def get(self, call_id: str) -> ToolCall | None:
        """One open call."""
        return self._link.projection.calls.get(call_id)

    def list(self) -> list[ToolCall]:
        """Every open call, those left open by an earlier worker of this instance included."""
        return list(self._link.projection.calls.values())

    async def report_progress(self, call_id: str, progress: float, message: str | None = None) -> CommandReceipt:
        """``progress`` from 0 to 1. The agent sees the newest; older ones not yet sent are replaced."""
        return await self._link.command("tool.progress", given(call_id=call_id, progress=progress, message=message))

    async def complete(self, call_id: str, result: dict[str, Any]) -> CommandReceipt:
        """End the call as completed. ``result`` must satisfy the tool's output schema (``tool_output_invalid``)."""
        return await self._link.command("tool.complete", {"call_id": call_id, "result": result})

    async def fail(self, call_id: str, code: str, message: str, detail: Any = None) -> CommandReceipt:
        """End the call as failed, with the app's own code and a sentence for the agent."""
        return await self._link.command("tool.fail", given(call_id=call_id, code=code, message=message, detail=detail))

    async def cancel(self, call_id: str, reason: str | None = None) -> CommandReceipt:
        """End the call as cancelled: the app gives it up, or the person does."""
        return await self._link.command("tool.cancel", given(call_id=call_id, reason=reason))
