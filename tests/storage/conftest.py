"""Makes the other test packages importable, and hands out LMDB's calls to the kernel where they can be reached."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import pytest

from storage.file_calls import FileCalls


@pytest.fixture
def file_calls() -> Iterator[FileCalls]:
    """LMDB's writes and syncs, recorded or made to fail."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("LMDB's calls are intercepted on Linux with x86-64 or aarch64 only")
    with FileCalls().installed() as calls:
        yield calls
