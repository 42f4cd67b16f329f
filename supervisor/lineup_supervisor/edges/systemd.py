"""Readiness for systemd (``sd_notify``): one datagram per message, nothing at all when it was not asked for."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> bool:
    """Send ``READY=1``, ``STOPPING=1`` or ``STATUS=…``. True if there was somebody to tell; a deaf one is no fault."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or address[0] not in "/@":
        return False
    if address[0] == "@":
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.settimeout(1.0)
        out.sendto(state.encode(), address)
        return True
    return False
