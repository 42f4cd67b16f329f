"""Makes ``processes.support`` and ``hostile`` importable, and shares one Runtime per module and isolation level."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

TESTS = str(Path(__file__).resolve().parent.parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

from hostile.support.stage import Stage, agent_on, started  # noqa: E402 - after the path is known
from processes.support.runtime import Runtime  # noqa: E402


@pytest.fixture(scope="module", params=("S3", "S2"))
def confined(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """A Runtime at each confining level, with the bundles that the module names in ``BUNDLES_NEEDED``."""
    with started(request.param, *request.module.BUNDLES_NEEDED) as made:
        yield made


@pytest.fixture(scope="module")
def sandboxed(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """The same at the default level alone."""
    with started("S3", *request.module.BUNDLES_NEEDED) as made:
        yield made


@pytest.fixture
async def on_confined(request: pytest.FixtureRequest, confined: Runtime) -> AsyncIterator[Stage]:
    async with agent_on(confined, _name(request)) as stage:
        yield stage


@pytest.fixture
async def on_sandboxed(request: pytest.FixtureRequest, sandboxed: Runtime) -> AsyncIterator[Stage]:
    async with agent_on(sandboxed, _name(request)) as stage:
        yield stage


def _name(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
