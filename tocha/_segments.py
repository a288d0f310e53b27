"""torch.segment_reduce, and embedding_bag with all that torch's own kernel returns."""

from __future__ import annotations

import math
from typing import Any

from tocha.dispatch.registry import NAMESPACES, public
from tocha.ops.arguments import check_tensor
from tocha.tensor import Tensor

_REDUCE = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "prod": ("prod", 1.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
}
_MODES = ("sum", "mean", "max")


def _segment_reduce(
    data: Tensor, reduce: str, *, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: int = 0, unsafe: bool = False,
    initial: Any = None,
) -> Tensor:  # fmt: skip
    """Sums, means, products or extremes of consecutive stretches of dimension `axis` (the last one of `lengths`, or one less than
    `offsets` has), whose leading dimensions are those of data (torch docs: torch.segment_reduce). `initial` takes part in each."""
    torch, x = NAMESPACES["torch"], check_tensor(data, "segment_reduce", "data")
    name = {"amax": "max", "amin": "min"}.get(reduce, reduce)
    if name not in _REDUCE:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    sizes: Any = lengths if lengths is not None else offsets.diff(dim=-1)
    if sizes.dtype.is_floating_point:
        raise NotImplementedError(f"segment_reduce(): lengths must be integers, not {sizes.dtype}")
    d, total = sizes.ndim - 1, x.shape[sizes.ndim - 1]
    if axis not in (d, d - x.ndim) or tuple(sizes.shape[:d]) != tuple(x.shape[:d]):
        raise RuntimeError(
            f"segment_reduce(): lengths of shape {list(sizes.shape)} don't fit dimension {axis} of {list(x.shape)}"
        )
    if lengths is not None and not unsafe and (bool((sizes < 0).any()) or bool((sizes.sum(-1) != total).any())):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
        )
    batch, count = math.prod(x.shape[:d]), sizes.shape[-1]
    starts = (sizes.cumsum(-1) - sizes if offsets is None else offsets[..., :-1]).reshape(batch, count)
    ends = starts + sizes.reshape(batch, count)
    places = torch["arange"](total, device=x.device).expand(batch, total)
    segment = torch["searchsorted"](ends.contiguous(), places.contiguous(), right=True)
    inside = (segment < count) & (places >= starts.gather(1, segment.clamp(max=max(count - 1, 0)))) if count else segment < 0
    target = (segment + count * torch["arange"](batch, device=x.device).unsqueeze(1))[inside]
    how, neutral = _REDUCE[name]
    rows = x.reshape(batch * total, *x.shape[d + 1 :])[inside.reshape(-1)]
    base = x.new_full((batch * count, *x.shape[d + 1 :]), neutral if initial is None else initial)
    out = base.index_add(0, target, rows) if how == "sum" else base.index_reduce(0, target, rows, how)
    if name == "mean":
        divisor = sizes.reshape(-1, *(1,) * (x.ndim - d - 1)).to(x.dtype)
        out = out / (divisor if initial is None else divisor.clamp(min=1))
    return out.reshape(*sizes.shape, *x.shape[d + 1 :])


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The bags (mode 0: sum, 1: mean, 2: max), the bag of each index, the bags' sizes, and for max where each maximum is: the function
    below torch.nn.functional.embedding_bag."""
    if mode not in (0, 1, 2):
        raise RuntimeError(f"embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), got {mode}")
    torch, where = NAMESPACES["torch"], check_tensor(indices, "embedding_bag", "indices", 2)
    out = NAMESPACES["F"]["embedding_bag"](
        indices,
        weight,
        offsets,
        None,
        2.0,
        scale_grad_by_freq,
        _MODES[mode],
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    starts: Any = offsets[:-1] if include_last_offset else offsets
    places = torch["arange"](where.shape[0], device=where.device)
    bag = torch["searchsorted"](starts.contiguous(), places, right=True) - 1
    kept = torch["ones_like"](where, dtype=bag.dtype) if padding_idx is None else (where != padding_idx).to(bag.dtype)
    sizes = torch["zeros"](starts.shape[0], dtype=bag.dtype, device=where.device).index_add(0, bag, kept)
    return out, bag, sizes, sizes if mode != 2 else _places_of_maxima(weight, where, bag, kept, starts.shape[0], out)


def _places_of_maxima(weight: Any, indices: Any, bag: Any, kept: Any, bags: int, out: Any) -> Tensor:
    """For each bag and column the first index whose row has the maximum, -1 in empty bags."""
    torch = NAMESPACES["torch"]
    member = (bag == torch["arange"](bags, device=bag.device).unsqueeze(1)) & (kept != 0)  # (bags, indices)
    hit = member.unsqueeze(-1) & (weight[indices].unsqueeze(0) == out.unsqueeze(1))
    first = hit.to(bag.dtype).argmax(1)
    found = indices[first] if indices.shape[0] else first
    return torch["where"](hit.any(1), found, -1)


segment_reduce = public(_segment_reduce, "segment_reduce", "torch")
embedding_bag = public(_embedding_bag, "embedding_bag", "torch")
