"""associative_scan: prefixes of an associative function (Blelloch 1990, as a recursion over pairs, in whose order values are combined)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tocha
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

Values = list[Any]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """All prefixes along `dim` of the leaves of `xs`, combined by an associative `combine_fn(left, right)`; `reverse` starts from the
    end. "pointwise" is for functions made of pointwise operators, and for GPUs (torch docs: torch._higher_order_ops.associative_scan)."""
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, spec = tree_flatten(xs)
    if not leaves or not all(isinstance(x, Tensor) for x in leaves):
        raise ValueError("All xs leaves must be a Tensor")
    if combine_mode == "pointwise" and any(x.device.type not in ("cuda", "xpu") for x in leaves):
        raise ValueError("For combine_mode='pointwise', all input tensors need to be on CUDA or XPU")
    if any(not -x.dim() <= dim < x.dim() for x in leaves) or any(x.shape[dim] == 0 for x in leaves):
        raise ValueError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")

    def combine(left: Values, right: Values) -> Values:
        """Of two runs of elements, the first dimension of each leaf."""
        pairs = zip(*[zip(x.unbind(0), y.unbind(0), strict=True) for x, y in zip(left, right, strict=True)], strict=True)
        got = []
        for pair in pairs:
            out = combine_fn(tree_unflatten([a for a, _ in pair], spec), tree_unflatten([b for _, b in pair], spec))
            flat = tree_leaves(out)
            if len(flat) != len(leaves):
                raise RuntimeError(f"The number of leaves of the pytree of the output of the operator needs to match the length of the "
                                   f"pytree of the input: expected {len(leaves)}, got {len(flat)}")  # fmt: skip
            if any(a.shape != x.shape or a.dtype != x.dtype for a, (x, _) in zip(flat, pair, strict=True)):
                raise RuntimeError("associative_scan: combine_fn must return tensors of the shapes and dtypes of its arguments")
            got.append(flat)
        return [tocha.stack(column) for column in zip(*got, strict=True)]

    moved = [x.movedim(dim, 0) for x in leaves]
    moved = [x.flip(0) for x in moved] if reverse else moved
    out = _prefixes(combine, moved)
    out = [x.flip(0) for x in out] if reverse else out
    return tree_unflatten([x.movedim(0, dim) for x in out], spec)


def _prefixes(combine: Callable[[Values, Values], Values], xs: Values) -> Values:
    count = xs[0].shape[0]
    if count < 2:
        return xs
    odd = _prefixes(combine, combine([x[: count - 1 : 2] for x in xs], [x[1::2] for x in xs]))
    if count == 2:
        return [tocha.cat([x[:1], o]) for x, o in zip(xs, odd, strict=True)]
    left = [o[: len(range(2, count, 2))] for o in odd]
    even = combine(left, [x[2::2] for x in xs])
    return [_interleaved(tocha.cat([x[:1], e]), o) for x, e, o in zip(xs, even, odd, strict=True)]


def _interleaved(even: Any, odd: Any) -> Any:
    pairs = tocha.stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return pairs if even.shape[0] == odd.shape[0] else tocha.cat([pairs, even[-1:]])
