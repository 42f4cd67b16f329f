"""Loads of surfaces: what a tab gets to show one, what its frame can fetch, and when a load ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lineup_hostshell.surface_server import LOADS_PER_TAB_MAX, disarmed, with_bridge
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


@pytest.mark.parametrize(
    ("script", "before"),
    [
        ("main()", ""),
        ("'use strict';main()", "'use strict';"),
        ('/* a */ // b\n /* c\n */"use strict" ;\nmain()', '/* a */ // b\n /* c\n */"use strict" ;'),
        ('/* "use strict"; */main()', ""),
        ("'use strict'+1;main()", ""),
        ("/* never closed 'use strict';", ""),
        # A comment ends where JavaScript says that a line does: what stands behind it is code.
        ('//\rmain();\n"use strict";', ""),
        ('// \u2028main();\n"use strict";', ""),
        ('// \u2029main();\n"use strict";', ""),
        ('// a \u2014 b\r\n// c\u2028"use strict";main()', '// a \u2014 b\r\n// c\u2028"use strict";'),
    ],
)
def test_a_scripts_strictness_stays_as_it_is(script: str, before: str) -> None:
    made = disarmed(script.encode()).decode()
    assert made.startswith(before + "for(const n of[")
    assert made.replace(disarmed(b"").decode(), "") == script


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


def test_a_hostile_document_does_not_take_long() -> None:
    disarmed(b"/* */" * 200_000 + b"main()")
    disarmed(b"/*" * 200_000)
    with_bridge(b"<!--" * 500_000, "b.js")
    with_bridge(b"<!-- -->" * 200_000 + b"<html", "b.js")
