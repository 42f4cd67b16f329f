"""Loads of surfaces: what a tab gets to show one, what its frame can fetch, and when a load ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lineup_hostshell import surface_server
from lineup_hostshell.surface_server import (
    BURST_BYTES,
    BYTES_PER_S,
    LOADS_PER_TAB_MAX,
    PIECE_BYTES,
    Load,
    disarmed,
    with_bridge,
)
from lineup_protocol.errors import LineUpError


async def test_a_load_brings_all_that_a_frame_needs(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    assert load["url"] == f"{workspace.workspace.surface_origin}/s/{load['load_id']}/surface/index.html"
    assert {name: load[name] for name in ("surface_id", "title", "revision", "state")} == {
        "surface_id": "f-1", "title": "Board", "revision": 3, "state": {"a": 1},
    }  # fmt: skip
    base = f"/s/{load['load_id']}/surface"
    status, headers, body = await fetch(f"{base}/index.html", port=workspace.surface_port)
    assert (status, headers["content-type"], headers["cache-control"]) == (200, "text/html; charset=utf-8", "no-store")
    bridge = f'<script src="/s/{load["load_id"]}/lineup-bridge.js"></script>'
    assert body.decode().startswith(f"<!doctype html>\n<html lang='en'>\n<head>{bridge}\n<meta")
    for name, media_type, content in [
        ("style.css?v=2", "text/css; charset=utf-8", b"style"),
        ("parts/a%20b%20%C3%A9.png", "image/png", b"png"),
    ]:
        status, headers, body = await fetch(f"{base}/{name}", port=workspace.surface_port)
        assert (status, headers["content-type"], body) == (200, media_type, content)
        assert headers["cross-origin-resource-policy"] == "cross-origin"


async def test_every_script_of_a_load_begins_by_giving_up_webrtc(workspace: Any, fetch: Any, bundle: Path) -> None:
    """Else a page could talk to the network: no policy covers that interface."""
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    for name in ("surface/main.js", "lineup-bridge.js"):
        _, headers, body = await fetch(f"/s/{load['load_id']}/{name}", port=workspace.surface_port)
        assert headers["content-type"] == "text/javascript; charset=utf-8"
        assert body.startswith(b"for(const n of[")
        assert b"delete globalThis[n];" in body
    assert body.endswith(b"})()")


async def test_a_large_file_comes_whole_and_so_often_as_a_load_may(
    workspace: Any, fetch: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = b"'use strict';" + bytes(range(48, 58)) * (PIECE_BYTES // 4)
    (bundle / "surface" / "big.js").write_bytes(script)
    monkeypatch.setattr(surface_server, "BYTES_PER_S", 0)
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    sizes = set()
    for _ in range(BURST_BYTES // (len(script) + 1024)):
        status, headers, body = await fetch(f"/s/{load['load_id']}/surface/big.js", port=workspace.surface_port)
        assert status == 200
        assert body == disarmed(script)
        sizes.add((int(headers["content-length"]), len(body)))
    assert len(sizes) == 1
    status, _, body = await fetch(f"/s/{load['load_id']}/surface/big.js", port=workspace.surface_port)
    assert (status, b"rate_limited" in body) == (429, True)
    other = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    assert (await fetch(f"/s/{other['load_id']}/surface/big.js", port=workspace.surface_port))[0] == 200


def test_a_loads_credit_comes_back_with_time(tmp_path: Path) -> None:
    load = Load("l", "n", "f-1", tmp_path, "index.html", None, lambda load: None, _credited_at=100.0)
    assert load.takes(BURST_BYTES, 100.0)
    assert not load.takes(1, 100.0), "a request counts, whatever it asks for"
    assert load.takes(BYTES_PER_S, 101.0)
    assert not load.takes(BURST_BYTES + 1, 1_000.0)


@pytest.mark.parametrize(
    ("script", "is_strict"),
    [
        ("main()", False),
        ("'use strict';main()", True),
        ("\ufeff'use strict';main()", True),
        ('/* a */ // b\n /* c\n */"use strict" ;\nmain()', True),
        ('/* "use strict"; */main()', False),
        ("'use strict'+1;main()", False),
        ("/* never closed 'use strict';", False),
        # A comment ends where JavaScript says that a line does: what stands behind it is code.
        ('//\rmain();\n"use strict";', False),
        ('// \u2028main();\n"use strict";', False),
        ('// \u2029main();\n"use strict";', False),
        ('// a \u2014 b\r\n// c\u2028"use strict";main()', True),
    ],
)
def test_a_scripts_strictness_stays_as_it_is(script: str, is_strict: bool) -> None:
    """And nothing of it stands before the statement, nor is any line of it another one."""
    statement = disarmed(b"")
    assert b"\n" not in statement
    assert disarmed(script.encode()) == (b'"use strict";' if is_strict else b"") + statement + script.encode()


async def test_a_load_ends_with_unload(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    for _ in range(2):
        assert (await page.ask("surface.unload", load_id=load["load_id"]))["accepted"]
    assert (await fetch(f"/s/{load['load_id']}/surface/index.html", port=workspace.surface_port))[0] == 404
    assert (await page.ask("tools"))["accepted"], "and nobody is told that it was torn"


async def test_loads_end_with_their_tab(workspace: Any, bundle: Path) -> None:
    pages = [await workspace.enter() for _ in range(2)]
    for page in pages:
        await page.ask("surface.load", surface_id="f-1")
    loads = workspace.workspace.surfaces.loads
    assert len(loads) == 2
    await pages[0].socket.close()
    await workspace.answers.until(lambda: len(loads) == 1)


@pytest.mark.parametrize("row", [None, {"status": "closed"}])
async def test_loads_end_with_their_surface(workspace: Any, bundle: Path, row: Any) -> None:
    page = await workspace.enter()
    await page.ask("surface.load", surface_id="f-1")
    loads = workspace.workspace.surfaces.loads
    await workspace.answers.delta(8, {"kind": "surface", "id": "f-2", "row": row})
    await workspace.answers.delta(9, {"kind": "surface", "id": "f-1", "row": {"status": "open"}})
    assert [(await page.hear("delta"))["revision"] for _ in range(2)] == [8, 9]
    assert len(loads) == 1
    await workspace.answers.delta(10, {"kind": "surface", "id": "f-1", "row": row})
    await page.hear("delta")
    assert len(loads) == 0


async def test_a_tabs_oldest_load_makes_room(workspace: Any, bundle: Path) -> None:
    page, other = await workspace.enter(), await workspace.enter()
    theirs = (await other.ask("surface.load", surface_id="f-1"))["detail"]["load_id"]
    made = [
        (await page.ask("surface.load", surface_id="f-1"))["detail"]["load_id"] for _ in range(LOADS_PER_TAB_MAX + 1)
    ]
    loads = workspace.workspace.surfaces.loads
    assert loads.find(made[0]) is None
    assert all(loads.find(load_id) is not None for load_id in (*made[1:], theirs))


async def test_a_surface_that_is_not_open_has_no_load(workspace: Any, bundle: Path) -> None:
    def gone(args: dict[str, Any]) -> Any:
        raise LineUpError("surface_not_found", "no open surface")

    workspace.answers.queries["surface"] = gone
    page = await workspace.enter()
    assert (await page.ask("surface.load", surface_id="f-1"))["code"] == "surface_not_found"
    assert (await page.ask("surface.load", surface_id="no id!"))["code"] == "message_invalid"
    assert (await page.ask("surface.load"))["code"] == "message_invalid"


@pytest.mark.parametrize("digest", ["/etc", "../apps/{digest}", "{digest}/surface", "{digest}\n", ".", ""])
async def test_a_bundle_is_served_from_where_bundles_are_kept_and_nowhere_else(
    workspace: Any, bundle: Path, digest: str
) -> None:
    surface = workspace.answers.queries["surface"]({})
    workspace.answers.queries["surface"] = lambda args: surface | {"digest": digest.format(digest=bundle.name)}
    page = await workspace.enter()
    assert (await page.ask("surface.load", surface_id="f-1"))["code"] == "internal_error"


async def test_a_bundle_swapped_for_a_link_is_not_followed(workspace: Any, fetch: Any, bundle: Path) -> None:
    page = await workspace.enter()
    load = (await page.ask("surface.load", surface_id="f-1"))["detail"]
    os.rename(bundle, bundle.with_name("moved"))
    os.symlink(bundle.with_name("moved"), bundle)
    assert (await fetch(f"/s/{load['load_id']}/surface/main.js", port=workspace.surface_port))[0] == 404


ODD = "\ufeff<!-- <head> -->\n<!DOCTYPE html>\n<HEAD data-a='1'>"
SCRIPT = '<script src="b.js"></script>'


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", SCRIPT),
        ("<p>x", f"{SCRIPT}<p>x"),
        ("<!doctype html><p>x", f"<!doctype html>{SCRIPT}<p>x"),
        (f"{ODD}\n<p>", f"{ODD}{SCRIPT}\n<p>"),
        ("<html lang=de><body>", f"<html lang=de>{SCRIPT}<body>"),
        ("<script>'<head>'</script>", f"{SCRIPT}<script>'<head>'</script>"),
        ("<header>x", f"{SCRIPT}<header>x"),
        ("<!-- never closed <head>", f"{SCRIPT}<!-- never closed <head>"),
    ],
)  # fmt: skip
def test_the_bridge_is_the_first_script_of_any_document(document: str, expected: str) -> None:
    assert with_bridge(document.encode(), "b.js").decode() == expected


LARGE = 8 << 20


@pytest.mark.parametrize(
    "script",
    [b"/*" + b"x" * LARGE, b"//" + b"x" * LARGE, b"//\n" * (LARGE // 3), b"/* */" * (LARGE // 5), b" " * LARGE],
    ids=lambda script: repr(script[:6]),
)
def test_a_hostile_script_does_not_take_long(script: bytes) -> None:
    assert seconds_of(lambda: disarmed(script)) < MOMENT_S


@pytest.mark.parametrize(
    "document",
    [b"<!--" * (LARGE // 4), b"<!-- -->" * (LARGE // 8), b"<!doctype " + b"x" * LARGE, b"<html " + b"x" * LARGE],
    ids=lambda document: repr(document[:8]),
)
def test_a_hostile_document_does_not_take_long(document: bytes) -> None:
    assert seconds_of(lambda: with_bridge(document, "b.js")) < MOMENT_S


MOMENT_S = 0.05  # of the processor's time; a walk through all of it takes longer


def seconds_of(action: Callable[[], object]) -> float:
    """The least of some, so that one copy on a busy machine does not count."""
    taken = []
    for _ in range(3):
        began = time.thread_time()
        action()
        taken.append(time.thread_time() - began)
    return min(taken)
