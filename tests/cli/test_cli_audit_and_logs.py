"""The audit's chain is checked independently; the logs are read without a daemon, over rotation and damage."""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path

import pytest

from lineup_hostshell.cli.audit_chain import NO_HASH, ChainCheck, row_hash
from lineup_hostshell.cli.log_files import Follower, parse, read_last


def chained(count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    prev = NO_HASH
    for seq in range(1, count + 1):
        body = {
            "seq": seq, "at_ms": seq * 1000, "actor": "runtime", "kind": "call.accepted", "subjects": [f"c-{seq}"],
            "cause": f"e-{seq}", "detail": {"words": "你好", "n": seq},
        }  # fmt: skip
        prev_of_this, prev = prev, row_hash(prev, body)
        rows.append({**body, "prev": prev_of_this, "hash": prev})
    return rows


def serve(runtime, rows, head=None):
    last = rows[-1] if rows else {"seq": 0, "hash": ""}
    found = head or {"seq": last["seq"], "hash": last["hash"]}

    def page(args):
        kept = [row for row in rows if row["seq"] > args["after"]]
        return {"rows": kept[:7], "head": found}  # small pages, so that several are read

    runtime.queries["audit.page"] = page
    return found


def test_an_intact_chain(run, runtime):
    rows = chained(23)
    serve(runtime, rows)
    assert run("audit", "verify").stdout == f"The audit is intact: 23 rows, head {rows[-1]['hash']}.\n"
    report = json.loads(run("audit", "verify", "--json").stdout)
    assert report == {"ok": True, "rows": 23, "hash": rows[-1]["hash"], "broken": None}


def test_an_empty_chain(run, runtime):
    serve(runtime, [])
    assert "intact: 0 rows" in run("audit", "verify").stdout


def change_detail(rows):
    rows[9]["detail"]["n"] = 999


def change_and_rehash(rows):
    rows[9]["detail"]["n"] = 999
    body = {name: value for name, value in rows[9].items() if name not in ("prev", "hash")}
    rows[9]["hash"] = row_hash(rows[9]["prev"], body)


def remove(rows):
    del rows[9]


def swap(rows):
    rows[9], rows[10] = rows[10], rows[9]


def add_a_field(rows):
    rows[9]["note"] = "x"


@pytest.mark.parametrize(
    ("damage", "seq"), [(change_detail, 10), (change_and_rehash, 11), (remove, 10), (swap, 10), (add_a_field, 10)]
)
def test_the_first_broken_row_is_named(damage, seq):
    rows = chained(20)
    head = {"seq": 20, "hash": rows[-1]["hash"]}
    damage(rows)
    check = ChainCheck()
    for row in rows:
        check.take(row)
    check.end(head)
    assert check.broken is not None
    assert check.broken.seq == seq


def test_a_cut_end_is_noticed(run, runtime):
    rows = chained(20)
    serve(runtime, rows[:15], head={"seq": 20, "hash": rows[-1]["hash"]})
    result = run("audit", "verify")
    assert result.exit_code == 1
    assert "broken at row 16: the chain ends here but the head is row 20" in result.stderr


def test_a_broken_row_over_the_link(run, runtime):
    rows = copy.deepcopy(chained(20))
    rows[9]["actor"] = "agent:forged"
    serve(runtime, rows)
    result = run("audit", "verify")
    assert result.exit_code == 1
    assert "the audit is broken at row 10: its content does not match its hash; the 9 rows before it" in result.stderr
    assert json.loads(run("audit", "verify", "--json").stdout)["broken"]["seq"] == 10


def archived(home, rows):
    """The first ten rows in a file, the rest behind their anchor."""
    (home / "logs").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[:10])
    (home / "logs" / "audit-000000000001-000000000010.jsonl").write_text(text)
    return {"seq": 10, "hash": rows[9]["hash"]}


def serve_from(runtime, rows, anchors):
    """Each page says where the store begins by then; the last of ``anchors`` stays."""
    pages = []

    def page(args):
        anchor = anchors[min(len(pages), len(anchors) - 1)]
        pages.append(args)
        kept = [row for row in rows if row["seq"] > max(args["after"], anchor["seq"])]
        return {"rows": kept[:7], "head": {"seq": rows[-1]["seq"], "hash": rows[-1]["hash"]}, "anchor": anchor}

    runtime.queries["audit.page"] = page


