"""Joining and cutting tensors, and bringing them to common shapes: hstack, vsplit, meshgrid, atleast_2d, …"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tocha.device import Size
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_int, check_tensor, wrap_dim
from tocha.ops.shape import cat, chunk, expand, narrow, split, stack
from tocha.prims import pointwise
from tocha.prims import view as prims
from tocha.tensor import Tensor

Shape = tuple[int, ...]


def _tensors(args: tuple[Any, ...]) -> list[Tensor]:
    """Tensors given one by one or as a sequence."""
    return list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else list(args)


def _check_list(tensors: Any, name: str) -> Sequence[Tensor]:
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"{name}(): argument 'tensors' must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return [check_tensor(x, name, "tensors", i + 1) for i, x in enumerate(tensors)]


# ---- at least so many dimensions


def _grow(x: Tensor, rank: int) -> Tensor:
    check_tensor(x, f"atleast_{rank}d")
    shape = x._a.shape
    if len(shape) >= rank:
        return x
    if rank == 3 and len(shape) == 2:
        return x.unsqueeze(-1)
    if rank == 3 and len(shape) == 1:
        return x.unsqueeze(0).unsqueeze(-1)
    return x.reshape((1,) * (rank - len(shape)) + tuple(shape))


def _atleast(rank: int) -> Any:
    def function(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
            return tuple(_grow(x, rank) for x in tensors[0])
        if len(tensors) == 1:
            return _grow(tensors[0], rank)
        return tuple(_grow(x, rank) for x in tensors)

    doc = f"Views with at least {rank} dimension(s) (torch docs: torch.atleast_{rank}d)."
    return op("torch", name=f"atleast_{rank}d", doc=doc)(function)


atleast_1d, atleast_2d, atleast_3d = _atleast(1), _atleast(2), _atleast(3)


# ---- stacking


@op("torch out")
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, vectors along 0 (torch docs: torch.hstack)."""
    grown = [_grow(x, 1) for x in _check_list(tensors, "hstack")]
    return cat(grown, 0 if grown[0].ndim == 1 else 1)


@op("torch out", alias=("row_stack",))
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 0, vectors as rows (torch docs: torch.vstack)."""
    return cat([_grow(x, 2) for x in _check_list(tensors, "vstack")], 0)


@op("torch out")
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 2 (torch docs: torch.dstack)."""
    return cat([_grow(x, 3) for x in _check_list(tensors, "dstack")], 2)


@op("torch out")
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, vectors as columns (torch docs: torch.column_stack)."""
    columns = [x.reshape(x._a.size, 1) if x.ndim <= 1 else x for x in _check_list(tensors, "column_stack")]
    return cat(columns, 1)


# ---- splitting


@op("torch method")
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of given sizes (torch docs: torch.split_with_sizes)."""
    return split(input, list(split_sizes), dim)


def _cut(input: Tensor, cuts: list[int], dim: int) -> tuple[Tensor, ...]:
    """The slices between cuts: views of their own each, which unlike those of `split` may be changed in place."""
    lead = (slice(None),) * dim
    ends = [0, *cuts, input._a.shape[dim]]
    return tuple(prims.slice_(input, index=(*lead, slice(a, b))) for a, b in itertools.pairwise(ends))


