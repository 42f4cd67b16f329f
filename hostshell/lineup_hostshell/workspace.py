"""The workspace put together: its routes on the main port, its link to pages, and the surface port beside it.

Owns the order of making and ending these parts, and the one thing that needs several of them: showing a surface.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from starlette.routing import BaseRoute, WebSocketRoute

from lineup_hostshell.artifact_routes import ArtifactRoutes
from lineup_hostshell.host_session import Welcome, new_action_id
from lineup_hostshell.run_files import read_private, write_private
from lineup_hostshell.server import LOOPBACK, AccessLog, LoopbackServer, bind_loopback
from lineup_hostshell.session_route import SessionRoute
from lineup_hostshell.static_files import STATIC, StaticFiles, page_csp
from lineup_hostshell.surface_server import NONCE_MARK, Load, SurfaceFiles, SurfaceLoads, surface_app
from lineup_hostshell.workspace_auth import LaunchKeys, SessionTokens, session_key
from lineup_hostshell.workspace_link import Answer, TabLimits, WorkspaceLinks
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.limits import PAGES_SHOWN_MAX

SURFACE_PORT_NAME = "surface.port"
RETELL_S, RETELL_S_MAX = 0.5, 30.0  # between attempts to tell the Runtime what is shown

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_log = logging.getLogger("lineup.hostshell.workspace")


class Runtime(Protocol):
    """What the workspace needs of ``RuntimeLink``."""

    async def begin(self, type_: str, body: dict[str, Any]) -> Answer: ...

    async def query(self, name: str, args: dict[str, Any] | None = None) -> Any: ...


class Workspace:
    """One per process. ``routes`` are for the main port; ``delta`` and ``runtime_lost`` are what the Runtime says."""

    def __init__(
        self,
        run_dir: Path,
        runtime: Runtime,
        welcome: Welcome,
        agent_token: str,
        port: int,
        *,
        static: Path = STATIC,
        limits: TabLimits | None = None,
    ) -> None:
        self._run_dir = run_dir
        listener = bind_loopback(_wanted_surface_port(run_dir))
        surface_port = int(listener.getsockname()[1])
        with contextlib.suppress(OSError):  # only so that the next process takes the same port again
            write_private(run_dir / SURFACE_PORT_NAME, b"%d\n" % surface_port)
        self.surface_origin = f"http://{LOOPBACK}:{surface_port}"
        pages = StaticFiles(page_csp(port, self.surface_origin), static)
        _say_what_is_missing(pages)
        self.launch_keys = LaunchKeys(run_dir, welcome.boot_id)
        self.launch_keys.sweep()
        self.sessions = SessionTokens(session_key(run_dir))
        self.surfaces = ShownSurfaces(runtime, run_dir.parent / "apps", self.surface_origin)
        hello = {"boot_id": welcome.boot_id, "version": welcome.version, "surface_origin": self.surface_origin}
        self.links = WorkspaceLinks(runtime, self.sessions, self.surfaces, hello, limits)
        self.routes: list[BaseRoute] = [
            WebSocketRoute("/workspace", self.links),
            *SessionRoute(self.launch_keys, self.sessions).routes(),
            *ArtifactRoutes(runtime.query, agent_token, self.sessions).routes(),
            *pages.routes(),
        ]
        page_origins = (f"http://{LOOPBACK}:{port}", f"http://localhost:{port}")
        files = SurfaceFiles(self.surfaces.loads, pages.bridge, surface_port, page_origins)
        self._server = LoopbackServer(AccessLog(surface_app(files, surface_port), path=_without_load_id), listener)

    async def start(self) -> asyncio.Task[None]:
        """Serve surfaces; returns the task that ends when that server does."""
        self.surfaces.tell()  # a process before this one may have shown some
        return await self._server.start()

    async def stop(self) -> None:
        self.surfaces.tell_no_more()
        await self._server.stop()


class ShownSurfaces:
    """Turns an open surface into a load of it: what it is, is the Runtime's word; where its files are, too.

    The Runtime is told which surfaces are before people, as a MiniApp that nobody looks at may have to give its process
    to others.
    """

    def __init__(self, runtime: Runtime, apps: Path, origin: str) -> None:
        self.loads = SurfaceLoads(self.tell)
        self._runtime = runtime
        self._query = runtime.query
        self._apps = apps
        self._origin = origin
        self._told: list[str] | None = None  # None: nothing for certain
        self._telling: asyncio.Task[None] | None = None

    def tell(self) -> None:
        """Tell the Runtime what is shown now. What changes while it is told is told afterwards, all at once."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    def tell_no_more(self) -> None:
        """This process ends, and with it every page: the next one tells."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        """Until the Runtime knows. A full store refuses it, for one: who is looked at would then lose their process, or
        who is left would keep it."""
        wait_s = RETELL_S
        while (shown := self.loads.shown()) != self._told:
            args = {"surface_ids": shown[:PAGES_SHOWN_MAX]}
            body = {"action_id": new_action_id("pages.shown"), "name": "pages.shown", "args": args}
            self._told = None  # what becomes of this one is not known before it is answered
            try:
                answer = await (await self._runtime.begin("host.action", body))
            except LineUpError as error:
                answer = {"accepted": False, "code": error.code, "message": error.message}
            if answer["accepted"]:
                self._told, wait_s = shown, RETELL_S
                continue
            why = (answer["code"], answer["message"], wait_s)
            _log.info("the Runtime does not know which surfaces are shown: %s: %s; again in %g s", *why)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETELL_S_MAX)

    async def load(self, tab: object, args: dict[str, Any], on_torn: Callable[[dict[str, Any]], None]) -> Any:
        """``surface.load {surface_id}``. Raises LineUpError."""
        surface_id = args.get("surface_id")
        if not is_id(surface_id):
            raise LineUpError("message_invalid", "/args/surface_id: must be an id")
        surface = await self._query("surface", {"surface_id": surface_id})
        folder = self._folder(surface["digest"])

        def torn(load: Load) -> None:
            on_torn({"load_id": load.load_id, "surface_id": load.surface_id})

        load = self.loads.open(tab, surface["surface_id"], folder, surface["entry"], torn)
        answer = {"load_id": load.load_id, "nonce": load.nonce, "url": self._origin + load.path}
        return answer | {name: surface[name] for name in ("surface_id", "title", "revision", "state")}

    def unload(self, tab: object, args: dict[str, Any]) -> Any:
        """``surface.unload {load_id}``: that tab shows it no more."""
        load = self.loads.find(str(args.get("load_id")))
        if load is not None and load.owner is tab:
            self.loads.close(load)
        return {}

    def tab_ended(self, tab: object) -> None:
        self.loads.close_all_of(tab)

    def surface_closed(self, surface_id: str) -> None:
        self.loads.close_surface(surface_id)

    def _folder(self, digest: str) -> Path:
        """The bundle's own copy in this home, wherever the home was when the bundle came into it."""
        if not _DIGEST.fullmatch(digest):
            raise LineUpError("internal_error", "the surface's bundle has no digest")
        return self._apps / digest


def _wanted_surface_port(run_dir: Path) -> int:
    """The port of the process before this one: pages that are open may frame that origin only."""
    with contextlib.suppress(LineUpError, OSError, ValueError):
        port = int(read_private(run_dir / SURFACE_PORT_NAME))
        if 1024 <= port <= 65535:
            return port
    return 0


def _say_what_is_missing(pages: StaticFiles) -> None:
    if not pages.is_built:
        _log.warning("the workspace's pages are not built; / says how to build them")
    elif pages.bridge is None or NONCE_MARK not in pages.bridge:
        _log.error("the bridge for surfaces is not built; MiniApps with pages will not work")


def _without_load_id(path: str) -> str:
    """A live load's id is all that somebody needs to read its files."""
    return re.sub(r"^/s/[^/]*", "/s/-", path)
