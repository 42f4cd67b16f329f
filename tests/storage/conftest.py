"""Makes the other test packages importable, and hands out a home and LMDB's calls to the kernel where
they can be reached."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineup_supervisor.core.policy import Policy
from storage.file_calls import FileCalls
from storage.homes import open_store
from storage.traffic import Traffic


@pytest.fixture
def file_calls() -> Iterator[FileCalls]:
    """LMDB's writes and syncs, recorded or made to fail."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("LMDB's calls are intercepted on Linux with x86-64 or aarch64 only")
    with FileCalls().installed() as calls:
        yield calls


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A whole home with finished calls."""
    root = tmp_path / "home"
    (root / "data").mkdir(parents=True, mode=0o700)
    os.chmod(root, 0o700)
    store = open_store(root / "data")
    traffic = Traffic(store, Policy())
    traffic.boot()
    traffic.calls(0, 20)
    store.close()
    return root
