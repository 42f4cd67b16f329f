"""The headers that every answer carries, whatever made it. Owns their values and one ASGI layer that adds them.

An answer may set its own value (a page has a wider Content-Security-Policy than a JSON error); it cannot leave one out,
and nothing here ever allows another origin (no CORS header leaves this server). The surface port has a set of its own:
its documents live in frames of the workspace, and their origin is opaque.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

RawHeaders = list[tuple[bytes, bytes]]

NOTHING_CSP = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", NOTHING_CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
    (b"cache-control", b"no-store"),
)

_POWERFUL_FEATURES = (
    "accelerometer=(), autoplay=(), camera=(), clipboard-read=(), clipboard-write=(), "
    "display-capture=(), encrypted-media=(), fullscreen=(), gamepad=(), geolocation=(), gyroscope=(), hid=(), "
    "idle-detection=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), picture-in-picture=(), "
    "publickey-credentials-get=(), screen-wake-lock=(), serial=(), storage-access=(), usb=(), "
    "window-management=(), xr-spatial-tracking=()"
)

SURFACE_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", (NOTHING_CSP + "; sandbox").encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    # The files of a load are asked for by a document of opaque origin, to which every server is another site.
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-dns-prefetch-control", b"off"),
    (b"permissions-policy", _POWERFUL_FEATURES.encode()),
    (b"cache-control", b"no-store"),
)

_CARRIERS = {"http.response.start", "websocket.http.response.start", "websocket.accept"}


def secured(
    headers: Iterable[tuple[bytes, bytes]], required: Iterable[tuple[bytes, bytes]] = SECURITY_HEADERS
) -> RawHeaders:
    """``headers`` with every missing security header added and every CORS header taken out."""
    kept = [(name, value) for name, value in headers if not name.lower().startswith(b"access-control-")]
    present = {name.lower() for name, _ in kept}
    return kept + [(name, value) for name, value in required if name not in present]


class SecureAnswers:
    """The outermost ASGI layer."""

    def __init__(self, app: ASGIApp, required: tuple[tuple[bytes, bytes], ...] = SECURITY_HEADERS) -> None:
        self._app = app
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] in _CARRIERS:
                message = {**message, "headers": secured(message.get("headers", ()), self._required)}
            await send(message)

        await self._app(scope, receive, send_secured)
