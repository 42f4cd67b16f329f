"""`lineup call`: made once, watched to its end, with the exit code of how it ended; Ctrl-C never harms the call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from lineup_protocol.errors import LineUpError


def accepting(runtime: Any, *records: dict[str, Any]) -> None:
    runtime.actions["call.start"] = lambda args: started(args, "waiting_for_app")
    runtime.records = list(records)


def started(args: dict[str, Any], status: str, **more: Any) -> dict[str, Any]:
    accepted = status != "rejected"
    return {"receipt": {"accepted": accepted}, "record": {"call_id": args["call_id"], "status": status, **more}}


def error(code: str) -> dict[str, str]:
    return {"code": code, "message": f"it is {code}"}


@pytest.mark.parametrize(
    ("record", "code", "words"),
    [
        ({"status": "completed", "result": {"ok": True}}, 0, '"ok": true'),
        (
            {"status": "failed", "error": error("outcome_unknown")},
            3,
            "failed: outcome_unknown: it is outcome_unknown; ",
        ),
        ({"status": "cancelled", "error": error("app_closed")}, 4, "was cancelled: app_closed"),
        ({"status": "expired", "error": error("tool_timeout")}, 5, "was expired: tool_timeout"),
        ({"status": "rejected", "error": error("tool_input_invalid")}, 6, "was rejected: tool_input_invalid"),
        ({"status": "cancelled"}, 4, "was cancelled; `lineup story"),
    ],
    ids=lambda value: value.get("status") if isinstance(value, dict) else None,
)
def test_exit_code_says_how_it_ended(run, runtime, record, code, words):
    accepting(runtime, {"status": "running", "progress": 0.5, "progress_message": "half"}, record)
    result = run("call", "demo.work", '{"n": 1}')
    assert result.exit_code == code
    assert words in result.output
    assert " 50%  half" in result.stderr


def test_what_is_sent(run, runtime):
    accepting(runtime, {"status": "completed", "result": {}})
    assert run("call", "demo.work", '{"n": 1}', "--conversation", "c-9", "--call-id", "mine-1").exit_code == 0
    assert runtime.args_of("call.start") == [
        {"call_id": "mine-1", "tool_id": "demo.work", "input": {"n": 1}, "conversation_id": "c-9"}
    ]
    assert run("call", "demo.work").exit_code == 0
    args = runtime.args_of("call.start")[1]
    assert args["input"] == {}
    assert args["conversation_id"] == "cli"
    assert args["call_id"].startswith("cli-")


def test_a_call_that_is_final_at_once_is_not_watched(run, runtime):
    runtime.actions["call.start"] = lambda args: started(args, "completed", result={"known": True})
    result = run("call", "demo.work")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"known": True}
    assert not runtime.watched.is_set()


def test_a_rejected_call_names_the_place(run, runtime):
    wrong = {"code": "tool_input_invalid", "message": "the input is wrong", "detail": {"path": "/n", "rule": "too big"}}
    runtime.actions["call.start"] = lambda args: started(args, "rejected", error=wrong)
    result = run("call", "demo.work", '{"n": 9}')
    assert result.exit_code == 6
    assert (
        "was rejected: tool_input_invalid: the input is wrong (at /n: too big); `lineup tools TOOL_ID`" in result.stderr
    )


def test_a_refusal_is_exit_6_with_its_place(run, runtime):
    accepting(runtime)

    def refuse(args: dict[str, Any]) -> None:
        raise LineUpError("tool_input_invalid", "the input is wrong", detail={"path": "/title", "rule": "is required"})

    runtime.actions["call.start"] = refuse
    result = run("call", "demo.work", "{}")
    assert result.exit_code == 6
    assert "tool_input_invalid: the input is wrong (at /title: is required); `lineup tools TOOL_ID`" in result.stderr


@pytest.mark.parametrize(
    ("argument", "stdin", "words"),
    [
        ('{"a": 1,}', None, "line 1, column 9"),
        ('{"a": NaN}', None, "the input at /a is not a finite number"),
        ('{"a": 1, "a": 2}', None, "twice"),
        ("-", b'{"a": "\xff"}', "UTF-8"),
        ("-", b"", "is not JSON"),
        ("[" * 40 + "]" * 40, None, "deeper"),
    ],
)
def test_bad_json_is_exit_2_with_its_place(run, runtime, argument, stdin, words):
    accepting(runtime)
    result = run("call", "demo.work", argument, input=stdin)
    assert result.exit_code == 2
    assert words in result.stderr
    assert runtime.seen == []


def test_input_comes_from_stdin(run, runtime):
    accepting(runtime, {"status": "completed", "result": {}})
    assert run("call", "demo.work", "-", input='{"words": "你好"}').exit_code == 0
    assert runtime.args_of("call.start")[0]["input"] == {"words": "你好"}


def test_ids_are_checked_before_anything_is_sent(run, runtime):
    accepting(runtime)
    for option in ("--conversation", "--call-id"):
        result = run("call", "demo.work", option, "no spaces please")
        assert result.exit_code == 2
        assert "is not an id" in result.stderr
    assert runtime.seen == []


def test_no_wait_prints_the_id(run, runtime):
    accepting(runtime)
    result = run("call", "demo.work", "--no-wait")
    assert result.exit_code == 0
    assert result.stdout.strip() == runtime.args_of("call.start")[0]["call_id"]
    assert not runtime.watched.is_set()


def test_timeout_is_exit_8_and_leaves_the_call(run, runtime):
    accepting(runtime, {"status": "running"})
    result = run("call", "demo.work", "--timeout", "0.2")
    assert result.exit_code == 8
    assert "is still running after 0.2 s and goes on; `lineup story" in result.stderr
    assert runtime.args_of("call.cancel") == []


def test_json_prints_the_record_and_nothing_else(run, runtime):
    accepting(runtime, {"status": "running", "progress": 0.1}, {"status": "completed", "result": {"text": "a\u202eb"}})
    result = run("call", "demo.work", "--json")
    record = json.loads(result.stdout)
    assert record["status"] == "completed"
    assert record["result"] == {"text": "a\u202eb"}
    assert "\u202e" not in result.stdout
    assert result.stderr == ""


def start_call(environment: dict[str, str], *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lineup_hostshell.cli.main", "call", "demo.work", *options],
        env={**environment, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_leaves_the_call_running_and_says_how_to_find_it(runtime, environment):
    accepting(runtime, {"status": "running"})
    process = start_call(environment)
    assert runtime.watched.wait(30)
    assert process.stderr is not None
    assert "running" in process.stderr.readline()
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    call_id = runtime.args_of("call.start")[0]["call_id"]
    assert process.returncode == 130
    assert f"The call {call_id} goes on." in said
    assert f"lineup cancel {call_id}" in said
    assert runtime.args_of("call.cancel") == []


def test_cancel_on_interrupt_cancels_and_waits_for_the_result(runtime, environment):
    accepting(runtime, {"status": "running"})

    def cancel(args: dict[str, Any]) -> dict[str, Any]:
        runtime.records = [{"status": "cancelled", "error": error("app_closed")}]
        return {}

    runtime.actions["call.cancel"] = cancel
    process = start_call(environment, "--cancel-on-interrupt")
    assert runtime.watched.wait(30)
    assert process.stderr is not None
    assert "running" in process.stderr.readline()
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 4
    (asked,) = runtime.args_of("call.cancel")
    assert (asked["call_id"], asked["agent_id"]) == (runtime.args_of("call.start")[0]["call_id"], "cli")


def test_a_runtime_that_is_restarted_meanwhile_is_waited_for(home, runtime, environment):
    accepting(runtime, {"status": "running"})
    process = start_call(environment)
    assert runtime.watched.wait(30)
    runtime.__exit__()
    assert process.stderr is not None
    assert "running" in process.stderr.readline()
    assert "The Runtime is gone; the call is kept." in process.stderr.readline()
    with type(runtime)(home) as second:
        second.records = [{"status": "completed", "result": {"late": True}}]
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out) == {"late": True}


def test_cancel_asks_for_it(run, runtime):
    runtime.actions["call.cancel"] = lambda args: {}
    assert run("cancel", "c-1", "--reason", "changed my mind").exit_code == 0
    assert run("cancel", "c-1", "--agent", "demo").exit_code == 0
    assert runtime.args_of("call.cancel") == [
        {"call_id": "c-1", "agent_id": "cli", "reason": "changed my mind"},
        {"call_id": "c-1", "agent_id": "demo"},
    ]


@pytest.mark.parametrize(
    ("tool_id", "form"), [("confirm", "'{\"approved\": true}'"), ("input", "'{\"values\": {…}}'"), ("x.ask", "JSON")]
)
def test_a_question_says_how_it_is_answered(run, runtime, tool_id, form):
    asking = {"status": "waiting_for_app", "tool_id": tool_id, "interaction_id": "q-7"}
    accepting(runtime, asking, {**asking, "status": "completed", "result": {}})
    said = run("call", tool_id).stderr.splitlines()
    assert said == [f"waiting for a person: `lineup answer q-7 {form}`", "completed"]
