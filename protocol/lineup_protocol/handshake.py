"""Version negotiation, the first thing on every link; everything else hangs on the version it returns."""

from __future__ import annotations

from collections.abc import Sequence

from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import HELLO_VERSIONS_MAX
from lineup_protocol.messages import PROTOCOL_VERSION

# What an agent's older WebSocket is closed with when its agent opened a newer one: do not reconnect.
CLOSE_TAKEN_OVER = 4000

SUPPORTED_VERSIONS: tuple[int, ...] = (PROTOCOL_VERSION,)


def choose_version(offered: object, *, supported: Sequence[int] = SUPPORTED_VERSIONS) -> int:
    """The highest version that both sides speak. ``offered`` is what a hello said: a list, or an agent's one integer.

    Raises:
        LineUpError: ``message_invalid`` if ``offered`` is no list of integers; ``protocol_unsupported`` with
            ``detail = {offered, supported}`` if there is no common version.
    """
    versions: list[object] = offered if isinstance(offered, list) else [offered]
    if len(versions) > HELLO_VERSIONS_MAX:
        raise _malformed(f"must have at most {HELLO_VERSIONS_MAX} versions")
    if any(isinstance(version, bool) or not isinstance(version, int) for version in versions):
        raise _malformed("must be integers")
    common = [version for version in supported if version in versions]
    if not common:
        raise LineUpError(
            "protocol_unsupported",
            f"no common protocol version: offered {_words(versions)}, supported here {_words(supported)}",
            detail={"offered": versions, "supported": list(supported)},
        )
    return max(common)


def _malformed(rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"/protocols: {rule}", detail={"path": "/protocols", "rule": rule})


def _words(versions: Sequence[object]) -> str:
    return ", ".join(str(version) for version in versions) or "none"
