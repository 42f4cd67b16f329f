"""Makes ``processes.support`` and ``hostile`` importable, and shares one Runtime per isolation level."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS = str(HERE.parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

from hostile.support.stage import P99_S_MAX, Stage, agent_on, costs, started  # noqa: E402 - after the path is known
from processes.support.runtime import Runtime  # noqa: E402

BUNDLES = ("prowler", "caller", "breaker", "snoop", "hungry", "brood", "wire", "costly", "sharer", "bystander")


_made: dict[str, Runtime] = {}
_open = contextlib.ExitStack()


def runtime_at(level: str) -> Runtime:
    """Starts a Runtime at a level when the first test asks for it."""
    if level not in _made:
        _made[level] = _open.enter_context(started(level, *BUNDLES))
    return _made[level]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of this folder each Runtime ends cleanly, and leaves nothing."""
    yield
    if nextitem is None or HERE not in nextitem.path.parents:
        _made.clear()
        _open.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each attack has cost the others; on a machine with nothing else to do all are below the bound."""
    if costs:
        bound = round(P99_S_MAX * 1000)
        terminalreporter.section(f"p99 of another worker's calls beside each attack, in ms (to be below {bound})")
        for name, beside, calm, growth in costs:
            without = "" if calm is None else f"   {calm * 1000:.1f} without any attack: the machine is busy"
            terminalreporter.write_line(f"{beside * 1000:7.1f}   {growth / 2**20:5.1f} MiB more   {name}{without}")


@pytest.fixture(params=("S3", "S2"))
async def on_confined(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """At each level that confines."""
    async with agent_on(runtime_at(request.param), _name(request)) as stage:
        yield stage


@pytest.fixture
async def on_sandboxed(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """At the default level."""
    async with agent_on(runtime_at("S3"), _name(request)) as stage:
        yield stage


def _name(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
