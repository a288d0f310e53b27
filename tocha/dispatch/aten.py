"""Primitives under torch's operator names: what `__torch_dispatch__` is given, and what `torch.ops.aten` runs.

`overload_call(prim, args, params)` turns a primitive's call into torch's: (operator overload, args, kwargs). The way
back is a public function of the same name, or an entry of `_IMPLEMENTATIONS` where the signatures differ. Primitives
with no counterpart in torch appear as `torch.ops.tocha.<primitive>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.autograd.mode import state
from tocha.dispatch.overload import OpOverload, OpOverloadPacket, find, namespace
from tocha.dispatch.prim import REGISTRY, Prim
from tocha.dispatch.registry import NAMESPACES
from tocha.dtypes import FROM_NP
from tocha.tensor import Tensor

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
_NAMES = {  # pointwise primitives that go by another name
    "true_divide": "div", "conj_physical": "_conj_physical", "bitwise_left_shift": "bitwise_left_shift",
    "clamp_low": "clamp_min", "clamp_high": "clamp_max", "trunc_divide": "div",
}  # fmt: skip
#: Two-operand operators whose only overload is `default`.
_DEFAULT_ONLY = frozenset(
    "atan2 hypot logaddexp logaddexp2 maximum minimum fmax fmin igamma igammac nextafter heaviside gcd lcm logical_and "
    "logical_or logical_xor prelu".split()
)  # fmt: skip
#: Two-operand operators that have an overload for a Python number. (`x + 1` is add.Tensor in torch, `x > 1` gt.Scalar.)
_WITH_SCALAR = frozenset(
    "eq ne lt le gt ge remainder fmod bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift floor_divide".split()
)  # fmt: skip


def _axis(name: str, *more: str) -> Callable[..., Call]:
    """`op(input, dim, ...)` with the parameters in this order."""
    return lambda prim, args, p: (name, (*args, *(_plain(p[m]) for m in more)), {})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _reduction(name: str, whole: str, some: str) -> Callable[..., Call]:
    def call(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
        dims = p["dim"] if isinstance(p["dim"], tuple) else (p["dim"],)
        if len(dims) == args[0].ndim and not p["keepdim"] and some != "default":
            return f"{name}.{whole}", args, {}
        rest = (list(dims), True) if p["keepdim"] else (list(dims),)
        return f"{name}.{some}", (*args, *rest), {}

    return call


def _along(name: str) -> Callable[..., Call]:
    return lambda prim, args, p: (name, (*args, p["dim"], *((True,) if p["keepdim"] else ())), {})


def _spread(name: str) -> Callable[..., Call]:
    return lambda prim, args, p: (name, (*args, list(p["dim"])), {"correction": p["correction"], "keepdim": p["keepdim"]})


def _permute(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    dims = p["dims"]
    moved = [i for i, d in enumerate(dims) if i != d]
    if dims == (1, 0):
        return "t.default", args, {}
    if len(moved) == 2:
        return "transpose.int", (*args, *moved), {}
    return "permute.default", (*args, list(dims)), {}


def _one_index(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    """A basic index with one part that does something (see `decomposed`)."""
    for dim, part in enumerate(_written_out(args[0], p["index"])):
        if part is None:
            return "unsqueeze.default", (*args, dim), {}
        if not isinstance(part, slice):
            return "select.int", (*args, dim, part), {}
        if part != slice(None):
            end = 2**63 - 1 if part.stop is None else part.stop
            step = () if part.step in (None, 1) else (part.step,)
            return "slice.Tensor", (*args, dim, part.start or 0, end, *step), {}
    return "alias.default", args, {}


def _split(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    sizes, dim = p["sizes"], p["dim"]
    if all(s == sizes[0] for s in sizes[:-1]) and sizes[-1] <= sizes[0]:
        return "split.Tensor", (*args, sizes[0], dim), {}
    return "split_with_sizes.default", (*args, list(sizes), dim), {}


def _index(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    return "index.Tensor", (args[0], _slots(args[1:], p["dims"])), {}


def _slots(indices: Any, dims: Any) -> list[Any]:
    slots: list[Any] = [None] * (max(dims) + 1)
    for d, i in zip(dims, indices, strict=True):
        slots[d] = i
    return slots


def _index_put(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    rest = (True,) if p["accumulate"] else ()
    return "index_put.default", (args[0], _slots(args[2:], p["dims"]), args[1], *rest), {}


def _mm(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    rank = max(a.ndim for a in args)
    name = {2: "mm", 3: "bmm"}.get(rank, "matmul")
    return name + ".default", tuple(a.mT if t else a for a, t in zip(args, (p["ta"], p["tb"]), strict=True)), {}


def _linear(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    """What torch makes of a linear layer: t and then addmm or mm."""
    x, w, bias = args
    if x.ndim != 2 or w.ndim != 2:
        return "linear.default", args, {}
    return ("mm.default", (x, w.t()), {}) if bias is None else ("addmm.default", (bias, x, w.t()), {})


def _conv(prim: Prim, args: Any, p: dict[str, Any]) -> Call:
    if any(low != high for low, high in p["padding"]):
        return "tocha.conv", args, p
    lists = [list(p["stride"]), [low for low, _ in p["padding"]], list(p["dilation"])]
    return "convolution.default", (*args, *lists, False, [0] * len(p["stride"]), p["groups"]), {}


_CALLS: dict[str, Callable[[Prim, Any, dict[str, Any]], Call]] = {
    "pow": lambda prim, args, p: (
        "pow.Tensor_Tensor" if all(isinstance(a, Tensor) for a in args) else
        "pow.Tensor_Scalar" if isinstance(args[0], Tensor) else "pow.Scalar", args, {}),
    "pow_scalar": _axis("pow.Tensor_Scalar", "exponent"),
    "where": lambda prim, args, p: ("where.self", args, {}),
    "gelu_tanh": lambda prim, args, p: ("gelu.default", args, {"approximate": "tanh"}),
    "trunc_divide": lambda prim, args, p: ("div.Tensor_mode", args, {"rounding_mode": "trunc"}),
    "clamp_scalar": _axis("clamp.default", "min", "max"),
    "clamp_tensor": lambda prim, args, p: ("clamp.Tensor", args, {}),
    "leaky_relu": _axis("leaky_relu.default", "slope"),
    "hardtanh": _axis("hardtanh.default", "low", "high"),
    "threshold": _axis("threshold.default", "threshold", "value"),
    "lerp": lambda prim, args, p: ("lerp.Tensor", args, {}),
    "lerp_scalar": _axis("lerp.Scalar", "weight"),
    "permute": _permute,
    "view": _axis("view.default", "shape"),
    "unsafe_view": _axis("_unsafe_view.default", "shape"),
    "expand": _axis("expand.default", "shape"),
    "unsqueeze": _axis("unsqueeze.default", "dim"),
    "squeeze": lambda prim, args, p: ("squeeze.dims", (*args, list(p["dims"])), {}) if p["dims"] else ("squeeze.default", args, {}),
    "slice": _one_index,
    "split": _split,
    "unbind": _axis("unbind.int", "dim"),
    "as_strided": _axis("as_strided.default", "size", "stride", "offset"),
    "diagonal": _axis("diagonal.default", "offset", "dim1", "dim2"),
    "unfold": _axis("unfold.default", "dim", "size", "step"),
    "view_dtype": lambda prim, args, p: ("view.dtype", (*args, p["dtype"]), {}),
    "view_as_real": _axis("view_as_real.default"),
    "view_as_complex": _axis("view_as_complex.default"),
    "clone": _axis("clone.default"),
    "cast": lambda prim, args, p: ("_to_copy.default", args, {"dtype": FROM_NP[p["dtype"]]}),
    "to_device": lambda prim, args, p: ("_to_copy.default", args, {"device": p["device"]}),
    "cat": lambda prim, args, p: ("cat.default", (list(args), *((p["dim"],) if p["dim"] else ())), {}),
    "stack": lambda prim, args, p: ("stack.default", (list(args), *((p["dim"],) if p["dim"] else ())), {}),
    "sum": _reduction("sum", "default", "dim_IntList"),
    "mean": _reduction("mean", "default", "dim"),
    "amax": _reduction("amax", "default", "default"),
    "amin": _reduction("amin", "default", "default"),
    "any": _reduction("any", "default", "dims"),
    "all": _reduction("all", "default", "dims"),
    "prod": _reduction("prod", "default", "dim_int"),
    "logsumexp": _reduction("logsumexp", "default", "default"),
    "argmax": _along("argmax.default"),
    "argmin": _along("argmin.default"),
    "var": _spread("var.correction"),
    "std": _spread("std.correction"),
    "vector_norm": lambda prim, args, p: (
        "linalg_vector_norm.default", (*args, p["ord"], list(p["dim"]), p["keepdim"]), {}),
    "roll": _axis("roll.default", "shifts", "dims"),
    "max_dim": _along("max.dim"),
    "min_dim": _along("min.dim"),
    "cumsum": _axis("cumsum.default", "dim"),
    "cumprod": _axis("cumprod.default", "dim"),
    "flip": _axis("flip.default", "dims"),
    "repeat": _axis("repeat.default", "repeats"),
    "tril": _axis("tril.default", "diagonal"),
    "triu": _axis("triu.default", "diagonal"),
    "gather": lambda prim, args, p: ("gather.default", (args[0], p["dim"], args[1]), {}),
    "scatter": lambda prim, args, p: ("scatter.src", (args[0], p["dim"], *args[1:]), {}),
    "scatter_add": lambda prim, args, p: ("scatter_add.default", (args[0], p["dim"], *args[1:]), {}),
    "index": _index,
    "index_put": _index_put,
    "nonzero": _axis("nonzero.default"),
    "embedding": lambda prim, args, p: ("embedding.default", args, {}),
    "sort": _axis("sort.default", "dim", "descending"),
    "topk": _axis("topk.default", "k", "dim", "largest"),
    "softmax": lambda prim, args, p: ("_softmax.default", (*args, p["dim"], False), {}),
    "log_softmax": lambda prim, args, p: ("_log_softmax.default", (*args, p["dim"], False), {}),
    "mm": _mm,
    "mv": _axis("mv.default"),
    "dot": _axis("dot.default"),
    "linear": _linear,
    "conv": _conv,
}  # fmt: skip


def overload_call(
    prim: Prim, args: tuple[Any, ...], params: dict[str, Any]
) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]]:
    """torch's form of a primitive's call."""
    rule = _CALLS.get(prim.name)
    if rule is not None:
        name, given, kwargs = rule(prim, args, params)
        if name.startswith("tocha."):
            return _of_tocha(prim).default, args, params
    elif prim.family == "pointwise" and not params and hasattr(namespace("aten"), _NAMES.get(prim.name, prim.name)):
        name, given, kwargs = _pointwise(prim, args), args, {}
    else:
        return _of_tocha(prim).default, args, params
    operator, _, overload = name.partition(".")
    return find("aten", operator, overload), given, kwargs


def _pointwise(prim: Prim, args: tuple[Any, ...]) -> str:
    name = _NAMES.get(prim.name, prim.name)
    if len(args) != 2 or name in _DEFAULT_ONLY:
        return name + ".default"
    scalar = name in _WITH_SCALAR and not isinstance(args[1], Tensor)
    return f"{name}.{'Scalar' if scalar else 'Tensor'}"


def _written_out(input: Tensor, index: tuple[Any, ...]) -> list[Any]:
    """A basic index without its Ellipsis."""
    if not any(part is Ellipsis for part in index):
        return list(index)
    place = next(i for i, part in enumerate(index) if part is Ellipsis)
    used = sum(part is not None and part is not Ellipsis for part in index)
    return [*index[:place], *(slice(None),) * (input.ndim - used), *index[place + 1 :]]


def decomposed(prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The result of a call that torch makes of several operators, by calling those; None for any other call."""
    if prim.name == "linear" and args[0].ndim != 2 and args[1].ndim == 2:
        x, w, bias = args
        return prim(x.reshape(-1, x.shape[-1]), w, bias).view(*x.shape[:-1], w.shape[0])
    if prim.name != "slice":
        return None
    index = _written_out(args[0], params["index"])
    if sum(part != slice(None) for part in index) < 2:
        return None
    out, dim = args[0], 0
    for part in index:
        if part != slice(None):
            out = prim(out, index=(*(slice(None),) * dim, part))
        dim += part is None or isinstance(part, slice)
    return out


