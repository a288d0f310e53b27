"""The Kullback-Leibler divergence, by pairs of types (torch docs: torch.distributions.kl)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["kl_divergence", "register_kl"]

Formula = Callable[[Any, Any], Any]
_KL_REGISTRY: dict[tuple[type, type], Formula] = {}
_found: dict[tuple[type, type], Formula] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[[Formula], Formula]:
    """A decorator that registers a formula for a pair of types and their subclasses."""
    from tocha.distributions.distribution import Distribution

    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type) or not issubclass(kind, Distribution):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(formula: Formula) -> Formula:
        _KL_REGISTRY[type_p, type_q] = formula
        _found.clear()
        return formula

    return decorator


@functools.total_ordering
class _Match:
    """A pair of registered types, smaller the more special both are."""

    def __init__(self, *types: type) -> None:
        self.types = types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Match) and self.types == other.types

    def __le__(self, other: _Match) -> bool:
        for mine, theirs in zip(self.types, other.types, strict=True):
            if not issubclass(mine, theirs):
                return False
            if mine is not theirs:
                break
        return True

    __hash__ = None  # type: ignore[assignment]


def _formula(type_p: type, type_q: type) -> Formula:
    """The most special formula for a pair of types; NotImplementedError without one."""
    pairs = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not pairs:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type_p.__name__} and q type {type_q.__name__}")
    left = min(_Match(*pair) for pair in pairs).types
    right_q, right_p = min(_Match(*reversed(pair)) for pair in pairs).types
    formula = _KL_REGISTRY[left[0], left[1]]
    if formula is not _KL_REGISTRY[right_p, right_q]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({left[0].__name__}, {right_q.__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return formula


def kl_divergence(p: Any, q: Any) -> Any:
    """KL(p || q) for each distribution of a batch; NotImplementedError for pairs without a formula."""
    pair = type(p), type(q)
    if pair not in _found:
        _found[pair] = _formula(*pair)
    return _found[pair](p, q)


from tocha.distributions import _kl_mixed, _kl_same  # noqa: E402, F401  (they register the formulas)
