"""axe on one document, or on one surface's: what would keep a person from using it."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Frame, Page

GRAVE = ("serious", "critical")
# Each document is looked at alone, and a surface's policy lets nobody read its style sheets again.
OPTIONS = {"iframes": False, "preload": False, "resultTypes": ["violations"]}


def assert_usable(document: Page | Frame, name: str) -> None:
    """No serious and no critical fault."""
    if isinstance(document, Page):
        settle(document)
    answer: dict[str, Any] = Axe().run(document, options=OPTIONS).response  # type: ignore[arg-type]
    assert answer["passes"], f"axe has looked at nothing in {name}"
    grave = [fault for fault in answer["violations"] if fault["impact"] in GRAVE]
    assert not grave, f"{name}:\n" + "\n".join(_described(fault) for fault in grave)


def settle(page: Page) -> None:
    """Let what fades in come to its end: half-transparent text has no contrast to measure."""
    page.evaluate(
        """async () => {
            const moving = document.getAnimations().filter((a) => a.effect?.getComputedTiming().iterations === 1);
            await Promise.all(moving.map((a) => a.finished.catch(() => null)));
        }"""
    )


def _described(fault: dict[str, Any]) -> str:
    places = [f"    {' '.join(map(str, node['target']))}: {node['failureSummary']}" for node in fault["nodes"][:4]]
    return "\n".join((f"  {fault['impact']} {fault['id']}: {fault['help']}", *places))
