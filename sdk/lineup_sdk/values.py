"""Immutable values with the look of frozen dataclasses, without their price at import.

A frozen dataclass compiles its methods when the module is imported, about a millisecond each; a worker starts with some
forty of them. Type checkers treat subclasses of ``Value`` exactly like frozen dataclasses.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Value:
    """Annotated names are the fields, in order, those of the base first; a class attribute is a default."""

    __match_args__: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = [name for name in get_annotations(cls) if not name.startswith("__")]
        inherited = cls.__match_args__
        cls.__match_args__ = (*inherited, *(name for name in own if name not in inherited))  # type: ignore[misc]
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}

    def __init__(self, *args: Any, **named: Any) -> None:
        fields = self.__match_args__
        if len(args) > len(fields):
            raise TypeError(f"{type(self).__name__} takes {len(fields)} arguments, {len(args)} were given")
        values = dict(zip(fields, args, strict=False))
        for name, value in named.items():
            if name in values or name not in fields:
                raise TypeError(f"{type(self).__name__} got an unexpected or repeated argument {name!r}")
            values[name] = value
        for name in fields:
            if name not in values:
                if name not in self._defaults:
                    raise TypeError(f"{type(self).__name__} needs {name!r}")
                values[name] = self._defaults[name]
        self.__dict__.update(values)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot delete {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # fields may be dicts

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__ if not name.startswith("_"))
        return f"{type(self).__name__}({shown})"
