"""cgroup scopes: the files that are written, and what the kernel's counters are read as."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from lineup_supervisor.edges.cgroup import Cgroups, Scope
from lineup_supervisor.edges.sandbox_policy import MIB, WorkerLimits

FILES = ("cgroup.procs", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.kill")


class FakeScope(Scope):
    """A directory with the files of a group, as the kernel makes them."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        for name in FILES:
            (path / name).write_text("")
        super().__init__(path)

    def said(self, name: str) -> str:
        return (self.path / name).read_text()


def test_limits_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    scope = FakeScope(tmp_path / "g")
    scope.limit(WorkerLimits(memory_bytes=100 * MIB, tmp_bytes=MIB, threads=10, processes=2, cpu_share=0.5))
    assert scope.said("memory.max") == str(101 * MIB)
    assert scope.said("pids.max") == "12"
    assert scope.said("cpu.max") == "50000 100000"
    assert scope.said("memory.swap.max") == "0"
    scope.add(4711)
    assert scope.said("cgroup.procs") == "4711"
    scope.close()
    assert scope.said("cgroup.kill") == "1"


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("memory.events", "low 0\noom 1\noom_kill 2\n", "memory_bytes"),
        ("memory.events", "low 0\noom 1\noom_kill 0\n", None),
        ("pids.events", "max 3\n", "processes and threads"),
        ("pids.events", "garbage", None),
    ],
)
def test_the_exceeded_limit_is_named(tmp_path: Path, file: str, text: str, named: str | None) -> None:
    scope = FakeScope(tmp_path / "g")
    (scope.path / file).write_text(text)
    assert scope.exceeded() == named


def test_taking_a_subtree_moves_us_into_a_leaf(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    taken = Cgroups.take(tmp_path)
    assert taken is not None
    assert (tmp_path / "supervisor" / "cgroup.procs").read_text() == str(os.getpid())
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert taken.scope("x", WorkerLimits()) is None, "no group files appear by themselves: rlimits stand alone"
    assert not (tmp_path / "worker-x").exists()


def test_a_subtree_without_the_controllers_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    assert Cgroups.take(tmp_path) is None
    assert not (tmp_path / "supervisor").exists()


def test_a_real_group_ends_its_whole_tree() -> None:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    root = next((Path(line.split()[4]) for line in mounts if " - cgroup2 " in line), None)
    if root is None or not os.access(root / "cgroup.procs", os.W_OK):
        pytest.skip("no writable cgroup v2 hierarchy here")
    path = root / f"lineup-test-{os.getpid()}"
    path.mkdir()
    scope = Scope(path)
    try:
        with subprocess.Popen(["sleep", "60"]) as process:
            scope.add(process.pid)
            assert str(process.pid) in (path / "cgroup.procs").read_text().split()
            scope.close()
            assert process.wait(5) == -9
    finally:
        deadline = time.monotonic() + 5
        while path.exists() and time.monotonic() < deadline:
            scope.close()
    assert not path.exists()