def test_archived_rows_belong_to_the_chain(run, runtime, home):
    rows = chained(30)
    serve_from(runtime, rows, [archived(home, rows)])
    assert run("audit", "verify").stdout.splitlines() == [
        f"The audit is intact: 30 rows, head {rows[-1]['hash']}.",
        "Rows 1 to 10 are in the archive, all of them checked.",
    ]
    assert json.loads(run("audit", "verify", "--json").stdout)["archived"] == {"seq": 10, "checked": 10}
    (file,) = (home / "logs").glob("audit-*.jsonl")
    file.write_text(file.read_text().replace("e-4", "e-5"))
    assert "broken at row 4: its content does not match its hash" in run("audit", "verify").stderr
    file.unlink()
    assert "0 of them here" in run("audit", "verify").stdout
    assert "intact: 20 rows" in run("audit", "verify").stdout


def replace_by_pipe(file):
    file.unlink()
    os.mkfifo(file)


def replace_by_folder(file):
    file.unlink()
    file.mkdir()


def replace_by_link(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


@pytest.mark.parametrize("damage", [replace_by_pipe, replace_by_folder, replace_by_link])
def test_what_is_no_file_of_the_archive_is_named(run, runtime, home, damage):
    rows = chained(30)
    serve_from(runtime, rows, [archived(home, rows)])
    (file,) = (home / "logs").glob("audit-*.jsonl")
    damage(file)
    result = run("audit", "verify")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"lineup: {file} cannot be read (it is ")
    assert "move it elsewhere" in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"seq": 1, "prev": "' + "0" * 64 + '", "x": ' + "[" * 900 + "]" * 900 + "}",
        '{"seq": 1, "prev": "zz", "hash": "x"}',
        '{"seq": 2, "prev": "' + "z" * 64 + '", "hash": "x"}',
        '{"seq": 1, "prev": "' + "0" * 64 + '", "x": NaN}',
        '{"seq": 1, "prev": "' + "0" * 64 + '", "x": "\\ud800"}',
        '{"seq": 1, "prev": "' + "0" * 64 + '", "x": ' + "9" * 5000 + "}",
        "x" * (9 << 20),
    ],
    ids=range(9),
)
def test_a_line_that_is_no_row_is_a_broken_row(run, runtime, home, line):
    rows = chained(30)
    serve_from(runtime, rows, [archived(home, rows)])
    (file,) = (home / "logs").glob("audit-*.jsonl")
    file.write_text(line + "\n" + file.read_text())
    result = run("audit", "verify")
    assert result.exit_code == 1
    assert "the audit is broken at row 1: " in result.stderr


def test_rows_that_move_into_the_archive_meanwhile_are_looked_for_there(run, runtime, home):
    rows = chained(30)
    start = {"seq": 0, "hash": NO_HASH}
    serve_from(runtime, rows, [start, archived(home, rows)])
    assert "intact: 30 rows" in run("audit", "verify").stdout


def test_export_is_json_lines_that_verify_again(run, runtime):
    rows = chained(20)
    serve(runtime, rows)
    exported = [json.loads(line) for line in run("audit", "export").stdout.splitlines()]
    assert exported == rows
    assert len(run("audit", "export", "--after", "15").stdout.splitlines()) == 5


def log_line(at: str, event: str, **fields: object) -> str:
    return json.dumps({"at": f"2026-11-30T08:00:{at}.000Z", "level": "info", "event": event, **fields}) + "\n"


@pytest.fixture
def log_home(home: Path) -> Path:
    logs = home / "logs"
    logs.mkdir(parents=True)
    (logs / "supervisor.log.1").write_text(log_line("01", "one"))
    (logs / "supervisor.log").write_text(log_line("03", "three") + log_line("05", "five") + "half a li")
    (logs / "task-dashboard.log").write_text(
        '{"at":"2026-11-30T08:00:02.000Z","stream":"stderr","instance_id":"in-1","text":"two"}\n'
    )
    (logs / "whiteboard.log").write_text(log_line("04", "\x1b[31mfour"))
    (logs / "detached.out").write_text("not a log\n")
    return home


def test_all_files_are_merged_in_the_order_of_time(log_home):
    said = [line.fields.get("event") or line.fields["text"] for line in read_last(log_home, 100)]
    assert sorted(said, key=said.index) == said
    assert [words for words in said if words != "half a li"] == ["one", "two", "three", "\x1b[31mfour", "five"]
    assert "half a li" in said


def test_what_the_runtime_says_of_an_app_belongs_to_it(log_home):
    (log_home / "logs" / "runtime.log").write_text(log_line("06", "six", app_scope="whiteboard"))
    assert [line.fields["event"] for line in read_last(log_home, 9, app_scope="whiteboard")] == ["\x1b[31mfour", "six"]


