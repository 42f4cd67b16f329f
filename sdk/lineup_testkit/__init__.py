"""For the tests of MiniApps: the Runtime's real core with in-process workers, no daemon and no sockets.

See ``StubRuntime``; ``pytest_plugin`` gives the fixtures ``stub_runtime`` and ``stub_clock``. Names are imported when
they are first used, because pytest loads this package in every run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lineup_testkit.calls import CallNotCompleted, StubCall
    from lineup_testkit.clock import StubClock
    from lineup_testkit.stub import StubRuntime

__all__ = ["CallNotCompleted", "StubCall", "StubClock", "StubRuntime"]

_HOMES = {"CallNotCompleted": "calls", "StubCall": "calls", "StubClock": "clock", "StubRuntime": "stub"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
