"""Operators beside the views: `*_copy`, `*_scatter`, movedim, unflatten, T, mT, H."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.dispatch.registry import op
from tocha.ops import arithmetic as arithmetic  # real and imag
from tocha.ops import shape as views
from tocha.ops.arguments import infer_size, shape_of, wrap_dim
from tocha.ops.convert import clone
from tocha.ops.join import split_with_sizes
from tocha.prims import view as prims
from tocha.tensor import Tensor

# ---- views that need no primitive of their own


@op("torch method", alias=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places (torch docs: torch.movedim)."""
    given = tuple((d,) if isinstance(d, int) else tuple(d) for d in (source, destination))
    if len(given[0]) != len(given[1]):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(given[0])} dims) should contain the same number of dims as "
            f"destination ({list(given[1])} dims)"
        )
    rank = input.ndim
    sources, targets = (tuple(wrap_dim(d, rank, "movedim") for d in dims) for dims in given)
    for dims, text in ((sources, "source"), (targets, "destination")):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{text}` ({list(dims)})")
    if rank == 0:
        return prims.slice_(input, index=())
    order: list[Any] = [None] * rank
    for s, t in zip(sources, targets, strict=True):
        order[t] = s
    rest = iter(d for d in range(rank) if d not in sources)
    return prims.permute(input, dims=tuple(next(rest) if d is None else d for d in order))


@op("torch method")
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """A dimension as several (torch docs: torch.unflatten)."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if input.ndim == 0:
        raise RuntimeError(f"unflatten: dim {dim} is out of range: the tensor has no dimensions")
    d = wrap_dim(dim, input.ndim, "unflatten")
    length = input._a.shape[d]
    wanted = shape_of((tuple(sizes),), "unflatten")
    try:
        parts = infer_size(wanted, length)
    except RuntimeError as error:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(wanted)} don't multiply up to the size of dim {d} ({length}) in the input tensor"
        ) from error
    return views.view(input, (*input._a.shape[:d], *parts, *input._a.shape[d + 1 :]))


@op("torch method")
def ravel(input: Tensor) -> Tensor:
    """One dimension, a view if possible (torch docs: torch.ravel)."""
    return views.reshape(input.contiguous(), (-1,))


@op("torch method")
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged and conjugated (torch docs: torch.adjoint)."""
    if input.ndim == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return input.transpose(-2, -1).conj() if input.ndim else input.conj()


@op("property")
def T(input: Tensor) -> Tensor:
    """Dimensions in reverse order (torch docs: Tensor.T)."""
    return prims.permute(input, dims=tuple(reversed(range(input.ndim))))


@op("property")
def mT(input: Tensor) -> Tensor:
    """The last two dimensions exchanged (torch docs: Tensor.mT)."""
    if input.ndim == 0:
        return input
    if input.ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor.")
    return input.transpose(-2, -1)


@op("property")
def H(input: Tensor) -> Tensor:
    """The conjugate transpose of a matrix (torch docs: Tensor.H)."""
    if input.ndim not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor.")
    return input.transpose(0, 1).conj() if input.ndim else input.conj()


@op("property")
def mH(input: Tensor) -> Tensor:
    """The last two dimensions exchanged and conjugated (torch docs: Tensor.mH)."""
    if input.ndim == 0:
        return input.conj()
    if input.ndim < 2:
        raise RuntimeError(f"tensor.mH is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor.")
    return input.transpose(-2, -1).conj()


def _settable(name: str) -> None:
    """`x.real = value` writes into the view that `x.real` is."""

    def assign(input: Tensor, value: Any) -> None:
        getattr(input, name).copy_(value)

    setattr(Tensor, name, getattr(Tensor, name).setter(assign))


_settable("real")
_settable("imag")

# ---- *_copy: what the view operators show, in new memory

_VIEWS: dict[str, Callable[..., Any]] = {
    "as_strided": views.as_strided, "diagonal": views.diagonal, "expand": views.expand,
    "permute": views.permute, "select": views.select, "split": views.split, "split_with_sizes": split_with_sizes,
    "squeeze": views.squeeze, "t": views.t, "transpose": views.transpose, "unbind": views.unbind, "unfold": views.unfold,
    "unsqueeze": views.unsqueeze, "view": views.view, "view_as_real": views.view_as_real,
    "view_as_complex": views.view_as_complex,
}  # fmt: skip


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    if input.ndim == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    return prims.slice_(input, index=(slice(None),) * wrap_dim(dim, input.ndim, "slice") + (slice(start, end, step),))


def _narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    if not dim < max(input.ndim, 1):  # torch's copying form raises another type than its view, on this side only
        raise RuntimeError(f"narrow_copy: dim must be less than the number of dimensions ({input.ndim}), but got {dim}")
    return views.narrow(input, dim, start, length)


_VIEWS["slice"] = _slice
_VIEWS["narrow"] = _narrow
_VIEWS["alias"] = lambda input: input
_VIEWS["detach"] = lambda input: input.detach()


def _copy_form(name: str, function: Callable[..., Any]) -> None:
    def copy(*args: Any, **kwargs: Any) -> Any:
        from tocha.prims.move import clone

        got = function(*args, **kwargs)
        return clone(got, order="C") if isinstance(got, Tensor) else tuple(clone(x, order="C") for x in got)

    doc = f"`{name}` as a copy (torch docs: torch.{name}_copy)."
    op("torch method out" if name == "narrow" else "torch out", name=name + "_copy", doc=doc)(copy)


for _name, _function in _VIEWS.items():
    _copy_form(_name, _function)

# ---- *_scatter: a copy of the input with the viewed part replaced


def _scattered(
    input: Tensor, src: Tensor, view: Callable[[Tensor], Tensor], name: str, copy: Callable[[Tensor], Tensor] = clone
) -> Tensor:
    out = copy(input)
    part = view(out)
    if part._a.shape != src._a.shape:
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(part.shape)}"
        )
    part.copy_(src)
    return out


@op("torch method out")
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """input with src in place of a slice (torch docs: torch.slice_scatter)."""
    return _scattered(input, src, lambda x: _slice(x, dim, start, end, step), "slice_scatter")


@op("torch method out")
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """input with src at an index of a dimension (torch docs: torch.select_scatter)."""
    return _scattered(input, src, lambda x: views.select(x, dim, index), "select_scatter")


@op("torch method out")
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """input with src on a diagonal (torch docs: torch.diagonal_scatter)."""
    return _scattered(input, src, lambda x: views.diagonal(x, offset, dim1, dim2), "diagonal_scatter")


@op("torch method out")
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """input with src written where as_strided would look (torch docs: torch.as_strided_scatter)."""
    return _scattered(
        input, src, lambda x: views.as_strided(x, size, stride, storage_offset), "as_strided_scatter", _with_storage
    )


def _with_storage(input: Tensor) -> Tensor:
    """A copy with the storage around it, so that strides find the same places."""
    steps, offset = input.stride(), views.storage_offset_of(input)
    if (not offset and input.is_contiguous()) or 0 in steps:
        return input.clone()
    end = offset + 1 + sum((n - 1) * step for n, step in zip(input.shape, steps, strict=True)) if input.numel() else offset
    return views.as_strided(views.as_strided(input, (end,), (1,), 0).clone(), input.shape, steps, offset)
