"""tocha with its functions compiled: what `tools/conformance.py --compile` runs the vectors on.

Every call of a function with tensors among its arguments is traced, compiled by the inductor and run, with its gradients. What can't be
traced (values are asked for) runs eagerly and is counted by reason in the file that $TOCHA_COMPILED_LOG names.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

import tocha
from tocha._inductor import compile_graph
from tocha.aot.joint import Unsupported
from tocha.aot.runtime import compile
from tocha.aot.trace import DataDependent
from tocha.utils import _pytree

# What the runner itself makes tensors with, and takes them apart.
_EAGER = frozenset(("from_numpy", "as_strided", "ones", "empty", "zeros", "tensor", "manual_seed", "is_tensor", "load", "save"))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled anew at every call."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        tensors = list({id(x): x for x in leaves if isinstance(x, tocha.Tensor)}.values())
        if not tensors:
            return function(*args, **kwargs)
        position = {id(t): i for i, t in enumerate(tensors)}
        results: list[Any] = []

        def of_tensors(*given: Any) -> list[Any]:
            filled = [given[position[id(x)]] if isinstance(x, tocha.Tensor) else x for x in leaves]
            again, named = _pytree.tree_unflatten(filled, tree)
            flat, shape = _pytree.tree_flatten(function(*again, **named))
            results[:] = [shape]
            return flat

        try:
            made = compile(of_tensors, tensors, compile_graph)
        except (Unsupported, DataDependent) as reason:
            _note(function, reason)
            return function(*args, **kwargs)
        return _pytree.tree_unflatten(made(*tensors), results[0])

    return call


def _note(function: Any, reason: Exception) -> None:
    path = os.environ.get("TOCHA_COMPILED_LOG")
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(f"{getattr(function, '__name__', function)}: {reason}\n")


class _Space(types.ModuleType):
    """A module of tocha's whose functions are compiled."""

    def __init__(self, real: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        return _wrapped(name, getattr(self._real, name))


def _wrapped(name: str, found: Any) -> Any:
    if isinstance(found, types.ModuleType) and name not in ("autograd", "utils", "optim"):
        return _Space(found)
    is_function = callable(found) and not isinstance(found, type)
    return compiled(found) if is_function and name not in _EAGER else found


def __getattr__(name: str) -> Any:
    return _wrapped(name, getattr(tocha, name))
