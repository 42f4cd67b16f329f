"""``lineup calls``, ``story``, ``interactions`` and ``answer``: look at records, and answer an open question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lineup_hostshell.cli.failure import CALL_EXITS, CommandFailure
from lineup_hostshell.cli.group import ID, command, home_option, json_option
from lineup_hostshell.cli.output import ago, note, print_json, print_table, safe_line, say, to_json

CALL_STATES = (
    "received", "routing", "waiting_for_app", "running", "submitted",
    "completed", "failed", "cancelled", "expired", "rejected",
)  # fmt: skip
_LIMIT_DEFAULT = 50
_STORY_ENTRIES_MAX = 2_000
_INTERACTIONS_MAX = 1_000  # of those that are over, the newest
_SUMMARY_LENGTH_MAX = 60


@command("calls", "lineup calls", "lineup calls --state running --json")
@home_option
@json_option
@click.option(
    "--state", type=click.Choice(["open", *CALL_STATES]), help="Only calls in this state; `open` means not final."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=_LIMIT_DEFAULT,
    show_default=True,
    metavar="N",
    help="At most N, the newest first.",
)
def calls(home: Path, as_json: bool, state: str | None, limit: int) -> None:
    """List tool calls, the newest first."""
    from lineup_hostshell.cli.call_progress import waits_for_a_person
    from lineup_hostshell.cli.link import read_rows

    args: dict[str, Any] = {}
    if not as_json:
        args["brief"] = True  # the table has no room for inputs and results, which may be large
    if state is not None:
        args["state"] = state
    records = read_rows(home, "calls", args, limit)
    if state == "open":  # its pages are not in the order of time
        records.sort(key=lambda record: str(record.get("created_at")), reverse=True)
    if as_json:
        print_json(records)
        return
    print_table(
        ("call", "tool", "agent", "status", "progress", "made"),
        [
            (
                record.get("call_id"),
                record.get("tool_id"),
                record.get("agent_id"),
                "waits for a person" if waits_for_a_person(record) else record.get("status"),
                _percent(record),
                ago(record.get("created_at")),
            )
            for record in records
        ],
        empty="No call matches." if state else "No tool has been called yet. `lineup tools` lists them.",
    )


def _percent(record: dict[str, Any]) -> str:
    """How far an open call says that it is; of one that is over it says nothing."""
    progress = record.get("progress")
    if record.get("status") in CALL_EXITS:
        return ""
    return f"{progress:.0%}" if isinstance(progress, int | float) and not isinstance(progress, bool) else ""


@command("story", "lineup story c-1", "lineup story c-1 --json")
@home_option
@json_option
@click.argument("object_id", metavar="ID", type=ID)
def story(home: Path, as_json: bool, object_id: str) -> None:
    """Tell the whole causal chain of one call, interaction, operation or instance."""
    from lineup_hostshell.cli.story_view import language, story_lines

    entries, more = _story(home, object_id)
    if more:
        note(f"The story goes on; these are its first {len(entries)} entries. `lineup audit export` has all of them.")
    if as_json:
        print_json(entries)
        return
    if not entries:
        raise CommandFailure(f"nothing is known of {object_id!r}", "`lineup calls` and `lineup status` list the ids")
    for line in story_lines(entries, about=object_id, lang=language()):
        click.echo(line)


def _story(home: Path, object_id: str) -> tuple[list[dict[str, Any]], bool]:
    """Its entries, page after page, and whether there are more than anybody reads."""
    from lineup_hostshell.cli.link import open_reader

    entries: list[dict[str, Any]] = []
    with open_reader(home) as reader:
        args: dict[str, Any] = {"id": object_id}
        while True:
            page = reader.query("story", args)
            entries += page["entries"]
            if "next" not in page or len(entries) >= _STORY_ENTRIES_MAX:
                return entries, "next" in page
            args["after"] = page["next"]


@command("interactions", "lineup interactions", "lineup interactions --state completed --json")
@home_option
@json_option
@click.option(
    "--state",
    type=click.Choice(
        ["open", "pending", "presented", "submitted", "completed", "cancelled", "expired", "failed", "all"]
    ),
    default="open",
    show_default=True,
    help="Which ones.",
)
def interactions(home: Path, as_json: bool, state: str) -> None:
    """List the questions that wait for a person."""
    from lineup_hostshell.cli.link import read_rows

    args: dict[str, Any] = {} if as_json else {"brief": True}  # the table has room for a few words of each
    if state == "open":
        records = read_rows(home, "interactions", args)
    else:
        every = read_rows(home, "interactions", {**args, "state": "all"}, _INTERACTIONS_MAX)
        if len(every) == _INTERACTIONS_MAX:
            note(f"Of all interactions the newest {_INTERACTIONS_MAX} were looked at.")
        records = [record for record in every if state in ("all", record.get("status"))]
    records.sort(key=lambda record: str(record.get("created_at")))
    if as_json:
        print_json(records)
        return
    print_table(
        ("interaction", "kind", "owner", "status", "asked", "question"),
        [
            (
                record.get("interaction_id"),
                record.get("kind"),
                _owner(record),
                record.get("status"),
                ago(record.get("created_at")),
                _question(record.get("request")),
            )
            for record in records
        ],
        empty="No question is open." if state == "open" else "No interaction matches.",
    )
    if records and state == "open":
        say("\nAnswer one with `lineup answer INTERACTION_ID JSON`.")


def _owner(record: dict[str, Any]) -> str:
    owner = record.get("owner", record.get("app_scope"))
    return str(owner.get("app_scope", "")) if isinstance(owner, dict) else str(owner or "")


def _question(request: Any) -> str:
    if not isinstance(request, dict):
        return ""
    text = next(
        (str(request[name]) for name in ("title", "message", "prompt", "text") if request.get(name)),
        to_json(request, indent=None),
    )
    return text if len(text) <= _SUMMARY_LENGTH_MAX else f"{text[: _SUMMARY_LENGTH_MAX - 1]}…"


@command(
    "answer",
    "lineup answer i-1 '{\"approved\": true}'",
    'lineup answer i-2 \'{"action_ids": ["later"]}\'',
    'lineup answer i-3 \'{"values": {"reason": "done by hand"}}\'',
)
@home_option
@json_option
@click.argument("interaction_id", metavar="INTERACTION_ID", type=ID)
@click.argument("result", metavar="JSON")
def answer(home: Path, as_json: bool, interaction_id: str, result: str) -> None:
    """Answer an open question without a browser; the first answer stands.

    notice: {"acknowledged": true}; choice: {"action_ids": [...]}; confirm: {"approved": true};
    input: {"values": {...}}.
    """
    from lineup_hostshell.cli.json_argument import read_argument
    from lineup_hostshell.cli.link import commit

    value = read_argument(result, name="the answer")
    if not isinstance(value, dict):
        raise CommandFailure("the answer must be a JSON object", "`lineup answer --help` shows the form for each kind")
    detail = commit(
        home,
        "interaction.answer",
        {"interaction_id": interaction_id, "result": value},
        what=f"the answer to {interaction_id} was taken",
        then=f"`lineup story {interaction_id}` shows it, and the first answer stands",
    )
    if as_json:
        print_json(detail)
    else:
        click.echo(safe_line(f"{interaction_id} is answered."))
