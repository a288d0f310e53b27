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


class Dropped(tuple[int, ...]):
    """Dimensions that a call of `squeeze` named by one number."""

    __slots__ = ()
    node = "SqueezeBackward1"


class AllDropped(tuple[int, ...]):
    """... by a tuple."""

    __slots__ = ()
    node = "SqueezeBackward2"


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


_RESAMPLED = {
    "linear": ("UpsampleLinear", "UpsampleBilinear", "UpsampleTrilinear"), "cubic": ("", "UpsampleBicubic", ""),
    "nearest": ("UpsampleNearest",) * 3, "nearest-exact": ("UpsampleNearestExact",) * 3, "area": ("AdaptiveAvgPool",) * 3,
    "reflect": ("ReflectionPad",) * 3, "replicate": ("ReplicationPad",) * 3,
}  # fmt: skip


def _of_rank(name: str | None = None, sizes: str = "sizes", last: str = "") -> Callable[[Any], str]:
    """Functions that torch has one of for each number of spatial dimensions; those pools without one of their own for a single dimension
    are a squeezed one of two."""

    def of(node: Any) -> str:
        saved = _saved(node)
        n = len(saved.get(sizes, (0, 0)))
        if name is not None:
            return f"{name}{n}D{last}Backward0" if n > 1 else "SqueezeBackward1"
        mode = saved.get("specs", (("",),))[0][0]
        stem = _RESAMPLED.get(mode.removesuffix("-antialias"), ("",) * 3)[n - 1]
        if mode == "area" and n == 1:
            return "SqueezeBackward1"
        return f"{stem}{n}D{'Aa' if mode.endswith('-antialias') else ''}Backward0" if stem else type(node).__name__

    return of


def _dropped(node: Any) -> str:
    return getattr(_saved(node).get("dims"), "node", "SqueezeBackward0")


def _with_tensor(name: str) -> Callable[[Any], str]:
    """Functions whose second overload takes a tensor where the first takes a number."""
    return lambda node: f"{name}Backward{int(hasattr(_saved(node).get(1), '_a') or (len(node.edges) > 1 and node.edges[1] is not None))}"


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
    "fake_quantize": lambda node: f"FakeQuantizePer{'Channel' if _saved(node).get('channels') else 'Tensor'}AffineCachemaskBackward0",
    "masked_select": lambda node: "IndexBackward0" if _saved(node).get("indexed") else "MaskedSelectBackward0",
    "slice": _basic_index, "permute": _order, "split": _split, "squeeze": _dropped, "sum": _reduction("Sum"), "mean": _reduction("Mean"),
    "prod": _reduction("Prod"), "mm": _product, "linear": _linear, "standardize": _standardized, "fmod": _with_tensor("Fmod"),
    "remainder": _with_tensor("Remainder"), "resample": _of_rank(sizes="specs"), "avg_pool": _of_rank("AvgPool"),
    "adaptive_max_pool": _of_rank("AdaptiveMaxPool"),
    **{pool: _of_rank("MaxPool", "kernel", "WithIndices") for pool in ("max_pool", "max_pool_coded", "max_pool_values")},
}  # fmt: skip

_NAMES = {
    "log1p": "Log1P", "square": "Pow", "lerp_scalar": "Lerp", "logsigmoid": "LogSigmoid", "prelu": "PreluKernel",
    "inverse": "LinalgInvEx", "det": "LinalgDet", "solve": "LinalgSolveEx", "cholesky": "LinalgCholeskyEx", "qr": "LinalgQr",
    "svd": "LinalgSvd", "eigh": "LinalgEigh", "conv_input": "Convolution", "cross_entropy": "NllLoss",
    "batch_norm_given": "NativeBatchNorm", "flash_attention": "ScaledDotProductFlashAttentionForCpu", "to_columns": "Im2Col",
    "fft_r2c": "FftR2C", "fft_c2c": "FftC2C", "fft_c2r": "FftC2R", "clamp_tensor": "Clamp", "clamp_low": "Clamp",
    "clamp_high": "Clamp", "gated": "Glu", "pinv": "LinalgPinv", "slogdet": "LinalgSlogdet", "lu_factor": "LinalgLuFactorEx", "eig": "LinalgEig",
    "matrix_exp": "LinalgMatrixExp", "lstsq": "LinalgLstsq", "deg2rad": "Deg2Rad", "rad2deg": "Rad2Deg", "bag_sum": "EmbeddingBag",
    "grid_sample": "GridSampler2D", "i0e": "SpecialI0E", "i1e": "SpecialI1E", "bce": "BinaryCrossEntropy",
    "bce_logits": "BinaryCrossEntropyWithLogits", "xlog1py": "SpecialXlog1Py", "ndtri": "SpecialNdtri",
    **{name: "Special" + "".join(part.capitalize() for part in name.split("_")) for name in ("erfcx", "i1", "log_ndtr", "entr", "zeta")},
}  # fmt: skip
_WHOLE_NAMES = {
    **{prim: f"{name}Backward0" for prim, name in _NAMES.items()},
    "clamp_scalar": "ClampBackward1", "median_dim": "MedianBackward1", "nanmedian_dim": "NanmedianBackward1",
    "lerp": "LerpBackward1", "pow": "PowBackward1",
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
