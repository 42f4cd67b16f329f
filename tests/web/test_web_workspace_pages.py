"""The workspace over HTTP: its built files, the page that says that there are none, and artifacts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lineup_hostshell.artifact_routes import disposition
from lineup_protocol.errors import LineUpError

TOKEN = "t0ken-for-tests-4f0c"
PNG = b"\x89PNG\r\n\x1a\n\0\xff"


async def test_the_page_is_never_kept_and_hashed_files_for_ever(workspace: Any, fetch: Any) -> None:
    status, headers, body = await fetch("/")
    assert (status, headers["content-type"], headers["cache-control"]) == (200, "text/html; charset=utf-8", "no-store")
    assert body.startswith(b"<!doctype html><title>LineUp")
    status, headers, body = await fetch("/assets/index-4f0c.js?v=1")
    assert (status, headers["content-type"], body) == (200, "text/javascript; charset=utf-8", b"export {}")
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "default-src 'none'" in headers["content-security-policy"]


async def test_other_files_are_asked_for_again_and_not_sent_again(workspace: Any, fetch: Any) -> None:
    _, headers, _ = await fetch("/favicon.svg")
    assert (headers["content-type"], headers["cache-control"]) == ("image/svg+xml", "no-cache")
    status, headers, body = await fetch("/favicon.svg", f'If-None-Match: "x", {headers["etag"]}')
    assert (status, body) == (304, b"")
    assert headers["x-content-type-options"] == "nosniff"
    assert (await fetch("/favicon.svg", 'If-None-Match: "x"'))[0] == 200


async def test_head_is_get_without_the_body(workspace: Any, fetch: Any) -> None:
    status, headers, _ = await fetch("/", method="HEAD")
    assert (status, headers["content-length"]) == (200, str(len("<!doctype html><title>LineUp</title>")))


@pytest.mark.parametrize("path", ["/inspector", "/c/c-1", "/assets/missing-1.js"])
async def test_only_the_root_is_the_page(workspace: Any, fetch: Any, path: str) -> None:
    assert (await fetch(path))[0] == 404


class TestNotBuilt:
    @pytest.fixture
    def static(self, tmp_path: Path) -> Path:
        return tmp_path / "nothing"

    async def test_a_missing_build_is_explained(self, workspace: Any, fetch: Any) -> None:
        status, headers, body = await fetch("/")
        assert status == 200
        assert b"npm run build" in body
        assert "default-src 'none'" in headers["content-security-policy"]
        assert (await fetch("/health"))[0] == 200
        page = await workspace.enter()
        assert (await page.ask("tools"))["accepted"]


@pytest.fixture
def artifact(workspace: Any) -> dict[str, Any]:
    row = {"artifact_id": "a-1", "media_type": "image/png", "title": "Board", "sha256": "5" * 64, "content": PNG}

    def read(args: dict[str, Any]) -> dict[str, Any]:
        if args["artifact_id"] != "a-1" or args.get("agent_id", "agent") != "agent":
            raise LineUpError("not_found", "no artifact")
        return row

    workspace.answers.queries["artifact"] = read
    return row


async def test_an_artifact_comes_as_a_file_and_never_as_a_page(
    workspace: Any, fetch: Any, artifact: dict[str, Any]
) -> None:
    for token in (TOKEN, workspace.token):
        status, headers, body = await fetch("/artifacts/a-1", f"Authorization: Bearer {token}")
        assert (status, headers["content-type"], body) == (200, "image/png", PNG)
        assert headers["content-disposition"] == "attachment; filename=\"Board.png\"; filename*=UTF-8''Board.png"
        assert headers["content-security-policy"].endswith("sandbox")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


async def test_an_agent_may_name_itself_and_then_sees_its_own_only(
    workspace: Any, fetch: Any, artifact: dict[str, Any]
) -> None:
    bearer = f"Authorization: Bearer {TOKEN}"
    assert (await fetch("/artifacts/a-1?agent_id=agent", bearer))[0] == 200
    assert (await fetch("/artifacts/a-1?agent_id=other", bearer))[0] == 404
    assert (await fetch("/artifacts/a-2", bearer))[0] == 404
    assert (await fetch("/artifacts/a-1/x", bearer))[0] == 404


async def test_an_artifact_of_a_runtime_that_is_gone(workspace: Any, fetch: Any) -> None:
    workspace.answers.held.add("artifact")
    asked = asyncio.create_task(fetch("/artifacts/a-1", f"Authorization: Bearer {TOKEN}"))
    await workspace.answers.until(lambda: workspace.answers.waiting)
    workspace.link.close()
    status, _, body = await asked
    assert (status, json.loads(body)["error"]["code"]) == (503, "no_runtime")


@pytest.mark.parametrize(
    ("title", "extension", "expected"),
    [
        ("Board", ".png", "attachment; filename=\"Board.png\"; filename*=UTF-8''Board.png"),
        ("a.PNG", ".png", "attachment; filename=\"a.PNG\"; filename*=UTF-8''a.PNG"),
        ("白板", ".svg", "attachment; filename=\"_.svg\"; filename*=UTF-8''%E7%99%BD%E6%9D%BF.svg"),
        ('a"; x="\r\nb', ".txt", "attachment; filename=\"a_ x_b.txt\"; filename*=UTF-8''a%22%3B%20x%3D%22%0D%0Ab.txt"),
        ("../../x", ".txt", "attachment; filename=\"_.._x.txt\"; filename*=UTF-8''%2F..%2Fx.txt"),
        (" . ", ".csv", "attachment; filename=\"artifact.csv\"; filename*=UTF-8''artifact.csv"),
    ],
)  # fmt: skip
def test_a_title_becomes_a_harmless_name(title: str, extension: str, expected: str) -> None:
    assert disposition(title, extension) == expected
