"""The second tier of the CPU backend: which calls run as native kernels (tocha.inductor) instead of NumPy.

`pointwise(...)` returns the result, or None: then NumPy computes it. None is the answer for small arrays, where NumPy's call is cheaper
than reading the layout; for what has no kernel; and while a kernel is being compiled, which happens in a background thread.
`TOCHA_EAGER=numpy` switches the tier off, `TOCHA_NATIVE_MIN=n` sets the least number of elements.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# From how many elements on a kernel is faster than NumPy, measured on 2 cores. "ufunc": a single NumPy loop in float32 or
# float64, which is itself vectorised; "rule": several loops; "half": NumPy computes half types one by one, or casts.
# "conv": multiply-adds of a convolution, whose kernels take 6 µs to enter (above this they were never slower than NumPy).
LEAST = {"ufunc": 65536, "rule": 16384, "half": 512, "prim": 16384, "conv": 32768}
_forced = "4611686018427387904" if os.environ.get("TOCHA_EAGER") == "numpy" else os.environ.get("TOCHA_NATIVE_MIN")
if _forced:
    LEAST = dict.fromkeys(LEAST, int(_forced))
_VARIANTS = 16  # kernels of one rule and layout for different parameters; a rule that needs more is left to NumPy

_ndarray = np.ndarray
_kernels: dict[Any, list[Any]] = {}


class Modules(NamedTuple):
    """The compiler, imported when first needed."""

    entry: Any
    layout: Any
    lower: Any
    pointwise: Any
    reduce: Any
    rows: Any
    service: Any


@functools.cache
def inductor() -> Modules | None:
    """The compiler's modules; None where native code can't be made."""
    try:
        import ml_dtypes

        from tocha.inductor import entry, layout, lower, reduce, rows, service
        from tocha.inductor import pointwise as kernels
    except ImportError:
        return None
    lower.add_bfloat16(np.dtype(ml_dtypes.bfloat16))
    service.on_fork.append(_forget_pending)
    return Modules(entry, layout, lower, kernels, reduce, rows, service) if entry.usable() else None


def _forget_pending() -> None:
    """In a child after fork: nobody compiles what was asked for."""
    for variants in _kernels.values():
        variants[:] = [v for v in variants if v.builtin is not None]
    for key in [k for k, builtin in _built.items() if builtin is None]:
        del _built[key]


_built: dict[Any, Any] = {}


def kernel(key: Any, make: Callable[[], Any]) -> Any:
    """The builtin of the kernel that `make()` describes; None while it is being compiled, and if it can't be."""
    modules = inductor()
    assert modules is not None
    return built(key, lambda: modules.entry.build(make(), 1))


def built(key: Any, build: Callable[[], Any]) -> Any:
    """`build()`, done in the background and remembered; None until then, and if it fails."""
    modules = inductor()
    assert modules is not None
    service = modules.service
    if key not in _built:
        _built[key] = None
        service.request(build, lambda got: _built.__setitem__(key, got))
    found = _built[key]
    return None if found is service.FAILED else found


_remembered: dict[Any, Any] = {}


def remember(key: Any, make: Callable[[], Any]) -> Any:
    """make(), kept for the same key: what a call of certain shapes needs."""
    found = _remembered.get(key)
    if found is None:
        if len(_remembered) > 4096:
            _remembered.clear()
        found = _remembered[key] = make()
    return found