#: Functions that go whole to __torch_dispatch__, with the overload torch gives them.
_WHOLE = dict.fromkeys(
    "zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full zeros ones full arange "
    "eye linspace rand randn randint randperm detach".split(),
    "default",
) | {"empty": "memory_format"}
#: Functions that make a tensor after another's kind: the result is batched, or dual, like it.
LIKE = frozenset("zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full".split())
_SIZES_FIRST = frozenset("zeros ones empty rand randn".split())
_SIZES_SECOND = frozenset("new_zeros new_ones new_empty".split())
_NOT_OPERATORS = frozenset(("requires_grad_", "share_memory_", "resize_", "resize_as_", "set_", "rename_"))


def whole_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload | None:
    """The operator that a public function's call is handed to __torch_dispatch__ as, or None: it is made of
    primitives, which are handed on one by one. In-place changes that gradients go through are among these."""
    if name in _WHOLE:
        return find("aten", name, _WHOLE[name])
    if name == "item":
        return find("aten", "_local_scalar_dense", "default")
    if name.endswith("_") and not name.endswith("__") and name not in _NOT_OPERATORS and args and isinstance(args[0], Tensor):
        if state.grad and any(isinstance(a, Tensor) and a._rg for a in args):
            return None
        return find("aten", name, _inplace_overload(name, args))
    return None


