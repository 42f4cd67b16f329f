"""Fixtures of the operation tests: the core with the real Pomodoro bundle."""

from __future__ import annotations

import pytest

from operations.focus import Focus


@pytest.fixture
def core() -> Focus:
    return Focus()
