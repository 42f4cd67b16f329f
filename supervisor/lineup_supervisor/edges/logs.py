"""What workers print: captured, made harmless, bounded, and written as JSON lines to ``logs/apps/<scope>.log``.

Owns: the pipes' reading ends, escaping, rates, rotation. Must not know: what a line means. A line from a worker is data
of a stranger: it can neither forge a line of the log nor reach a terminal with control characters.

Bounds: one unfinished line of ``LINE_BYTES_MAX`` per stream in memory; kept bytes per second as the limits say, and for
all instances of a MiniApp together so many bytes and lines as ``Allowance`` has; what is over is read, counted and
dropped, with one note per second. The worker never blocks on us, and we never on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

LINE_BYTES_MAX = 4_096
READ_BYTES = 65_536
# Reading to drop costs time too: over this much in one window, reading pauses until the next one.
WINDOW_S = 0.05
WINDOW_BYTES_MAX = 8 * 1024 * 1024
BURST_S = 4.0  # seconds' worth of the rate that may come at once
# Of one MiniApp, whatever its manifest allows each instance: a line costs as much as some hundred bytes do.
APP_BYTES_PER_S = 1024 * 1024
APP_LINES_PER_S = 1_000
APP_LINES_BURST = 2_000
DRAIN_BYTES_MAX = 1024 * 1024  # read after the end of a process; its pipe holds less
LOG_BYTES_MAX = 8 * 1024 * 1024  # then rotation
LOG_FILES_KEPT = 3

# Control characters (C0, DEL, C1), line and paragraph separators, marks that reorder text, bytes that are not UTF-8.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ufeff\udc80-\udcff\\\\]"
)


def escape(raw: bytes) -> str:
    """One line as safe text: bad UTF-8 and control characters become ``\\xNN`` or ``\\uNNNN``, a backslash ``\\\\``."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if _UNSAFE.search(text) is None else text.translate(_ESCAPES)


def _escape_one(code: int) -> str:
    if code == 0x5C:
        return "\\\\"
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape's form of a byte
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# Looked up, not computed: a stream of nothing but such characters is as cheap as any other.
_ESCAPES = {code: _escape_one(code) for code in range(0x1_0000) if _UNSAFE.match(chr(code))}


class Allowance:
    """What a MiniApp's instances may print together: tokens for kept bytes and lines, and a window for dropped ones."""

    def __init__(self) -> None:
        self._bytes = float(APP_BYTES_PER_S)
        self._lines = float(APP_LINES_BURST)
        self._at = 0.0
        self._window_at = 0.0
        self._window_bytes = 0

    def take(self, data: bytes, now: float) -> int:
        """How many of these bytes are kept; they are paid for."""
        passed, self._at = max(0.0, now - self._at), now
        self._bytes = min(float(APP_BYTES_PER_S), self._bytes + passed * APP_BYTES_PER_S)
        self._lines = min(float(APP_LINES_BURST), self._lines + passed * APP_LINES_PER_S)
        size = min(len(data), int(self._bytes))
        lines = data.count(b"\n", 0, size)
        if lines > self._lines:
            lines, size = int(self._lines), 0
            for _ in range(lines):
                size = data.index(b"\n", size) + 1
        self._bytes -= size
        self._lines -= lines
        return size

    def has_read(self, size: int, now: float) -> bool:
        """Whether there may be more reading just now."""
        if now - self._window_at > WINDOW_S:
            self._window_at, self._window_bytes = now, 0
        self._window_bytes += size
        return self._window_bytes < WINDOW_BYTES_MAX