def with_sizes_listed(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`zeros(2, 3)` as `zeros([2, 3])`, the form operators have."""
    lead = 0 if name in _SIZES_FIRST else 1 if name in _SIZES_SECOND else None
    if lead is None or len(args) <= lead:
        return args
    sizes = args[lead:]
    return (*args[:lead], list(sizes[0] if isinstance(sizes[0], (list, tuple)) else sizes))


def _inplace_overload(name: str, args: tuple[Any, ...]) -> str:
    prim = REGISTRY.get({"div_": "true_divide"}.get(name, name[:-1]))
    if name == "fill_":
        return "Tensor" if isinstance(args[1], Tensor) else "Scalar"
    if prim is None or prim.family != "pointwise":
        return "default"
    return _pointwise(prim, args).partition(".")[2]


def _of_tocha(prim: Prim) -> OpOverloadPacket:
    space = namespace("tocha")
    found = space.registered.get(prim.name)
    return found or space.register(prim.name, lambda overload, args, kwargs: prim(*args, **kwargs))


# ---- torch.ops.aten.<name>: the way back


def _converted(x: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **unused: Any) -> Tensor:
    got = x.to(device=device, dtype=dtype) if device is not None or dtype is not None else x
    return got.clone() if got is x else got


def _convolution(
    x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Tensor:
    kind = f"conv{'_transpose' if transposed else ''}{x.ndim - 2}d"
    options = {"output_padding": tuple(output_padding)} if transposed else {}
    lists = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation)}
    return NAMESPACES["F"][kind](x, w, bias, groups=groups, **lists, **options)


def _native_layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    rstd = (x.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return NAMESPACES["F"]["layer_norm"](x, tuple(shape), weight, bias, eps), mean, rstd


_IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "_to_copy": _converted,
    "_softmax": lambda x, dim, half_to_float=False: x.softmax(dim),
    "_log_softmax": lambda x, dim, half_to_float=False: x.log_softmax(dim),
    "_unsafe_view": lambda x, size: x.reshape(size),
    "_local_scalar_dense": lambda x: x.item(),
    "alias": lambda x: x.view_as(x),
    "slice": lambda x, dim=0, start=None, end=None, step=1: x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)],
    "index": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
    "index_put": lambda x, indices, values, accumulate=False: x.index_put(
        tuple(slice(None) if i is None else i for i in indices), values, accumulate),
    "embedding": lambda weight, indices, padding_idx=-1, scale=False, sparse=False: NAMESPACES["F"]["embedding"](indices, weight),
    "convolution": _convolution,
    "native_layer_norm": _native_layer_norm,
    "linear": lambda x, w, b=None: NAMESPACES["F"]["linear"](x, w, b),
    "lift_fresh": lambda x: x,
    "t": lambda x: x.t(),
    "to": lambda x, *args, **kwargs: x.to(*args, **kwargs),
}  # fmt: skip
#: Overloads of the commonest operators, for those who list or misspell them.
_OVERLOADS = {
    "add": ("Tensor", "Scalar", "out"), "sub": ("Tensor", "Scalar", "out"), "mul": ("Tensor", "Scalar", "out"),
    "div": ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode", "out"), "mm": ("default", "out"), "bmm": ("default", "out"),
    "addmm": ("default", "out"), "detach": ("default",), "clone": ("default",), "t": ("default",), "_to_copy": ("default",),
}  # fmt: skip


def packet(name: str) -> OpOverloadPacket | None:
    """`torch.ops.aten.<name>`, or None if there is no such operator."""
    run = _IMPLEMENTATIONS.get(name) or _public(name)
    if run is None:
        return None
    implementation = run

    def call(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kwargs.pop("pin_memory", None)
        return implementation(*args, **kwargs)

    return OpOverloadPacket("aten", name, call, _OVERLOADS.get(name))


def _public(name: str) -> Callable[..., Any] | None:
    for table in (NAMESPACES["torch"], vars(Tensor), NAMESPACES["F"]):
        found = table.get(name)
        if callable(found):
            return found
    for space in ("linalg", "fft", "special"):
        if name.startswith(space + "_") and name[len(space) + 1 :] in NAMESPACES.get(space, {}):
            return NAMESPACES[space][name[len(space) + 1 :]]
    return None


__all__ = ["decomposed", "overload_call", "packet", "whole_call", "with_sizes_listed"]
