"""Fixtures for the tests of a MiniApp. Loaded in every run of pytest, so nothing of the Runtime is imported before use.

The bundle is that of the marker ``@pytest.mark.lineup_bundle("folder")``, else the ini option ``lineup_bundle``, else
the nearest folder with a ``miniapp.json`` at or above the test's own, or just below one of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lineup_testkit.clock import StubClock
    from lineup_testkit.stub import StubRuntime

MANIFEST_NAME = "miniapp.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("lineup_bundle", "folder of the MiniApp that the fixture stub_runtime runs", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lineup_bundle(folder, *others): the MiniApp that the fixture stub_runtime runs")


@pytest.fixture
def stub_clock() -> StubClock:
    """The clock of ``stub_runtime``: stands still until the test moves it."""
    from lineup_testkit.clock import StubClock

    return StubClock()


@pytest.fixture
def stub_runtime(request: pytest.FixtureRequest, stub_clock: StubClock) -> Iterator[StubRuntime]:
    """A ``StubRuntime`` of the test's bundle; it starts at the first ``await`` on it and ends with the test."""
    from lineup_testkit.stub import StubRuntime

    folder, *others = _bundles(request)
    runtime = StubRuntime.from_bundle(folder, others=others, clock=stub_clock)
    yield runtime
    runtime.close()


def _bundles(request: pytest.FixtureRequest) -> list[Path]:
    marker = request.node.get_closest_marker("lineup_bundle")
    if marker is not None:
        return [request.path.parent / folder for folder in marker.args]
    configured = str(request.config.getini("lineup_bundle"))
    if configured:
        return [request.config.rootpath / configured]
    for place in (request.path.parent, *request.path.parent.parents):
        if (place / MANIFEST_NAME).is_file():
            return [place]
        below = sorted(place.glob(f"*/{MANIFEST_NAME}"))
        if len(below) == 1:
            return [below[0].parent]
        if place == request.config.rootpath:
            break
    raise pytest.UsageError(
        f"{request.node.nodeid}: no bundle found; mark the test with @pytest.mark.lineup_bundle('folder') "
        "or set lineup_bundle in the pytest configuration"
    )
