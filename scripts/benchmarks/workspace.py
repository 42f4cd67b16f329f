"""What a person at the workspace waits for, in the Chromium of the browser tests: the first paint, a long history
scrolled from end to end, a thousand strokes on the Whiteboard."""

from __future__ import annotations

import asyncio
import gzip
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import runtime
from playwright.sync_api import Browser, CDPSession, expect

TESTS = str(Path(__file__).resolve().parents[2] / "tests")
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)

from browser.support.chromium import chromium  # noqa: E402 - after the path is known
from browser.support.person import Person  # noqa: E402
from browser.support.running import LineUp, lineup_up  # noqa: E402
from lineup_hostshell.static_files import STATIC  # noqa: E402

LOADS = 7
MESSAGES = 10_000
STROKES = 1_000
POINTS = 6  # of the pointer in a stroke
SCROLL_PX = 400  # in a frame: at 60 of them in a second a flick through some 300 messages
DOWN_FRAMES = 600
VIEWPORT = {"width": 1280, "height": 800}
HISTORY = "long-history"
READ_S_MAX = 240
TOLD_S_MAX = 120


@dataclass(frozen=True)
class Load:
    """Medians of warm loads, and what the first one fetched."""

    painted_ms: float  # until there is anything to see
    usable_ms: float  # until the conversation is there and can be written in
    gzip_kib: float


@dataclass(frozen=True)
class Scroll:
    frames_per_s: float
    floor_per_s: float  # of an empty page of the same browser
    work_ms: float  # of the page's main thread in a frame, as the processor counts it
    longest_task_ms: float


@dataclass(frozen=True)
class Drawing:
    """From an event of the pointer to the frame that shows what it did."""

    lag_p99_ms: float


def measure() -> tuple[Load, Scroll, Drawing]:
    with lineup_up() as lineup:
        asyncio.run(_tell_a_long_story(lineup))
        with chromium() as browser:
            page = browser.new_context(viewport=VIEWPORT, locale="en").new_page()
            person = Person(page, "bench").enter(lineup.link())
            _converse(person, lineup, "bench-hello")
            person.say("hello")
            person.hears("demo agent")
            return _load(person), _scroll(person, lineup, browser), _draw(person, lineup)


def _converse(person: Person, lineup: LineUp, action_id: str) -> None:
    """A new conversation with the demo agent: the one with the history is another's."""
    opened = lineup.action("conversation.open", action_id, agent_id="demo")
    person.page.goto(f"{lineup.origin}/#/c/{opened['detail']['conversation_id']}")
    expect(person.composer).to_be_visible()


async def _tell_a_long_story(lineup: LineUp) -> None:
    """A conversation of ``MESSAGES`` entries, as an agent says them."""
    async with runtime.agent(lineup.facts(), lineup.home) as agent:
        for n in range(MESSAGES):
            await agent.send("message.text", {"text": _message(n), "format": "markdown"}, HISTORY)
        give_up_at = time.monotonic() + TOLD_S_MAX
        while _entries(lineup) < MESSAGES:  # a link that is closed takes what is still under way with it
            assert time.monotonic() < give_up_at, "the history did not become durable in time"
            await asyncio.sleep(0.05)


def _message(n: int) -> str:
    match n % 10:
        case 3:
            return f"Step {n}:\n\n- one thing\n- **another** thing\n- and `a_name`"
        case 6:
            return f"```python\ndef step_{n}():\n    return {n}\n```"
        case 9:
            return f"| what | how many |\n|---|---|\n| steps | {n} |\n| left | {MESSAGES - n} |"
        case _:
            return f"Message {n}. " + "It has some words in it, as messages have. " * (1 + n % 4)


def _load(person: Person) -> Load:
    page = person.page
    page.context.add_init_script(WHEN_USABLE)
    painted, usable = [], []
    for _ in range(LOADS):
        page.reload()
        person.wait(lambda: page.evaluate("window.usableMs !== undefined"), "the conversation can be used")
        painted.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        usable.append(page.evaluate("window.usableMs"))
    fetched = page.evaluate("performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)")
    return Load(statistics.median(painted), statistics.median(usable), _gzip_kib(["/index.html", *fetched]))


def _gzip_kib(paths: list[str]) -> float:
    """What the files of a load would be on a wire that packs them."""
    files = [STATIC / path.lstrip("/") for path in dict.fromkeys(paths)]
    return sum(len(gzip.compress(file.read_bytes())) for file in files if file.is_file()) / 1024


