"""The workspace's WebSocket: pages in, actions and questions up, snapshots and deltas down.

This file owns the sockets of pages: who may open one, what a person may ask, how much may wait for a slow page. It
decides nothing: the Runtime answers, and takes whatever comes through here for a person's word. One subscription serves
every page; each begins with a snapshot of its own, and deltas that arrive before it wait.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from lineup_hostshell.agent_link import POLICY_VIOLATION, SERVICE_RESTART, TRY_AGAIN_LATER, UNSUPPORTED_DATA
from lineup_hostshell.edge_protocols import WebSocketConnection
from lineup_hostshell.security import Refusal, refuse, values
from lineup_hostshell.workspace_auth import SessionTokens
from lineup_protocol.codec import decode_json
from lineup_protocol.errors import LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.limits import INCOMING_DEPTH_MAX, KIB, MIB, NODES_MAX

# Close codes of our own (4000 to 4999 are free for that).
TOKEN_REFUSED, AUTH_LATE = 4401, 4408

TABS_MAX = 64
STRANGERS_MAX = 32  # sockets that have not shown a token yet; they must not take the places of pages
AUTH_FRAME_BYTES_MAX = 4 * KIB
REQUEST_BYTES_MAX = 4 * MIB  # a surface's submit with a 2 MiB picture in base64 fits
FRAME_BYTES_MAX = (
    12 * MIB
)  # as much as the workspace lets a MiniApp's page say in characters: what is too much is answered
REQUESTS_PER_TAB_MAX = 128  # waiting for their answers; beyond it the page's socket is not read
CHEAP_S = 0.002  # to read a frame; what costs more is paid by waiting, as it costs everybody much more further on
PAID = 20

ACTIONS = frozenset(
    (
        "person.text",
        "session.continue",
        "grant.revoke",
        "call.cancel",
    )
)
ACTION_FAMILIES = ("conversation.", "interaction.", "instance.", "surface.", "notification.")
QUERIES = frozenset(
    (
        "agents",
        "apps",
        "artifact",
        "artifacts",
        "audit.page",
        "call",
        "calls",
        "grants",
        "instance",
        "interaction",
        "interactions",
        "notifications",
        "operation",
        "session",
        "snapshot",
        "status",
        "story",
        "surface",
        "timeline",
        "tools",
    )
)

# How the workspace's page writes a request: what a MiniApp's page said is between the two.
_REQUEST_BEGINS = ('{"t":"action",', '{"t":"query",')
_REQUEST_ENDS = re.compile(r',"id":"([A-Za-z0-9._:-]{1,128})"\}\Z')
_FULL = Refusal(503, "rate_limited", "too many pages are connected already", ((b"retry-after", b"5"),))
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("lineup.hostshell.workspace_link")

Detail = Callable[[Any], Any]
Answer = asyncio.Future[dict[str, Any]]


class Runtime(Protocol):
    """What this file needs of ``RuntimeLink``."""

    async def begin(self, type_: str, body: dict[str, Any]) -> Answer: ...


class Surfaces(Protocol):
    """What this file needs of whoever serves surfaces; raises LineUpError."""

    async def load(self, tab: object, args: dict[str, Any], on_torn: Callable[[dict[str, Any]], None]) -> Any: ...

    def unload(self, tab: object, args: dict[str, Any]) -> Any: ...

    def tab_ended(self, tab: object) -> None: ...

    def surface_closed(self, surface_id: str) -> None: ...


@dataclass(frozen=True)
class TabLimits:
    """What one page may cost. The defaults are the product's; tests tighten them."""

    auth_s_max: float = 5.0
    """seconds from the upgrade to a good token"""
    unread_bytes_max: int = 24 * MIB
    """bytes that wait for a page that does not read: one largest snapshot and as much again as deltas"""
    held_bytes_max: int = 8 * MIB
    """bytes of deltas that wait for a page's first snapshot"""


class _Phase(Enum):
    STRANGER = "stranger"  # no token yet
    WAITING = "waiting"  # for its snapshot; deltas are held
    LIVE = "live"
    ENDING = "ending"  # its close frame is on the way; nothing is sent any more


