"""The probe: the level follows from what a worker could do, and every failure has a cause and a fix in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lineup_protocol.errors import LineUpError
from lineup_supervisor.edges import probe, sandbox, sandbox_policy, seccomp


def stub(folder: Path, stderr: str, code: int = 1) -> str:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\necho '{stderr}' >&2\ntouch {folder}/was-called\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_this_machine_holds_s3(tmp_path: Path) -> None:
    report = probe.probe_isolation(tmp_path / "run", tmp_path / "data")
    assert report.level == "S3", report.why_not
    assert all(layer.ok for layer in report.layers)
    assert report.why_not == ""
    assert all(said.startswith("denied") for said in report.attempts["S3"].values())
    assert list((tmp_path / "run").iterdir()) == []
    assert list((tmp_path / "data").iterdir()) == []


def test_s2_holds_but_for_its_published_gap(tmp_path: Path) -> None:
    broken = stub(tmp_path, "bwrap: nothing works")
    report = probe.probe_isolation(tmp_path / "run", tmp_path / "data", allow_s2=True, bwrap=broken)
    assert report.level == "S2", report.why_not
    open_ones = {name for name, said in report.attempts["S2"].items() if not said.startswith("denied")}
    assert open_ones == probe.GAPS["S2"]


@pytest.mark.parametrize(
    ("stderr", "cause", "fix"),
    [
        ("bwrap: setting up uid map: Permission denied", "AppArmor", "apparmor_restrict_unprivileged_userns=0"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor", "apparmor"),
        ("bwrap: Can'\"'\"'t mount proc on /newroot/proc: Operation not permitted", "/proc", "systempaths=unconfined"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "namespaces", "seccomp=unconfined"),
        ("bwrap: Unknown option --disable-userns", "too old", "0.8"),
        ("bwrap: something unheard of", "something unheard of", "lineup doctor"),
    ],
)
def test_a_failing_bubblewrap_names_cause_and_fix_and_nothing_runs_bare(
    tmp_path: Path, stderr: str, cause: str, fix: str
) -> None:
    broken = stub(tmp_path, stderr)
    report = probe.probe_isolation(tmp_path / "run", tmp_path / "data", bwrap=broken)
    assert (tmp_path / "was-called").exists()
    assert report.level == "none", "never less than what was asked for"
    assert set(report.attempts) == {"S3"}
    assert report.attempts["S3"] == {}, "no probe ran anywhere"
    failed = [layer for layer in report.layers if not layer.ok]
    assert len(failed) == 1
    assert cause in failed[0].cause
    assert fix in failed[0].fix
    assert cause in report.why_not


def test_the_first_bwrap_on_the_path_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stub(tmp_path, "bwrap: setting up uid map: Permission denied")
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.find_bwrap.cache_clear()
    try:
        assert sandbox.find_bwrap() == broken
        report = probe.probe_isolation(tmp_path / "run", tmp_path / "data")
        assert report.level == "none", "a broken machine's own is not replaced behind the operator's back"
    finally:
        sandbox.find_bwrap.cache_clear()


def test_user_namespaces_switched_off_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probe, "_sysctl", lambda name: "0" if name == "user/max_user_namespaces" else "")
    report = probe.probe_isolation(tmp_path / "run", tmp_path / "data", bwrap=stub(tmp_path, "bwrap: No space left"))
    assert "switched off" in report.why_not
    assert "user.max_user_namespaces" in report.why_not


def test_a_level_that_lets_one_attempt_through_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bubblewrap that isolates nothing: it drops its options and runs the command bare."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        "#!/usr/bin/env python3\n"
        "import os, sys\n"
        "arguments, environment = sys.argv[1:], {}\n"
        "at = arguments.index('--')\n"
        "for i, word in enumerate(arguments[:at]):\n"
        "    if word == '--setenv': environment[arguments[i + 1]] = arguments[i + 2]\n"
        "environment['LINEUP_BUNDLE'] = environment['TMPDIR'] = '/tmp'\n"
        f"paths = [{os.path.dirname(sandbox.python_layout().sdk)!r}, {sandbox.python_layout().site!r}]\n"
        "code = [word.replace('/lineup', paths[0]).replace('/site', paths[1]) for word in arguments[at + 1:]]\n"
        "probe = environment['LINEUP_PROBE']\n"
        "environment['LINEUP_PROBE'] = probe.replace('/lineup/lineup_sdk', paths[0] + '/lineup_sdk')\n"
        "os.execve(code[0], code, environment)\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox, "has_landlock", lambda: False)
    report = probe.probe_isolation(tmp_path / "run", tmp_path / "data", bwrap=str(fake))
    assert report.level == "none"
    assert "read_canary" in report.why_not
    assert report.attempts["S3"]["tcp4"].startswith("denied"), "the filter still holds; the files do not"


def test_without_libseccomp_no_confined_level_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> object:
        raise LineUpError("isolation_insufficient", "libseccomp is missing; install it", detail={"layer": "seccomp"})

    monkeypatch.setattr(seccomp, "_binding", missing)
    seccomp.compile_filters.cache_clear()
    try:
        report = probe.probe_isolation(tmp_path / "run", tmp_path / "data", allow_s2=True)
    finally:
        seccomp.compile_filters.cache_clear()
    assert report.level == "none"
    assert "libseccomp is missing" in report.why_not


@pytest.mark.parametrize(
    ("level", "minimum", "satisfied"),
    [
        ("S3", "S3", True),
        ("S3", "S1", True),
        ("S2", "S3", False),
        ("S1", "S2", False),
        ("none", "S1", False),
        ("", "", False),
    ],
)
def test_levels_are_ordered(level: str, minimum: str, satisfied: bool) -> None:
    assert sandbox_policy.level_satisfies(level, minimum) is satisfied


def test_limits_are_held_within_floor_and_ceiling() -> None:
    made = sandbox_policy.WorkerLimits.from_mapping(
        {"memory_bytes": 1, "processes": -5, "open_files": 10**9, "tmp_bytes": True, "file_bytes": "1", "other": 3}
    )
    assert made.memory_bytes == 48 * sandbox_policy.MIB
    assert made.processes == 0
    assert made.open_files == sandbox_policy.CEILINGS.open_files
    assert made.tmp_bytes == sandbox_policy.WorkerLimits().tmp_bytes
    assert made.file_bytes == sandbox_policy.WorkerLimits().file_bytes


def test_many_processes_have_fewer_files_each() -> None:
    """What a person's programs share is taken by descriptors, and it is the whole tree that has them."""
    made = sandbox_policy.WorkerLimits.from_mapping
    assert made({"open_files": 1_024, "processes": 7}).open_files == 1_024
    assert made({"open_files": 1_024, "processes": 31}).open_files == 256
    assert made({"open_files": 1_024, "processes": 256}).open_files == 32
    assert made({"processes": 16}).open_files == 128


def test_the_policy_says_nothing_twice() -> None:
    allowed = (*sandbox_policy.ALLOWED, *sandbox_policy.ALLOWED_S3_ONLY)
    assert len(set(allowed)) == len(allowed)
    assert not set(allowed) & set(sandbox_policy.DENIED)
    assert len(set(sandbox_policy.DENIED)) == len(sandbox_policy.DENIED)
    assert not {"socket", "socketpair", "clone", "clone3", "ioctl", "prctl"} & set(allowed), "these have argument rules"
