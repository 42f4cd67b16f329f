"""Frames from the Runtime to agents that are not durable: receipts, errors, answers."""

from __future__ import annotations

from typing import Any

from lineup_protocol.errors import LineUpError
from lineup_protocol.times import to_rfc3339
from lineup_supervisor.core.ctx import Ctx


def runtime_frame(ctx: Ctx, type_: str, payload: dict[str, Any], conversation_id: str | None = None) -> dict[str, Any]:
    frame: dict[str, Any] = {
        "type": type_,
        "message_id": ctx.new_id("r"),
        "sent_at": to_rfc3339(ctx.now.wall_ms),
        "payload": payload,
    }
    if conversation_id is not None:
        frame["conversation_id"] = conversation_id
    return frame


def receipt_body(
    reply_to: str,
    accepted: bool,
    *,
    code: str | None = None,
    message: str | None = None,
    detail: Any = None,
) -> dict[str, Any]:
    body: dict[str, Any] = {"reply_to": reply_to, "accepted": accepted}
    if code is not None:
        body["code"] = code
    if message is not None:
        body["message"] = message
    if detail is not None:
        body["detail"] = detail
    return body


def refusal_body(reply_to: str, error: LineUpError) -> dict[str, Any]:
    return receipt_body(reply_to, False, code=error.code, message=error.message, detail=error.detail)


def error_frame(ctx: Ctx, error: LineUpError, reply_to: str | None = None) -> dict[str, Any]:
    payload: dict[str, Any] = {"code": error.code, "message": error.message}
    if reply_to is not None:
        payload["reply_to"] = reply_to
    return runtime_frame(ctx, "lineup.v1.error", payload)