def test_a_miniapp_has_its_log_in_a_folder_of_miniapps(log_home, run):
    apps = log_home / "logs" / "apps"
    apps.mkdir()
    (apps / "whiteboard.log.1").write_text(log_line("06", "rotated"))
    (apps / "whiteboard.log").write_text(log_line("07", "newest"))
    said = [line.fields["event"] for line in read_last(log_home, 9, app_scope="whiteboard")]
    assert said == ["\x1b[31mfour", "rotated", "newest"]
    assert run("logs", "--app", "whiteboard").stdout.rstrip().endswith("whiteboard: newest")
    follower = Follower(log_home)
    try:
        with (apps / "whiteboard.log").open("a") as out:
            out.write(log_line("08", "more"))
        assert [(line.stem, line.fields["event"]) for line in follower.new_lines()] == [("whiteboard", "more")]
    finally:
        follower.close()


def test_a_miniapp_speaks_for_nobody_else(log_home, run):
    """By its name, or by what it prints."""
    logs = log_home / "logs"
    (logs / "runtime.log").write_text(log_line("06", "six", app_scope="whiteboard"))
    (logs / "apps").mkdir()
    (logs / "apps" / "runtime.log").write_text(log_line("07", "forged", app_scope="whiteboard"))
    (logs / "apps" / "mimic.log").write_text(log_line("08", "posing", app_scope="whiteboard"))
    said = run("logs", "--app", "whiteboard").stdout
    assert "six" in said
    assert "forged" not in said
    assert "posing" not in said
    assert "forged" in run("logs", "--app", "runtime").stdout
    assert "mimic: posing" in run("logs").stdout


def test_the_last_n_and_one_app(log_home, run):
    assert run("logs", "--app", "task-dashboard").stdout.rstrip().endswith("info    task-dashboard/in-1 stderr: two")
    out = run("logs", "--app", "whiteboard").stdout
    assert "\\x1b[31mfour" in out
    assert "\x1b" not in out
    assert [
        json.loads(line)["event"]
        for line in run("logs", "-n", "2", "--app", "whiteboard", "--json").stdout.splitlines()
    ]
    assert run("logs", "-n", "0").stdout == ""


def test_follow_goes_on_over_rotation_truncation_and_new_files(log_home):
    logs = log_home / "logs"
    follower = Follower(log_home)
    try:
        assert follower.new_lines() == []
        with (logs / "supervisor.log").open("a") as out:
            out.write(log_line("06", "six"))
            out.write('{"event": "cut ')
        assert [line.fields.get("event") for line in follower.new_lines()] == ["six"]
        with (logs / "supervisor.log").open("a") as out:
            out.write('in two"}\n')
        assert [line.fields["event"] for line in follower.new_lines()] == ["cut in two"]
        with (logs / "supervisor.log").open("a") as out:
            out.write(log_line("07", "last words"))
        (logs / "supervisor.log").rename(logs / "supervisor.log.2")
        (logs / "supervisor.log").write_text(log_line("08", "first words"))
        assert [line.fields["event"] for line in follower.new_lines()] == ["last words", "first words"]
        (logs / "supervisor.log").write_text(log_line("09", "new"))
        (logs / "supervisor.log.2").unlink()
        (logs / "new.log").write_text(log_line("10", "another file"))
        found = [line.fields["event"] for line in follower.new_lines()]
        assert "another file" in found
        assert follower.new_lines() == []
    finally:
        follower.close()


def test_lines_of_a_follower_come_as_they_are_written(log_home):
    follower = Follower(log_home)
    try:
        stream = follower.lines(poll_s=0.01)
        (log_home / "logs" / "late.log").write_text(log_line("11", "late"))
        started = time.monotonic()
        assert next(stream).fields["event"] == "late"
        assert time.monotonic() - started < 10
    finally:
        follower.close()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[1]", b"null", b"", b"{", b'{"a": NaN}'])
def test_a_line_that_is_no_json_object_is_kept_as_text(data):
    assert parse(data, "x.log").fields


def test_a_miniapp_that_nobody_knows_is_said_with_those_that_are(log_home, run):
    (log_home / "logs" / "runtime.log").write_text(log_line("06", "worker ended", app_scope="quiet"))
    assert "worker ended" in run("logs", "--app", "quiet").stdout
    wrong = run("logs", "--app", "whitebord")
    assert wrong.exit_code == 1
    assert wrong.stderr == (
        "lineup: there is no MiniApp whitebord here; known are quiet, task-dashboard, whiteboard.\n"
    )


def test_a_miniapp_that_has_said_nothing_yet_is_no_mistake(log_home, run, runtime):
    runtime.queries["apps"] = lambda args: {"apps": [{"app_scope": "silent"}]}
    assert run("logs", "--app", "silent").exit_code == 0
    assert run("logs", "--app", "nobody").exit_code == 1
