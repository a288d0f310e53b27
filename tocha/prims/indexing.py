"""The index family: reading and writing at places that integer tensors name.

`index`/`index_put` take index tensors for some dimensions (`dims`), which broadcast among themselves; their shape stands
where those dimensions stood if they are adjacent, else in front. `gather`/`scatter*` take one index of the full rank
along one dimension. Indices are checked and non-negative bounds are the caller's promise only where said.
"""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim

Shape = tuple[int, ...]


def indexed_shape(shape: Shape, index_shape: Shape, dims: Shape) -> Shape:
    """The shape of `index`'s result for index tensors that broadcast to `index_shape`."""
    rest = tuple(n for d, n in enumerate(shape) if d not in dims)
    place = front(dims)
    return (*rest[:place], *index_shape, *rest[place:])


def front(dims: Shape) -> int:
    """How many unindexed dimensions come before the indices' own in the result."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def _broadcast(indices: tuple[Any, ...]) -> Shape:
    from tocha.prims.pointwise import broadcast_shapes

    return broadcast_shapes("index", *(i.shape for i in indices))


def _key(rank: int, indices: tuple[Any, ...], dims: Shape) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * rank
    for d, i in zip(dims, indices, strict=True):
        key[d] = i
    return tuple(key)


def _check(xp: Any, shape: Shape, indices: tuple[Any, ...], dims: Shape) -> None:
    for d, i in zip(dims, indices, strict=True):
        xp.check_index(i, shape[d])


def _flat_positions(xp: Any, shape: Shape, indices: tuple[Any, ...], dims: Shape) -> Any:
    """For every element of the indexing result its row-major position in an array of `shape`."""
    steps = element_strides(shape)
    rest = [d for d in range(len(shape)) if d not in dims]
    place = front(dims)
    tail = len(rest) - place
    here: Any = 0
    for d, i in zip(dims, indices, strict=True):
        here = here + xp.where(i < 0, i + shape[d], i) * steps[d]
    here = here.reshape(here.shape + (1,) * tail)
    rank = here.ndim + place
    for axis, d in enumerate(rest):
        at = axis if axis < place else rank - len(rest) + axis
        here = here + (xp.arange(shape[d]) * steps[d]).reshape((shape[d],) + (1,) * (rank - at - 1))
    return here


def element_strides(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))


def _in_rows(input: Any, *others: Any, **unused: Any) -> MetaArray:
    return MetaArray(input.shape, input.dtype)


def _index_vjp(g: Any, input_shape: Shape, indices: Any, *, dims: Shape) -> list[Any]:
    grad = index_put(g.new_zeros(input_shape), g, *indices, dims=dims, accumulate=True)
    return [grad, *(None for _ in indices)]


@prim("index", "index", vjp=_index_vjp, half="native", tags=("raises",),
      infer=lambda input, *indices, dims: MetaArray(indexed_shape(input.shape, _broadcast(indices), dims), input.dtype))  # fmt: skip
def index(xp: Any, input: Any, *indices: Any, dims: Shape) -> Any:
    """Elements at index tensors of `dims`; other dimensions in full."""
    if len(indices) == 1:
        return xp.take(input, indices[0], axis=dims[0])
    _check(xp, input.shape, indices, dims)
    return xp.ascontiguousarray(input[_key(input.ndim, indices, dims)])


def _index_put_vjp(
    g: Any, input_shape: Shape, values_shape: Shape, indices: Any, *, dims: Shape, accumulate: bool, needs: Any
) -> list[Any]:
    grad_input = grad_values = None
    if needs[0]:
        grad_input = g if accumulate else index_put(g, g.new_zeros(()), *indices, dims=dims, accumulate=False)
    if needs[1]:
        grad_values = index(g, *indices, dims=dims).sum_to_size(values_shape)
    return [grad_input, grad_values, *(None for _ in indices)]


@prim("index_put", "index", vjp=_index_put_vjp, infer=lambda input, values, *i, dims, accumulate: input)
def index_put(xp: Any, input: Any, values: Any, *indices: Any, dims: Shape, accumulate: bool) -> Any:
    """A copy of input with `values` (broadcast to the indexing result) written, or added, at the indices."""
    out = input.copy("C")
    put_into(xp, out, values, indices, dims, accumulate)
    return out


def put_into(xp: Any, target: Any, values: Any, indices: tuple[Any, ...], dims: Shape, accumulate: bool) -> None:
    """`index_put` on an array itself."""
    if xp.combine_indexed("add" if accumulate else "put", target, indices, dims, values):
        return
    _check(xp, target.shape, indices, dims)
    if not accumulate:
        target[_key(target.ndim, indices, dims)] = values
        return
    positions = _flat_positions(xp, target.shape, indices, dims)
    add_at(xp, target, positions, xp.broadcast_to(values, positions.shape))


def add_at(xp: Any, target: Any, positions: Any, values: Any, ufunc: str = "add") -> None:
    """Combine `values` into row-major `positions` of target one after the other. On flat arrays NumPy's `ufunc.at`
    takes its fast loop, five times the speed of the one for several dimensions."""
    if not target.size:
        return
    if 0 in target.strides:  # expanded: elements that share memory add up there
        own = target[(*(0 if s == 0 else slice(None) for s in target.strides), ...)]
        places = xp.arange(own.size).reshape([1 if s == 0 else n for n, s in zip(target.shape, target.strides, strict=True)])
        add_at(xp, own, xp.broadcast_to(places, target.shape).reshape(-1)[positions], values, ufunc)
        return
    flat = target.reshape(-1)  # a copy if target isn't contiguous
    values = xp.ascontiguousarray(values).reshape(-1)
    positions = positions.reshape(-1)
    if values.size == 1 and positions.size != 1:
        values = xp.broadcast_to(values, positions.shape)
    if target.dtype.kind == "b" and ufunc == "add":
        ufunc = "logical_or"
    xp.combine_at(ufunc, flat, positions, values)
    if not target.flags.c_contiguous:
        target[...] = flat.reshape(target.shape)


# ---- gather and scatter


def _grid(xp: Any, index: Any, dim: int) -> tuple[Any, ...]:
    """Index arrays naming, for every place of `index`, the same place with `dim` replaced by the index's value."""
    shape = index.shape
    n = len(shape)
    return tuple(index if d == dim else xp.arange(shape[d]).reshape((shape[d],) + (1,) * (n - d - 1)) for d in range(n))


