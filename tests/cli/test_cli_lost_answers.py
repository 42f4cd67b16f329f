"""An action that was sent and not answered: it may be committed, so nobody is told that nothing happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineup_hostshell.cli import link
from lineup_hostshell.runtime_link import RuntimeClient
from lineup_protocol.errors import LineUpError

WAIT_S_MAX = 30
ANSWER = ("answer", "q-1", '{"approved": true}')


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "my-app"
    folder.mkdir()
    (folder / "miniapp.json").write_text("{}")
    return folder


def ends_over(runtime: Any, name: str) -> None:
    """The Runtime takes this action and ends before it answers, as after a crash between commit and answer."""

    def end(args: dict[str, Any]) -> dict[str, Any]:
        runtime.falls_silent = True
        runtime.stopping.set()
        return {}

    runtime.actions[name] = end


def hangs_over(runtime: Any, name: str) -> None:
    def hang(args: dict[str, Any]) -> dict[str, Any]:
        runtime.falls_silent = True
        return {}

    runtime.actions[name] = hang


def start(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lineup_hostshell.cli.main", *words],
        env={**environment, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_call_is_made_once_though_the_runtime_ended_before_it_answered(home, runtime, environment):
    ends_over(runtime, "call.start")
    process = start(environment, "call", "demo.work", '{"n": 1}')
    assert process.stderr is not None
    assert "Waiting for the next one" in process.stderr.readline()
    runtime.__exit__()
    (sent,) = runtime.args_of("call.start")
    with type(runtime)(home) as second:
        second.actions["call.start"] = lambda args: {
            "receipt": {"accepted": True},
            "record": {"call_id": args["call_id"], "status": "running"},
        }
        second.records = [{"status": "completed", "result": {"late": True}}]
        out, _ = process.communicate(timeout=WAIT_S_MAX)
    assert process.returncode == 0
    assert json.loads(out) == {"late": True}
    assert second.args_of("call.start") == [sent]
    assert second.action_ids == runtime.action_ids


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("call.cancel", ("cancel", "k-1"), ("whether the call k-1 was asked to end", "`lineup story k-1`")),
        ("interaction.answer", ANSWER, ("whether the answer to q-1 was taken", "`lineup story q-1`")),
        ("apps.add", ("apps", "add", "BUNDLE"), ("whether my-app was installed", "`lineup apps`")),
        ("apps.remove", ("apps", "remove", "x"), ("whether x was removed", "`lineup apps`")),
        ("apps.enable", ("apps", "enable", "x"), ("whether x was enabled", "`lineup apps`")),
        ("apps.disable", ("apps", "disable", "x"), ("whether x was disabled", "`lineup apps`")),
        ("call.start", ("call", "x.do", "--call-id", "k-1"), ("the call k-1 was made", "with --call-id k-1 makes")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", [ends_over, hangs_over])
def test_what_may_have_been_done_is_named(
    run,
    runtime,
    bundle,
    monkeypatch,
    name: str,
    words: tuple[str, ...],
    said: tuple[str, ...],
    how: Callable[..., None],
):
    monkeypatch.setattr(link, "RUNTIME_BACK_WITHIN_S", 0.05)
    monkeypatch.setattr(link, "RETRY_S", 0.05)
    monkeypatch.setattr(link, "open_link", lambda home: RuntimeClient(home / "run", role="cli", answer_s_max=0.3))
    how(runtime, name)
    result = run(*(str(bundle) if word == "BUNDLE" else word for word in words))
    assert result.exit_code == 7
    assert result.stdout == ""
    assert all(part in result.stderr for part in said)
    first = "`lineup up`" if how is ends_over else "`lineup logs`"
    assert first in result.stderr
    assert len(runtime.args_of(name)) == 1


def test_a_refusal_of_the_next_runtime_is_its_answer(home, run, runtime, monkeypatch):
    monkeypatch.setattr(link, "RETRY_S", 0.01)
    ends_over(runtime, "apps.disable")
    second = type(runtime)(home)

    def refuse(args: dict[str, Any]) -> None:
        raise LineUpError("app_not_found", "no MiniApp x")

    second.actions["apps.disable"] = refuse

    def follow() -> None:
        runtime._thread.join(WAIT_S_MAX)
        second.__enter__()

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        result = run("apps", "disable", "x")
    finally:
        follower.join(WAIT_S_MAX)
        second.__exit__()
    assert result.exit_code == 1
    assert "app_not_found: no MiniApp x" in result.stderr
    assert second.action_ids == runtime.action_ids


def test_who_does_not_wait_is_told_the_id(runtime, environment):
    ends_over(runtime, "call.start")
    process = start(environment, "call", "demo.work")
    assert process.stderr is not None
    assert "Waiting for the next one" in process.stderr.readline()
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=WAIT_S_MAX)
    call_id = runtime.args_of("call.start")[0]["call_id"]
    assert process.returncode == 130
    assert f"it is not known whether the call {call_id} was made; `lineup story {call_id}" in said
    assert said.count("\n") == 1


def test_what_is_asked_of_the_process_itself_is_never_asked_of_the_next_one(home, runtime):
    ends_over(runtime, "runtime.backup")
    with pytest.raises(Exception, match="no Runtime is running"):
        link.act(home, "runtime.backup", {"path": "/nowhere"})
    assert len(runtime.action_ids) == 1
