"""Waiting for a condition with a bound: the only way in which these tests wait."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Awaitable, Callable
from typing import Any

POLL_S = 0.01


class NotInTime(AssertionError):
    """A condition did not come true within its bound."""


async def until(what: Callable[[], Any], within_s: float, words: str) -> Any:
    """The first true value of ``what()``."""
    give_up_at = time.monotonic() + within_s
    while not (value := what()):
        if time.monotonic() > give_up_at:
            raise NotInTime(f"not within {within_s:g} s: {words}")
        await asyncio.sleep(POLL_S)
    return value


async def until_async(what: Callable[[], Awaitable[Any]], within_s: float, words: str) -> Any:
    """The first true value of ``await what()``."""
    give_up_at = time.monotonic() + within_s
    while not (value := await what()):
        if time.monotonic() > give_up_at:
            raise NotInTime(f"not within {within_s:g} s: {words}")
        await asyncio.sleep(POLL_S)
    return value


def until_now(what: Callable[[], Any], within_s: float, words: str) -> Any:
    """The same for plain code."""
    give_up_at = time.monotonic() + within_s
    while not (value := what()):
        if time.monotonic() > give_up_at:
            raise NotInTime(f"not within {within_s:g} s: {words}")
        select.select([], [], [], POLL_S)
    return value
