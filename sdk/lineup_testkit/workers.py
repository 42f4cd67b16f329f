"""In-process workers: the SDK's own runner over a channel in memory, in the place of a sandboxed process."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from typing import Any

from lineup_sdk.app import MiniApp
from lineup_sdk.channel import ChannelClosed, memory_pair
from lineup_sdk.runner import Exit, Runner


class StubWorker:
    """One incarnation. ``on_frame(worker, frame)`` and ``on_exit(worker, reason, detail)`` are told in the loop."""

    def __init__(
        self,
        instance_id: str,
        incarnation: int,
        app_scope: str,
        load: Callable[[str], MiniApp],
        *,
        on_frame: Callable[[StubWorker, Any], None],
        on_exit: Callable[[StubWorker, str, str], None],
    ) -> None:
        self.instance_id = instance_id
        self.incarnation = incarnation
        self.app_scope = app_scope
        self._channel, self._runtime_side = memory_pair()
        self.runner = Runner(self._channel, load)
        self._on_frame = on_frame
        self._on_exit = on_exit
        self._ended = False
        self._asked_to_stop = False
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._run()), loop.create_task(self._hear()))

    @property
    def key(self) -> tuple[str, int]:
        return (self.instance_id, self.incarnation)

    def send(self, messages: tuple[dict[str, Any], ...]) -> None:
        try:
            for message in messages:
                self._runtime_side.send(message)
        except ChannelClosed:
            pass  # it is ending; what is durable is sent again to the next one

    def stop(self, reason: str, grace_ms: int) -> None:
        """What the Runtime asks for: in order within the grace, or at once."""
        self._asked_to_stop = True
        if grace_ms == 0:
            self.kill("stopped", reason)
        else:
            self.send(({"type": "worker.stop", "body": {"reason": reason, "grace_ms": grace_ms}},))

    def kill(self, reason: str, detail: str = "", *, report: bool = True) -> None:
        """Like SIGKILL: nothing that its code does from now on gets anywhere."""
        if self._ended:
            return
        self._channel.close()
        self._runtime_side.close()
        for task in self._tasks:
            task.cancel()
        self._end(reason, detail, report=report)

    def _end(self, reason: str, detail: str, *, report: bool = True) -> None:
        if not self._ended:
            self._ended = True
            if report:
                self._on_exit(self, reason, detail)

    async def _run(self) -> None:
        try:
            ended = await self.runner.run()
        except asyncio.CancelledError:
            raise
        except Exception as bug:
            traceback.print_exc()
            ended = Exit("exited", f"{type(bug).__name__}: {bug}")
        await self._let_the_last_words_arrive()
        if ended.reason not in ("stopped", "runtime_gone"):
            print(f"worker of {self.app_scope}: {ended.reason}: {ended.message}", file=sys.stderr)
        self._end("stopped" if self._asked_to_stop else "exited", ended.message)

    async def _let_the_last_words_arrive(self) -> None:
        try:
            await self._tasks[1]
        except asyncio.CancelledError:
            if not self._tasks[1].cancelled():
                raise

    async def _hear(self) -> None:
        try:
            while True:
                for message in await self._runtime_side.receive():
                    self._on_frame(self, message)
        except ChannelClosed:
            return
