"""Ids, times and the error registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineup_protocol.errors import CODES, LineUpError
from lineup_protocol.ids import is_id
from lineup_protocol.pointers import join, pointer
from lineup_protocol.times import WALL_MS_MAX, from_rfc3339, is_rfc3339_utc, to_rfc3339


@pytest.mark.parametrize("value", ["a", "A.b_c:d-9", "x" * 128, "-", "."])
def test_ids(value: str) -> None:
    assert is_id(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x" * 129,
        "a b",
        "a\n",
        "\0",
        "é",
        "e\u0301",
        "\u202e",
        "👍" * 64,
        "\ud800",
        "٣",
        "a/b",
        "a~",
        1,
        None,
        b"a",
        ["a"],
    ],
)
def test_no_ids(value: object) -> None:
    assert not is_id(value)


@given(st.integers(0, WALL_MS_MAX))
def test_times_round_trip(wall_ms: int) -> None:
    text = to_rfc3339(wall_ms)
    assert from_rfc3339(text) == wall_ms
    assert is_rfc3339_utc(text)


def test_the_ends_of_time() -> None:
    assert to_rfc3339(WALL_MS_MAX) == "9999-12-31T23:59:59.999Z"
    assert from_rfc3339("2038-01-19T03:14:08Z") == 2**31 * 1000
    for out in (-1, WALL_MS_MAX + 1):
        with pytest.raises(ValueError, match="outside"):
            to_rfc3339(out)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-30",
        "2026-11-30T08:00:00",
        "2026-11-30 08:00:00Z",
        "2026-11-30T08:00:00+01:00",
        "2026-02-30T00:00:00Z",
        "2026-11-30T24:00:00Z",
        "2016-12-31T23:59:60Z",
        "1969-12-31T23:59:59Z",
        "2026-11-30T08:00:00z",
        "٢٠٢٦-11-30T08:00:00Z",
        "2026-11-30T08:00:00Z\n",
        "10000-01-01T00:00:00Z",
        "2026-11-30T08:00:00.1234567890Z",
    ],
)
def test_no_times(text: str) -> None:
    assert not is_rfc3339_utc(text)


def test_errors_are_registered_with_a_sentence() -> None:
    assert all(code.retry in ("never", "same", "after_change") and code.meaning for code in CODES.values())
    with pytest.raises(AssertionError, match="unregistered"):
        LineUpError("made_up", "x")
    error = LineUpError("rate_limited", "too much", detail={"n": 1})
    assert error.as_dict() == {"code": "rate_limited", "message": "too much", "detail": {"n": 1}}
    assert (error.retry, str(error)) == ("same", "rate_limited: too much")


def test_the_codes_of_the_contract_exist() -> None:
    contract = """inventory_revision_mismatch tool_not_advertised tool_input_invalid tool_output_invalid app_disabled
        app_instance_not_found app_scope_mismatch lifecycle_denied capability_denied call_already_final call_id_conflict
        active_focusing_operation outcome_unknown app_crashed app_closed tool_timeout app_quarantined
        isolation_insufficient manifest_invalid state_invalid state_too_large patch_conflict message_invalid
        message_too_large rate_limited storage_full interaction_already_final interaction_expired unauthorized
        protocol_unsupported runtime_stopping"""
    assert set(contract.split()) <= set(CODES)


def test_pointers_escape_cut_and_stay_readable() -> None:
    assert join([]) == "/"
    assert join(["a/b", 0, "~"]) == "/a~1b/0/~0"
    assert len(pointer("", "x" * 1000)) < 70
    assert pointer("", "a\nb\u202e") == "/a\\u000ab\\u202e"
