"""The host link refuses what is too long before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lineup_protocol.codec import decode_message, encode_message
from lineup_protocol.limits import HOST_MESSAGE_BYTES_MAX, NAME_LENGTH_MAX
from lineup_supervisor.core.effects import HostDelta, ReplyHost
from lineup_supervisor.edges.host_link import HostLink


class Socket:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, peer: bytes, data: bytes) -> None:
        self.sent.append(decode_message(data, "host", from_runtime=True)[2])

    def watch(self, peer: bytes, pid: int) -> None:
        """Nothing to watch here."""


class Log:
    def warning(self, event: str, **fields: Any) -> None:
        assert len(msgspec.json.encode(fields)) < 4_096

    info = debug = error = warning


def made(submit: Callable[[Any], None] = lambda event: None) -> HostLink:
    return HostLink(
        submit=submit,
        own=lambda *asked: False,
        welcome=lambda session: {"boot_id": "b", "version": "1", "settings": {}},
        new_event_id=lambda: "e",
        on_lost=lambda session, why: None,
        log=Log(),
    )


def test_changes_over_the_size_of_a_message_are_told_without_themselves() -> None:
    """The revision alone says that there is more to fetch; keeping silent would leave the workspace as it was."""
    link = made()
    link.socket = socket = Socket()  # type: ignore[assignment]
    link.on_message(
        b"p", encode_message("host.hello", {"protocols": [1], "role": "cli", "pid": 1}, link="host", from_runtime=False)
    )
    link.on_message(b"p", encode_message("host.subscribe", {}, link="host", from_runtime=False, message_id="m1"))
    link.reply(ReplyHost(reply_to=f"{b'p'.hex()}.m1", accepted=True, detail={"revision": 3}))
    row = {"state": "x" * (HOST_MESSAGE_BYTES_MAX // 16)}
    for revision, count in ((4, 1), (5, 16), (6, 1)):
        changes = tuple({"kind": "surface", "id": f"f{n}", "row": row} for n in range(count))
        link.delta(HostDelta(revision=revision, changes=changes))
    deltas = [body for body in socket.sent if "revision" in body]
    assert [(body["revision"], len(body.get("changes", ()))) for body in deltas] == [(4, 1), (5, 0), (6, 1)]
    assert "changes" not in deltas[1]


@pytest.mark.parametrize("type_", ["host.query", "host.action"])
def test_a_name_is_short(type_: str) -> None:
    submitted: list[Any] = []
    link = made(submitted.append)
    link.socket = Socket()  # type: ignore[assignment]
    link.on_message(
        b"p", encode_message("host.hello", {"protocols": [1], "role": "cli", "pid": 1}, link="host", from_runtime=False)
    )
    for length in (NAME_LENGTH_MAX, NAME_LENGTH_MAX + 1, 3_000_000):
        body = {"name": "x" * length, "args": {}} | ({"action_id": f"a{length}"} if type_ == "host.action" else {})
        link.on_message(b"p", encode_message(type_, body, link="host", from_runtime=False, message_id=f"m{length}"))
    assert [event.name for event in submitted] == ["x" * NAME_LENGTH_MAX]
    refusals = [body for body in link.socket.sent if "accepted" in body]  # type: ignore[attr-defined]
    assert [(body["code"], body["detail"]["path"]) for body in refusals] == [("message_invalid", "/body/name")] * 2
