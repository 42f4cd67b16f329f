"""Every command explains itself; every failure is one sentence with the next step, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from lineup_hostshell.cli.failure import from_error, from_refusal
from lineup_hostshell.cli.group import LineUpGroup
from lineup_hostshell.cli.main import COMMANDS, cli
from lineup_protocol.errors import LineUpError

CONTRACT = [
    "up",
    "down",
    "status",
    "apps",
    "tools",
    "call",
    "calls",
    "story",
    "answer",
    "interactions",
    "logs",
    "audit",
    "backup",
    "restore",
    "doctor",
    "new",
    "dev",
    "check",
]


def walk(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += walk(child, (*path, name))
    return found


EVERY = walk(cli)


@pytest.mark.parametrize("path", [path for path, _ in EVERY], ids=lambda path: " ".join(path) or "lineup")
def test_help_has_an_example(run, path):
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"lineup {' '.join(path)}".rstrip() in result.output


def test_every_command_of_the_contract_is_there():
    assert set(CONTRACT) <= set(COMMANDS)
    paths = {" ".join(path) for path, _ in EVERY}
    assert {"apps list", "apps add", "apps remove", "apps enable", "apps disable"} <= paths
    assert {"audit verify", "audit export"} <= paths


def test_every_command_takes_a_home_unless_it_needs_none():
    homeless = {"new", "check"}
    for path, command in EVERY:
        if not isinstance(command, click.Group) and path[0] not in homeless:
            assert "--home" in [option for p in command.params for option in p.opts], path


@pytest.mark.parametrize(
    "args",
    [
        ("tools",), ("calls",), ("call", "x.y", "{}"), ("story", "c-1"), ("interactions",), ("answer", "i-1", "{}"),
        ("apps",), ("apps", "list"), ("apps", "remove", "x"), ("audit", "verify"), ("audit", "export"),
        ("cancel", "c-1"), ("status",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_without_a_runtime_the_exit_code_is_7(run, args):
    result = run(*args)
    assert result.exit_code == 7
    assert "lineup up" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("call",), "Missing argument 'TOOL_ID'"),
        (("up", "--port", "70000"), "70000"),
        (("calls", "--state", "odd"), "odd"),
        (("calls", "--limit", "0"), "0"),
        (("logs", "-n", "-1"), "-1"),
        (("call", "x.y", "--timeout", "nan"), "nan"),
        (("call", "x.y", "--timeout", "1e999"), "inf"),
        (("status", "--home", ""), "empty"),
    ],
)
def test_a_wrong_command_line_is_exit_2_with_the_way_to_help(run, args, cause):
    result = run(*args)
    assert result.exit_code == 2
    assert cause in result.stderr
    assert "--help` shows how" in result.stderr
    assert result.stderr.count("\n") == 1


class Broken(LineUpGroup):
    """A group whose one command raises what the test gives it."""


def failing(problem: BaseException) -> Broken:
    group = Broken("lineup", lazy={})

    def fail() -> None:
        raise problem

    group.add_command(
        click.Command("fail", callback=fail, params=[click.Option(["--debug"], is_flag=True, expose_value=False)])
    )
    group.get_command = lambda ctx, name: group.commands.get(name)  # type: ignore[method-assign]
    return group


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (LineUpError("storage_full", "the disk is full"), 1, "storage_full: the disk is full; free disk space"),
        (OSError(13, "Permission denied", "some/file"), 1, "Permission denied (some/file)"),
        (KeyError("oops"), 1, "a fault inside the command: KeyError"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(32, "Broken pipe"), 1, ""),
    ],
)
def test_every_kind_of_failure_is_one_line(problem, code, words, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with pytest.raises(SystemExit) as ended:
        failing(problem).main(["fail"], prog_name="lineup")
    said = capsys.readouterr().err
    assert ended.value.code == code
    assert words in said
    assert len(said.strip().splitlines()) == (1 if words else 0)


def test_debug_shows_the_traceback():
    with pytest.raises(KeyError):
        failing(KeyError("oops")).main(["fail", "--debug"], prog_name="lineup")


def test_a_foreign_control_character_never_reaches_the_terminal(capsys):
    with pytest.raises(SystemExit):
        failing(LineUpError("not_found", "x\x1b[31m\u202ey")).main(["fail"], prog_name="lineup")
    assert capsys.readouterr().err.startswith("lineup: not_found: x\\x1b[31m\\u202ey")


def test_simple_commands_load_no_web_framework_and_no_models():
    program = (
        "import sys\n"
        "from lineup_hostshell.cli.main import cli\n"
        "import click\n"
        "for name in ('status', 'tools', 'call', 'calls', 'story', 'logs', 'up', 'down'):\n"
        "    cli.get_command(click.Context(cli), name)\n"
        "import lineup_hostshell.cli.link\n"
        "heavy = {'starlette', 'uvicorn', 'pydantic', 'lmdb', 'rich', 'structlog', 'websockets'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_hint_carries_the_home_unless_it_is_the_usual_one(run, tmp_path):
    other = tmp_path / "my home"
    said = run("calls", "--home", str(other)).stderr
    assert f"start one with `lineup up --home '{other}'`." in said
    assert f"`lineup up --home '{other}'`." in run("status", "--home", str(other)).stdout
    assert f"`lineup up --home '{other}'`." in run("apps", "--home", str(other), "list").stderr
    inline = {"LINEUP_HOME": str(other)}  # perhaps for this command alone
    assert f"start one with `lineup up --home '{other}'`." in run("calls", env=inline).stderr
    assert "start one with `lineup up`." in run("calls").stderr
    assert "start one with `lineup up`." in run("calls", env={"LINEUP_HOME": ""}).stderr
    no_bundle = run("apps", "add", str(tmp_path), "--home", str(other)).stderr
    assert "`lineup new NAME` makes" in no_bundle


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            ("app_disabled", "notes is disabled; `lineup apps enable notes`"),
            "notes is disabled; `lineup apps enable notes`.",
        ),
        (("app_disabled", "notes is disabled"), "notes is disabled; `lineup apps enable SCOPE` switches it on."),
        (
            ("app_quarantined", "it crashed; `lineup apps enable notes` lifts it"),
            "it crashed; `lineup apps enable notes` lifts it; read `lineup logs --app SCOPE`.",
        ),
    ],
)
def test_a_hint_is_not_said_twice(problem, said):
    code, message = problem
    assert from_error(LineUpError(code, message)).sentence == f"{code}: {said}"
    assert from_refusal(code, message).sentence == f"{code}: {said}"


@pytest.mark.parametrize(
    "line",
    [
        ("story", "{}"),
        ("cancel", "{}"),
        ("answer", "{}", "true"),
        ("apps", "remove", "{}"),
        ("apps", "enable", "{}"),
        ("apps", "disable", "{}"),
        ("logs", "--app", "{}"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("text", ["", "a b", "a/b", "x" * 129, "é"])
def test_what_is_no_id_is_a_mistake_on_the_command_line(run, runtime, line, text):
    """And nobody has to read where it would have stood in a message to the Runtime."""
    result = run(*(word.replace("{}", text) for word in line))
    assert result.exit_code == 2
    assert f"{text!r} is not an id (1 to 128 characters of A-Z a-z 0-9 . _ : -)" in result.stderr
    assert "/args" not in result.stderr
    assert runtime.seen == []
