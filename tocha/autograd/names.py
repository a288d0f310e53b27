"""Names of nodes as torch prints them, where a primitive has another name or stands for several of torch's functions.

They are found when somebody looks at a node, so that recording costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Swapped(tuple[int, ...]):
    """An order of dimensions that came of `transpose`."""

    __slots__ = ()
    node = "TransposeBackward0"


class Turned(tuple[int, ...]):
    """An order of dimensions that came of `t`."""

    __slots__ = ()
    node = "TBackward0"


def _saved(node: Any) -> dict[Any, Any]:
    """What a primitive's node saved: parameters by name, arguments (or their shapes) by number."""
    outputs = [position for position, _ in node.plan.outputs]
    pairs = enumerate(zip(node.plan.sources, node.saved or (), strict=False))
    return {key: value for position, ((_, key), value) in pairs if position not in outputs}


def _rank(node: Any) -> int:
    """The largest rank among the tensors that a product saved."""
    return max((len(value._a.shape) for value in node.saved or () if hasattr(value, "_a")), default=2)


def _basic_index(node: Any) -> str:
    """The last of the steps that torch takes for an index: a slice that leaves a dimension whole is none, unless it is alone."""
    items = [i for i in _saved(node).get("index", ()) if i is not Ellipsis]
    if len(items) == 1 and isinstance(items[0], slice):
        return "SliceBackward0"
    for i in reversed(items):
        if i is None:
            return "UnsqueezeBackward0"
        if not isinstance(i, slice):
            return "SelectBackward0"
        if i != slice(None):
            return "SliceBackward0"
    return "AliasBackward0"


def _order(node: Any) -> str:
    return getattr(_saved(node).get("dims"), "node", "PermuteBackward0")


def _split(node: Any) -> str:
    sizes = _saved(node).get("sizes", (0,))
    return f"Split{'' if set(sizes[:-1]) <= {sizes[0]} and sizes[-1] <= sizes[0] else 'WithSizes'}Backward0"


def _reduction(name: str) -> Callable[[Any], str]:
    def of(node: Any) -> str:
        saved = _saved(node)
        input, dim = saved.get(0, ()), saved.get("dim")
        shape = input._a.shape if hasattr(input, "_a") else input
        whole = dim is None or (not saved.get("keepdim") and isinstance(dim, tuple) and len(dim) == len(shape))
        return f"{name}Backward{0 if whole else 1}"

    return of


def _product(node: Any) -> str:
    rank = _rank(node)
    return "MmBackward0" if rank == 2 else "BmmBackward0" if rank == 3 else "UnsafeViewBackward0"


def _standardized(node: Any) -> str:
    """Layer, group, batch or instance normalisation: torch's last step of the latter is a view."""
    saved = _saved(node)
    axes, affine = saved.get("axes"), len(saved.get("affine", ()))
    if axes == (0, 2) and affine == 2:
        return "NativeBatchNormBackward0"
    if axes == (2, 3) and affine == 3:
        return "NativeGroupNormBackward0"
    return "ViewBackward0" if axes == (2,) and affine == 2 else "NativeLayerNormBackward0"


def _linear(node: Any) -> str:
    flat, biased = _rank(node) == 2, len(node.edges) > 2 and node.edges[2] is not None
    if flat:
        return "AddmmBackward0" if biased else "MmBackward0"
    return "ViewBackward0" if biased else "UnsafeViewBackward0"


_RULES: dict[str, Callable[[Any], str]] = {
    "masked_select": lambda node: "IndexBackward0" if _saved(node).get("indexed") else "MaskedSelectBackward0",
    "slice": _basic_index, "permute": _order, "split": _split, "sum": _reduction("Sum"), "mean": _reduction("Mean"),
    "prod": _reduction("Prod"), "mm": _product, "linear": _linear, "standardize": _standardized,
}  # fmt: skip

_NAMES = {
    "log1p": "Log1P", "square": "Pow", "lerp_scalar": "Lerp", "logsigmoid": "LogSigmoid", "prelu": "PreluKernel",
    "inverse": "LinalgInvEx", "det": "LinalgDet", "solve": "LinalgSolveEx", "cholesky": "LinalgCholeskyEx", "qr": "LinalgQr",
    "svd": "LinalgSvd", "eigh": "LinalgEigh", "conv_input": "Convolution", "cross_entropy": "NllLoss",
    "batch_norm_given": "NativeBatchNorm", "flash_attention": "ScaledDotProductFlashAttentionForCpu", "to_columns": "Im2Col",
    "fft_r2c": "FftR2C", "fft_c2c": "FftC2C", "fft_c2r": "FftC2R", "clamp_tensor": "Clamp", "clamp_low": "Clamp",
    "clamp_high": "Clamp",
}  # fmt: skip
_WHOLE_NAMES = {
    **{prim: f"{name}Backward0" for prim, name in _NAMES.items()},
    "clamp_scalar": "ClampBackward1", "median_dim": "MedianBackward1", "pow": "PowBackward1",
}  # fmt: skip


@functools.cache
def named(base: type, name: str) -> type:
    """The class of nodes that is `base` under another name."""
    return type(name, (base,), {"__slots__": (), "__module__": "torch"})


def shown(node: Any) -> Any:
    """The node, its class called what torch calls it."""
    plan = getattr(node, "plan", None)
    if plan is None or node.__class__ not in (plan.node_class, getattr(plan.prim, "tied_class", None)):
        return node
    prim = plan.prim.name
    rule = _RULES.get(prim)
    name = _WHOLE_NAMES.get(prim) if rule is None else rule(node)
    if name is not None and name != node.__class__.__name__:
        node.__class__ = named(node.__class__, name)
    return node