def _scroll(person: Person, lineup: LineUp, browser: Browser) -> Scroll:
    """From the newest message to the first, page after page being read on the way, and down again at one speed."""
    page = person.page
    page.goto(f"{lineup.origin}/#/c/{HISTORY}")
    page.reload()
    expect(page.get_by_role("article").filter(has_text=f"{MESSAGES - 1}").last).to_be_visible(timeout=30_000)
    page.evaluate(WATCH_FRAMES)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _main_thread_s(devtools)
    page.evaluate("(px) => { window.scrolled = scrollBy(-px, Infinity); }", SCROLL_PX)
    person.wait(lambda: page.evaluate("window.atStart()"), "the first message is reached", READ_S_MAX)
    page.evaluate("() => { window.stopScroll(); return window.scrolled; }")
    expect(page.get_by_role("article").filter(has_text="Message 0.").first).to_be_visible()
    page.evaluate("([px, frames]) => window.scrollBy(px, frames)", [SCROLL_PX, DOWN_FRAMES])
    seen = page.evaluate("window.framesSeen()")
    work_ms = 1000 * (_main_thread_s(devtools) - before) / seen["frames"]
    assert _entries(lineup) == MESSAGES
    return Scroll(seen["perSecond"], _empty_page_frames(browser), work_ms, seen["longestMs"])


def _main_thread_s(devtools: CDPSession) -> float:
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return float(next(row["value"] for row in metrics if row["name"] == "TaskDuration"))


def _empty_page_frames(browser: Browser) -> float:
    """The floor: frames in a second of a page that does nothing, on this machine as busy as it is now."""
    page = browser.new_page(viewport=VIEWPORT)
    page.set_content("<!doctype html><title>empty</title>")
    page.evaluate(WATCH_FRAMES)
    page.evaluate("() => scrollBy(0, 120)")
    seen: dict[str, float] = page.evaluate("window.framesSeen()")
    page.close()
    return seen["perSecond"]


def _entries(lineup: LineUp) -> int:
    rows = lineup.query("snapshot")["conversations"]
    return int(next(row["entries"] for row in rows if row["conversation_id"] == HISTORY))


def _draw(person: Person, lineup: LineUp) -> Drawing:
    """Strokes of the mouse one after the other; each of its events from its making to the frame that shows it."""
    _converse(person, lineup, "bench-draw")
    person.say("whiteboard")
    person.sees_app("whiteboard")
    surface, surface_id = person.surface(), person.surface_id
    surface.evaluate(WATCH_INPUT)
    for n in range(STROKES):
        column, row = n % 40, n // 40
        x, y = 0.1 + 0.021 * column, 0.12 + 0.03 * row
        person.draw((x, y), (x + 0.018, y + 0.02), steps=POINTS)
    lags: list[float] = surface.evaluate("window.lags")
    assert len(lags) > STROKES * POINTS, f"only {len(lags)} events were seen"
    person.wait(lambda: len(lineup.surface_state(surface_id)["elements"]) == STROKES, "every stroke is saved", 30)
    return Drawing(statistics.quantiles(lags, n=100)[98])


WHEN_USABLE = """
new MutationObserver((_, observer) => {
    if (!document.querySelector("#composer") || !document.querySelector("[data-testid=timeline] article")) return;
    observer.disconnect();
    requestAnimationFrame(() => { window.usableMs ??= performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""

# Frames as the page's own clock sees them while it scrolls, and every task of more than 50 ms.
WATCH_FRAMES = """() => {
    let [frames, ms, longestMs] = [0, 0, 0];
    const look = (entries) => {
        for (const { duration } of entries) longestMs = Math.max(longestMs, duration);
    };
    const tasks = new PerformanceObserver((list) => look(list.getEntries()));
    tasks.observe({ type: "longtask", buffered: false });
    const box = () => document.querySelector("[data-testid=timeline]") ?? document.scrollingElement;
    let stopped = false;
    window.stopScroll = () => { stopped = true; };
    window.atStart = () => box().scrollTop === 0 && document.querySelector("[data-start]") !== null;
    window.scrollBy = (px, most) => new Promise((resolve) => {
        stopped = false;
        let [left, before] = [most, performance.now()];
        const step = () => {
            const now = performance.now();
            ms += now - before;
            before = now;
            frames++;
            box().scrollTop += px;
            if (--left > 0 && !stopped) requestAnimationFrame(step);
            else resolve();
        };
        requestAnimationFrame(step);
    });
    window.framesSeen = () => {
        look(tasks.takeRecords());
        return { perSecond: (1000 * frames) / ms, longestMs, frames };
    };
}"""

WATCH_INPUT = """() => {
    window.lags = [];
    const channel = new MessageChannel();
    let waiting = [];
    channel.port1.onmessage = () => {
        const now = performance.now();
        window.lags.push(...waiting.map((at) => now - at));
        waiting = [];
    };
    const heard = (event) => {
        if (waiting.push(event.timeStamp) === 1) requestAnimationFrame(() => channel.port2.postMessage(0));
    };
    for (const type of ["pointerdown", "pointermove", "pointerup"]) addEventListener(type, heard, true);
}"""