class RotatingLog:
    """One file of JSON lines, ``path``, ``path.1`` … Never raises: what cannot be written is counted."""

    def __init__(self, path: Path, *, bytes_max: int = LOG_BYTES_MAX, kept: int = LOG_FILES_KEPT) -> None:
        self.path = path
        self.lost_lines = 0
        self.allowance = Allowance()
        self._bytes_max = bytes_max
        self._kept = kept
        self._fd = -1
        self._size = 0

    def write(self, **record: object) -> None:
        self.write_all([record])

    def write_all(self, records: Sequence[Mapping[str, object]]) -> None:
        """Records that came together leave together."""
        lines = b"".join(map(_line, records))
        try:
            if self._fd < 0:
                self._open()
            elif self._size + len(lines) > self._bytes_max:
                self._rotate()
            self._size += os.write(self._fd, lines)
        except OSError:
            self.lost_lines += len(records)

    def try_open(self) -> OSError | None:
        """What the file system says, if it is not to be had."""
        try:
            if self._fd < 0:
                self._open()
        except OSError as error:
            return error
        return None

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd = os.open(self.path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        for number in range(self._kept - 1, 0, -1):
            older = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                os.replace(older, self.path.with_name(f"{self.path.name}.{number}"))
        self._open()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _line(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


class LogDirectory:
    """``logs/apps/``: one shared ``RotatingLog`` per scope. It holds nothing else, so that every scope is harmless."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._logs: dict[str, RotatingLog] = {}

    def of(self, scope: str) -> RotatingLog:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", scope)[:100] or "_"
        if name not in self._logs:
            self._logs[name] = RotatingLog(self.directory / f"{name}.log")
        return self._logs[name]

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        self._logs.clear()


class Capture:
    """Reads one stream of one process. ``open()`` gives the writing end; the caller passes it on and closes it."""

    def __init__(
        self,
        log: RotatingLog,
        stream: str,
        fields: dict[str, object],
        *,
        bytes_per_s: float,
        on_suppressed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last_line = ""
        self.suppressed_bytes = 0  # in all
        self._log = log
        self._stream = stream
        self._fields = fields
        self._rate = bytes_per_s
        self._on_suppressed = on_suppressed
        self._room = bytes_per_s * BURST_S
        self._room_at = clock()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        self._partial = bytearray()
        self._partial_dropped = 0
        self._unreported = 0
        self._reported_at = 0.0
        self._records: list[dict[str, object]] = []  # made, not yet written
        self._resume: asyncio.TimerHandle | None = None

    def open(self) -> int:
        """The end to write into, for the process. Raises OSError: no descriptors, or no room for one more watch."""
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(read, False)
            self._loop.add_reader(read, self._on_readable)
        except OSError:
            os.close(read)
            os.close(write)
            raise
        self._fd = read
        return write

    def finish(self) -> None:
        """The process is gone: take what is left in the pipe, flush the unfinished line, close."""
        if self._fd < 0:
            return
        self._stop_reading()
        taken = 0
        with contextlib.suppress(OSError):
            while taken < DRAIN_BYTES_MAX and (data := os.read(self._fd, READ_BYTES)):
                taken += len(data)
                self.feed(data)
        os.close(self._fd)
        self._fd = -1
        self._end_line()
        self._report_suppressed()
        self._flush()

    def _stop_reading(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        else:
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(3600.0, _nothing)  # marks "not reading"; finish() cancels it
            return
        self.feed(data)
        if not self._log.allowance.has_read(len(data), self._clock()):
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(WINDOW_S, self._read_on)

    def _read_on(self) -> None:
        self._resume = None
        try:
            self._loop.add_reader(self._fd, self._on_readable)
        except OSError:  # no room for one more watch
            self._resume = self._loop.call_later(WINDOW_S, self._read_on)

    def feed(self, data: bytes) -> None:
        """Take bytes of the stream; kept within the rate, else counted."""
        now = self._clock()
        self._room = min(self._rate * BURST_S, self._room + (now - self._room_at) * self._rate)
        self._room_at = now
        keep = self._log.allowance.take(data[: max(0, int(self._room))], now)
        self._room -= keep
        self._split(data[:keep])
        if keep < len(data):
            self.suppressed_bytes += len(data) - keep
            self._unreported += len(data) - keep
            if now - self._reported_at >= 1.0:
                self._end_line()
                self._report_suppressed()
                self._reported_at = now
                self._on_suppressed()
        self._flush()

    def _split(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._extend(part)
            self._end_line()
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        room = LINE_BYTES_MAX - len(self._partial)
        self._partial += part[:room]
        self._partial_dropped += max(0, len(part) - room)

    def _end_line(self) -> None:
        if not self._partial and not self._partial_dropped:
            return
        text = escape(bytes(self._partial).removesuffix(b"\r"))
        if self._partial_dropped:
            text += f" … ({self._partial_dropped} more bytes in this line)"
        self.last_line = text or self.last_line
        self._partial.clear()
        self._partial_dropped = 0
        self._write(text=text)

    def _report_suppressed(self) -> None:
        if self._unreported:
            self._write(note=f"suppressed {self._unreported} bytes")
            self._unreported = 0

    def _write(self, **record: object) -> None:
        self._records.append(record)

    def _flush(self) -> None:
        records, self._records = self._records, []
        if records:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            common = {"at": at, "stream": self._stream, **self._fields}
            self._log.write_all([common | record for record in records])


def _nothing() -> None:
    """A timer that only marks a state."""
