"""The calls of one agent that wait for their result, and the handle that its author holds. No I/O."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from lineup_agent.errors import AgentLinkError, CallTimeout, MessageRefused
from lineup_agent.model import Progress, ToolResult
from lineup_protocol.errors import CODES

PROGRESS_REPORTS_KEPT = 256  # of one call, for an iterator that is behind; older ones are of no use then

OnProgress = Callable[[Progress], Awaitable[None] | None]
Cancel = Callable[[str, str | None], Awaitable[None]]

# A refusal with one of these leaves no record of the call behind, so it is not the call's result.
_NO_RECORD = {"call_id_conflict", "message_invalid", "message_too_large"}
_log = logging.getLogger("lineup.agent")


class CallHandle:
    """One started call: await ``result()``; iterate ``progress()`` before or beside it; ``cancel()`` asks to end."""

    def __init__(self, call_id: str, revision: str, on_progress: OnProgress | None, cancel: Cancel) -> None:
        self.call_id = call_id
        self.revision = revision
        self._on_progress = on_progress
        self._cancel = cancel
        self._done: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._done.add_done_callback(self._wake)
        self._accepted = asyncio.Event()
        self._reports: deque[Progress] = deque(maxlen=PROGRESS_REPORTS_KEPT)
        self._news = asyncio.Event()
        self._callbacks: set[asyncio.Future[None]] = set()

    async def accepted(self) -> None:
        """Return once the Runtime has committed the call: from then on it survives every crash, ours included.

        Raises:
            MessageRefused: the call was not accepted and left no record (a ``rejected`` one has a result instead).
            LinkClosed, TakenOver, LinkRefused: as ``result``.
        """
        await self._accepted.wait()
        if self._done.done():
            self._done.result()

    async def result(self, timeout: float | None = None) -> ToolResult:  # noqa: ASYNC109
        """The call's one terminal state, whatever it is. May be awaited again.

        Raises:
            CallTimeout: ``timeout`` seconds are over; the call goes on.
            MessageRefused: the call was not accepted and left no record; ``call_not_found`` if the Runtime has no
                record of it any more (its home was restored from an older backup): what became of it is not known.
            LinkClosed, TakenOver, LinkRefused: no result can come on this link any more.
        """
        done, _ = await asyncio.wait({self._done}, timeout=timeout)
        if not done:
            assert timeout is not None
            raise CallTimeout(self.call_id, timeout)
        return self._done.result()

    async def progress(self) -> AsyncIterator[Progress]:
        """Reports as they come; ends when the call does."""
        while True:
            while self._reports:
                yield self._reports.popleft()
            if self._done.done():
                return
            self._news.clear()
            await self._news.wait()

    async def cancel(self, reason: str | None = None) -> None:
        """Ask for the call's end; what came of it is its result. Raises MessageRefused if it is final already."""
        await self._cancel(self.call_id, reason)

    @property
    def is_accepted(self) -> bool:
        return self._accepted.is_set()

    def confirm(self) -> None:
        self._accepted.set()

    def settle(self, result: ToolResult) -> None:
        if not self._done.done():
            self._done.set_result(result)

    def fail(self, error: AgentLinkError) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def report(self, progress: Progress) -> None:
        self._reports.append(progress)
        self._news.set()
        if self._on_progress is None:
            return
        try:
            answer = self._on_progress(progress)
        except Exception:
            _log.exception("on_progress of call %s failed", self.call_id)
            return
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(answer)
            self._callbacks.add(task)
            task.add_done_callback(self._callback_done)

    def _callback_done(self, task: asyncio.Future[None]) -> None:
        self._callbacks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("on_progress of call %s failed", self.call_id, exc_info=task.exception())

    def _wake(self, done: asyncio.Future[ToolResult]) -> None:
        if not done.cancelled():
            done.exception()  # somebody may never ask; that is no fault worth a warning
        self._accepted.set()
        self._news.set()


class OpenCalls:
    """All handles without a result, by call_id. Several handles may wait for one call; each gets the one result."""

    def __init__(self) -> None:
        self._handles: dict[str, list[CallHandle]] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, handle: CallHandle) -> None:
        self._handles.setdefault(handle.call_id, []).append(handle)

    def settle(self, result: ToolResult) -> None:
        """Pass on a result; one that nobody waits for (any more) is dropped: the Runtime keeps the record."""
        for handle in self._handles.pop(result.call_id, ()):
            handle.settle(result)

    def report(self, progress: Progress) -> None:
        for handle in self._handles.get(progress.call_id, ()):
            handle.report(progress)

    def receipt(self, handle: CallHandle, payload: dict[str, Any]) -> None:
        """What the Runtime said to this handle's message. An accepted call's result comes by itself."""
        if payload.get("accepted"):
            handle.confirm()
            record = payload.get("detail")
            if isinstance(record, dict):  # the same call was made before; if it is over, its result may not come again
                self.known(record)
            return
        code, message, detail = payload.get("code", ""), payload.get("message", ""), payload.get("detail")
        if code in _NO_RECORD or (code in CODES and CODES[code].retry == "same"):
            self._drop(handle)
            handle.fail(MessageRefused(code, message, detail))
            return
        error = {"code": code, "message": message} | ({} if detail is None else {"detail": detail})
        self.settle(ToolResult(handle.call_id, "rejected", error=error))

    def known(self, record: dict[str, Any]) -> None:
        """What the Runtime's record of a call says: its result, or that it is still to come."""
        result = ToolResult.from_record(record)
        if result is not None:
            self.settle(result)

    def accepted(self) -> list[str]:
        """The ids of those that the Runtime has taken, and has to bring to an end."""
        return list({handle.call_id: None for handle in self._all() if handle.is_accepted})

    def lost(self, call_id: str, error: AgentLinkError) -> None:
        """The Runtime has no record of this call, though it had taken it: its result will not come."""
        for handle in list(self._handles.get(call_id, ())):
            if handle.is_accepted:
                self._drop(handle)
                handle.fail(error)

    def fail_all(self, error: AgentLinkError) -> None:
        for handle in self._all():
            handle.fail(error)
        self._handles.clear()

    def _drop(self, handle: CallHandle) -> None:
        handles = self._handles.get(handle.call_id, [])
        if handle in handles:
            handles.remove(handle)
        if not handles:
            self._handles.pop(handle.call_id, None)

    def _all(self) -> Iterator[CallHandle]:
        for handles in self._handles.values():
            yield from handles
