"""SPEC.md and the code say the same, both ways."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lineup_protocol import limits, spec
from lineup_protocol.codec import BYTES_ALLOWED
from lineup_protocol.errors import CODES, LineUpError
from lineup_protocol.messages import MESSAGES, check_body, find

SPEC = Path(__file__).parents[2] / "protocol" / "SPEC.md"
TEXT = SPEC.read_text(encoding="utf-8")


def rows(table: str) -> list[list[str]]:
    lines = spec.marked_tables(TEXT)[table].strip().splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_generated_table_stands_in_the_spec_unchanged() -> None:
    assert spec.marked_tables(TEXT) == spec.tables()
    assert spec.rewrite(TEXT) == TEXT


@pytest.mark.parametrize("link", ["agent", "worker", "host"])
def test_messages_of_the_spec_are_those_of_the_code(link: str) -> None:
    in_spec = {(row[0].strip("`"), row[1], row[2]) for row in rows(f"{link}-messages")}
    in_code = {(m.type, m.source, m.target) for m in MESSAGES if m.link == link}
    assert in_spec == in_code


def test_fields_of_the_spec_are_those_of_the_code() -> None:
    for link in ("agent", "worker", "host"):
        for row in rows(f"{link}-messages"):
            message = find(link, row[0].strip("`"), from_runtime=row[1] == "runtime")  # type: ignore[arg-type]
            assert message is not None
            assert re.findall(r"`(\w+\??)`:", row[5]) == [
                name + ("" if field.required else "?") for name, field in message.fields.items()
            ]
            assert (row[4] == "yes") == message.durable


def test_errors_of_the_spec_are_those_of_the_code() -> None:
    assert {row[0].strip("`"): row[1] for row in rows("errors")} == {c.code: c.retry for c in CODES.values()}


def test_limits_of_the_spec_are_those_of_the_code_and_each_has_a_reason() -> None:
    constants = {name for name in vars(limits) if name.isupper()} - {"KIB", "MIB", "SECOND_MS", "DAY_MS"}
    assert {row[0].strip("`") for row in rows("limits")} == constants
    assert all(len(row[2]) > 10 for row in rows("limits"))
    for row in rows("limits"):
        assert float(row[1].replace(",", "")) == getattr(limits, row[0].strip("`"))


def test_limits_that_the_prose_names_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]+_(?:MAX|DEFAULT))`", TEXT))
    assert named <= {limit.name for limit in spec.read_limits()}


def test_limits_fit_each_other() -> None:
    assert limits.ARTIFACT_BYTES_MAX * 4 / 3 < limits.SURFACE_PAYLOAD_BYTES_MAX < limits.WORKER_MESSAGE_BYTES_MAX
    assert limits.TOOL_INPUT_BYTES_MAX < limits.AGENT_FRAME_BYTES_MAX
    assert limits.SURFACE_STATE_BYTES_MAX < limits.WORKER_MESSAGE_BYTES_MAX


def test_every_answer_is_a_message_of_the_same_link_from_the_other_side() -> None:
    for message in MESSAGES:
        for answer in message.answered_by:
            assert find(message.link, answer, from_runtime=message.source != "runtime") is not None, message.type


def test_bytes_are_allowed_only_in_fields_that_exist() -> None:
    for (link, from_runtime, type_), path in BYTES_ALLOWED.items():
        message = find(link, type_, from_runtime=from_runtime)
        assert message is not None
        assert path.removeprefix("/body/") in message.fields


def test_the_generator_prints_every_table() -> None:
    done = subprocess.run([sys.executable, "-m", "lineup_protocol.spec"], capture_output=True, text=True, check=True)
    assert spec.marked_tables(done.stdout) == spec.tables()


def test_every_message_refuses_an_unknown_field_and_a_missing_one() -> None:
    for message in MESSAGES:
        with pytest.raises(LineUpError) as refused:
            check_body(message, {"no_such_field": 1})
        assert refused.value.detail == {"path": "/no_such_field", "rule": f"unknown field of {message.type}"}
        required = [name for name, field in message.fields.items() if field.required]
        if required:
            with pytest.raises(LineUpError, match="is required"):
                check_body(message, {})
