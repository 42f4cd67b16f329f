"""A walk over msgpack tokens that builds nothing: what makes it safe to hand untrusted bytes to the C decoder.

After a walk the caller knows that ``data`` is exactly one value, that every declared length is really there, and that
depth, counts, lengths and kinds are within ``limits``. UTF-8 and duplicate keys are left to the decoder, which meets
them anyway. It must not know about messages.
"""

from __future__ import annotations

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_protocol.pointers import join


class _Broken(Exception):
    """A rule is broken at the current token (at the container itself if ``at_container``)."""

    def __init__(self, rule: str, *, at_container: bool = False) -> None:
        super().__init__(rule)
        self.rule = rule
        self.at_container = at_container


def _fixed_width(head: int) -> int:
    """Bytes of a token that needs no look inside, or 0."""
    if head < 0x80 or head >= 0xE0 or head in (0xC0, 0xC2, 0xC3):
        return 1
    if 0xA0 <= head < 0xC0:
        return 1 + (head & 0x1F)
    return {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xD0: 2, 0xD1: 3, 0xD2: 5}.get(head, 0)


_WIDTH = tuple(_fixed_width(head) for head in range(256))
_WIDTH_OR_EMPTY = tuple(1 if head in (0x80, 0x90) else width for head, width in enumerate(_WIDTH))
_KEY_WIDTH = tuple(1 + (head & 0x1F) if 0xA0 <= head < 0xC0 else 0 for head in range(256))
_STR = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BIN = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_CONTAINER = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}

# (is_map, values still to come, length, position of the current key)
_Frame = tuple[bool, int, int, int]


def walk(data: bytes, nodes_max: int, depth_max: int, *, allow_bytes: bool) -> tuple[int, bool]:
    """Check every token of ``data``: how many values and keys there are, and whether there are bytes among them.

    Raises:
        LineUpError: ``message_invalid`` with ``detail = {path, rule}``.
    """
    has_bytes = False
    pos, nodes = 0, 1
    stack: list[_Frame] = []
    is_map, remaining, length, key_at = False, 1, 1, 0
    widths = _WIDTH_OR_EMPTY  # an empty container needs no look inside, unless it may be too deep
    try:
        while True:
            while remaining:
                if is_map:
                    key_at = pos
                    width = _KEY_WIDTH[data[pos]]
                    pos = pos + width if width else _long_key(data, pos)
                remaining -= 1
                head = data[pos]
                width = widths[head]
                if width:
                    pos += width
                    continue
                if head >= 0xA0 and head not in _CONTAINER:
                    has_bytes = has_bytes or head in _BIN
                    pos = _scalar(data, pos, head, allow_bytes)
                    continue
                stack.append((is_map, remaining, length, key_at))
                widths = _WIDTH_OR_EMPTY if len(stack) < depth_max else _WIDTH
                is_map, length, pos = _container(data, pos, head, len(stack), depth_max)
                remaining, key_at = length, 0
                nodes += 2 * length if is_map else length
                if nodes > nodes_max:
                    raise _Broken(f"is in a message of more than {nodes_max} values", at_container=True)
            if not stack:
                break
            is_map, remaining, length, key_at = stack.pop()
            widths = _WIDTH_OR_EMPTY if len(stack) < depth_max else _WIDTH
    except IndexError:
        raise _invalid("/", "ends too early") from None
    except _Broken as broken:
        frames = stack if broken.at_container else [*stack, (is_map, remaining, length, key_at)]
        raise _invalid(_path(data, frames), broken.rule) from None
    if pos != len(data):
        raise _invalid("/", "ends too early" if pos > len(data) else "has bytes after its end")
    return nodes, has_bytes


def _container(data: bytes, pos: int, head: int, depth: int, depth_max: int) -> tuple[bool, int, int]:
    """Whether it is a map, its length, and the position of its first entry. ``depth`` counts it."""
    if head < 0xA0:
        is_map, length, behind = head < 0x90, head & 0x0F, pos + 1
    else:
        is_map = head >= 0xDE
        length, behind = _length(data, pos, _CONTAINER[head])
    if depth > depth_max:
        raise _Broken(f"is nested deeper than {depth_max}", at_container=True)
    if length > (limits.MAP_LENGTH_MAX if is_map else limits.ARRAY_LENGTH_MAX):
        raise _Broken(f"declares {length} entries, too many", at_container=True)
    if (2 * length if is_map else length) > len(data) - behind:
        raise _Broken(f"declares {length} entries but ends before them", at_container=True)
    return is_map, length, behind


def _scalar(data: bytes, pos: int, head: int, allow_bytes: bool) -> int:
    """Check a long string, bytes, a float, a 64-bit integer or what is not allowed at all; the position behind it."""
    if head == 0xCB:
        if data[pos + 1] & 0x7F == 0x7F and data[pos + 2] >= 0xF0:
            raise _Broken("is not a finite number")
        return pos + 9
    if head in _STR:
        length, behind = _inside(data, pos, _STR[head])
        if length > limits.STRING_BYTES_MAX:
            raise _Broken(f"is a string of {length} bytes, at most {limits.STRING_BYTES_MAX} are allowed")
        return behind + length
    if head == 0xCA:
        if data[pos + 1] & 0x7F == 0x7F and data[pos + 2] >= 0x80:
            raise _Broken("is not a finite number")
        return pos + 5
    if head in (0xCF, 0xD3):
        number = int.from_bytes(data[pos + 1 : pos + 9], "big", signed=head == 0xD3)
        if abs(number) > limits.INTEGER_ABS_MAX:
            raise _Broken("is an integer beyond ±(2^53−1); send it as a string")
        return pos + 9
    if head in _BIN:
        if not allow_bytes:
            raise _Broken("has bytes where only JSON values may stand")
        length, behind = _inside(data, pos, _BIN[head])
        return behind + length
    raise _Broken("is not msgpack" if head == 0xC1 else "has an extension type, which is not allowed")


def _long_key(data: bytes, pos: int) -> int:
    head = data[pos]
    if head not in _STR:
        raise _Broken("has a key that is no string", at_container=True)
    length, behind = _inside(data, pos, _STR[head])
    if length > limits.KEY_BYTES_MAX:
        rule = f"has a key of {length} bytes, at most {limits.KEY_BYTES_MAX} are allowed"
        raise _Broken(rule, at_container=True)
    return behind + length


def _inside(data: bytes, pos: int, width: int) -> tuple[int, int]:
    length, behind = _length(data, pos, width)
    if length > len(data) - behind:
        raise _Broken(f"declares {length} bytes but ends before them")
    return length, behind


def _length(data: bytes, pos: int, width: int) -> tuple[int, int]:
    behind = pos + 1 + width
    if behind > len(data):
        raise IndexError
    return int.from_bytes(data[pos + 1 : behind], "big"), behind


def _path(data: bytes, frames: list[_Frame]) -> str:
    """Where the entry in work of the last frame is; the first frame is the root's own."""
    segments = [
        _key(data, key_at) if is_map else length - remaining - 1 for is_map, remaining, length, key_at in frames[1:]
    ]
    return join(segments)


def _key(data: bytes, pos: int) -> str:
    head = data[pos]
    if head in _STR:
        length, start = _length(data, pos, _STR[head])
    else:
        length, start = head & 0x1F, pos + 1
    return data[start : start + min(length, 256)].decode("utf-8", "replace")


def _invalid(path: str, rule: str) -> LineUpError:
    return LineUpError("message_invalid", f"{path}: {rule}", detail={"path": path, "rule": rule})
