"""What an agent gets to see: results, progress, texts and the inventory, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lineup_agent.errors import ToolFailed
from lineup_protocol.messages import TOOL_RESULT_STATUSES


@dataclass(frozen=True)
class ToolResult:
    """The one terminal state of a tool call. ``error`` is ``{code, message, detail?}``; ``at`` is RFC 3339 UTC."""

    call_id: str
    status: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    at: str = ""

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @property
    def error_code(self) -> str | None:
        return self.error["code"] if self.error else None

    def unwrap(self) -> dict[str, Any]:
        """The result's object. Raises ToolFailed unless the call completed."""
        if not self.completed:
            error = self.error or {}
            code, message = error.get("code", ""), error.get("message", "")
            raise ToolFailed(self.call_id, self.status, code, message, error.get("detail"))
        return self.result or {}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ToolResult | None:
        """The result in a call's record, or None if the call is still open."""
        if record.get("status") not in TOOL_RESULT_STATUSES:
            return None
        at = record.get("updated_at", "")
        return cls(record["call_id"], record["status"], record.get("result"), record.get("error"), at)


@dataclass(frozen=True)
class Progress:
    """``progress`` goes from 0 to 1. Reports may be skipped: the newest replaces older ones that were not yet sent."""

    call_id: str
    progress: float
    message: str | None
    at: str


@dataclass(frozen=True)
class Text:
    """What a person wrote. It is acknowledged when the consumer of ``messages()`` asks for the next one."""

    conversation_id: str
    text: str
    at: str
    seq: int
    _acknowledge: Callable[[int], None] = field(repr=False, compare=False)

    def acknowledge(self) -> None:
        """Take it over now, so that it is not delivered again to another run of this agent."""
        self._acknowledge(self.seq)


@dataclass(frozen=True)
class Inventory:
    """The tools that may be called just now."""

    revision: str
    tools: Mapping[str, dict[str, Any]]

    def has(self, tool_id: str) -> bool:
        return tool_id in self.tools
