"""What hostshell and the operator ask of the daemon itself, not of the core.

Actions ``host.listening`` (hostshell says where it serves), ``runtime.stop``, ``runtime.backup``; ``apps.add``, whose
folder is read here before the core decides; queries ``doctor``, and ``status``, whose answer gets what only the daemon
knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import psutil

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import effects as fx
from lineup_supervisor.edges.bundles import keep_bundle
from lineup_supervisor.edges.host_link import Request, Session, action_event
from lineup_supervisor.edges.upkeep import told

if TYPE_CHECKING:
    from lineup_supervisor.daemon import Daemon

PATH_BYTES_MAX = 4_096
OPERATOR_ACTIONS = frozenset(("runtime.stop", "runtime.backup", "apps.add"))  # hostshell speaks for a person only


class OwnRequests:
    """See the module. Use from the loop's thread only."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, request: Request, session: Session, body: dict[str, Any], reply_to: str) -> bool:
        """True if the request is answered here, now or later; False if the core must."""
        if request.kind == "action" and request.name in OPERATOR_ACTIONS and session.role != "cli":
            self._refuse(reply_to, LineUpError("unauthorized", f"{request.name} is for the operator"))
            return True
        match (request.kind, request.name):
            case ("action", "host.listening"):
                self._answer(reply_to, lambda: self._listening(session, body["args"]))
            case ("action", "runtime.stop"):
                self._answer(reply_to, dict)
                self._daemon.loop.call_soon(self._daemon.stop, "runtime.stop")
            case ("action", "runtime.backup"):
                self._later(reply_to, self._backup(body["args"], reply_to))
            case ("action", "apps.add"):
                self._later(reply_to, self._add(session, body, reply_to))
            case ("query", "doctor"):
                self._answer(reply_to, lambda: self._daemon.isolation.report)
            case _ if request.name.startswith(("host.", "runtime.")):
                self._refuse(
                    reply_to, LineUpError("message_invalid", f"/name: no {request.kind} {request.name!r} here")
                )
            case _:
                return False
        return True

    def completed(self, effect: fx.ReplyHost) -> fx.ReplyHost:
        """The core's answer to ``status``, with what only the daemon knows; any other one as it is. Never raises."""
        request = self._daemon.host.request_of(effect.reply_to)
        if request is None or not effect.accepted or (request.kind, request.name) != ("query", "status"):
            return effect
        known: dict[str, Any] = {}
        with told("saying what only the daemon knows"):
            known = self.status()
        return msgspec.structs.replace(effect, detail={**effect.detail, **known})

    def status(self) -> dict[str, Any]:
        """Without ``memory_bytes`` or ``store`` while that cannot be looked at."""
        daemon = self._daemon
        looked: dict[str, Any] = {}
        with contextlib.suppress(OSError, psutil.Error):
            looked["memory_bytes"] = psutil.Process().memory_info().rss
        if (store := daemon.store.stat()) is not None:
            sizes = {"bytes": store.used_bytes, "disk_bytes": store.disk_bytes, "map_bytes": store.map_bytes}
            looked["store"] = sizes
        return {
            "pid": os.getpid(),
            "boot_id": daemon.boot_id,
            **looked,
            "workers_memory_bytes": daemon.worker_link.memory_bytes if daemon.worker_link is not None else 0,
            "services": [
                {"name": service.name, "pid": service.pid, "restarts": service.restarts} for service in daemon.services
            ],
            **daemon.urls,
        }

    def _listening(self, session: Session, args: dict[str, Any]) -> dict[str, Any]:
        if session.role != "hostshell":
            raise LineUpError("unauthorized", "only hostshell says where it listens")
        urls = {name: value for name, value in args.items() if name.endswith("_url") and isinstance(value, str)}
        if "agent_url" not in urls or "workspace_url" not in urls:
            raise LineUpError("message_invalid", "/args: agent_url and workspace_url are required")
        self._daemon.on_listening(urls, urlsplit(urls["workspace_url"]).port)
        return {}

    async def _backup(self, args: dict[str, Any], reply_to: str) -> None:
        destination = _absolute_path(args)
        size = await self._daemon.backups.make(destination)
        self._reply(reply_to, {"path": str(destination), "bytes": size})

    async def _add(self, session: Session, body: dict[str, Any], reply_to: str) -> None:
        """The folder is read and copied; the core decides about the bundle and answers, a refusal too."""
        found: dict[str, Any]
        try:
            folder = _absolute_path(body["args"])
            found = {"bundle": await self._daemon.in_thread(keep_bundle, folder, self._daemon.home.apps)}
        except LineUpError as error:
            found = {"fault": error.as_dict()}
        event = action_event(self._daemon.new_event_id(), reply_to, session, body)
        self._daemon.submit(msgspec.structs.replace(event, **found))

    def _later(self, reply_to: str, work: Any) -> None:
        task = asyncio.ensure_future(self._guarded(reply_to, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, reply_to: str, work: Any) -> None:
        try:
            await work
        except LineUpError as error:
            self._refuse(reply_to, error)
        except Exception as error:
            self._daemon.log.error("a request failed", reply_to=reply_to, error=repr(error))
            self._refuse(reply_to, LineUpError("internal_error", "a fault of the Runtime; the log has the story"))

    def _answer(self, reply_to: str, answer: Any) -> None:
        try:
            self._reply(reply_to, answer())
        except LineUpError as error:
            self._refuse(reply_to, error)

    def _reply(self, reply_to: str, detail: Any) -> None:
        self._daemon.host.reply(fx.ReplyHost(reply_to=reply_to, accepted=True, detail=detail))

    def _refuse(self, reply_to: str, error: LineUpError) -> None:
        self._daemon.host.reply(
            fx.ReplyHost(reply_to=reply_to, accepted=False, code=error.code, message=error.message, detail=error.detail)
        )


def _absolute_path(args: dict[str, Any]) -> Path:
    path = args.get("path")
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or len(path.encode()) > PATH_BYTES_MAX:
        raise LineUpError("message_invalid", "/args/path: must be an absolute path")
    return Path(path)
