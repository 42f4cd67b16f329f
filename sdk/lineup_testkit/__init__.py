"""For the tests of MiniApps: the Runtime's real core with in-process workers, no daemon and no sockets.

See ``StubRuntime``; ``pytest_plugin`` gives the fixtures ``stub_runtime`` and ``stub_clock``.
"""

from lineup_testkit.calls import CallNotCompleted, StubCall
from lineup_testkit.clock import StubClock
from lineup_testkit.stub import StubRuntime

__all__ = ["CallNotCompleted", "StubCall", "StubClock", "StubRuntime"]
