"""Runs the fuzzer: keeps what reaches new lines, and names what leaves that is no typed error."""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import lineup_protocol
import lineup_supervisor
from hostile.fuzz.inputs import Maker
from hostile.fuzz.scene import LINKS, Scene

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
KEPT_PER_LINK_MAX = 150
KEPT_BYTES_MAX = 1_024
_CODE = tuple(str(Path(str(package.__file__)).parent) for package in (lineup_protocol, lineup_supervisor))


@dataclass
class Finding:
    """One input that got something else than a typed error out of the code."""

    link: str
    data: bytes
    story: str

    def __str__(self) -> str:
        return f"{self.story}\nreplay: ./scripts/fuzz --replay {self.link} {self.data.hex()}"


@dataclass
class Report:
    seed: int
    executed: int = 0
    stepped: int = 0
    lines: int = 0
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.executed} inputs, {self.stepped} of them reached the core, "
            f"{self.lines} lines seen, {len(self.findings)} findings"
        )


class Coverage:
    """Which lines of our own code run. Tracing costs most of the time, so it is on for a part of the inputs only."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self._ours: dict[str, bool] = {}

    @contextmanager
    def traced(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        ours = self._ours.get(name)
        if ours is None:
            ours = self._ours[name] = name.startswith(_CODE)
        return self._on_line if ours else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._on_line


class Fuzzer:
    """One run from one seed. What it keeps is in ``corpus``, by link."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scene = Scene()
        self.report = Report(seed)
        self.coverage = Coverage()
        self.corpus = {link: read_corpus(link) for link in LINKS}
        words = self.scene.words()
        self._makers = {link: Maker(link, words, self.rng) for link in LINKS}

    def replay_corpus(self) -> None:
        for link, inputs in self.corpus.items():
            for data in inputs:
                self._one(link, data)

    def run(self, seconds: float) -> Report:
        give_up_at = time.monotonic() + seconds
        self.replay_corpus()
        while time.monotonic() < give_up_at and len(self.report.findings) < 10:
            link = self.rng.choice(LINKS)
            known = self.corpus[link]
            if known and self.rng.random() < 0.7:
                data = self._makers[link].mutated(self.rng.choice(known), self.rng.choice(known))
            else:
                data = self._makers[link].fresh()
            self._one(link, data, keep=True)
        return self.report

    def _one(self, link: str, data: bytes, *, keep: bool = False) -> None:
        before = len(self.coverage.lines)
        self.report.executed += 1
        try:
            with self.coverage.traced():
                self.report.stepped += self.scene.feed(link, data) == "stepped"
        except Exception:
            self.report.findings.append(Finding(link, data, traceback.format_exc()))
            self.scene = Scene()
        self.report.lines = len(self.coverage.lines)
        if keep and self.report.lines > before:
            self.corpus[link].append(data)


def read_corpus(link: str) -> list[bytes]:
    """The kept inputs of one link, a line of hexadecimal digits each."""
    path = CORPUS / f"{link}.txt"
    return [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []


def keep_corpus(corpus: dict[str, list[bytes]]) -> None:
    for link, inputs in corpus.items():
        small = [data for data in dict.fromkeys(inputs) if 0 < len(data) <= KEPT_BYTES_MAX]
        (CORPUS / f"{link}.txt").write_text("".join(f"{data.hex()}\n" for data in small[:KEPT_PER_LINK_MAX]))
