"""Catalogue D against the workspace and the surface port: raw sockets; what was refused does not reach the Runtime."""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets

from lineup_hostshell.server import bind_loopback
from lineup_hostshell.workspace import Workspace
from lineup_hostshell.workspace_auth import KEY_NAME, LAUNCH_KEY_S, SESSION_S, LaunchKeys, SessionTokens, session_key

JSON = "Content-Type: application/json"
PATHS = ("/", "/assets/index-4f0c.js", "/api/session", "/artifacts/a-1", "/workspace", "/nothing")


def check_headers(headers: dict[str, str], corp: str = "same-origin") -> None:
    """No answer goes out without them."""
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == corp
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control-")]
    assert "set-cookie" not in headers
    assert "server" not in headers


def launch(key: Any) -> bytes:
    return json.dumps({"launch": key}).encode()


async def test_d1_a_foreign_host_reaches_no_route(workspace: Any, fetch: Any) -> None:
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    upgrade += ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",)
    for port, corp in ((workspace.port, "same-origin"), (workspace.surface_port, "cross-origin")):
        hosts = ["evil.example", f"evil.example:{port}", f"127.0.0.1.nip.io:{port}", f"127.0.0.1.:{port}", ""]
        for path, host, extra in itertools.product(PATHS, hosts, ((), upgrade)):
            status, headers, _ = await fetch(path, *extra, port=port, host=host)
            assert status in (400, 421), (path, host, extra)
            check_headers(headers, corp)
        assert (await fetch("/", f"Host: 127.0.0.1:{port}", port=port))[0] == 400, "two Hosts"


async def test_d1_the_surface_port_answers_to_its_number_only(workspace: Any, fetch: Any) -> None:
    for host in (f"localhost:{workspace.surface_port}", f"127.0.0.1:{workspace.port}"):
        assert (await fetch("/s/x/y.html", port=workspace.surface_port, host=host))[0] == 421


async def test_d2_an_upgrade_of_a_foreign_origin_is_refused(workspace: Any) -> None:
    origins = ["http://evil.example", "null", f"http://127.0.0.1:{workspace.surface_port}",
               f"http://127.0.0.1:{workspace.port + 1}", f"https://127.0.0.1:{workspace.port}"]  # fmt: skip
    for origin in origins:
        with pytest.raises(websockets.InvalidStatus) as refused:
            await workspace.open_page(Origin=origin)
        assert refused.value.response.status_code == 403


async def test_d2_an_upgrade_without_a_token_gets_nothing(workspace: Any) -> None:
    token = workspace.token
    tokens = ["", "x", token + "x", token[:-1], "lws1.9999999999.AAAAAAAAAAAAAAAA.AAAA"]
    frames = [
        {"t": "query", "id": "q", "name": "snapshot"},
        {"t": "auth"},
        {"t": "auth", "token": None},
        {"t": "auth", "token": token, "more": 1},
        *({"t": "auth", "token": wrong} for wrong in tokens),
    ]
    for first in frames:
        page = await workspace.open_page()
        await page.say(first)
        assert await page.close_code() == 4401
    assert workspace.answers.names() == []
    page = await workspace.open_page(Origin=f"http://localhost:{workspace.port}")
    await page.enter(workspace.token)


async def test_d2_a_token_in_the_upgrade_is_no_token(workspace: Any) -> None:
    page = await workspace.open_page(Authorization=f"Bearer {workspace.token}", Cookie=f"token={workspace.token}")
    await page.say({"t": "query", "id": "q", "name": "snapshot"})
    assert await page.close_code() == 4401


async def test_d3_no_simple_request_changes_anything(workspace: Any, fetch: Any) -> None:
    """What a page of another site may send without being asked first: none of it uses the key up."""
    key = workspace.workspace.launch_keys.mint()
    kinds = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
             "text/plain; application/json", "application/json, text/plain", "Application/JSON;x=1"]  # fmt: skip
    for kind in kinds:
        status, headers, _ = await fetch("/api/session", f"Content-Type: {kind}", method="POST", body=launch(key))
        assert status == 415, kind
        check_headers(headers)
    assert (await fetch("/api/session", method="POST", body=launch(key)))[0] == 415
    assert (await fetch("/api/session", JSON, "Content-Type: text/plain", method="POST", body=launch(key)))[0] == 415
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        status, headers, _ = await fetch("/api/session", JSON, method=method, body=launch(key))
        assert status in (404, 405), method
        check_headers(headers)
    evil = "Origin: http://evil.example"
    assert (await fetch("/api/session", JSON, evil, method="POST", body=launch(key)))[0] == 403
    for path in ("/", "/artifacts/a-1"):
        assert (await fetch(path, JSON, method="POST", body=launch(key)))[0] in (404, 405)
    status, _, body = await fetch("/api/session", JSON, method="POST", body=launch(key))
    assert status == 200
    assert workspace.workspace.sessions.check(json.loads(body)["token"])
    assert workspace.answers.names() == []


