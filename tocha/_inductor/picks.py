"""Elements at places that an integer tensor names, as loops that look the place up: `table[index]` fuses with what reads it.

    embedding(table, index)  →  pick(table, checked(index))

Checking is a call of its own before the loops, which trust what it returns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocha._inductor import access as accesses
from tocha._inductor.access import Access, Axis, Shape
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.fx import Graph, Node
from tocha.prims import indexing


@prim("checked_index", "index", infer=lambda index, *, size, dim: MetaArray(index.shape, np.dtype(np.int64)))
def checked_index(xp: Any, index: Any, *, size: int, dim: int) -> Any:
    """Places in dimension `dim` of `size`, from its beginning, as an array of its own. IndexError for those outside."""
    xp.check_range(index, size, dim, True, IndexError)
    return xp.where(index < 0, index + size, index).astype(np.int64)


@prim("pick", "index", infer=lambda table, index, *, dim, along: MetaArray(picked_shape(table.shape, index.shape, dim, along), table.dtype))
def pick(xp: Any, table: Any, index: Any, *, dim: int, along: bool) -> Any:
    """The table with its dimension `dim` replaced by the index's dimensions; `along`: what `gather` gives, with the index's shape."""
    return indexing.gather.impl(xp, table, index, dim=dim) if along else xp.take(table, index, axis=dim)


def picked_shape(shape: Shape, index: Shape, dim: int, along: bool) -> Shape:
    """The shape of `pick`'s result."""
    return index if along else (*shape[:dim], *index, *shape[dim + 1 :])


def picking(graph: Graph, table: Node, index: Node, dim: int, along: bool) -> Node:
    """The nodes of a pick."""
    shape, places = table.meta["val"].shape, index.meta["val"].shape
    checked = graph.call_function(checked_index, (index,), {"size": shape[dim], "dim": dim})
    checked.meta["val"] = MetaArray(places, np.dtype(np.int64))
    node = graph.call_function(pick, (table, checked), {"dim": dim, "along": along})
    node.meta["val"] = MetaArray(picked_shape(shape, places, dim, along), table.meta["val"].dtype)
    return node


class Places(NamedTuple):
    """Where a pick reads: its index `at` an access; its table at another, and `step` elements further for each of the index."""

    at: Access
    table: Access
    step: int


def places(node: Node, access: Access, loop: Shape) -> Places | None:
    """Where a pick's element at `access` is read; None if that wraps around within a dimension."""
    table, index = [(tuple(n.meta["val"].shape), _own(n)) for n in node.args]
    found = accesses.axes(access, loop, tuple(node.meta["val"].shape), _own(node))
    if found is None:
        return None
    dim, start = node.kwargs["dim"], Axis((0,) * len(loop), 0)
    if node.kwargs["along"]:
        own, rest = found, [*found[:dim], start, *found[dim + 1 :]]
    else:
        end = dim + len(index[0])
        own, rest = found[dim:end], [*found[:dim], start, *found[end:]]
    at = accesses.along(rest, table[1], loop)
    return Places(accesses.along(own, index[1], loop), at._replace(picked=True), table[1][dim])


def _own(node: Node) -> Shape:
    value = node.meta["val"]
    return tuple(s // value.itemsize for s in value.strides)
