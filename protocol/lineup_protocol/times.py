"""Wall clock times: integers of milliseconds since the epoch (UTC) inside, RFC 3339 UTC strings outside.

Milliseconds are exact in both forms; years 1970 to 9999.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta

WALL_MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last instant of RFC 3339
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339_UTC = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|\+00:00)", re.ASCII)


@functools.lru_cache(maxsize=1024)  # one event writes the same few moments many times
def to_rfc3339(wall_ms: int) -> str:
    """``0`` → ``1970-01-01T00:00:00.000Z``. Raises ValueError outside 1970 to 9999."""
    if not 0 <= wall_ms <= WALL_MS_MAX:
        raise ValueError(f"{wall_ms} ms is outside the years 1970 to 9999")
    at = _EPOCH + timedelta(milliseconds=wall_ms)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def from_rfc3339(text: str) -> int:
    """Milliseconds since the epoch. Raises ValueError for anything that is not RFC 3339 in UTC."""
    if not _RFC3339_UTC.fullmatch(text):
        raise ValueError(f"{text!r} is not an RFC 3339 time in UTC")
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    wall_ms = (at - _EPOCH) // timedelta(milliseconds=1)
    if wall_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return wall_ms


def is_rfc3339_utc(text: str) -> bool:
    """True if ``from_rfc3339`` would take it."""
    try:
        from_rfc3339(text)
    except ValueError:
        return False
    return True
