"""A board's elements as this side reads them: what an agent may put there, what is drawn, and a plain picture of it.

The page writes elements too, and so does whoever speaks for it: what is no element is passed over, never believed.
Owns no state and does no I/O; the page's ``elements.ts`` and ``points.ts`` say the same of the same fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, NamedTuple

SHAPES = ("rect", "ellipse")
LINES = ("line", "arrow")
TYPES = ("pen", *SHAPES, *LINES, "text")

COLORS = {
    "ink": "#1f2328",
    "grey": "#7d8590",
    "red": "#d1242f",
    "orange": "#c4580a",
    "green": "#1a7f37",
    "teal": "#0b7a8a",
    "blue": "#0a62d0",
    "violet": "#7a3fd1",
}

COORDINATE_MAX = 1e6
TEXT_LENGTH_MAX = 2000
TEXTS_MAX = 200  # in a summary
LINE_HEIGHT = 1.3
MARGIN = 24
EMPTY = (0.0, 0.0, 640.0, 400.0)

_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Points = list[tuple[float, float]]
Raw = dict[str, Any]


class Element(NamedTuple):
    """One element. ``points``: the pen's way, a line's two ends, or two opposite corners."""

    type: str
    z: float
    color: str
    width: float
    points: Points
    fill: bool = False
    text: str = ""
    size: float = 24


class ElementFault(ValueError):
    """One element that an agent may not put on a board; says which and why."""


def check(elements: Raw) -> None:
    """Refuse what would not be shown.

    Raises:
        ElementFault: for the first element that is none.
    """
    for name, raw in elements.items():
        if not isinstance(raw, dict) or raw.get("type") not in TYPES:
            raise ElementFault(f"/elements/{name}/type: must be one of {', '.join(TYPES)}")
        for field in _fields_of(raw["type"]):
            if not _is_number(raw.get(field)):
                raise ElementFault(f"/elements/{name}/{field}: must be a number within ±{COORDINATE_MAX:.0f}")
        if read(raw) is None:
            raise ElementFault(f"/elements/{name}: nothing of it could be seen")


def read_all(elements: Any) -> list[Element]:
    """Everything that is drawn, from the bottom up."""
    known = elements.items() if isinstance(elements, dict) else ()
    found = [(element.z, name, element) for name, raw in known if (element := read(raw)) is not None]
    return [element for _, _, element in sorted(found, key=lambda each: each[:2])]


def read(raw: Any) -> Element | None:
    """The element that ``raw`` describes, or None."""
    kind = raw.get("type") if isinstance(raw, dict) else None
    if kind not in TYPES:
        return None
    points = _points(raw, kind)
    text = raw.get("text") if kind == "text" else ""
    if not points or not isinstance(text, str) or (kind == "text" and not text.strip()):
        return None
    color = raw.get("color")
    return Element(
        type=kind,
        z=_number(raw.get("z"), 0),
        color=color if isinstance(color, str) and (color in COLORS or _HEX.fullmatch(color)) else "ink",
        width=min(64, max(1, _number(raw.get("width"), 4))),
        points=points,
        fill=raw.get("fill") is True,
        text=text[:TEXT_LENGTH_MAX],
        size=min(400, max(4, _number(raw.get("size"), 24))),
    )


def summary(elements: Iterable[Element]) -> dict[str, Any]:
    """What is on the board, in words and numbers: ``{elements, by_type, texts, bounds?}``."""
    known = list(elements)
    by_type = {kind: sum(element.type == kind for element in known) for kind in TYPES}
    found: dict[str, Any] = {
        "elements": len(known),
        "by_type": {kind: count for kind, count in by_type.items() if count},
        "texts": [element.text for element in known if element.type == "text"][:TEXTS_MAX],
    }
    box = bounds(known)
    if box is not None:
        found["bounds"] = dict(zip("xywh", (round(value, 2) for value in box), strict=True))
    return found


def bounds(elements: Iterable[Element]) -> tuple[float, float, float, float] | None:
    """x, y, w, h of everything, or None if there is nothing."""
    points = [point for element in elements for point in element.points]
    if not points:
        return None
    left, top = min(x for x, _ in points), min(y for _, y in points)
    return left, top, max(x for x, _ in points) - left, max(y for _, y in points) - top


def svg(elements: Iterable[Element], title: str) -> bytes:
    """A picture for when no page is there to make one: the pen's pressure is left out."""
    known = list(elements)
    box = bounds(known)
    x, y, w, h = EMPTY if box is None else (box[0] - MARGIN, box[1] - MARGIN, box[2] + 2 * MARGIN, box[3] + 2 * MARGIN)
    size = f'width="{_n(w)}" height="{_n(h)}" viewBox="{_n(x)} {_n(y)} {_n(w)} {_n(h)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<title>{_xml(title)}</title>'
    ground = f'<rect x="{_n(x)}" y="{_n(y)}" width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join((head, ground, *(_tag(element) for element in known), "</svg>", "")).encode()


