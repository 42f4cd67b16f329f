"""``AgentLink``: an agent's connection to its Runtime, for as long as the agent lives and whatever happens in between.

This file owns the socket, the reconnects and the waiting. What is sent again, passed on once and acknowledged is
`session`'s; which handle gets which result is `calls`'.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from lineup_agent.calls import CallHandle, OnProgress, OpenCalls
from lineup_agent.discovery import Find, Target, default_home, in_home
from lineup_agent.errors import (
    AgentLinkError,
    LinkClosed,
    LinkRefused,
    MessageRefused,
    NoRuntime,
    TakenOver,
)
from lineup_agent.model import Inventory, Progress, Text, ToolResult
from lineup_agent.session import AgentSession, GapInSequence, Waiting, encode
from lineup_protocol.codec import decode_json
from lineup_protocol.errors import CODES
from lineup_protocol.handshake import CLOSE_TAKEN_OVER
from lineup_protocol.limits import MIB

FRAME_BYTES_MAX = 4 * MIB  # of one frame from the Runtime: a result at its largest, with room for its envelope
HANDSHAKE_S_MAX = 10.0
RETRY_S_FIRST, RETRY_S_MAX = 0.05, 5.0
NEW_INVENTORY_S_MAX = 5.0
ANSWER_LOOK_S = 0.2  # how often one that waits for an answer looks whether its connection is still the same
_FOREIGN = frozenset({401, 403, 421})  # HTTP answers that another attempt with the same token will not change

_log = logging.getLogger("lineup.agent")


class _Connect(connect):
    """Never follows a redirect: the token is for the address that it was meant for."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class AgentLink:
    """Use as ``async with AgentLink(url, token, agent_id) as link``; entering waits until the Runtime has welcomed it.

    Everything survives a lost connection: messages are sent again with the same id until the Runtime has taken them,
    and what the Runtime sends is passed on once and acknowledged.

    ``take_texts`` False acknowledges people's texts unread, for an agent that only calls tools.
    """

    def __init__(
        self, url: str, token: str, agent_id: str, *, open_timeout: float = 30.0, take_texts: bool = True
    ) -> None:
        self._setup(lambda: Target(url, token), agent_id, open_timeout, take_texts, fixed=True)

    @classmethod
    def from_home(
        cls, home: Path | str | None = None, *, agent_id: str, open_timeout: float = 30.0, take_texts: bool = True
    ) -> Self:
        """A link to the Runtime of a home (default: ``$LINEUP_HOME``, else the user data directory), found again after
        each of its restarts."""
        link = cls.__new__(cls)
        find = in_home(Path(home) if home is not None else default_home())
        link._setup(find, agent_id, open_timeout, take_texts, fixed=False)
        return link

    def _setup(self, find: Find, agent_id: str, open_timeout: float, take_texts: bool, *, fixed: bool) -> None:
        self.agent_id = agent_id
        self.boot_id = ""
        self._find = find
        self._fixed = fixed
        self._open_timeout = open_timeout
        self._take_texts = take_texts
        self._session = AgentSession(agent_id)
        self._calls = OpenCalls()
        self._inventory: Inventory | None = None
        self._inventory_news = asyncio.Event()
        self._texts: deque[Text] = deque()
        self._text_news = asyncio.Event()
        self._futures: set[asyncio.Future[Any]] = set()
        self._records: dict[str, list[asyncio.Future[dict[str, Any]]]] = {}
        self._socket: ClientConnection | None = None
        self._connection = 0
        self._opened = asyncio.Event()
        self._ended: AgentLinkError | None = None
        self._problem: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None

    # --- opening and closing ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"agent-link-{self.agent_id}")
        try:
            async with asyncio.timeout(self._open_timeout):
                await self._opened.wait()
        except TimeoutError:
            problem = self._problem
            await self.close()
            raise NoRuntime(f"no Runtime within {self._open_timeout:g} s: {problem or 'no answer'}") from problem
        except BaseException:
            await self.close()
            raise
        if self._ended is not None:
            ended = self._ended
            await self.close()
            raise ended
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Acknowledge what was taken over, and close. Whoever still waits gets LinkClosed."""
        await self._flush_ack()
        self._end(LinkClosed("the link was closed"))
        for task in self._beside:
            task.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def connected(self) -> bool:
        """True while the connection is up; calls may be made at any time, they wait for it."""
        return self._opened.is_set() and self._ended is None

    # --- what an agent does -------------------------------------------------------------------------------------------

    @property
    def inventory(self) -> Inventory:
        """The newest inventory that the Runtime has sent."""
        if self._inventory is None:
            raise self._ended or LinkClosed("the link has not been opened")
        return self._inventory

    def tools(self) -> tuple[dict[str, Any], ...]:
        """The descriptors of all tools that may be called just now."""
        return tuple(self.inventory.tools.values())

    async def call(
        self,
        tool_id: str,
        input: dict[str, Any] | None = None,
        *,
        conversation_id: str,
        call_id: str | None = None,
        revision: str | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ToolResult:
        """Call a tool and wait for its one result, whatever its status; ``unwrap()`` turns one that is not
        ``completed`` into an exception.

        Without ``revision`` the newest inventory counts; if it turns out stale and no ``call_id`` was given, the call
        is made once more under the new one. Cancelling this coroutine stops the waiting, not the call.

        Raises:
            CallTimeout: after ``timeout`` seconds; the call goes on.
            MessageRefused: the call was not accepted and left no record (``call_id_conflict``, ``rate_limited``, …).
            LinkClosed, TakenOver, LinkRefused: no result can come on this link any more.
        """
        loop = asyncio.get_running_loop()
        ends_at = None if timeout is None else loop.time() + timeout
        handle = await self.start_call(
            tool_id, input, conversation_id=conversation_id, call_id=call_id, revision=revision, on_progress=on_progress
        )
        result = await handle.result(timeout)
        stale = result.status == "rejected" and result.error_code == "inventory_revision_mismatch"
        if not stale or revision is not None or call_id is not None:
            return result
        if not await self._inventory_after(handle.revision):
            return result
        handle = await self.start_call(tool_id, input, conversation_id=conversation_id, on_progress=on_progress)
        return await handle.result(None if ends_at is None else max(0.0, ends_at - loop.time()))

    async def start_call(
        self,
        tool_id: str,
        input: dict[str, Any] | None = None,
        *,
        conversation_id: str,
        call_id: str | None = None,
        revision: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> CallHandle:
        """Send a call; the handle has its progress and its result. Nothing is retried under another ``call_id``.

        While the link is up this waits until the call leaves: no more than ``session.UNDER_WAY_MAX`` messages are sent
        before their receipts are here. Cancelling it takes nothing back.
        """
        self._raise_if_ended()
        call_id = call_id or f"c-{secrets.token_hex(10)}"
        revision = revision or self.inventory.revision
        payload = {"call_id": call_id, "tool_id": tool_id, "inventory_revision": revision, "input": input or {}}
        handle = CallHandle(call_id, revision, on_progress, self.cancel)
        frame = self._session.make("tool.call", payload, conversation_id)
        waiting = self._session.expect_receipt(frame, lambda answer: self._call_answered(handle, waiting, answer))
        self._calls.add(handle)
        if self._send_due():
            await waiting.let_go.wait()
        return handle

    def _call_answered(self, handle: CallHandle, waiting: Waiting, answer: dict[str, Any]) -> None:
        self._calls.receipt(handle, answer)
        if answer.get("accepted") and waiting.was_resent and "detail" not in answer:
            # A call that was made before and is over: its result was taken over then, and does not come again.
            self._go_beside(self._look_up([handle.call_id]))

    async def cancel(self, call_id: str, reason: str | None = None) -> None:
        """Ask for a call's end. Raises MessageRefused (``call_already_final``, ``call_not_found``)."""
        await self._say("tool.cancel", {"call_id": call_id} | ({} if reason is None else {"reason": reason}))

    async def get(self, call_id: str) -> dict[str, Any]:
        """The record of one call of this agent. Raises MessageRefused (``call_not_found``)."""
        record: asyncio.Future[dict[str, Any]] = self._future()
        self._records.setdefault(call_id, []).append(record)
        try:
            while not record.done():
                connection = self._connection
                await self._say("tool.get", {"call_id": call_id})
                # The answer itself is not durable: if the connection is lost before it, the question is asked again.
                while not record.done() and connection == self._connection:
                    await asyncio.wait({record}, timeout=ANSWER_LOOK_S)
            return record.result()
        finally:
            waiting = self._records.get(call_id, [])
            if record in waiting:
                waiting.remove(record)
            if not waiting:
                self._records.pop(call_id, None)

    async def send_text(self, conversation_id: str, text: str, *, format: str = "markdown") -> None:
        """Say something in a conversation; returns once the Runtime has it for good. Raises MessageRefused."""
        await self._say("message.text", {"text": text, "format": format}, conversation_id)

    async def messages(self) -> AsyncGenerator[Text, None]:
        """People's texts, each at least once, in order. Asking for the next one acknowledges the one before it; one
        that the loop was left with comes again. Ends when the link is closed."""
        while True:
            while not self._texts:
                if isinstance(self._ended, LinkClosed):
                    return
                self._raise_if_ended()
                self._text_news.clear()
                await self._text_news.wait()
            text = self._texts.popleft()
            asked_for_more = False
            try:
                yield text
                asked_for_more = True
            finally:
                if not asked_for_more and self._session.is_untaken(text.seq):
                    self._texts.appendleft(text)
            self._session.take(text.seq)
            await self._flush_ack()

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _say(self, type_: str, payload: dict[str, Any], conversation_id: str | None = None) -> None:
        """Send a message and wait for its receipt."""
        self._raise_if_ended()
        receipt: asyncio.Future[dict[str, Any]] = self._future()

        def arrived(answer: dict[str, Any]) -> None:
            if not receipt.done():
                receipt.set_result(answer)

        self._session.expect_receipt(self._session.make(type_, payload, conversation_id), arrived)
        self._send_due()
        answer = await receipt
        if not answer.get("accepted"):
            raise MessageRefused(answer.get("code", ""), answer.get("message", ""), answer.get("detail"))

    def _send_due(self) -> bool:
        """Have sent what may be. False without a connection: then the next one sends it."""
        if self._socket is None:
            return False
        if self._session.has_due and (self._sending is None or self._sending.done()):
            self._sending = self._go_beside(self._send_in_order(self._socket))
        return True

    async def _send_in_order(self, socket: ClientConnection) -> None:
        """Beside all else: whoever waits for his message may be cancelled, and who reads must not wait for writes."""
        with contextlib.suppress(ConnectionClosed):  # as below
            while self._socket is socket and (waiting := self._session.next_due()) is not None:
                await socket.send(waiting.data, text=True)

    async def _send(self, socket: ClientConnection, data: bytes) -> None:
        with contextlib.suppress(ConnectionClosed):  # whoever reads from the socket sees it, too, and reconnects
            await socket.send(data, text=True)

    async def _flush_ack(self) -> None:
        if self._socket is not None and (ack := self._session.next_ack()) is not None:
            await self._send(self._socket, encode(ack))

    def _acknowledge(self, seq: int) -> None:
        self._session.take(seq)
        self._go_beside(self._flush_ack())

    def _go_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _look_up(self, call_ids: Iterable[str]) -> None:
        """Ask for the records of calls whose results may not come by themselves; whoever waits gets what they say."""
        for call_id in call_ids:
            while True:
                try:
                    self._calls.known(await self.get(call_id))
                except MessageRefused as refused:
                    if refused.retry == "same":
                        await asyncio.sleep(RETRY_S_MAX)
                        continue
                    self._calls.lost(call_id, refused)
                except AgentLinkError:
                    return  # the end of the link has ended every wait
                break

    # --- the connection -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, again and again, until the link is closed or cannot work."""
        delay_s = RETRY_S_FIRST
        while True:
            before = self._connection
            try:
                await self._one_connection()
            except (LinkRefused, TakenOver) as error:
                self._end(error)
                return
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, NoRuntime, GapInSequence) as problem:
                self._problem = problem
                _log.info("no connection to the Runtime (%s); trying again", problem)
            except Exception as fault:
                _log.exception("the agent link cannot go on")
                self._end(AgentLinkError(f"the link broke on a frame of the Runtime, or has a fault: {fault!r}"))
                return
            finally:
                self._socket = self._sending = None
                self._session.disconnected()
                if self._ended is None:
                    self._opened.clear()
            if self._connection != before:
                delay_s = RETRY_S_FIRST
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(delay_s * 2, RETRY_S_MAX)

    async def _one_connection(self) -> None:
        """From the handshake to the end of one connection; returns or raises what a next attempt may mend."""
        target = self._find()
        headers = {"Authorization": f"Bearer {target.token}"}
        try:
            async with _Connect(
                target.url,
                additional_headers=headers,
                compression=None,
                proxy=None,
                open_timeout=HANDSHAKE_S_MAX,
                close_timeout=1,
                max_size=FRAME_BYTES_MAX,
            ) as socket:
                await self._welcome(socket)
                async for data in socket:
                    self._take_frame(decode_json(data, bytes_max=FRAME_BYTES_MAX))
                    self._send_due()
                    await self._flush_ack()
                raise NoRuntime(f"the Runtime closed the link ({socket.close_code} {socket.close_reason})")
        except InvalidStatus as refused:
            if self._fixed and refused.response.status_code in _FOREIGN:
                status = refused.response.status_code
                raise LinkRefused(f"the Runtime refused the link with HTTP {status}; check URL and token") from None
            raise
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code == CLOSE_TAKEN_OVER:
                raise TakenOver(f"another link of agent {self.agent_id!r} has taken over") from None
            raise

    async def _welcome(self, socket: ClientConnection) -> None:
        """Hello and welcome, then what waits for a receipt, in its old order."""
        hello = self._session.hello()
        await socket.send(encode(hello), text=True)
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            frame = decode_json(await socket.recv(), bytes_max=FRAME_BYTES_MAX)
        payload = frame.get("payload") if isinstance(frame, dict) else None
        if not isinstance(frame, dict) or not isinstance(payload, dict):
            raise LinkRefused("what answers at this address is no Runtime")
        if frame.get("type") != "lineup.v1.welcome":
            if payload.get("code") == "message_invalid" and "acked_seq" in hello["payload"]:
                _log.warning("the Runtime does not know what was acknowledged to it; was it restored from a backup?")
                self._session.forget_sequence()
                raise NoRuntime("hello is repeated without acked_seq")
            code = str(payload.get("code"))
            if code in CODES and CODES[code].retry == "same":
                raise NoRuntime(f"the Runtime cannot take the link just now ({code})")
            raise LinkRefused(f"{code}: {payload.get('message')}")
        before, self.boot_id = self.boot_id, payload["boot_id"]
        self._session.welcomed(payload["acked_seq"])
        self._texts = deque(text for text in self._texts if self._session.is_untaken(text.seq))
        self._connection += 1
        self._socket = socket
        self._send_due()
        if before not in ("", self.boot_id) and (taken := self._calls.accepted()):
            # Another run, and perhaps of a home that was restored: it may know nothing of calls that were taken.
            self._go_beside(self._look_up(taken))

    def _take_frame(self, frame: object) -> None:
        """One frame of the Runtime. Unknown types are of a newer Runtime and are passed over."""
        if not isinstance(frame, dict) or not isinstance(payload := frame.get("payload"), dict):
            raise NoRuntime("the Runtime sent something that is no envelope")
        type_, seq = frame.get("type"), frame.get("seq")
        is_text = type_ == "lineup.v1.message.text" and self._take_texts
        if isinstance(seq, int) and not self._session.arrived(seq, taken=not is_text):
            return
        match type_:
            case "lineup.v1.receipt":
                self._session.receipt(payload)
            case "lineup.v1.tool.result":
                self._calls.settle(
                    ToolResult(
                        payload["call_id"],
                        payload["status"],
                        payload.get("result"),
                        payload.get("error"),
                        payload["at"],
                    )
                )
            case "lineup.v1.tool.progress":
                self._calls.report(
                    Progress(payload["call_id"], float(payload["progress"]), payload.get("message"), payload["at"])
                )
            case "lineup.v1.message.text" if is_text:
                conversation_id = frame.get("conversation_id") or ""
                self._texts.append(Text(conversation_id, payload["text"], payload["at"], seq or 0, self._acknowledge))
                self._text_news.set()
            case "lineup.v1.tool.state":
                for record in self._records.pop(payload["call_id"], ()):
                    if not record.done():
                        record.set_result(payload["record"])
            case "lineup.v1.client.inventory":
                self._take_inventory(payload)
            case "lineup.v1.error":
                _log.warning("the Runtime could not take a frame: %s: %s", payload.get("code"), payload.get("message"))
                self._session.receipt(payload)

    def _take_inventory(self, payload: dict[str, Any]) -> None:
        self._inventory = Inventory(payload["revision"], {tool["id"]: tool for tool in payload["tools"]})
        self._inventory_news.set()
        self._inventory_news = asyncio.Event()
        self._opened.set()

    async def _inventory_after(self, revision: str) -> bool:
        """True once there is another inventory than the one of this revision; False if none comes."""
        try:
            async with asyncio.timeout(NEW_INVENTORY_S_MAX):
                while self.inventory.revision == revision:
                    self._raise_if_ended()
                    await self._inventory_news.wait()
        except TimeoutError:
            return False
        return True

    # --- the end ------------------------------------------------------------------------------------------------------

    def _future(self) -> asyncio.Future[Any]:
        """A future that ends with the link."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _end(self, error: AgentLinkError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._opened.set()
        self._text_news.set()
        self._inventory_news.set()
        self._calls.fail_all(error)
        for future in list(self._futures):
            if not future.done():
                future.set_exception(error)
                future.exception()