async def test_d4_a_launch_key_dies_at_its_first_use(workspace: Any, fetch: Any) -> None:
    key = workspace.workspace.launch_keys.mint()
    other = workspace.workspace.launch_keys.mint()
    status, headers, body = await fetch("/api/session", JSON, method="POST", body=launch(key))
    assert (status, set(json.loads(body))) == (200, {"token", "expires_at"})
    assert headers["cache-control"] == "no-store"
    for used in (key, key[:-1], "", "../" + key, "x" * 32, other.encode().hex()):
        status, headers, body = await fetch("/api/session", JSON, method="POST", body=launch(used))
        assert (status, json.loads(body)["error"]["code"]) == (401, "unauthorized")
        check_headers(headers)
    assert (await fetch("/api/session", JSON, method="POST", body=launch(other)))[0] == 200


async def test_d4_a_body_that_is_no_launch_is_refused(workspace: Any, fetch: Any) -> None:
    more, twice = b'{"launch":"x","more":1}', b'{"launch":"a","launch":"b"}'
    for body in (b"", b"{}", b"[]", b"null", launch(5), launch(None), more, twice, b"{", b"\xff"):
        assert (await fetch("/api/session", JSON, method="POST", body=body))[0] == 400, body


async def test_d4_a_huge_body_is_refused(workspace: Any, fetch: Any) -> None:
    assert (await fetch("/api/session", JSON, method="POST", body=launch("x" * 5000)))[0] == 413


def test_d4_launch_keys_of_another_run_or_of_yesterday_are_dead(run_dir: Path) -> None:
    now = [time.time()]
    keys = LaunchKeys(run_dir, "b-1", lambda: now[0])
    late, other, moved = keys.mint(), keys.mint(), keys.mint()
    written = (run_dir / "launch").stat().st_mtime
    now[0] = written
    assert not LaunchKeys(run_dir, "b-2", lambda: now[0]).redeem(other)
    assert keys.redeem(other)
    now[0] = written + LAUNCH_KEY_S + 1
    assert not keys.redeem(late)
    now[0] = written - 60
    assert not keys.redeem(moved), "a clock that was set back does not make a key last longer"
    now[0] = written
    assert not keys.redeem(late), "a late key was used up by trying"


def test_d4_what_is_too_old_is_swept(run_dir: Path) -> None:
    now = [time.time()]
    keys = LaunchKeys(run_dir, "b-1", lambda: now[0])
    keys.mint()
    page = keys.leave_redirect('http://127.0.0.1:1/#launch=a&b"><script>')
    now[0] = page.stat().st_mtime + LAUNCH_KEY_S + 1
    assert b"<script>" not in page.read_bytes()
    keys.mint()
    assert not page.exists()
    assert len(list((run_dir / "launch").iterdir())) == 1


def test_d4_session_tokens_end_and_belong_to_one_key() -> None:
    now = [1_000_000_000.0]
    sessions = SessionTokens(b"k" * 32, lambda: now[0])
    token, expires_s = sessions.issue()
    assert expires_s == 1_000_000_000 + SESSION_S
    assert sessions.check(token)
    assert not SessionTokens(b"j" * 32, lambda: now[0]).check(token), "signed by another home's key"
    id_, _, secret = token.rpartition(".")
    longer = id_.replace(str(expires_s), str(expires_s + 999))
    for forged in (
        f"{longer}.{secret}",
        f"{id_}.",
        f".{secret}",
        secret,
        "",
        "a.b.c.d",
        f"{id_}.{secret}é",
        "\ud800.x",
    ):
        assert not sessions.check(forged)
    now[0] = expires_s
    assert not sessions.check(token)


async def test_d4_a_token_counts_in_its_header_only(workspace: Any, fetch: Any) -> None:
    token = workspace.token
    for target, headers in [
        (f"/artifacts/a-1?token={token}", ()),
        (f"/artifacts/a-1?access_token={token}", ()),
        ("/artifacts/a-1", (f"Cookie: token={token}",)),
        ("/artifacts/a-1", (f"Authorization: Basic {token}",)),
        ("/artifacts/a-1", (f"Authorization: Bearer {token}", "Authorization: Bearer x")),
        ("/artifacts/a-1", ("Authorization: Bearer ",)),
        ("/artifacts/a-1", (f"Authorization: Bearer {token[:-1]}",)),
    ]:
        status, answered, body = await fetch(target, *headers)
        assert (status, json.loads(body)["error"]["code"]) == (401, "unauthorized"), (target, headers)
        assert answered["www-authenticate"] == "Bearer"
        check_headers(answered)
    assert workspace.answers.names() == []


