"""Makes ``processes.support`` and ``hostile`` importable, and shares one Runtime per isolation level."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

TESTS = str(Path(__file__).resolve().parent.parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

from hostile.support.stage import Stage, agent_on, started  # noqa: E402 - after the path is known
from processes.support.runtime import Runtime  # noqa: E402

BUNDLES = ("prowler", "caller", "breaker", "snoop", "hungry", "brood", "wire", "bystander")


@pytest.fixture(scope="session")
def runtime_at() -> Iterator[Callable[[str], Runtime]]:
    """Starts a Runtime at a level when the first test asks for it; each ends cleanly, and leaves nothing."""
    made: dict[str, Runtime] = {}
    with contextlib.ExitStack() as open_:

        def at(level: str) -> Runtime:
            if level not in made:
                made[level] = open_.enter_context(started(level, *BUNDLES))
            return made[level]

        yield at


@pytest.fixture(params=("S3", "S2"))
async def on_confined(request: pytest.FixtureRequest, runtime_at: Callable[[str], Runtime]) -> AsyncIterator[Stage]:
    """At each level that confines."""
    async with agent_on(runtime_at(request.param), _name(request)) as stage:
        yield stage


@pytest.fixture
async def on_sandboxed(request: pytest.FixtureRequest, runtime_at: Callable[[str], Runtime]) -> AsyncIterator[Stage]:
    """At the default level."""
    async with agent_on(runtime_at("S3"), _name(request)) as stage:
        yield stage


def _name(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
