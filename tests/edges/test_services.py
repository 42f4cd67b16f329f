"""A service that cannot be started just now is started later, like one that has ended."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from typing import Any

import pytest

from lineup_supervisor.edges import services
from lineup_supervisor.edges.spawner import Exit, Spawner


class Log:
    def info(self, *_: Any, **__: Any) -> None: ...
    def warning(self, *_: Any, **__: Any) -> None: ...


@pytest.mark.parametrize("lacking", ["pipe2", "add_reader"])
async def test_a_start_that_lacks_something_is_tried_again(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = Spawner()
    ends: list[Exit] = []
    argv = (shutil.which("sleep") or "sleep", "60")
    service = services.Service("s", argv, dict, spawner=spawner, log=Log(), on_exit=ends.append)

    def refused(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os if lacking == "pipe2" else spawner.loop, lacking, refused)
        service.start()
        assert service.pid is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert [end.reason for end in ends] == ["start_failed"]
    async with asyncio.timeout(5):
        while service.pid is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await service.stop(1.0)
    assert len(ends) == 1
