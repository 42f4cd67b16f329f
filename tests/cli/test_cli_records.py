"""What is printed of apps, tools, calls, interactions and stories; and that nothing of others drives the terminal."""

from __future__ import annotations

import json

import pytest

from lineup_hostshell.cli.output import ago, duration, safe_text, size, to_json
from lineup_hostshell.cli.story_view import story_lines
from lineup_hostshell.cli.story_words import ACTORS, KINDS
from lineup_protocol.errors import LineUpError
from lineup_protocol.times import to_rfc3339

NASTY = "a\x1b[2Jb\rc\u202ed"


def test_apps_lists_states(run, runtime):
    runtime.queries["apps"] = lambda args: {
        "apps": [
            {"app_scope": "chat", "version": "1.0.0", "kind": "system", "tools": ["notice"], "enabled": True},
            {"app_scope": "whiteboard", "version": "1.0.0", "kind": "bundled", "tools": [], "enabled": False},
            {
                "app_scope": "bad",
                "version": "0.1.0",
                "kind": "installed",
                "quarantined": True,
                "quarantine_reason": NASTY,
            },
        ]
    }
    lines = run("apps").stdout.splitlines()
    assert lines[0].split() == ["APP", "VERSION", "KIND", "TOOLS", "STATE"]
    assert lines[1].split() == ["chat", "1.0.0", "system", "notice", "enabled"]
    assert lines[2].endswith("disabled")
    assert "quarantined: a\\x1b[2Jb\\x0dc\\u202ed" in lines[3]
    assert json.loads(run("apps", "list", "--json").stdout)[0]["app_scope"] == "chat"
    assert json.loads(run("apps", "--json", "list").stdout)[0]["app_scope"] == "chat"


@pytest.mark.parametrize("verb", ["remove", "enable", "disable"])
def test_apps_changes_go_by_scope(run, runtime, verb):
    runtime.actions[f"apps.{verb}"] = lambda args: {}
    result = run("apps", verb, "whiteboard")
    assert result.stdout == f"whiteboard is {verb.removesuffix('e')}ed.\n"
    assert runtime.args_of(f"apps.{verb}") == [{"app_scope": "whiteboard"}]


def test_apps_add_says_every_fault_with_its_path(run, runtime, tmp_path):
    bundle = tmp_path / "my-app"
    bundle.mkdir()
    (bundle / "miniapp.json").write_text("{}")
    faults = [{"path": "/app_scope", "rule": "is required"}, {"path": "/tools/0/id", "rule": "must start with x."}]

    def refuse(args):
        raise LineUpError("manifest_invalid", "/app_scope: is required (and 1 more)", detail={"faults": faults})

    runtime.actions["apps.add"] = refuse
    result = run("apps", "add", str(bundle))
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "  /app_scope: is required",
        "  /tools/0/id: must start with x.",
        "lineup: manifest_invalid: miniapp.json has 2 faults, listed above; mend them and add it again.",
    ]
    assert runtime.args_of("apps.add") == [{"path": str(bundle)}]


def test_apps_add_names_the_miniapp_and_not_its_folder(run, runtime, tmp_path):
    bundle = tmp_path / "v2-final"
    bundle.mkdir()
    (bundle / "miniapp.json").write_text("{}")
    runtime.actions["apps.add"] = lambda args: {"app_scope": "notes"}
    assert run("apps", "add", str(bundle)).stdout == "notes is installed.\n"


def test_apps_add_of_a_folder_without_a_manifest_asks_nobody(run, runtime, tmp_path):
    result = run("apps", "add", str(tmp_path))
    assert result.exit_code == 1
    assert "has no miniapp.json" in result.stderr
    assert runtime.seen == []


def test_tools_prints_the_revision(run, runtime):
    tool = {"id": "task-dashboard.open", "handling": "launch", "description": "Opens a task."}
    runtime.queries["tools"] = lambda args: {"revision": "r-1", "tools": [tool]}
    out = run("tools").stdout
    assert "Inventory r-1" in out
    assert "task-dashboard.open  launch    Opens a task." in out
    assert json.loads(run("tools", "--json").stdout) == {"revision": "r-1", "tools": [tool]}


