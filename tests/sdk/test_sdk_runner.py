"""The runner over a channel in memory: what becomes of a handler's end, of messages, of a stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import welcome  # type: ignore[import-not-found]
from lineup_sdk import (
    SDK,
    CapabilityResult,
    Confirm,
    Interaction,
    MiniApp,
    Notice,
    RequestRefused,
    SurfaceEvent,
    TextMessage,
    ToolCall,
    ToolError,
)
