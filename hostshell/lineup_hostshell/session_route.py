"""``POST /api/session``: a launch key for a session token. Owns what counts as such a request.

Only a body of type ``application/json`` is looked at: that is what no form, beacon or image of another site can send
without being asked first, and nobody is ever answered when they ask.
"""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lineup_hostshell.workspace_auth import LaunchKeys, SessionTokens
from lineup_protocol.codec import decode_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import to_rfc3339

BODY_BYTES_MAX = 4_096

_log = logging.getLogger("lineup.hostshell.session")


class SessionRoute:
    def __init__(self, launch_keys: LaunchKeys, sessions: SessionTokens) -> None:
        self._launch_keys = launch_keys
        self._sessions = sessions

    def routes(self) -> list[BaseRoute]:
        return [Route("/api/session", self._exchange, methods=["POST"])]

    async def _exchange(self, request: Request) -> Response:
        if request.headers.getlist("content-type") not in (["application/json"], ["application/json; charset=utf-8"]):
            return _refusal(415, "message_invalid", "the body must be application/json")
        try:
            body = decode_json(await _body(request), bytes_max=BODY_BYTES_MAX)
        except LineUpError as error:
            return _refusal(413 if error.code == "message_too_large" else 400, error.code, error.message)
        launch = body.get("launch") if isinstance(body, dict) and set(body) == {"launch"} else None
        if not isinstance(launch, str):
            return _refusal(400, "message_invalid", '/: must be {"launch": "<key>"}')
        if not self._launch_keys.redeem(launch):
            _log.warning("a launch key was refused")
            return _refusal(
                401, "unauthorized", "this link was used before or is too old; `lineup open` makes a new one"
            )
        token, expires_s = self._sessions.issue()
        _log.info("a session was opened")
        return JSONResponse({"token": token, "expires_at": to_rfc3339(expires_s * 1000)})


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise LineUpError("message_too_large", f"the body is over {BODY_BYTES_MAX} bytes")
    return body


def _refusal(status: int, code: str, message: str) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status)