def test_calls_filters_and_is_honest_when_there_is_none(run, runtime):
    runtime.queries["calls"] = lambda args: {"calls": []}
    assert "No tool has been called yet" in run("calls").stdout
    assert "No call matches." in run("calls", "--state", "running", "--limit", "7").stdout
    assert runtime.args_of("calls") == [{"limit": 50, "brief": True}, {"limit": 7, "state": "running", "brief": True}]
    runtime.queries["calls"] = lambda args: {
        "calls": [{"call_id": "c-1", "tool_id": "x.y", "agent_id": "demo", "status": "running", "progress": 0.25}]
    }
    assert run("calls").stdout.splitlines()[1].split() == ["c-1", "x.y", "demo", "running", "25%"]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "expired", "rejected"])
def test_a_call_that_is_over_shows_no_progress(run, runtime, status):
    record = {"call_id": "c-1", "tool_id": "x.y", "agent_id": "demo", "status": status, "progress": 0.6}
    runtime.queries["calls"] = lambda args: {"calls": [record, {**record, "status": "running"}]}
    over, running = run("calls").stdout.splitlines()[1:]
    assert over.split() == ["c-1", "x.y", "demo", status]
    assert running.split() == ["c-1", "x.y", "demo", "running", "60%"]
    assert json.loads(run("calls", "--json").stdout)[0]["progress"] == 0.6


def test_interactions_and_answer(run, runtime):
    record = {
        "interaction_id": "i-1",
        "kind": "confirm",
        "owner": {"app_scope": "task-dashboard", "instance_id": "in-1"},
        "status": "presented",
        "request": {"kind": "confirm", "title": "Close the unfinished task?"},
        "created_at": "2026-11-30T08:00:00.000Z",
    }
    runtime.queries["interactions"] = lambda args: {"interactions": [record]}
    out = run("interactions").stdout
    assert "i-1" in out
    assert "task-dashboard" in out
    assert "Close the unfinished task?" in out
    assert json.loads(run("interactions", "--json").stdout) == [record]
    assert json.loads(run("interactions", "--json", "--state", "completed").stdout) == []
    assert runtime.args_of("interactions") == [{"brief": True}, {}, {"state": "all", "limit": 1_000}]
    runtime.actions["interaction.answer"] = lambda args: {"status": "submitted"}
    assert run("answer", "i-1", '{"approved": true}').exit_code == 0
    assert runtime.args_of("interaction.answer") == [{"interaction_id": "i-1", "result": {"approved": True}}]
    assert run("answer", "i-1", "true").exit_code == 1


def test_an_answer_that_came_too_late(run, runtime):
    def refuse(args):
        raise LineUpError("interaction_already_final", "it was answered")

    runtime.actions["interaction.answer"] = refuse
    result = run("answer", "i-1", '{"approved": true}')
    assert result.exit_code == 1
    assert result.stderr.startswith("lineup: interaction_already_final: it was answered; the first answer stands")


def entry(at_ms: int, seq: int, kind: str, cause: str, actor: str = "runtime", **detail: object) -> dict[str, object]:
    at = to_rfc3339(at_ms)
    return {"seq": seq, "at": at, "kind": kind, "cause": cause, "actor": actor, "subjects": ["c-1"], "detail": detail}


STORY = [
    entry(1_000_065_500, 5, "call.completed", "e-2", "app:notes"),
    entry(1_000_000_000, 1, "call.received", "e-1", "agent:cli", tool="notes.open", input="00ff00ff00ff00ff"),
    entry(1_000_000_000, 2, "instance.state", "e-1", "agent:cli", before="starting", state="foreground"),
    entry(1_000_000_340, 3, "call.running", "e-1", "app:notes", attempt=1),
    entry(1_000_001_000, 4, "call.progress", "e-3", "app:notes", progress=0.6),
]


def test_a_story_is_in_the_order_of_time_and_shows_what_caused_what():
    lines = list(story_lines(STORY, about="c-1", lang="en"))
    assert lines[0].startswith("The story of c-1, from ")
    assert lines[2:] == [
        "         0  Agent cli: call made, tool notes.open",
        "         0    instance, starting → foreground",
        "   +340 ms    MiniApp notes: call taken over by the MiniApp, it runs, attempt 1",
        "    +1.0 s  MiniApp notes: progress reported, progress 60%",
        "+1 min 5 s  MiniApp notes: call completed",
    ]


