"""Artifacts over HTTP: their bytes for agents and for the workspace, never as a document of this origin.

Owns the answer's headers. Whose an artifact is, the Runtime decides; the media type was checked against the content
when the artifact was handed in.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lineup_hostshell.headers import NOTHING_CSP
from lineup_hostshell.security import TOKEN_WRONG, bearer
from lineup_hostshell.workspace_auth import SessionTokens
from lineup_protocol.errors import LineUpError

Query = Callable[[str, dict[str, Any]], Awaitable[Any]]

NAME_LENGTH_MAX = 100
_EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
}
_STATUS = {"not_found": 404, "message_invalid": 400, "no_runtime": 503, "runtime_stopping": 503}
_UNSAFE = re.compile(r"[^A-Za-z0-9 ._()-]+")


class ArtifactRoutes:
    """``GET /artifacts/<id>`` with the agents' token or a session token. An agent may name itself: ``?agent_id=``."""

    def __init__(self, query: Query, agent_token: str, sessions: SessionTokens) -> None:
        self._query = query
        self._agent_token = agent_token.encode()
        self._sessions = sessions

    def routes(self) -> list[BaseRoute]:
        return [Route("/artifacts/{artifact_id}", self._answer, methods=["GET"])]

    async def _answer(self, request: Request) -> Response:
        token = bearer(request.scope)
        is_agent = hmac.compare_digest(token, self._agent_token)
        if not is_agent and not self._sessions.check(token.decode("ascii", "replace")):
            headers = {name.decode(): value.decode() for name, value in TOKEN_WRONG.headers}
            return Response(TOKEN_WRONG.body(), TOKEN_WRONG.status, headers, "application/json")
        args = {"artifact_id": request.path_params["artifact_id"]}
        if is_agent and (agent_id := request.query_params.get("agent_id")) is not None:
            args["agent_id"] = agent_id
        try:
            artifact = await self._query("artifact", args)
        except LineUpError as error:
            body = {"error": {"code": error.code, "message": error.message}}
            return JSONResponse(body, _STATUS.get(error.code, 500))
        return Response(artifact["content"], headers=_headers(artifact))


def _headers(artifact: dict[str, Any]) -> dict[str, str]:
    media_type = artifact["media_type"]
    charset = "; charset=utf-8" if media_type.startswith("text/") else ""
    return {
        "content-type": media_type + charset,
        "content-disposition": disposition(artifact["title"], _EXTENSIONS.get(media_type, ".bin")),
        "content-security-policy": f"{NOTHING_CSP}; sandbox",
        "etag": f'"{artifact["sha256"]}"',
    }


def disposition(title: str, extension: str) -> str:
    """``attachment`` under a name made of the title: plain ASCII for old clients, all of it in the second form."""
    name = title[:NAME_LENGTH_MAX].strip(" .") or "artifact"
    if not name.lower().endswith(extension):
        name += extension
    ascii_name = _UNSAFE.sub("_", name)
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