async def test_d4_no_secret_is_logged(workspace: Any, fetch: Any, caplog: Any, bundle: Path) -> None:
    caplog.set_level(logging.DEBUG)
    key, token = workspace.workspace.launch_keys.mint(), workspace.token
    await fetch("/api/session", JSON, method="POST", body=launch(key))
    await fetch("/api/session", JSON, method="POST", body=launch(key))
    await fetch(f"/artifacts/a-1?token={token}", f"Authorization: Bearer {token}", f"Referer: http://x/?{token}")
    page = await workspace.open_page()
    await page.enter(token)
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    await fetch(load["url"].partition(str(workspace.surface_port))[2], port=workspace.surface_port)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("lineup")]
    assert any("/s/-/surface/index.html" in line for line in lines)
    for secret in (key, token, token.rpartition(".")[2], load["load_id"], load["nonce"], page.nonce):
        assert not any(secret in line for line in lines)


async def test_d5_cookies_give_nothing_and_none_is_ever_set(workspace: Any, fetch: Any) -> None:
    cookie = f"Cookie: session={workspace.token}; token={workspace.token}; launch=x"
    for path in PATHS:
        _, headers, _ = await fetch(path, cookie)
        assert "set-cookie" not in headers
    assert (await fetch("/artifacts/a-1", cookie))[0] == 401
    key = workspace.workspace.launch_keys.mint()
    _, headers, _ = await fetch("/api/session", JSON, cookie, method="POST", body=launch(key))
    assert "set-cookie" not in headers


@pytest.mark.conformance("03-9.9")
async def test_d6_a_surface_cannot_reach_the_api(workspace: Any, fetch: Any) -> None:
    """Its requests carry Origin null; a good token does not help, and no answer ever allows an origin."""
    key, authorization = workspace.workspace.launch_keys.mint(), f"Authorization: Bearer {workspace.token}"
    for origin in ("null", f"http://127.0.0.1:{workspace.surface_port}"):
        foreign = f"Origin: {origin}"
        for path in PATHS:
            for method in ("GET", "POST", "OPTIONS"):
                extra = (JSON, authorization, foreign, "Access-Control-Request-Method: POST")
                status, headers, _ = await fetch(path, *extra, method=method, body=launch(key))
                assert status == 403, (method, path)
                check_headers(headers)
    assert workspace.workspace.launch_keys.redeem(key), "still unused"
    assert workspace.answers.names() == []


