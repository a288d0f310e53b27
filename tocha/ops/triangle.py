"""Diagonals and triangles of matrices: diag, diag_embed, tril, triu, block_diag, vander, …"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import dtypes
from tocha.backends import for_device
from tocha.dispatch.inplace import assign, check_writable, overlaps_itself
from tocha.dispatch.promote import result_type
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_dtype, check_int, check_tensor, to_device, wrap_dim
from tocha.ops.creation import make
from tocha.ops.join import atleast_2d
from tocha.ops.select import masked_fill_
from tocha.ops.shape import diagonal
from tocha.prims import arrange as prims
from tocha.tensor import Tensor, wrap


@op("torch method strictout")
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Lower triangles of matrices (torch docs: torch.tril)."""
    return prims.tril(_matrices(input, "tril"), diagonal=check_int(diagonal, "tril", "diagonal"))


@op("torch method strictout")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Upper triangles of matrices (torch docs: torch.triu)."""
    return prims.triu(_matrices(input, "triu"), diagonal=check_int(diagonal, "triu", "diagonal"))


@op("method")
def tril_(input: Tensor, diagonal: int = 0) -> Tensor:
    """Zeros above a diagonal, in place (torch docs: Tensor.tril_)."""
    return _clear(input, check_int(diagonal, "tril_", "diagonal"), prims.tril, "tril_")


@op("method")
def triu_(input: Tensor, diagonal: int = 0) -> Tensor:
    """Zeros below a diagonal, in place (torch docs: Tensor.triu_)."""
    return _clear(input, check_int(diagonal, "triu_", "diagonal"), prims.triu, "triu_")


def _clear(input: Tensor, diagonal: int, keep: Any, name: str) -> Tensor:
    """Where elements share memory, a zero for one is a zero for all, as in torch; else what isn't kept is zeroed."""
    if overlaps_itself(_matrices(input, name)):
        kept = keep(make(tuple(input._a.shape[-2:]), dtypes.bool_, input.device, 1), diagonal=diagonal)
        return masked_fill_(input, kept.logical_not(), 0)
    check_writable(input, name)
    return assign(input, keep(input, diagonal=diagonal), name)


def _matrices(input: Tensor, name: str) -> Tensor:
    if check_tensor(input, name).ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    return input


def _indices(name: str, row: int, col: int, offset: int, dtype: Any, device: Any, lower: bool) -> Tensor:
    if row < 0 or col < 0:
        raise RuntimeError(f"{name}: row and col must be non-negative, got {row} and {col}")
    kind = check_dtype(dtype, name) or dtypes.int64
    if kind not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"\"{name}\" not implemented for '{kind.name}'")
    found = np.tril_indices(row, offset, col) if lower else np.triu_indices(row, offset, col)
    where = to_device(device)
    return wrap(for_device(where).from_host(np.stack(found).astype(kind.np), where.index))


@op("torch")
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None, pin_memory: bool = False
) -> Tensor:
    """Rows and columns of a lower triangle (torch docs: torch.tril_indices)."""
    return _indices("tril_indices", row, col, offset, dtype, device, True)


@op("torch")
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, layout: Any = None, pin_memory: bool = False
) -> Tensor:
    """Rows and columns of an upper triangle (torch docs: torch.triu_indices)."""
    return _indices("triu_indices", row, col, offset, dtype, device, False)


@op("torch method strictout")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A square matrix with a vector on a diagonal, or a copy of a matrix's diagonal (torch docs: torch.diag)."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return input.diagonal(diagonal).clone()


@op("torch method")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension on a diagonal (torch docs: torch.diag_embed)."""
    rank = check_tensor(input, "diag_embed").ndim + 1
    d1, d2 = wrap_dim(dim1, rank, "diag_embed"), wrap_dim(dim2, rank, "diag_embed")
    if d1 == d2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    offset = check_int(offset, "diag_embed", "offset")
    size = input._a.shape[-1] + abs(offset)
    shape = list(input._a.shape[:-1])
    for d in sorted((d1, d2)):
        shape.insert(d, size)
    out = input.new_zeros(shape)
    diagonal(out, offset, d1, d2).copy_(input)
    return out


@op("torch method")
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A square matrix with the flattened input on a diagonal (torch docs: torch.diagflat)."""
    return diag_embed(input.reshape(-1), offset)


@op("torch")
def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given ones along its diagonal (torch docs: torch.block_diag)."""
    for i, x in enumerate(tensors):
        if check_tensor(x, "block_diag", "tensors", i + 1).ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x.ndim} dimensions"
            )
    blocks = [atleast_2d(x) for x in tensors]
    if not blocks:
        return make((1, 0), dtypes.get_default_dtype(), to_device(None))
    rows, columns = (sum(b._a.shape[d] for b in blocks) for d in (0, 1))
    out = make((rows, columns), result_type(blocks), blocks[0].device, 0)
    row = column = 0
    for b in blocks:
        m, n = b._a.shape
        out[row : row + m, column : column + n] = b.to(out.dtype)
        row, column = row + m, column + n
    return out


@op("torch")
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements as columns (torch docs: torch.vander)."""
    if check_tensor(x, "vander").ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x._a.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    kind = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else dtypes.int64
    columns = [x.to(kind).pow(i) for i in range(count)]
    if not columns:
        return make((x._a.shape[0], 0), kind, x.device)
    from tocha.ops.shape import stack

    return stack(columns if increasing else columns[::-1], 1)
