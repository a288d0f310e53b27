"""torch.export.Dim: sizes that may vary."""

from __future__ import annotations

from typing import Any


class _Hint:
    """Dim.AUTO, Dim.DYNAMIC, Dim.STATIC."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A size by name, from `min` to `max`; dimensions given the same name must agree when the program runs."""

    AUTO, DYNAMIC, STATIC = _Hint("AUTO"), _Hint("DYNAMIC"), _Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.min, self.max = 0 if min is None else min, max
        if self.max is not None and self.max <= self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several `Dim`s."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def varying(spec: Any, rank: int) -> dict[int, Any]:
    """The dimensions that a tensor's spec (a dict, a list, or None) lets vary."""
    items = {} if spec is None else dict(spec) if isinstance(spec, dict) else dict(enumerate(spec))
    return {d % rank: v for d, v in items.items() if v is not None and v is not Dim.STATIC and not isinstance(v, int)}