async def test_d6_the_surface_port_allows_no_origin_either(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    base = f"/s/{load['load_id']}/surface"
    for method, expected in (("GET", 200), ("OPTIONS", 405), ("POST", 405), ("HEAD", 405)):
        status, headers, _ = await fetch(f"{base}/main.js", "Origin: null", method=method, port=workspace.surface_port)
        assert status == expected
        check_headers(headers, "cross-origin")
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(f"ws://127.0.0.1:{workspace.surface_port}/workspace", proxy=None)
    assert refused.value.response.status_code == 404


@pytest.mark.conformance("03-9.9")
async def test_d7_a_surface_is_sandboxed_by_its_own_headers(workspace: Any, fetch: Any, bundle: Path) -> None:
    """Top navigation, popups, forms, downloads, frames, workers, requests: each is closed by the document's policy."""
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    path = load["url"].partition(str(workspace.surface_port))[2]
    _, headers, _ = await fetch(path, "Sec-Fetch-Dest: iframe", port=workspace.surface_port)
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    own = f"http://127.0.0.1:{workspace.surface_port}/s/{load['load_id']}/"
    assert policy["sandbox"] == "allow-scripts"
    assert policy["script-src"] == own
    assert policy["frame-ancestors"] == f"http://127.0.0.1:{workspace.port} http://localhost:{workspace.port}"
    for closed in ("default-src", "connect-src", "frame-src", "worker-src", "base-uri", "form-action"):
        assert policy[closed] == "'none'"
    assert "unsafe-inline" not in policy["script-src"]
    assert "unsafe-eval" not in headers["content-security-policy"]
    assert "x-frame-options" not in headers, "it must be shown in the workspace's frame"
    assert "camera=()" in headers["permissions-policy"]


async def test_d7_the_page_can_frame_surfaces_only(workspace: Any, fetch: Any) -> None:
    _, headers, _ = await fetch("/")
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["frame-src"] == f"http://127.0.0.1:{workspace.surface_port}"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-frame-options"] == "DENY"


async def test_d8_a_surface_that_leaves_or_reloads_is_torn_down(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    for again in ("index.html", "second.html", "main.js", "nothing.png"):
        load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
        base = f"/s/{load['load_id']}/surface"
        navigation = ("Sec-Fetch-Dest: iframe", "Sec-Fetch-Mode: navigate")
        assert (await fetch(f"{base}/index.html", *navigation, port=workspace.surface_port))[0] == 200
        assert (await fetch(f"{base}/main.js", "Sec-Fetch-Dest: script", port=workspace.surface_port))[0] == 200
        status, headers, _ = await fetch(f"{base}/{again}", *navigation, port=workspace.surface_port)
        assert status == 404, again
        assert "sandbox" in headers["content-security-policy"]
        torn = await page.hear("torn")
        assert torn == {"t": "torn", "load_id": load["load_id"], "surface_id": "f-1"}
        assert (await fetch(f"{base}/main.js", port=workspace.surface_port))[0] == 404, "and nothing is left of it"


async def test_d8_a_surface_opened_as_a_page_of_its_own_is_refused(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    path = load["url"].partition(str(workspace.surface_port))[2]
    assert (await fetch(path, "Sec-Fetch-Dest: document", port=workspace.surface_port))[0] == 404
    await page.hear("torn")


async def test_d9_each_load_has_an_address_and_a_nonce_of_its_own(workspace: Any, fetch: Any, bundle: Path) -> None:
    """A sibling can neither fetch another load's bridge (its address is a secret) nor end the load."""
    first, second = await workspace.enter(), await workspace.enter()
    loads = [(await page.ask("surface.load", surface_id="f-1"))["detail"] for page in (first, first, second)]
    assert len({load["nonce"] for load in loads} | {load["load_id"] for load in loads}) == 6
    for load in loads:
        status, headers, body = await fetch(f"/s/{load['load_id']}/lineup-bridge.js", port=workspace.surface_port)
        assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert body.count(load["nonce"].encode()) == 1
        assert b"__LINEUP_NONCE__" not in body
    await second.ask("surface.unload", load_id=loads[0]["load_id"])
    assert (await fetch(f"/s/{loads[0]['load_id']}/surface/main.js", port=workspace.surface_port))[0] == 200
    assert (await fetch("/lineup-bridge.js"))[0] == 404
    assert (await fetch("/s/lineup-bridge.js", port=workspace.surface_port))[0] == 404


HOSTILE_PATHS = [
    "../app.py", "..%2fapp.py", "%2e%2e/app.py", "%2e%2e%2fapp.py", "surface/../app.py", "surface/%2e%2e/app.py",
    "surface/..%5capp.py", "surface/....//main.js", "surface//main.js", "surface/./main.js", "surface/main.js%00",
    "surface/main.js%00.png", "surface/main%2ejs%0d%0a", "surface/link.js", "surface/out/hostname", "surface/pipe.js",
    "surface/folder.js", "surface/", "surface", "", "app.py", "miniapp.json", "other.html", "surface/second.html",
    "surface/notes.md", "surface/main.js/", "surface/main.js/x", "surface/%ff.js", "surface/main.JS",
    "surface\\main.js", "%73urface/%6dain.js/..", "surface/%252e%252e/main.js", "/etc/passwd", "%2fetc%2fpasswd",
    "x" * 3000,
]  # fmt: skip


async def test_d10_nothing_but_the_pages_own_files_is_served(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    for hostile in HOSTILE_PATHS:
        status, headers, body = await fetch(f"/s/{load['load_id']}/{hostile}", port=workspace.surface_port)
        assert (status, json.loads(body)["error"]["code"]) == (404, "not_found"), hostile
        check_headers(headers, "cross-origin")
        if hostile:
            status, headers, _ = await fetch(f"/{hostile}".replace("surface", "assets"))
            assert status == 404, hostile
            check_headers(headers)
    for load_id in ("x", "..", "%2e%2e", "", "A" * 32):
        assert (await fetch(f"/s/{load_id}/surface/main.js", port=workspace.surface_port))[0] == 404
    assert (await fetch(f"/s/{load['load_id']}/surface/main.js", port=workspace.surface_port))[0] == 200


async def test_d10_the_workspace_serves_its_built_files_only(workspace: Any, fetch: Any) -> None:
    paths = [
        *("/link.js", "/.stamp", "/notes.md", "/index.html", "/assets", "/assets/", "/assets/../index.html", "//"),
        *("/assets/%2e%2e/index.html", "/static/index.html", "/favicon.svg%00", "/favicon.svg/", "/%2e/favicon.svg"),
    ]
    for path in paths:
        status, headers, _ = await fetch(path)
        assert status == 404, path
        check_headers(headers)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_d11_secrets_are_for_us_alone_whatever_the_umask(run_dir: Path, open_umask: None) -> None:
    LaunchKeys(run_dir, "b-1").mint()
    LaunchKeys(run_dir, "b-1").leave_redirect("http://127.0.0.1:1/")
    session_key(run_dir)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run_dir.rglob("*")}
    assert modes.pop("launch") == 0o700
    assert set(modes.values()) == {0o600}


def test_d11_a_key_that_others_could_read_is_no_key(run_dir: Path) -> None:
    key = session_key(run_dir)
    assert session_key(run_dir) == key, "it outlives the process"
    for spoil in ("open", "short", "symlink", "folder"):
        path = run_dir / KEY_NAME
        if spoil == "open":
            path.chmod(0o644)
        elif spoil == "short":
            path.write_text("00")
        elif spoil == "symlink":
            elsewhere = run_dir / "elsewhere"
            path.rename(elsewhere)
            path.symlink_to(elsewhere)
        else:
            path.unlink()
        fresh = session_key(run_dir)
        assert fresh != key
        assert stat.S_IMODE(path.stat(follow_symlinks=False).st_mode) == 0o600
        assert stat.S_ISREG(path.stat(follow_symlinks=False).st_mode)
        key = fresh


@pytest.mark.parametrize("fault", ["open", "symlink", "file"])
def test_d11_a_launch_folder_that_others_could_write_is_not_used(run_dir: Path, fault: str) -> None:
    keys = LaunchKeys(run_dir, "b-1")
    key = keys.mint()
    folder = run_dir / "launch"
    if fault == "open":
        folder.chmod(0o777)
    else:
        folder.rename(run_dir / "real")
        if fault == "symlink":
            folder.symlink_to(run_dir / "real")
        else:
            folder.write_text("")
    assert not keys.redeem(key)
    with pytest.raises(Exception, match="home_unusable"):
        keys.mint()


async def test_d12_a_port_that_somebody_else_holds_is_left_to_them(workspace: Any, run_dir: Path) -> None:
    """Neither port is fought for; the next process of ours takes another one, and says so where only we can read it."""
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        taken = impostor.getsockname()[1]
        listener = bind_loopback(taken)
        assert listener.getsockname()[1] != taken
        listener.close()
        (run_dir / "surface.port").write_text(f"{taken}\n")
        other = Workspace(run_dir, workspace.link, await welcome(), "t", workspace.port)
        assert not other.surface_origin.endswith(f":{taken}")
        assert (run_dir / "surface.port").read_text() == other.surface_origin.rpartition(":")[2] + "\n"
        assert stat.S_IMODE((run_dir / "surface.port").stat().st_mode) == 0o600
        await other.start()
        await other.stop()


async def test_d12_the_surface_port_is_kept_over_restarts(workspace: Any, run_dir: Path) -> None:
    """Pages that are open may frame the old one only."""
    await workspace.workspace.stop()
    again = Workspace(run_dir, workspace.link, await welcome(), "t", workspace.port)
    assert again.surface_origin == workspace.workspace.surface_origin
    await again.start()
    await again.stop()


@pytest.mark.parametrize("name", ["surface.port", KEY_NAME])
@pytest.mark.parametrize("left", ["folder", "empty", "garbage", "pipe", "link"])
async def test_no_leftover_in_the_run_directory_prevents_a_start(
    workspace: Any, run_dir: Path, name: str, left: str
) -> None:
    path = run_dir / name
    path.unlink()
    if left == "folder":
        (path / "inside").mkdir(parents=True)
    elif left == "pipe":
        os.mkfifo(path, 0o600)
    elif left == "link":
        path.symlink_to("nowhere")
    else:
        path.write_bytes(b"" if left == "empty" else b"\xff" * 3_000)
    other = Workspace(run_dir, workspace.link, await welcome(), "t", workspace.port)
    token, _ = other.sessions.issue()
    assert other.sessions.check(token)
    await other.start()
    await other.stop()


async def welcome() -> Any:
    from lineup_hostshell.host_session import Welcome

    return Welcome(1, "b-1", "0.1.0", {})