def decode_points(text: str) -> Iterator[tuple[float, float]]:
    """The points of one chunk of a stroke (see ``points.ts``); stops at the first thing that is none."""
    at = x = y = 0
    while at < len(text):
        steps = []
        for _ in "xy":
            value, shift, digit = 0, 0, 32
            while digit >= 32:
                digit = _VALUES.get(text[at : at + 1], -1)
                at += 1
                if digit < 0 or shift > 25:
                    return
                value |= (digit % 32) << shift
                shift += 5
            steps.append(-(value + 1) // 2 if value % 2 else value // 2)
        x, y, pressure = x + steps[0], y + steps[1], text[at : at + 1]
        at += 1
        if pressure not in _VALUES or max(abs(x), abs(y)) > 10 * COORDINATE_MAX:
            return
        yield x / 10, y / 10


# -- inside ----------------------------------------------------------------------------------------------------------


def _fields_of(kind: str) -> tuple[str, ...]:
    if kind in SHAPES:
        return ("x", "y", "w", "h")
    return ("x", "y", "x2", "y2") if kind in LINES else ("x", "y") if kind == "text" else ()


def _points(raw: Raw, kind: str) -> Points:
    if kind == "pen":
        return _pen_points(raw)
    numbers: list[float] = [raw.get(field, math.nan) for field in _fields_of(kind)]
    if not all(_is_number(number) for number in numbers):
        return []
    if kind == "text":
        x, y = numbers
        w, h = _text_size(raw)
        return [(x, y), (x + w, y + h)]
    x, y, third, fourth = numbers
    return [(x, y), (x + third, y + fourth)] if kind in SHAPES else [(x, y), (third, fourth)]


def _pen_points(raw: Raw) -> Points:
    chunks = raw.get("d")
    if isinstance(chunks, str):
        chunks = {"0": chunks}
    if not isinstance(chunks, dict):
        return []
    dx, dy = _number(raw.get("x"), 0), _number(raw.get("y"), 0)
    sx, sy = _number(raw.get("sx"), 1), _number(raw.get("sy"), 1)
    keys = sorted((key for key in chunks if key.isdecimal()), key=int)
    texts = [chunks[key] for key in keys if isinstance(chunks[key], str)]
    return [(x * sx + dx, y * sy + dy) for text in texts for x, y in decode_points(text)]


def _text_size(raw: Raw) -> tuple[float, float]:
    size = _number(raw.get("size"), 24)
    lines = str(raw.get("text", ""))[:TEXT_LENGTH_MAX].split("\n")
    widest = max(sum(1 if char > "\u2e7f" else 0.56 for char in line) for line in lines)
    return _number(raw.get("w"), widest * size), _number(raw.get("h"), len(lines) * size * LINE_HEIGHT)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= COORDINATE_MAX


def _number(value: Any, otherwise: float) -> float:
    return value if _is_number(value) else otherwise


def _tag(element: Element) -> str:
    color = COLORS.get(element.color, element.color)
    (x, y), (x2, y2) = element.points[0], element.points[-1]
    left, top, w, h = min(x, x2), min(y, y2), abs(x2 - x), abs(y2 - y)
    line = f'stroke="{color}" stroke-width="{_n(element.width)}" stroke-linecap="round" stroke-linejoin="round"'
    look = f'fill="{color}" fill-opacity="0.18" {line}' if element.fill else f'fill="none" {line}'
    match element.type:
        case "text":
            return _text_tag(element, color)
        case "rect":
            return f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(w)}" height="{_n(h)}" {look}/>'
        case "ellipse":
            centre = f'cx="{_n(left + w / 2)}" cy="{_n(top + h / 2)}"'
            return f'<ellipse {centre} rx="{_n(w / 2)}" ry="{_n(h / 2)}" {look}/>'
        case _:
            head = _arrow_head(element) if element.type == "arrow" else ""
            way = "".join(f"{'L' if i else 'M'}{_n(px)} {_n(py)}" for i, (px, py) in enumerate(element.points))
            dot = way if len(element.points) > 1 else f"{way}h0.01"
            return f'<path d="{dot}{head}" fill="none" {line}/>'


def _text_tag(element: Element, color: str) -> str:
    x, y = element.points[0]
    lines = "".join(
        f'<tspan x="{_n(x)}" y="{_n(y + element.size + i * element.size * LINE_HEIGHT)}">{_xml(line)}</tspan>'
        for i, line in enumerate(element.text.split("\n"))
    )
    return f'<text fill="{color}" font-size="{_n(element.size)}" font-family="sans-serif">{lines}</text>'


def _arrow_head(element: Element) -> str:
    (x, y), (x2, y2) = element.points
    length = math.hypot(x2 - x, y2 - y)
    head = min(8 + element.width * 2, length / 2)
    angle = math.atan2(y2 - y, x2 - x)
    ends = ((x2 - head * math.cos(angle + turn), y2 - head * math.sin(angle + turn)) for turn in (-0.5, 0.5))
    return "".join(f"M{_n(x2)} {_n(y2)}L{_n(ex)} {_n(ey)}" for ex, ey in ends) if length else ""


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _xml(text: str) -> str:
    return escape(_NOT_XML.sub("", text))
