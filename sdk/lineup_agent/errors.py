"""What can go wrong between an agent and its Runtime, as exceptions.

A tool call that ends is no exception, however it ends: its ``ToolResult`` says so. These are for what has no result.
"""

from __future__ import annotations

from lineup_protocol.errors import CODES


class AgentLinkError(Exception):
    """The base of everything that this package raises on purpose."""


class NoRuntime(AgentLinkError):
    """No Runtime could be reached in time; the message says where it was looked for."""


class LinkRefused(AgentLinkError):
    """The Runtime does not take this agent (wrong token, no common protocol); trying again would not help."""


class TakenOver(AgentLinkError):
    """A newer link with the same ``agent_id`` is open. This one stays closed, or the two would fight for ever."""


class LinkClosed(AgentLinkError):
    """The link was closed (by leaving its ``async with``) before the answer came."""


class CallTimeout(AgentLinkError, TimeoutError):
    """The wait is over, not the call: ``call()`` with the same ``call_id`` and input waits for its result again."""

    def __init__(self, call_id: str, timeout_s: float) -> None:
        super().__init__(f"no result of call {call_id} within {timeout_s:g} s; the call goes on")
        self.call_id = call_id


class MessageRefused(AgentLinkError):
    """The Runtime did not accept a message; it had no effect."""

    def __init__(self, code: str, message: str, detail: object = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail

    @property
    def retry(self) -> str:
        """``never``, ``same`` (the same message may succeed later) or ``after_change``."""
        known = CODES.get(self.code)
        return known.retry if known is not None else "never"


class ToolFailed(AgentLinkError):
    """``ToolResult.unwrap()`` of a call that did not complete. ``status`` is failed, cancelled, expired or rejected."""

    def __init__(self, call_id: str, status: str, code: str, message: str, detail: object = None) -> None:
        super().__init__(f"call {call_id} {status}" + (f": {code}: {message}" if code else ""))
        self.call_id = call_id
        self.status = status
        self.code = code
        self.message = message
        self.detail = detail
