"""Composites that torch records as one node: their operands are all that is kept, and backward runs them once more.

That costs the forward pass again, so it is for those whose steps between are much larger than their operands, or that are rare.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tocha.autograd.engine import grad
from tocha.autograd.function import Function
from tocha.autograd.mode import enable_grad, state
from tocha.backends import cpu
from tocha.dispatch.override import INTERPRETERS
from tocha.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class _Whole(Function):
    """A call of `run(*tensors)`."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(*tensors)
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        twice, needs = bool(state.grad), ctx.needs_input_grad[1:]
        with enable_grad():
            # Views: one operand may be made of the other, through which no gradient shall flow here.
            inputs = [x if not need else x.view_as(x) if x._rg else x.detach() for x, need in zip(ctx.saved_tensors, needs, strict=True)]
            wanted = [x if x._rg else x.requires_grad_() for x, need in zip(inputs, needs, strict=True) if need]
            out = ctx.run(*inputs)
        found = iter(grad([out], wanted, [g], create_graph=twice, allow_unused=True))
        return None, *(next(found) if need else None for need in needs)


def _run(function: Callable[..., Any], rest: list[Any], places: list[int], names: tuple[str, ...], *tensors: Tensor) -> Any:
    """The call with these tensors at their places among the arguments, of which the last ones have names."""
    values = list(rest)
    for i, t in zip(places, tensors, strict=True):
        values[i] = t
    positional = len(values) - len(names)
    return function(*values[:positional], **dict(zip(names, values[positional:], strict=True)))


def whole(name: str) -> Callable[[F], F]:
    """Make calls of a composite of one result one node, `<name>Backward0`, where plain CPU tensors are recorded."""
    kind: Any = type(name, (_Whole,), {"__module__": "torch"})
    kind._backward_cls.__name__ = f"{name}Backward0"

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            places = [i for i, a in enumerate(given) if isinstance(a, Tensor)]
            tensors = [given[i] for i in places]
            plain = state.grad and not INTERPRETERS and all(t._a.__class__ is cpu.Array for t in tensors)
            if not plain or not any(t._rg for t in tensors):
                return function(*args, **kwargs)
            rest = [None if isinstance(a, Tensor) else a for a in given]
            return kind.apply(functools.partial(_run, function, rest, places, tuple(kwargs)), *tensors)

        return call  # type: ignore[return-value]

    return decorate
