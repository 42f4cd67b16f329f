"""One daemon with the bundle ``probe`` for all scenarios of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.support.stages import BUNDLE
from processes.support.runtime import Runtime, runtime


@pytest.fixture(scope="module")
def daemon() -> Iterator[Runtime]:
    with runtime() as made:
        made.start()
        made.add(BUNDLE)
        yield made
        assert made.stop() == 0, made.errors()
        made.assert_clean()