def test_a_story_in_a_chinese_locale(run, runtime):
    runtime.queries["story"] = lambda args: {"entries": STORY}
    out = run("story", "c-1", env={"LANG": "zh_CN.UTF-8"}).stdout
    assert out.startswith("c-1 的经过，始于 ")
    assert "Agent cli：发起了调用，tool notes.open" in out
    assert "The story of c-1" in run("story", "c-1", env={"LANG": "de_DE.UTF-8"}).stdout
    assert "The story of c-1" in run("story", "c-1", env={"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}).stdout


def test_a_story_of_nothing_is_a_failure(run, runtime):
    runtime.queries["story"] = lambda args: {"entries": []}
    result = run("story", "c-404")
    assert result.exit_code == 1
    assert "nothing is known of 'c-404'" in result.stderr


def test_a_story_leaves_no_kind_out():
    (line,) = list(story_lines([entry(1, 1, "quite.new", "e-1", words=NASTY)], about="c-1", lang="zh"))[2:]
    assert "quite.new" in line
    assert "\x1b" not in line
    assert "words a\\x1b[2Jb" in line


def test_both_languages_have_the_same_words():
    assert KINDS["en"].keys() == KINDS["zh"].keys()
    assert ACTORS["en"].keys() == ACTORS["zh"].keys()


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (59_940, "59.9 s"),
        (60_000, "1 min"),
        (3_720_000, "1 h 2 min"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations(ms, words):
    assert duration(ms) == words


def test_times_and_sizes():
    assert ago(1000, now_ms=61_000) == "1 min ago"
    assert ago("1970-01-01T00:01:01.000Z", now_ms=1000) == "in 1 min"
    assert ago("nonsense") == ""
    assert [size(n) for n in (0, 1023, 1536, 5 * 1024**4)] == ["0 B", "1023 B", "1.5 KiB", "5.0 TiB"]


def test_text_of_others_is_harmless_and_stays_readable():
    assert safe_text("写报告 👩‍💻 naïve\tok\n") == "写报告 👩‍💻 naïve\tok\n"
    assert safe_text("\x9b31m\x00\ud800") == "\\x9b31m\\x00\\ud800"
    assert json.loads(to_json({"x": NASTY, "汉": "字"})) == {"x": NASTY, "汉": "字"}
    assert "汉" in to_json({"x": NASTY, "汉": "字"})
    assert "\u202e" not in to_json({"x": NASTY})


def test_one_tool_with_what_goes_in_and_comes_out(run, runtime):
    tool = {
        "id": "notes.add",
        "title": "Add",
        "description": "Adds a note.",
        "handling": "direct",
        "input_schema": {"type": "object", "required": ["text"]},
        "output_schema": {"type": "object"},
    }
    runtime.queries["tools"] = lambda args: {"revision": "r-1", "tools": [tool]}
    out = run("tools", "notes.add").stdout
    assert out.splitlines()[:2] == ["notes.add Add", "Adds a note."]
    said_input, said_output = out.partition("Input:\n")[2].split("\nOutput:\n")
    assert json.loads(said_input) == tool["input_schema"]
    assert json.loads(said_output) == tool["output_schema"]
    assert json.loads(run("tools", "notes.add", "--json").stdout) == tool
    wrong = run("tools", "notes.ad")
    assert wrong.exit_code == 1
    assert "no tool notes.ad is offered just now; did you mean notes.add? `lineup tools` lists them." in wrong.stderr


def test_a_call_that_asks_a_person_says_so(run, runtime):
    asking = {"call_id": "c-1", "tool_id": "confirm", "agent_id": "demo", "status": "running", "interaction_id": "q-1"}
    runtime.queries["calls"] = lambda args: {"calls": [asking, {**asking, "status": "completed"}]}
    lines = run("calls").stdout.splitlines()
    assert "waits for a person" in lines[1]
    assert "completed" in lines[2]


def paged(name, rows, length, **more):
    """A Runtime's answer to a list that has ``length`` rows on each page."""

    def answer(args):
        first = int(args.get("after", 0))
        end = min(first + length, first + args.get("limit", length), len(rows))
        return {name: rows[first:end], **({"next": str(end)} if end < len(rows) else {}), **more}

    return answer


@pytest.mark.parametrize(("command", "id_name"), [("interactions", "interaction_id"), ("calls", "call_id")])
def test_a_list_is_followed_over_its_pages(run, runtime, command, id_name):
    rows = [{id_name: f"x-{n}", "created_at": f"2026-11-30T08:00:{n:02}.000Z"} for n in range(25)]
    runtime.queries[command] = paged(command, rows, 10)
    told = json.loads(run(command, "--json").stdout)
    assert [row[id_name] for row in told] == [f"x-{n}" for n in range(25)]
    out = run(command).stdout
    assert all(f"x-{n}" in out for n in range(25))


def test_calls_are_followed_up_to_the_limit_and_open_ones_put_in_order(run, runtime):
    rows = [{"call_id": f"c-{n}", "created_at": f"2026-11-30T08:00:{n:02}.000Z"} for n in range(25)]
    runtime.queries["calls"] = paged("calls", rows, 10)
    assert len(json.loads(run("calls", "--json", "--limit", "12").stdout)) == 12
    told = json.loads(run("calls", "--json", "--state", "open").stdout)
    assert [row["call_id"] for row in told] == [f"c-{n}" for n in reversed(range(25))]


def test_apps_are_followed_over_their_pages(run, runtime):
    runtime.queries["apps"] = paged("apps", [{"app_scope": f"app-{n}"} for n in range(25)], 10)
    assert len(json.loads(run("apps", "--json").stdout)) == 25


def test_a_long_story_is_told_up_to_a_bound_and_says_that_it_goes_on(run, runtime):
    def entry(seq):
        return {
            "seq": seq,
            "at": "2026-11-30T08:00:00.000Z",
            "actor": "runtime",
            "kind": "call.received",
            "subjects": [],
            "cause": "e1",
            "detail": {},
        }

    rows = [entry(seq) for seq in range(1, 2_501)]
    runtime.queries["story"] = paged("entries", rows[:900], 500, truncated=True)
    result = run("story", "c-1", "--json")
    assert len(json.loads(result.stdout)) == 900
    assert "goes on" not in result.stderr
    runtime.queries["story"] = paged("entries", rows, 500, truncated=True)
    result = run("story", "c-1", "--json")
    assert len(json.loads(result.stdout)) == 2_000
    assert "goes on" in result.stderr


def test_a_status_that_is_not_whole_says_so(run, runtime, monkeypatch):
    from lineup_hostshell.cli import status_commands
    from lineup_hostshell.cli.homes import RuntimeInfo

    up = RuntimeInfo(7, "b-1", None, None, "1.0", "S3", {})
    monkeypatch.setattr(status_commands, "find_runtime", lambda home: up)
    runtime.queries["status"] = lambda args: {"instances": [], "apps": [], "truncated": ["instances"]}
    assert "more instances" in run("status").stderr


def test_a_status_of_many_instances_is_bounded(run, runtime, monkeypatch):
    from lineup_hostshell.cli import status_commands
    from lineup_hostshell.cli.homes import RuntimeInfo

    up = RuntimeInfo(7, "b-1", None, None, "1.0", "S3", {})
    monkeypatch.setattr(status_commands, "find_runtime", lambda home: up)
    many = [{"instance_id": f"i-{n}", "app_scope": "interact", "state": "idle"} for n in range(2_000)]
    runtime.queries["status"] = lambda args: {"instances": many, "apps": []}
    lines = run("status").stdout.splitlines()
    assert sum(line.startswith("i-") for line in lines) == 50
    assert lines[-1] == "and 1,950 more; --json has them all."
    assert len(json.loads(run("status", "--json").stdout)["instances"]) == 2_000
    runtime.queries["status"] = lambda args: {"instances": many[:50], "apps": []}
    assert "more" not in run("status").stdout
