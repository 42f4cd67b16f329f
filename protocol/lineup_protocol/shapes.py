"""How much a JSON value is, whatever it says: the counts that the limits of ``limits`` are about."""

from __future__ import annotations

from typing import Any

_CONTAINERS = (dict, list, tuple)
_LEAVES = frozenset((str, int, float, bool, type(None), bytes))


def shape(value: object) -> tuple[int, int]:
    """How many values and keys are in ``value``, itself included, and how many containers stand inside one another."""
    nodes, depth = 1, 0
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    while level:
        depth += 1
        below: list[Any] = []
        for container in level:
            if not container:
                continue
            nodes += 2 * len(container) if isinstance(container, dict) else len(container)
            items = container.values() if isinstance(container, dict) else container
            if not _LEAVES.issuperset(map(type, items)):  # mostly there are leaves alone, and no look at each is needed
                below += [item for item in items if isinstance(item, _CONTAINERS)]
        level = below
    return nodes, depth


def has_bytes(value: object) -> bool:
    """Whether ``value`` is bytes, or has some anywhere in it."""
    level: list[Any] = [value]
    while level:
        kinds = set(map(type, level))
        if bytes in kinds:
            return True
        if kinds <= _LEAVES:
            return False
        below: list[Any] = []
        for container in level:
            if isinstance(container, _CONTAINERS):
                below += container.values() if isinstance(container, dict) else container
        level = below
    return False