def _grid_positions(xp: Any, shape: Shape, index: Any, dim: int) -> Any:
    xp.check_index(index, shape[dim] if shape else 1)
    steps = element_strides(shape)
    here: Any = 0
    for d, i in enumerate(_grid(xp, index, dim)):
        here = here + i * steps[d]
    return here


def _crop(src: Any, shape: Shape) -> Any:
    return src if src.shape == shape else src[tuple(slice(0, n) for n in shape)]


def _uncrop(g: Any, shape: Shape) -> Any:
    """g, with zeros behind it in every dimension up to `shape`."""
    from tocha.prims.view import index_scatter

    return g if tuple(g.shape) == tuple(shape) else index_scatter(g, shape=shape, index=tuple(slice(0, n) for n in g.shape))


def _gather_vjp(g: Any, input_shape: Shape, index: Any, *, dim: int) -> list[Any]:
    return [scatter_add(g.new_zeros(input_shape), index, g, dim=dim), None]


@prim("gather", "index", vjp=_gather_vjp, half="native", infer=lambda input, index, *, dim: MetaArray(index.shape, input.dtype))
def gather(xp: Any, input: Any, index: Any, *, dim: int) -> Any:
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim 1, and so on."""
    if input.ndim == 0:
        return xp.broadcast_to(input, index.shape).copy()
    xp.check_index(index, input.shape[dim])
    return input[_grid(xp, index, dim)]


def _scatter_vjp(g: Any, index: Any, src_shape: Shape, *, dim: int, needs: Any) -> list[Any]:
    grad_input = scatter(g, index, g.new_zeros(()).expand(index.shape), dim=dim) if needs[0] else None
    return [grad_input, None, _uncrop(gather(g, index, dim=dim), src_shape) if needs[2] else None]


@prim("scatter", "index", vjp=_scatter_vjp, half="native", infer=_in_rows)
def scatter(xp: Any, input: Any, index: Any, src: Any, *, dim: int) -> Any:
    """A copy of input with src (cropped to the index's shape) written where `gather` would read."""
    out = input.copy("C")
    scatter_into(xp, out, index, src, dim)
    return out


def scatter_into(xp: Any, target: Any, index: Any, src: Any, dim: int) -> None:
    """`scatter` on an array itself."""
    if target.ndim == 0:
        target[...] = src if src.ndim == 0 else src.reshape(-1)[-1] if index.size else target
    else:
        xp.check_index(index, target.shape[dim])
        combine_into(xp, "put", target, index, src, dim)


def _scatter_add_vjp(g: Any, index: Any, src_shape: Shape, *, dim: int, needs: Any) -> list[Any]:
    return [g if needs[0] else None, None, _uncrop(gather(g, index, dim=dim), src_shape) if needs[2] else None]


@prim("scatter_add", "index", vjp=_scatter_add_vjp, infer=_in_rows)
def scatter_add(xp: Any, input: Any, index: Any, src: Any, *, dim: int) -> Any:
    """A copy of input with src (cropped to the index's shape) added where `gather` would read."""
    out = input.copy("C")
    combine_into(xp, "add", out, index, src, dim)
    return out


def combine_into(xp: Any, name: str, target: Any, index: Any, src: Any, dim: int) -> None:
    """src (cropped to the index's shape) combined into target by a ufunc ("put": written), where `gather` would read."""
    src = _crop(src, index.shape)
    if xp.combine_along(name, target, index, dim, src):
        return
    if name == "put":
        target[_grid(xp, index, dim)] = src
    else:
        add_at(xp, target, _grid_positions(xp, target.shape, index, dim), src, name)


_REDUCERS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


def _identity(xp: Any, dtype: Any, reduce: str) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        return xp.iinfo(dtype).min if reduce == "amax" else xp.iinfo(dtype).max
    return -xp.inf if reduce == "amax" else xp.inf


def _scatter_reduce_vjp(
    g: Any, input: Any, index: Any, src: Any, out: Any, *, dim: int, reduce: str, include_self: bool, needs: Any
) -> list[Any]:
    grads = _REDUCE_GRADS[reduce](g, input, index, _cropped(src, index), out, dim, include_self)
    grad_input, grad_src = grads
    if needs[0] and not include_self:
        grad_input = scatter(grad_input, index, g.new_zeros(()).expand(index.shape), dim=dim)
    return [grad_input if needs[0] else None, None, _uncrop(grad_src, src.shape) if needs[2] else None]


def _cropped(src: Any, index: Any) -> Any:
    for d, n in enumerate(index.shape):
        if src.shape[d] != n:
            src = src.narrow(d, 0, n)
    return src


def _sum_grad(g: Any, input: Any, index: Any, src: Any, out: Any, dim: int, include_self: bool) -> Any:
    return g, gather(g, index, dim=dim)


def _mean_grad(g: Any, input: Any, index: Any, src: Any, out: Any, dim: int, include_self: bool) -> Any:
    start = g.new_ones(g.shape) if include_self else g.new_zeros(g.shape)
    count = scatter_add(start, index, g.new_ones(index.shape), dim=dim).clamp(min=1)
    shared = g / count
    return shared, gather(shared, index, dim=dim)


def _extreme_grad(g: Any, input: Any, index: Any, src: Any, out: Any, dim: int, include_self: bool) -> Any:
    """Ties share the gradient evenly."""
    is_self, is_src = (input == out).to(g.dtype), (src == gather(out, index, dim=dim)).to(g.dtype)
    start = is_self if include_self else scatter(is_self, index, g.new_zeros(()).expand(index.shape), dim=dim)
    count = scatter_add(start, index, is_src, dim=dim)
    shared = g / count
    return shared * is_self, gather(shared, index, dim=dim) * is_src


def _prod_grad(g: Any, input: Any, index: Any, src: Any, out: Any, dim: int, include_self: bool) -> Any:
    """The product of the other factors, right also where one factor is zero."""
    no_zero, no_zero_src = input.masked_fill(input == 0, 1), src.masked_fill(src == 0, 1)
    product = scatter_reduce(no_zero, index, no_zero_src, dim=dim, reduce="prod", include_self=include_self)
    start = (input == 0).to(g.dtype) if include_self else g.new_zeros(g.shape)
    zeros = scatter_add(start, index, (src == 0).to(g.dtype), dim=dim)
    own, own_src = (input == 0).to(g.dtype), (src == 0).to(g.dtype)
    grad_input = g * (product / no_zero).masked_fill(zeros - own > 0, 0)
    others = gather(zeros, index, dim=dim) - own_src
    grad_src = gather(g, index, dim=dim) * (gather(product, index, dim=dim) / no_zero_src).masked_fill(others > 0, 0)
    return grad_input, grad_src


_REDUCE_GRADS = {"sum": _sum_grad, "mean": _mean_grad, "amax": _extreme_grad, "amin": _extreme_grad, "prod": _prod_grad}


@prim("scatter_reduce", "index", vjp=_scatter_reduce_vjp, infer=_in_rows)
def scatter_reduce(xp: Any, input: Any, index: Any, src: Any, *, dim: int, reduce: str, include_self: bool) -> Any:
    """src combined into a copy of input by sum, prod, mean, amax or amin, where `gather` would read."""
    out = input.copy("C")
    if not include_self:
        scatter_into(xp, out, index, xp.full(index.shape, _identity(xp, out.dtype, reduce), out.dtype), dim)
    combine_into(xp, _REDUCERS[reduce], out, index, src, dim)
    if reduce == "mean":
        count = xp.full(out.shape, int(include_self), xp.int64)
        combine_into(xp, "add", count, index, xp.ones(index.shape, xp.int64), dim)
        count = xp.maximum(count, 1).astype(out.dtype)
        out = out // count if out.dtype.kind in "iu" else out / count
    return out


# ---- masks


@prim("nonzero", "index", half="native", tags=("dynamic",))
def nonzero(xp: Any, input: Any) -> Any:
    """One row of indices for every element that isn't zero."""
    if input.ndim == 0:
        return xp.zeros((int(bool(input)), 0), xp.int64)
    # In one dimension and divided: several times faster than the way through dimensions of `nonzero`.
    rest = xp.flatnonzero(input if input.dtype.kind == "b" else xp.ne(input, 0))
    out = xp.empty((input.ndim, rest.size), xp.int64)
    for d in range(input.ndim - 1, 0, -1):
        n = input.shape[d]
        quotient = rest // n if n else rest
        xp.subtract(rest, quotient * n, out=out[d])
        rest = quotient
    out[0] = rest
    return out.T


def _masked_select_vjp(g: Any, input_shape: Shape, mask: Any, *, indexed: bool) -> list[Any]:
    return [masked_scatter(g.new_zeros(input_shape), mask, g), None]


@prim("masked_select", "index", vjp=_masked_select_vjp, half="native", tags=("dynamic",))
def masked_select(xp: Any, input: Any, mask: Any, *, indexed: bool) -> Any:
    """The elements under a mask of input's shape, in row-major order. `indexed`: written as an index, which names the node."""
    return xp.take(input.reshape(-1), xp.flatnonzero(mask), axis=0)


def _masked_scatter_vjp(g: Any, mask: Any, source_shape: Shape, *, needs: Any) -> list[Any]:
    grad_source = None
    if needs[2]:
        taken = g.masked_select(mask)
        flat = g.new_zeros(source_shape).reshape(-1)
        grad_source = _uncrop(taken, (flat.shape[0],)).reshape(source_shape)
    return [g.masked_fill(mask, 0) if needs[0] else None, None, grad_source]


@prim("masked_scatter", "index", vjp=_masked_scatter_vjp, half="native", tags=("raises",), infer=_in_rows)
def masked_scatter(xp: Any, input: Any, mask: Any, source: Any) -> Any:
    """A copy of input whose elements under the mask are source's first ones, in order."""
    out = input.copy("C")
    chosen = xp.flatnonzero(mask)
    if chosen.size > source.size:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same number of elements: the mask selects {chosen.size}, source has {source.size}"
        )
    out.reshape(-1)[chosen] = source.reshape(-1)[: chosen.size]
    return out
