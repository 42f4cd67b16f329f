"""Identifiers: 1 to 128 characters of ``A-Z a-z 0-9 . _ : -``, nothing else."""

from __future__ import annotations

import re
from typing import TypeGuard

ID_LENGTH_MAX = 128
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


def is_id(value: object) -> TypeGuard[str]:
    """True if ``value`` is a string that may serve as an id."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None
