"""Catalogue D: who may speak to the server. Real uvicorn, raw sockets; nothing reaches the Runtime that was refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lineup_hostshell.headers import SECURITY_HEADERS, secured

REQUIRED = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


def check_headers(headers: dict[str, str]) -> None:
    for name, value in REQUIRED.items():
        assert headers.get(name) == value, (name, headers)
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control-")]
    assert "server" not in headers


async def answer(dial: Any, request: bytes) -> tuple[int, dict[str, str], Any]:
    peer = await dial()
    peer.writer.write(request)
    status, headers = await peer.head()
    body = json.loads(await peer.body(headers)) if status != 101 else None
    return status, headers, body


def bad_hosts(port: int) -> list[tuple[list[str], int]]:
    return [
        ([], 400),
        (["Host: evil.example"], 421),
        ([f"Host: evil.example:{port}"], 421),
        ([f"Host: 127.0.0.1.nip.io:{port}"], 421),
        ([f"Host: localhost.:{port}"], 421),
        ([f"Host: 127.0.0.1.:{port}"], 421),
        (["Host: 127.0.0.1"], 421),
        ([f"Host: 127.0.0.1:{port + 1}"], 421),
        ([f"Host: 127.0.0.1:{port}", f"Host: 127.0.0.1:{port}"], 400),
        ([f"Host: 127.0.0.1:{port}", "Host: evil.example"], 400),
        ([f"Host: user@127.0.0.1:{port}"], 421),
    ]


async def test_a_foreign_host_is_refused_on_every_route(shell: Any, dial: Any) -> None:
    for path in ("/health", "/agent", "/", "/nothing"):
        for hosts, expected in bad_hosts(shell.port):
            request = "\r\n".join([f"GET {path} HTTP/1.1", *hosts, "", ""]).encode()
            status, headers, body = await answer(dial, request)
            assert status == expected, (path, hosts)
            assert body["error"]["code"] in ("unauthorized", "message_invalid")
            check_headers(headers)


async def test_a_foreign_host_is_refused_at_the_upgrade(shell: Any, dial: Any, wire: Any) -> None:
    for hosts, expected in bad_hosts(shell.port):
        status, headers, _ = await answer(dial, wire.upgrade(shell.port, *hosts, host=None))
        assert status == expected, hosts
        check_headers(headers)
    assert len(shell.agents) == 0
    assert shell.runtime.inbox.empty()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LocalHost", "[::1]"])
async def test_own_names_are_answered(shell: Any, dial: Any, name: str) -> None:
    status, headers, body = await answer(dial, f"GET /health HTTP/1.1\r\nHost: {name}:{shell.port}\r\n\r\n".encode())
    assert (status, body) == (200, {"status": "ok"})
    check_headers(headers)


async def test_a_foreign_origin_is_refused(shell: Any, dial: Any, wire: Any) -> None:
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1:{shell.port + 1}",
        f"https://127.0.0.1:{shell.port}",
    ):
        status, headers, _ = await answer(dial, wire.upgrade(shell.port, f"Origin: {origin}"))
        assert status == 403, origin
        check_headers(headers)
        for method in ("GET", "POST"):
            request = f"{method} /health HTTP/1.1\r\nHost: localhost:{shell.port}\r\nOrigin: {origin}\r\n"
            status, _, _ = await answer(dial, (request + "Content-Length: 0\r\n\r\n").encode())
            assert status == 403, (method, origin)
    assert len(shell.agents) == 0


async def test_the_token_is_required(shell: Any, dial: Any, wire: Any) -> None:
    port = shell.port
    requests = [
        wire.upgrade(port, token=None),
        wire.upgrade(port, token="wrong"),
        wire.upgrade(port, token=""),
        wire.upgrade(port, token=wire.token + "x"),
        wire.upgrade(port, token=wire.token[:-1]),
        wire.upgrade(port, f"Authorization: Bearer {wire.token}", "Authorization: Bearer x", token=None),
        wire.upgrade(port, f"Authorization: Basic {wire.token}", token=None),
        wire.upgrade(port, f"Cookie: token={wire.token}", token=None),
        wire.upgrade(port, path=f"/agent?token={wire.token}", token=None),
        wire.upgrade(port, f"Origin: http://127.0.0.1:{port}", token=None),
    ]
    for request in requests:
        status, headers, body = await answer(dial, request)
        assert status == 401, request
        assert body["error"]["code"] == "unauthorized"
        assert headers["www-authenticate"] == "Bearer"
        check_headers(headers)
    assert shell.runtime.inbox.empty()


async def test_the_right_token_opens_the_link(shell: Any, dial: Any, wire: Any) -> None:
    status, headers, _ = await answer(dial, wire.upgrade(shell.port))
    assert status == 101
    check_headers(headers)
    status, _, _ = await answer(dial, wire.upgrade(shell.port, f"Origin: http://127.0.0.1:{shell.port}"))
    assert status == 101


async def test_every_refusal_is_json_with_the_security_headers(shell: Any, dial: Any, wire: Any) -> None:
    own = f"Host: 127.0.0.1:{shell.port}\r\n"
    requests = {
        f"GET /nothing HTTP/1.1\r\n{own}\r\n".encode(): 404,
        f"GET /../etc/passwd HTTP/1.1\r\n{own}\r\n".encode(): 404,
        f"GET /health/ HTTP/1.1\r\n{own}\r\n".encode(): 404,
        f"POST /health HTTP/1.1\r\n{own}Content-Length: 2\r\n\r\n{{}}".encode(): 405,
        f"GET /agent HTTP/1.1\r\n{own}\r\n".encode(): 426,
        b"\x16\x03\x01 this is no HTTP\r\n\r\n": 400,
        f"GET /agent HTTP/1.1\r\n{own}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n".encode(): 400,
        wire.upgrade(shell.port, path="/nothing"): 404,
        f"OPTIONS /agent HTTP/1.1\r\n{own}Access-Control-Request-Method: POST\r\n\r\n".encode(): 405,
    }
    for request, expected in requests.items():
        status, headers, body = await answer(dial, request)
        assert status == expected, request
        assert set(body["error"]) == {"code", "message"}
        assert headers["content-type"] == "application/json"
        check_headers(headers)


def test_a_handler_can_widen_a_header_but_not_leave_one_out_or_allow_an_origin() -> None:
    page_csp = b"default-src 'self'"
    made = secured([(b"Content-Security-Policy", page_csp), (b"Access-Control-Allow-Origin", b"null"), (b"etag", b"x")])
    names = [name.lower() for name, _ in made]
    assert sorted(names) == sorted({name for name, _ in SECURITY_HEADERS} | {b"etag"})
    assert dict(made)[b"Content-Security-Policy"] == page_csp


async def test_a_huge_request_head_is_refused(shell: Any, dial: Any) -> None:
    peer = await dial()
    peer.writer.write(b"GET /health HTTP/1.1\r\n")
    line = b"X-Filler: " + b"x" * 4000 + b"\r\n"
    for _ in range(40):
        peer.writer.write(line)
    status, headers = await peer.head()
    assert status == 431
    check_headers(headers)
    assert await peer.at_end()


async def test_a_silent_connection_gives_its_descriptor_back(
    shell: Any, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineup_hostshell.edge_protocols.REQUEST_HEAD_S_MAX", 0.05)
    silent = await dial()
    assert (await silent.head())[0] == 408
    assert await silent.at_end()
    trickling = await dial()
    trickling.writer.write(b"GET /health HTT")
    assert (await trickling.head())[0] == 408


async def test_no_secret_is_logged(shell: Any, dial: Any, wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await answer(dial, wire.upgrade(shell.port, path="/agent?token=query-secret"))
    await answer(dial, wire.upgrade(shell.port, path="/agent?token=query-secret", token="header-secret"))
    own = f"Host: 127.0.0.1:{shell.port}\r\nReferer: http://x/?referer-secret\r\nCookie: cookie-secret\r\n"
    await answer(dial, f"GET /health?query-secret HTTP/1.1\r\n{own}\r\n".encode())
    await answer(dial, f"GET /a%0d%0afake HTTP/1.1\r\n{own}\r\n".encode())
    messages = [record.getMessage() for record in caplog.records if not record.name.startswith("asyncio")]
    assert any("GET '/health' 200" in line for line in messages)
    assert not any("secret" in line or wire.token in line for line in messages)
    assert not any("\r" in line or "\n" in line for line in messages)