@dataclass(eq=False)
class _Tab:
    """One open WebSocket of a page."""

    name: str
    socket: WebSocketConnection
    host: str
    nonce: str
    phase: _Phase = _Phase.STRANGER
    held: list[tuple[int, bytes]] = field(default_factory=list)
    held_bytes: int = 0
    snapshot_from: int = 0  # the first revision whose snapshot will do
    auth_timer: asyncio.TimerHandle | None = None
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REQUESTS_PER_TAB_MAX))
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class WorkspaceLinks:
    """All pages of this process: the ASGI endpoint of ``/workspace``; ``delta`` for what the Runtime says."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: SessionTokens,
        surfaces: Surfaces,
        hello: dict[str, Any],
        limits: TabLimits | None = None,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._surfaces = surfaces
        self._hello = {"t": "hello", **hello}
        self._limits = limits or TabLimits()
        self._tabs: set[_Tab] = set()
        self._revision: int | None = None  # of the last delta
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._tabs)

    # one page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        strangers = sum(tab.phase is _Phase.STRANGER for tab in self._tabs)
        if strangers >= STRANGERS_MAX or len(self._tabs) - strangers >= TABS_MAX:
            await refuse(_FULL, scope, send)
            return
        host = values(scope, b"host")[0].decode("latin-1").strip().lower()
        tab = _Tab(f"tab-{next(self._numbers)}", scope["lineup.socket"], host, secrets.token_urlsafe(24))
        self._tabs.add(tab)
        started = time.monotonic()
        try:
            tab.socket.limit_message(AUTH_FRAME_BYTES_MAX)
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            await self._serve(tab, receive)
        finally:
            self._tabs.discard(tab)
            if tab.auth_timer is not None:
                tab.auth_timer.cancel()
            for task in list(tab.tasks):
                task.cancel()
            self._surfaces.tab_ended(tab)
            _log.info("%s has ended after %.1f s", tab.name, time.monotonic() - started)

    async def _serve(self, tab: _Tab, receive: Receive) -> None:
        self._write(tab, _encode({"t": "challenge", "nonce": tab.nonce}))
        late = (AUTH_LATE, f"no token within {self._limits.auth_s_max:g} s")
        tab.auth_timer = asyncio.get_running_loop().call_later(self._limits.auth_s_max, tab.socket.close_with, *late)
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                tab.socket.close_with(UNSUPPORTED_DATA, "the workspace takes JSON text frames only")
                continue
            frame: object
            began = time.thread_time()
            try:
                frame = decode_json(
                    text, bytes_max=REQUEST_BYTES_MAX, nodes_max=NODES_MAX, depth_max=INCOMING_DEPTH_MAX
                )
            except LineUpError as error:
                frame = error
            cost_s = time.thread_time() - began
            if isinstance(frame, LineUpError):
                await self._refuse_unread(tab, text, frame)
            elif not isinstance(frame, dict):
                tab.socket.close_with(POLICY_VIOLATION, "a frame is an object")
            elif tab.phase is _Phase.STRANGER:
                await self._authenticate(tab, frame)
            else:
                await self._take(tab, frame)
            if cost_s > CHEAP_S:
                await asyncio.sleep(PAID * cost_s)

    async def _refuse_unread(self, tab: _Tab, text: str, error: LineUpError) -> None:
        """What a MiniApp's page put into a request is no reason to end the workspace's, which would send it again and
        again: it is answered, if its form is that of the workspace."""
        end = _REQUEST_ENDS.search(text, max(0, len(text) - 150)) if text.startswith(_REQUEST_BEGINS) else None
        if end is None or tab.phase is _Phase.STRANGER:
            tab.socket.close_with(POLICY_VIOLATION, f"not a frame: {error.message}")
        else:
            await tab.room.acquire()
            self._refuse(tab, end[1], error)

    async def _authenticate(self, tab: _Tab, frame: dict[str, Any]) -> None:
        assert tab.auth_timer is not None
        tab.auth_timer.cancel()
        if not self._is_good(tab, frame):
            _log.warning("%s showed no good token", tab.name)
            tab.socket.close_with(TOKEN_REFUSED, "the token is not good here; `lineup open` makes a new link")
            return
        tab.socket.limit_message(FRAME_BYTES_MAX)
        _log.info("%s is open", tab.name)
        self._write(tab, _encode(self._hello))
        tab.phase = _Phase.WAITING
        await self._send_snapshot(tab)

    def _is_good(self, tab: _Tab, frame: dict[str, Any]) -> bool:
        match frame:
            case {"t": "auth", "token": str(token), **rest} if not rest:
                return self._sessions.check(token)
            case {"t": "auth", "id": str(id_), "proof": str(proof), **rest} if not rest:
                return self._sessions.check_proof(id_, proof, tab.host, tab.nonce)
            case _:
                return False

    # what a page asks

    async def _take(self, tab: _Tab, frame: dict[str, Any]) -> None:
        id_, kind, name, args = frame.get("id"), frame.get("t"), frame.get("name"), frame.get("args", {})
        if not is_id(id_) or kind not in ("action", "query"):
            tab.socket.close_with(POLICY_VIOLATION, "a frame is an action or a query with an id")
            return
        assert isinstance(id_, str)
        await tab.room.acquire()
        try:
            if not isinstance(name, str) or not isinstance(args, dict):
                raise LineUpError("message_invalid", "/: name must be a string and args an object")
            if kind == "action":
                await self._act(tab, id_, name, args, frame.get("action_id"))
            else:
                await self._ask(tab, id_, name, args)
        except LineUpError as error:
            self._refuse(tab, id_, error)

    async def _act(self, tab: _Tab, id_: str, name: str, args: dict[str, Any], action_id: Any) -> None:
        if not is_id(action_id):
            raise LineUpError("message_invalid", "/action_id: must be an id")
        if name not in ACTIONS and not name.startswith(ACTION_FAMILIES):
            raise LineUpError("unauthorized", "this is no action of a person; use the command line")
        body = {"action_id": action_id, "name": name, "args": args}
        self._relay(tab, id_, await self._runtime.begin("host.action", body), of_action=True)

    async def _ask(self, tab: _Tab, id_: str, name: str, args: dict[str, Any]) -> None:
        if name == "surface.load":
            task = asyncio.create_task(self._load(tab, id_, args))
            tab.tasks.add(task)
            task.add_done_callback(tab.tasks.discard)
        elif name == "surface.unload":
            self._answer(tab, id_, {"accepted": True, "detail": self._surfaces.unload(tab, args)})
        elif name in QUERIES:
            answer = await self._runtime.begin("host.query", {"name": name, "args": args})
            self._relay(tab, id_, answer, _without_content if name == "artifact" else None)
        else:
            raise LineUpError("unauthorized", "this is no question of a person; use the command line")

    async def _load(self, tab: _Tab, id_: str, args: dict[str, Any]) -> None:
        def torn(load: dict[str, Any]) -> None:
            self._write(tab, _encode({"t": "torn", **load}))

        try:
            result = {"accepted": True, "detail": await self._surfaces.load(tab, args, torn)}
        except Exception as error:
            result = _refusal(error)
        self._answer(tab, id_, result)

    def _relay(
        self, tab: _Tab, id_: str, answer: Answer, shown: Detail | None = None, *, of_action: bool = False
    ) -> None:
        """Answer the page when the Runtime has answered; without a task per question.

        An action without an answer may be done all the same. It is not for us to call it refused: the page is let go,
        and asks again for the same one when it is back.
        """

        def answered(done: Answer) -> None:
            if done.cancelled():
                return
            try:
                result = {name: value for name, value in done.result().items() if name != "re"}
                if shown is not None and result["accepted"]:
                    result["detail"] = shown(result["detail"])
            except Exception as error:
                if of_action and isinstance(error, LineUpError) and error.code == "no_runtime":
                    tab.room.release()
                    self._end(tab, "the Runtime has not answered; reconnect and ask again", error.message)
                    return
                result = _refusal(error)
            self._answer(tab, id_, result)

        answer.add_done_callback(answered)

    def _refuse(self, tab: _Tab, id_: str, error: LineUpError) -> None:
        self._answer(tab, id_, _refusal(error))

    def _answer(self, tab: _Tab, id_: str, result: dict[str, Any]) -> None:
        tab.room.release()
        self._write(tab, _encode({"t": "result", "re": id_, **result}))

    # what the Runtime says

    async def _send_snapshot(self, tab: _Tab) -> None:
        """From here to its snapshot a tab's deltas are held; subscribing again is no second subscription."""
        try:
            answer = await self._runtime.begin("host.subscribe", {})
        except Exception as error:
            self._without_snapshot(tab, _refusal(error)["message"])
            return
        answer.add_done_callback(lambda done: self._snapshot_came(tab, done))

    def _snapshot_came(self, tab: _Tab, answer: Answer) -> None:
        if answer.cancelled() or tab not in self._tabs or tab.phase is not _Phase.WAITING:
            return
        try:
            result = answer.result()
            if not result["accepted"]:
                self._without_snapshot(tab, result.get("message", "no reason was given"))
                return
            snapshot = result["detail"]
            if snapshot["revision"] < tab.snapshot_from:
                self._start_anew(tab)
                return
            data = _encode({"t": "snapshot", "snapshot": snapshot})
        except Exception as error:  # else the page would wait for it for ever
            self._without_snapshot(tab, _refusal(error)["message"])
            return
        self._write(tab, data)
        held, tab.held, tab.held_bytes = tab.held, [], 0
        tab.phase = _Phase.LIVE
        for revision, data in held:
            if revision > snapshot["revision"]:
                self._write(tab, data)

    def _without_snapshot(self, tab: _Tab, why: str) -> None:
        self._end(tab, "there is no snapshot just now; reconnect", why)

    def _end(self, tab: _Tab, reason: str, why: str) -> None:
        """The page comes back by itself and starts from a snapshot."""
        if tab.phase is not _Phase.ENDING:
            _log.warning("%s is let go: %s", tab.name, why)
            tab.phase, tab.held = _Phase.ENDING, []
            tab.socket.close_with(TRY_AGAIN_LATER, reason)

    def delta(self, body: dict[str, Any]) -> None:
        """``host.delta``: encoded once, for every page."""
        revision, changes = body["revision"], body.get("changes", [])
        missed = "changes" not in body or (self._revision is not None and revision != self._revision + 1)
        self._revision = revision
        data = _encode({"t": "delta", "revision": revision, "changes": changes})
        for tab in list(self._tabs):
            if missed:
                tab.snapshot_from = revision
            if tab.phase is _Phase.WAITING:
                self._hold(tab, revision, data)
            elif tab.phase is _Phase.LIVE and missed:
                self._start_anew(tab)
            elif tab.phase is _Phase.LIVE:
                self._write(tab, data)
        for change in changes:
            if change["kind"] == "surface" and (change["row"] is None or change["row"]["status"] == "closed"):
                self._surfaces.surface_closed(change["id"])

    def _hold(self, tab: _Tab, revision: int, data: bytes) -> None:
        tab.held.append((revision, data))
        tab.held_bytes += len(data)
        if tab.held_bytes > self._limits.held_bytes_max:
            self._without_snapshot(tab, "too much happened meanwhile")

    def _start_anew(self, tab: _Tab) -> None:
        """A delta was lost on the way, or too large for it: what the page has is no base for the next one."""
        _log.warning("%s starts anew: a delta is missing", tab.name)
        tab.phase = _Phase.WAITING
        task = asyncio.create_task(self._send_snapshot(tab))
        tab.tasks.add(task)
        task.add_done_callback(tab.tasks.discard)

    def runtime_lost(self) -> None:
        """Tell every page; they come back by themselves."""
        for tab in list(self._tabs):
            if tab.phase is not _Phase.STRANGER:
                self._write(tab, _encode({"t": "runtime", "up": False}))
        self.close_all(SERVICE_RESTART, "the Runtime is gone; reconnect when it is back")

    def close_all(self, code: int, reason: str) -> None:
        for tab in list(self._tabs):
            tab.socket.close_with(code, reason)

    def _write(self, tab: _Tab, data: bytes) -> None:
        if tab.phase is _Phase.ENDING:
            return
        if tab.socket.buffered_bytes > self._limits.unread_bytes_max:
            self._end(tab, "this page reads too slowly; reconnect", "it does not read")
            return
        tab.socket.write_texts([data])


def _refusal(error: Exception) -> dict[str, Any]:
    """What a page hears of it; a fault of ours stands in the log."""
    if not isinstance(error, LineUpError):
        _log.error("a page's request failed", exc_info=error)
        error = LineUpError("internal_error", "a fault of this server; its log has the story")
    return {"accepted": False, **error.as_dict()}


def _without_content(artifact: Any) -> Any:
    """Bytes do not travel in JSON; ``GET /artifacts/<id>`` has them."""
    return {name: value for name, value in artifact.items() if name != "content"}
