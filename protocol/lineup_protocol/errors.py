"""The error registry: stable codes, each with what a caller may do about it.

Operating errors are data: a code from ``CODES``, one sentence, an optional detail. Bugs are assertions and never
pass through here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Retry = Literal["never", "same", "after_change"]


@dataclass(frozen=True)
class Code:
    """One registered code. ``retry``: ``never``; ``same``, later; ``after_change`` of the request or the machine."""

    code: str
    retry: Retry
    meaning: str


_TABLE: tuple[tuple[str, Retry, str], ...] = (
    (
        "inventory_revision_mismatch",
        "after_change",
        "the call carries another revision than the current one; detail has it",
    ),
    ("tool_not_advertised", "after_change", "no such tool in the current inventory"),
    ("tool_input_invalid", "after_change", "the input breaks the tool's schema; detail has path and rule"),
    ("tool_output_invalid", "after_change", "the result breaks the tool's schema; detail has path and rule"),
    ("app_disabled", "after_change", "the operator has disabled the MiniApp"),
    ("app_instance_not_found", "after_change", "no live instance that this could go to"),
    ("app_scope_mismatch", "never", "the object belongs to another MiniApp, instance or conversation"),
    ("lifecycle_denied", "after_change", "the instance may not change its state so just now"),
    ("capability_denied", "after_change", "policy, consent, state or Host support forbids it; detail says which"),
    ("call_already_final", "never", "the call has its one result"),
    ("call_id_conflict", "after_change", "other content under a known call_id; the first is untouched"),
    ("call_not_found", "never", "no such call of this agent"),
    ("active_focusing_operation", "after_change", "the conversation already has a focusing operation"),
    ("outcome_unknown", "never", "the worker died while it ran a call that must not run twice"),
    ("app_crashed", "same", "the MiniApp's process ended too often or broke a limit; detail has the reason"),
    ("app_closed", "never", "the instance was closed before the call ended"),
    ("app_start_failed", "after_change", "the MiniApp could not be loaded; detail has the reason"),
    ("app_not_found", "after_change", "no such MiniApp is installed"),
    ("tool_timeout", "same", "the call ran past its timeout_ms"),
    ("tool_failed", "after_change", "the MiniApp's handler raised an error; its log has the traceback"),
    ("app_quarantined", "after_change", "the MiniApp crashed or broke rules too often; `lineup apps enable` lifts it"),
    ("isolation_insufficient", "after_change", "this machine cannot isolate as the bundle demands"),
    ("manifest_invalid", "after_change", "miniapp.json has faults; detail lists each with its path"),
    ("state_invalid", "after_change", "the snapshot breaks the manifest's state schema; detail has path and rule"),
    ("state_too_large", "after_change", "the snapshot is over max_bytes"),
    ("state_conflict", "after_change", "the snapshot was written from an older revision"),
    ("patch_conflict", "after_change", "the patch was made on an older revision; detail has the current one"),
    ("surface_not_found", "never", "no such open surface of this instance"),
    ("artifact_invalid", "after_change", "the artifact breaks a rule; detail has path and rule"),
    ("artifact_quota_exceeded", "after_change", "the MiniApp's artifact quota is used up"),
    ("message_invalid", "after_change", "the message breaks the protocol; detail has path and rule"),
    ("message_too_large", "after_change", "the message is over its size cap"),
    ("rate_limited", "same", "too much at once; try again later"),
    ("storage_full", "same", "the store cannot be written; nothing was accepted"),
    ("interaction_not_found", "never", "no such interaction of this owner"),
    ("interaction_already_final", "never", "the first answer stands"),
    ("interaction_expired", "never", "the interaction's expires_at has passed"),
    ("interaction_invalid", "after_change", "the request or the answer breaks a rule; detail has path and rule"),
    ("presentation_denied", "after_change", "policy forbids this presentation"),
    ("unauthorized", "after_change", "token, link or conversation does not allow it"),
    ("protocol_unsupported", "after_change", "no common protocol version"),
    ("runtime_stopping", "same", "the Runtime is going down; the same request may be sent to the next one"),
    ("not_found", "never", "no such object"),
    ("conflict", "after_change", "the object changed meanwhile; detail has its state"),
    ("internal_error", "same", "a fault of the Runtime; nothing was changed, the log has the story"),
    ("worker_unresponsive", "same", "the worker did not read or answer in time"),
    ("store_newer", "after_change", "the store was written by a newer version"),
    ("store_damaged", "after_change", "the store cannot be read; its bytes are kept"),
    ("store_locked", "same", "another Runtime has this home open"),
    ("port_unusable", "after_change", "the loopback port is taken; another one, or 0, can be chosen"),
    ("home_unusable", "after_change", "the home directory cannot be used; the message says why"),
    ("file_unusable", "after_change", "a file that was named cannot be made there; the message says why"),
    ("config_invalid", "after_change", "config.toml has faults; the message names the line"),
    ("usage", "after_change", "the command line is not understood"),
    ("no_runtime", "after_change", "no Runtime is running for this home"),
)

CODES: dict[str, Code] = {code: Code(code, retry, meaning) for code, retry, meaning in _TABLE}


class LineUpError(Exception):
    """An operating error: a registered code, one sentence, an optional detail (JSON-compatible)."""

    def __init__(self, code: str, message: str, *, detail: object = None) -> None:
        assert code in CODES, f"unregistered error code {code!r}"
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail

    @property
    def retry(self) -> Retry:
        return CODES[self.code].retry

    def as_dict(self) -> dict[str, object]:
        """``{code, message, detail?}``, the form on every link."""
        body: dict[str, object] = {"code": self.code, "message": self.message}
        if self.detail is not None:
            body["detail"] = self.detail
        return body

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
