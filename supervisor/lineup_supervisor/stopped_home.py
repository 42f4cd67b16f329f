"""Answers questions about a home while no Runtime has it open: the records and the audit, read and nothing else.

This file owns which queries make sense without a Runtime, and their form on two pipes: one JSON object a line, first
``{"open": true}``, then for each ``{name, args}`` one ``{accepted, detail?, code?, message?}``. The answers are the
core's own, out of one snapshot. It must not know what they mean.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import IO, Any

from lineup_protocol.errors import LineUpError
from lineup_supervisor.core import effects as fx
from lineup_supervisor.core import events as ev
from lineup_supervisor.core.schema import SCHEMA_VERSION, TABLES
from lineup_supervisor.core.step import step
from lineup_supervisor.core.txn import Txn
from lineup_supervisor.edges.store import gone
from lineup_supervisor.edges.store_file import DATA_NAME, trace_of_store
from lineup_supervisor.edges.store_rows import Unreadable
from lineup_supervisor.edges.store_view import view_store
from lineup_supervisor.home import Home, own_directory, trace_of_past
from lineup_supervisor.store_rules import contradiction_in

# What the rows say. ``tools`` and ``status`` are not among them: nothing is offered and nothing runs.
QUERIES = frozenset(("apps", "audit.page", "call", "calls", "interaction", "interactions", "story"))


def serve(root: Path, requests: IO[str], answers: IO[str]) -> None:
    """Answer each line of ``requests`` until they end.

    Raises:
        LineUpError: ``no_runtime`` if nothing was ever kept there; else what ``view_store`` raises.
    """
    data = root / "data"
    if not os.path.lexists(data / DATA_NAME):
        if (left := trace_of_store(data) or trace_of_past(Home(root))) is not None:
            raise gone(data / DATA_NAME, left)
        raise LineUpError("no_runtime", f"no Runtime is running for {root}, and none has ever kept anything there")
    for directory in (root, data):
        own_directory(directory)
    with view_store(data, TABLES, schema_version=SCHEMA_VERSION) as txn:
        _say(answers, {"open": True})
        for line in requests:
            request = json.loads(line)
            try:
                answer = _answer(txn, request["name"], request["args"])
            except Unreadable as met:
                answer = {"accepted": False, "code": met.error.code, "message": met.error.message}
            except (AssertionError, LookupError, TypeError, ValueError) as error:
                if (found := contradiction_in(txn, data)) is None:
                    raise
                raise found from error
            _say(answers, answer)


def _say(answers: IO[str], value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def _answer(txn: Txn, name: str, args: dict[str, Any]) -> dict[str, Any]:
    if name not in QUERIES:
        return {"accepted": False, "code": "no_runtime", "message": f"{name} needs a running Runtime"}
    now = ev.Now(wall_ms=time.time_ns() // 1_000_000, steady_ms=time.monotonic_ns() // 1_000_000)
    (reply,) = step(txn, ev.HostQuery(event_id="stopped", reply_to="stopped", name=name, args=args), now)
    assert isinstance(reply, fx.ReplyHost)
    told = {"detail": reply.detail, "code": reply.code, "message": reply.message}
    return {"accepted": reply.accepted, **{key: value for key, value in told.items() if value is not None}}
