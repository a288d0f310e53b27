"""What a traced graph means: its nodes computed one by one on NumPy arrays. Compiled graphs are tested against this."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha.backends import cpu
from tocha.dispatch.prim import Prim
from tocha.fx import Graph, Node, map_arg
from tocha.prims.pointwise import Pointwise

Shape = tuple[int, ...]


def window(x: Any, own: Shape, shape: Shape, strides: Shape, offset: int, dtype: Any) -> Any:
    """What a view of x shows, where x lies in memory with strides `own`; it may share x's memory."""
    x = laid_out(x, own)
    if dtype is not x.dtype:
        return np.ndarray(shape, dtype, _bytes_of(x), offset, strides)
    return cpu.restride(x, shape, strides, offset)


def put(x: Any, value: Any, own: Shape, shape: Shape, strides: Shape, offset: int) -> Any:
    """A copy of x in which a view's elements are replaced by `value`."""
    out = laid_out(x, own, copy=True)
    part = (
        cpu.restride(out, shape, strides, offset)
        if value.dtype is out.dtype
        else np.ndarray(shape, value.dtype, _bytes_of(out), offset, strides)
    )
    part[...] = value
    return out


def laid_out(x: Any, strides: Shape, copy: bool = False) -> Any:
    """x itself if it lies in memory with these strides (dimensions of one element apart), or a copy that does."""
    fits = x.size == 0 or all(n == 1 or have == want for n, have, want in zip(x.shape, x.strides, strides, strict=True))
    if fits and not copy:
        return x
    if any(s < 0 for s in strides):
        raise NotImplementedError("tracing: memory with negative strides")
    item = x.dtype.itemsize
    count = 0 if x.size == 0 else 1 + sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True)) // item
    out = np.ndarray(x.shape, x.dtype, np.empty(max(count, 1), x.dtype), 0, strides)
    out[...] = x
    return out


def _bytes_of(x: Any) -> Any:
    """The memory that x's elements lie in, from the first on."""
    count = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + x.dtype.itemsize if x.size else 0
    return np.lib.stride_tricks.as_strided(
        x.reshape(-1)[:1] if x.flags.c_contiguous else x[(slice(0, 1),) * x.ndim].reshape(-1),
        (max(count // x.dtype.itemsize, 1),),
        (x.dtype.itemsize,),
    )


class Constant:
    """An array in a node's arguments, shown short."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __repr__(self) -> str:
        return f"{self.array.dtype}{list(self.array.shape)}"


def constant(held: Any) -> Any:
    """An array known when tracing."""
    return held.array


def fill(shape: Shape, dtype: Any, value: Any) -> Any:
    """An array of one value; None stands for undefined contents, which are zeros here."""
    return np.zeros(shape, dtype) if value is None else np.full(shape, value, dtype)


def draw(function: Any, shape: Shape, dtype: Any, args: tuple[Any, ...]) -> Any:
    """Values made on the host when the graph runs (random numbers), in the program's order."""
    return function(shape, dtype, *args)


def draw_into(function: Any, shape: Shape, dtype: Any, at_once: bool, args: tuple[Any, ...], strides: Shape) -> Any:
    """As `draw`, for values that fill existing memory, in the order in which it lies."""
    out = laid_out(np.empty(shape, dtype), strides)
    cpu.overwrite(out, at_once, function, *args)
    return out


def check(function: Any, array: Any, *arguments: Any) -> None:
    """`function(array, *arguments)`, which raises if the values are not as they should be."""
    function(array, *arguments)


def computed(array: Any) -> None:
    """A check that the array could be computed."""


check.impure = draw.impure = draw_into.impure = True  # type: ignore[attr-defined]


def compute(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A node's value from its arguments' (an array, or a tuple of them)."""
    target = node.target
    if isinstance(target, Pointwise):
        params = dict(kwargs)
        given, inner, dtype = params.pop("given"), params.pop("compute"), params.pop("dtype")
        return cpu.run_rule(target, list(args), given, inner, dtype, params)
    if isinstance(target, Prim):
        got = cpu.run_prim(target, list(args), kwargs)
        return tuple([np.asarray(g) for g in got]) if got.__class__ is tuple else np.asarray(got)
    return target(*args, **kwargs)


def run(graph: Graph, inputs: list[Any]) -> list[Any]:
    """The arrays that the graph returns for these inputs. Outputs may share memory with inputs."""
    values: dict[Node, Any] = {}
    given = iter(inputs)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "output":
                return [None if n is None else values[n] for n in node.args[0]]
            else:
                read = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = compute(node, *read)
    raise RuntimeError("tracing: the graph has no output")