class _Variant:
    """A kernel asked for: `builtin` is None while it is compiled, FAILED if it can't be."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.builtin: Any = None
        self.made: Any = None
        self.params = params

    def serves(self, params: dict[str, Any], holds: Any) -> bool:
        if self.made is None:
            return self.params == params
        statics = self.params
        for name, value in params.items():
            if (value.__class__ is not float or statics[name].__class__ is not float) and (
                statics[name].__class__ is not value.__class__ or statics[name] != value
            ):
                return False
        return bool(holds(self.made.guards, params))


def pointwise(
    rule: Any, operands: list[Any], compute: Any, target: Any, params: dict[str, Any], broadcast: Callable[..., tuple[int, ...]], kind: str,
    into: Any = None,
) -> Any:  # fmt: skip
    """`rule.impl` on arrays and numbers, computed in dtype `compute` and stored as `target`; None if NumPy shall do it.

    With `into` the result is written there; operands are that very array or lie elsewhere.
    """
    arrays = [a for a in operands if a.__class__ is _ndarray]
    first = arrays[0]
    shape = first.shape
    for a in arrays:
        if a.shape != shape:
            shape = broadcast([b.shape for b in arrays])
            break
    size = 1
    for n in shape:
        size *= n
    if size < LEAST[kind] or size == 0:
        return None
    modules = inductor()
    if modules is None:
        return None
    layout, lower = modules.layout, modules.lower
    if into is not None and (into.shape != shape or into.dtype is not target or _overlaps(into, arrays)):
        return None
    out, found = _place(layout, arrays, shape, target, into)
    if found is None:
        return None
    types = tuple([a.dtype if a.__class__ is _ndarray else None for a in operands])
    key = (rule.name, types, compute, target, len(found.shape), found.inner)
    variants = _kernels.get(key)
    if variants is None:
        variants = _kernels[key] = []
    for variant in variants:
        if variant.serves(params, lower.holds):
            break
    else:
        if len(variants) >= _VARIANTS:
            return None
        variant = _Variant(dict(params))
        variants.append(variant)
        _ask(modules, variant, rule, types, compute, target, found)
    builtin = variant.builtin
    if builtin is None or builtin is modules.service.FAILED:
        return None
    if into is not None and variant.made.again:
        return None
    arguments = [out, *arrays, *[a.item() for a in operands if a.__class__ is not _ndarray], *[params[n] for n in variant.made.params]]
    builtin(*arguments, size if not variant.made.kernel.sizes else remember((found.shape, found.strides, variant.made.grain), lambda: layout.work(found, variant.made.grain)))
    return out


def _overlaps(into: Any, arrays: list[Any]) -> bool:
    """Whether an array shares memory with `into` without being the same view."""
    for a in arrays:
        if a is not into and np.may_share_memory(a, into):
            if a.strides != into.strides or a.shape != into.shape or a.__array_interface__["data"] != into.__array_interface__["data"]:
                return True
    return False


def _place(layout: Any, arrays: list[Any], shape: tuple[int, ...], target: Any, into: Any) -> tuple[Any, Any]:
    """The array for the result, if a new one then in the operands' memory order, and the layout of all arrays."""
    given = arrays if into is None else [into, *arrays]
    if all(a.shape == shape and a.flags.c_contiguous for a in given):
        out = np.empty(shape, target) if into is None else into
        return out, layout.Layout((out.size,), ((1,),) * (len(arrays) + 1), ())
    dims = len(shape)
    strides = []
    for a in given:
        item, lead = a.dtype.itemsize, dims - a.ndim
        steps = [0] * lead
        for n, s in zip(a.shape, a.strides, strict=True):
            if s % item:
                return None, None
            steps.append(0 if n == 1 else s // item)
        strides.append(tuple(steps))
    order = layout.memory_order(shape, strides)
    if into is not None:
        return into, layout.merge(shape, strides, order)
    out = np.empty([shape[d] for d in order], target)
    inverse = [0] * dims
    for i, d in enumerate(order):
        inverse[d] = i
    out = out.transpose(inverse)
    item = target.itemsize
    return out, layout.merge(shape, [tuple([s // item for s in out.strides]), *strides], order)


def _ask(modules: Any, variant: _Variant, rule: Any, types: Any, compute: Any, target: Any, found: Any) -> None:
    entry, lower, kernels, service = modules.entry, modules.lower, modules.pointwise, modules.service
    inner, dimensions = found.inner, len(found.shape)

    def make() -> Any:
        names = lower.NP_TYPES
        try:
            spelled = tuple(["number" if t is None else names[t] for t in types])
            made = kernels.make(rule.name, rule.impl, spelled, names[compute], names[target], variant.params, dimensions, inner)
        except KeyError as error:
            raise lower.Unsupported(f"{rule.name} of {error}") from None
        return made, entry.build(made.kernel, made.grain)

    def put(result: Any) -> None:
        if result is service.FAILED:
            variant.builtin = result
        else:
            variant.made = result[0]
            variant.builtin = result[1]

    service.request(make, put)


def prim(name: str, arrays: list[Any], params: dict[str, Any], half: bool = False) -> Any:
    """The result of a primitive that isn't pointwise, as its kernel returns it; None if NumPy shall compute it."""
    size = 0
    for a in arrays:
        if a is not None and a.size > size:
            size = a.size
    if size < LEAST["half" if half else "prim"]:
        return None
    from tocha.backends._native_prims import RUNS

    return RUNS[name](arrays, params)


@functools.cache
def convolutions() -> Any:
    """The module of convolutions on kernels."""
    from tocha.backends import _native_conv

    return _native_conv


# Primitives that have a kernel (tocha.backends._native_prims).
PRIMS = frozenset((
    "all", "amax", "amin", "any", "argmax", "argmin", "cast", "clone", "count_nonzero", "cross_entropy", "cross_entropy_backward", "keep",
    "log_softmax", "log_softmax_backward", "logsumexp", "max_dim", "mean", "min_dim", "mse", "mse_backward", "prod", "softmax",
    "softmax_backward", "standardize", "standardize_backward", "std", "sum", "var", "vector_norm", "where",
))  # fmt: skip
