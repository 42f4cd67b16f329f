"""Answers to what a MiniApp asks of the Runtime. Owns their shapes; knows nothing of how they travel."""

from __future__ import annotations

from typing import Any

from lineup_sdk.values import Value


class CommandReceipt(Value):
    """The Runtime's answer to one write, given after its commit; a refusal is data, not an exception.

    ``code`` is a code of the error registry when ``accepted`` is false; ``detail`` depends on the command.
    """

    accepted: bool
    code: str | None = None
    message: str | None = None
    detail: Any = None

    def raise_if_refused(self) -> None:
        """Turn a refusal into an exception, for code that cannot go on without the command.

        Raises:
            RequestRefused: if the command was not accepted.
        """
        if not self.accepted:
            raise RequestRefused(self)


class RequestRefused(Exception):
    """The Runtime refused a command whose effect the app waits for."""

    def __init__(self, receipt: CommandReceipt) -> None:
        super().__init__(f"{receipt.code}: {receipt.message}")
        self.receipt = receipt

    @property
    def code(self) -> str | None:
        return self.receipt.code


class ToolError(Exception):
    """Raised by a tool handler: the call ends as ``failed`` with the app's own ``code``, ``message`` and ``detail``.

    ``code`` is the app's word for what went wrong (``task_not_found``), ``message`` one sentence for the agent.
    """

    def __init__(self, code: str, message: str, detail: Any = None) -> None:
        if not code:
            raise ValueError("ToolError needs a code, for example 'task_not_found'")
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail
