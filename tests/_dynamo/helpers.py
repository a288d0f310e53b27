"""Compare a function with itself compiled: results, writes, exceptions, and how many graphs it took."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import tocha as torch
from tocha._dynamo.testing import CompileCounter


def same(a: Any, b: Any, tolerance: float = 0) -> bool:
    """Deep equality, tensors by value (within a tolerance), class, type and shape, NaN equal to itself."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.requires_grad == b.requires_grad
            and torch.allclose(a.detach(), b.detach(), tolerance, tolerance, equal_nan=True)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return (
            list(a) == list(b)
            and same([*a.values()], [*b.values()], tolerance)
            and (not hasattr(a, "__dict__") or same(vars(a), vars(b), tolerance))
        )
    if hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a):
        return same(vars(a), vars(b), tolerance)
    return bool(a == b)


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """("returned", value) or ("raised", class, text)."""
    try:
        return "returned", function(*args, **kwargs)
    except Exception as error:
        return "raised", type(error), str(error)


def check(
    function: Callable[..., Any], *args: Any, graphs: int | None = 1, calls: int = 2, fullgraph: bool = False, backend: Any = None, **kwargs: Any
) -> CompileCounter:  # fmt: skip
    """The compiled function's results and what it does to its arguments equal the plain one's, call after call, with `graphs` graphs."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=backend or counter, fullgraph=fullgraph)
    for number in range(calls):
        plain_args, plain_kwargs = copy.deepcopy((args, kwargs))
        our_args, our_kwargs = copy.deepcopy((args, kwargs))
        torch.manual_seed(number)
        expected = run(function, plain_args, plain_kwargs)
        torch.manual_seed(number)
        got = run(compiled, our_args, our_kwargs)
        assert same(expected, got), f"call {number}: expected {expected}, got {got}"
        assert same([plain_args, plain_kwargs], [our_args, our_kwargs]), f"call {number} changed its arguments otherwise"
    if graphs is not None and backend is None:
        assert counter.frame_count == graphs, (
            f"{counter.frame_count} graphs instead of {graphs}: {dict(torch._dynamo.utils.counters['graph_break'])}"
        )
    return counter
