"""A clock that stands still until a test moves it."""

from __future__ import annotations

START_WALL_MS = 1_796_000_000_000  # 2026-11-30, a fixed moment so that every run sees the same times


class StubClock:
    """The two clocks of the Runtime, in milliseconds: ``wall_ms`` (UTC) and ``steady_ms``."""

    def __init__(self, wall_ms: int = START_WALL_MS) -> None:
        self.wall_ms = wall_ms
        self.steady_ms = 1_000

    def jump_wall(self, seconds: float) -> None:
        """The wall clock is set forward or back; nothing has waited. Deadlines keep to it, timeouts do not."""
        self.wall_ms += round(seconds * 1000)

    def pass_ms(self, ms: int) -> None:
        """Time passes on both. ``StubRuntime.advance`` does that and settles what falls due on the way."""
        self.wall_ms += ms
        self.steady_ms += ms
