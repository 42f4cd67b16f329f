"""Makes ``checkers`` and ``processes.support`` importable, and shares one Runtime per module where a test allows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = str(Path(__file__).resolve().parent.parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

from processes.support.runtime import LAB, Runtime, runtime  # noqa: E402 - after the path is known


@pytest.fixture(scope="module")
def shared() -> Iterator[Runtime]:
    """One Runtime with the lab for all tests of a module; it ends cleanly, and leaves nothing."""
    with runtime() as made:
        made.start()
        made.add(LAB)
        yield made
        assert made.stop() == 0, made.errors()
        made.assert_clean()


@pytest.fixture
def own() -> Iterator[Runtime]:
    """A Runtime of this test alone, not started yet."""
    with runtime() as made:
        yield made


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Ids that no other test of a shared Runtime uses."""
    name = request.node.name.replace("[", "-").replace("]", "")
    return lambda what: f"{what}-{name}"[:120]
