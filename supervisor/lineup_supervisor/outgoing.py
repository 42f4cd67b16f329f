"""What one commit sends, gathered by whom it goes to: many calls share a commit, and to a socket one write costs what
ten do. Decides nothing, and changes no order that anybody could see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lineup_supervisor.core import effects as fx

_Target = tuple[str, int | None]  # a link, or an instance and its incarnation


def sends_last(effects: Iterable[fx.AnyEffect]) -> Iterator[fx.AnyEffect]:
    """The same effects with one ``SendAgent`` per link and one ``SendWorker`` per incarnation, behind all others but
    before what starts, stops or closes their target.
    """
    waiting: dict[_Target, list[dict[str, Any]]] = {}
    for effect in effects:
        match effect:
            case fx.SendAgent():
                waiting.setdefault((effect.link_id, None), []).extend(effect.frames)
                continue
            case fx.SendWorker():
                waiting.setdefault((effect.instance_id, effect.incarnation), []).extend(effect.messages)
                continue
            case fx.CloseAgent():
                yield from _pop(waiting, (effect.link_id, None))
            case fx.StopWorker() | fx.StartWorker():
                yield from _pop(waiting, (effect.instance_id, effect.incarnation))
            case _:
                pass
        yield effect
    for target in list(waiting):
        yield from _pop(waiting, target)


def _pop(waiting: dict[_Target, list[dict[str, Any]]], target: _Target) -> Iterator[fx.AnyEffect]:
    gathered = waiting.pop(target, None)
    if gathered is None:
        return
    name, incarnation = target
    if incarnation is None:
        yield fx.SendAgent(link_id=name, frames=tuple(gathered))
    else:
        yield fx.SendWorker(instance_id=name, incarnation=incarnation, messages=tuple(gathered))