@op("torch method")
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None,
    tensor_indices_or_sections: Any = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Pieces as even as can be, or cut at indices (torch docs: torch.tensor_split)."""
    where = next((w for w in (indices_or_sections, indices, sections, tensor_indices_or_sections) if w is not None), None)
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = wrap_dim(dim, input.ndim, "tensor_split")
    n = input._a.shape[d]
    if isinstance(where, Tensor):
        if where._a.dtype.name != "int64" or where.ndim > 1:
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to be a zero- or one-dimensional int64 tensor")
        if not where.is_cpu:
            raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {where.device}")
        where = where.tolist()
    if isinstance(where, (tuple, list)):
        return _cut(input, [check_int(c, "tensor_split", "indices") for c in where], d)
    count = check_int(where, "tensor_split", "sections")
    if count <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {count}")
    small, extra = divmod(n, count)
    sizes = (small + (i < extra) for i in range(count))
    return _cut(input, list(itertools.accumulate(sizes))[:-1], d)


def _axis_split(name: str, rank: int, dim: int, least: int) -> None:
    def pieces(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {input.ndim} dimensions!"
            )
        d = 0 if name == "hsplit" and input.ndim == 1 else dim
        n = input._a.shape[d]
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or n % indices_or_sections):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {d}, but the size of the dimension {n} is not divisible by the "
                f"split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, d)

    op("torch method", name=name, doc=f"`tensor_split` along dimension {dim} (torch docs: torch.{name}).")(pieces)


for _name, _rank, _dim, _least in (("hsplit", 1, 1, 1), ("vsplit", 2, 0, 2), ("dsplit", 3, 2, 3)):
    _axis_split(_name, _rank, _dim, _least)


# ---- common shapes


@op("torch")
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All expanded to the shape they broadcast to (torch docs: torch.broadcast_tensors)."""
    given = [check_tensor(x, "broadcast_tensors", "tensors", i + 1) for i, x in enumerate(_tensors(tensors))]
    shape = pointwise.broadcast_shapes("broadcast_tensors", *(x._a.shape for x in given))
    return tuple(x if x._a.shape == shape else expand(x, shape) for x in given)


@op("torch method")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Expanded to a shape (torch docs: torch.broadcast_to)."""
    return expand(input, tuple(size))


@op("torch")
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that shapes broadcast to (torch docs: torch.broadcast_shapes)."""
    sizes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    for s in sizes:
        if any(n < 0 for n in s):
            raise ValueError(f"broadcast_shapes: sizes must not be negative, got {list(s)}")
    return Size(pointwise.broadcast_shapes("broadcast_shapes", *sizes))


@op("torch")
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinates of a grid (torch docs: torch.meshgrid). Without `indexing`: 'ij', with torch's warning."""
    given = _tensors(tensors)
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in given:
        if check_tensor(x, "meshgrid", "tensors").ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(x.shape)}")
        if x.dtype is not given[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
        if x.device != given[0].device:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing is None:
        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
            UserWarning,
            stacklevel=3,
        )
    elif indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swap = indexing == "xy" and len(given) >= 2
    if swap:
        given[0], given[1] = given[1], given[0]
    shape = tuple(x._a.size for x in given)
    n = len(shape)
    grids = [x.reshape((1,) * i + (-1,) + (1,) * (n - i - 1)).expand(shape) for i, x in enumerate(given)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@op("torch")
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of elements of vectors, one a row (torch docs: torch.cartesian_prod)."""
    given = _tensors(tensors)
    for x in given:
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(given) == 1:
        return given[0]
    return stack([g.reshape(-1) for g in meshgrid(*given, indexing="ij")], 1)


@op("torch")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of r elements of a vector, one a row (torch docs: torch.combinations)."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input._a.shape[0]), r)), np.int64).reshape(-1, r)
    from tocha.ops.creation import as_tensor

    return input[as_tensor(rows, device=input.device)]


def _unsafe(name: str, function: Any) -> None:
    def pieces(input: Tensor, size: Any, dim: int = 0) -> tuple[Tensor, ...]:
        d = wrap_dim(dim, input.ndim, name)
        lengths = [p._a.shape[d] for p in function(input.detach(), size, d)]
        ends = list(itertools.accumulate(lengths, initial=0))
        return tuple(narrow(input, d, start, length) for start, length in zip(ends, lengths, strict=False))

    op("torch method", name=name, doc=f"`{name[7:]}` whose pieces may be changed in place (torch docs: torch.{name}).")(pieces)


for _name, _function in (("split", split), ("split_with_sizes", split_with_sizes), ("chunk", chunk)):
    _unsafe("unsafe_" + _name, _function)
