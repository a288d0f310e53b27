"""The second tier of the CPU backend: which calls run as native kernels (tocha.inductor) instead of NumPy.

`pointwise(...)` and `prim(...)` return the result, or None: then NumPy computes it. None is the answer for small arrays, where NumPy's call
is cheaper, and for what has no kernel. Which tier serves a call depends on its sizes and types alone, never on what ran before, so that
repeating a call, or a program, repeats its bits (but where both have the same bits: `at_hand`); a kernel not in the cache is compiled while
the first call waits (see tocha.inductor.service).
`TOCHA_EAGER=numpy` switches the tier off, `TOCHA_NATIVE_MIN=n` sets the least number of elements everywhere.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tocha.backends import _cpu_memory, _cpu_sums
from tocha.backends.strides import in_rows
from tocha.dtypes import HALF_NP

# From how many elements on a kernel is faster than NumPy, measured on 2 cores. "ufunc": one NumPy loop, which is vectorised; "function": one
# loop of a function such as exp; "rule": several loops; "half": NumPy computes half types one by one, or casts; "reduce": reductions;
# "row": softmax, layer norm, cross entropy; "spread": few elements among many, whose number the kernel asks itself; "copy": casts and choices.
# "conv": multiply-adds of a convolution, whose kernels take 6 µs to enter (above this they were never slower than NumPy).
# "index": elements moved to or from places that indices name, or scanned.
# "pool": elements of a pooling's input, or of its gradient; "window" where there is a kernel for fewer too.
# "model": what programs that use it at all have a model for, and NumPy takes many calls for.
# "recurrent": inputs of all steps of a recurrent layer, or gates.
# "mm": elements of a product's first factor (tocha.backends._native_products says from how many multiply-adds on).
# "few": multiply-adds of a linear layer with few outputs. "column": elements of a matrix whose columns are summed for a bias.
LEAST = {"ufunc": 65536, "function": 16384, "rule": 8192, "half": 1024, "reduce": 16384, "row": 4096, "spread": 1, "copy": 16384, "conv": 4096,
         "mm": 512, "index": 4096, "pool": 512, "window": 1, "model": 32, "recurrent": 128, "few": 1 << 16, "column": 256}  # fmt: skip
SCALARS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}  # LLVM's names of types that hand-written kernels compute in
FEW = 11  # outputs up to which a linear layer has a kernel of its own (tocha.inductor.templates.few)
SHORT_PRODUCT = 1 << 19  # multiply-adds of a product that BLAS's short call is left to (80 x 80 matrices)
_forced = str(1 << 62) if os.environ.get("TOCHA_EAGER") == "numpy" else os.environ.get("TOCHA_NATIVE_MIN")
if _forced:
    LEAST = dict.fromkeys(LEAST, int(_forced))
_FUNCTIONS = frozenset((  # ufuncs that compute long enough for a kernel to win early
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "hypot", "log",
    "log10", "log1p", "log2", "logaddexp", "logaddexp2", "power", "sin", "sinh", "tan", "tanh",
))  # fmt: skip
_VARIANTS = 16  # kernels of one rule and layout for different parameters; a rule that needs more is left to NumPy

_ndarray = np.ndarray
_kernels: dict[Any, list[Any]] = {}
# Of calls on arrays alone, as made before: the builtin, the result's shape (or an array of its order of strides), the work, the number of
# elements and the kind. What a large call takes before its kernel starts finds its data far away: the kernel before has filled the caches.
_calls: dict[Any, tuple[Any, Any, Any, int, str]] = {}


def kind_of(ufunc: Any) -> str:
    """The kind (in LEAST) of a rule that consists of `ufunc`, or of more (None)."""
    return "rule" if ufunc is None else "function" if ufunc.__name__ in _FUNCTIONS else "ufunc"


class Modules(NamedTuple):
    """The compiler, imported when first needed."""

    bags: Any
    entry: Any
    grid: Any
    index: Any
    layout: Any
    lower: Any
    pointwise: Any
    reduce: Any
    rows: Any
    scan: Any
    search: Any
    service: Any
    taps: Any
    transpose: Any
    windows: Any


@functools.cache
def inductor() -> Modules | None:
    """The compiler's modules; None where native code can't be made."""
    try:
        import ml_dtypes

        from tocha.inductor import (
            bags,
            entry,
            grid,
            index,
            layout,
            lower,
            reduce,
            rows,
            scan,
            search,
            service,
            taps,
            transpose,
            windows,
        )
        from tocha.inductor import pointwise as kernels
    except ImportError:
        return None
    lower.add_bfloat16(np.dtype(ml_dtypes.bfloat16))
    service.on_fork.append(_forget_pending)
    _cpu_memory.start()
    return (
        Modules(bags, entry, grid, index, layout, lower, kernels, reduce, rows, scan, search, service, taps, transpose, windows)
        if entry.usable()
        else None
    )


_MANY_CALLS = 128
_small_calls = 0


def at_hand() -> bool:
    """Whether a kernel may serve a small call for which NumPy has the same bits: in programs that have the compiler anyway, or make many."""
    global _small_calls
    if inductor.cache_info().currsize or _small_calls >= _MANY_CALLS:
        return LEAST["ufunc"] < 1 << 62 and inductor() is not None
    _small_calls += 1
    return False


def _forget_pending() -> None:
    """In a child after fork: nobody compiles what was asked for."""
    for variants in _kernels.values():
        variants[:] = [v for v in variants if not v.pending]
    for key in [k for k, builtin in _built.items() if builtin is None]:
        del _built[key]


_built: dict[Any, Any] = {}


def kernel(key: Any, make: Callable[[], Any]) -> Any:
    """The builtin of the kernel that `make()` describes; None until it is compiled, and if it can't be."""
    modules = inductor()
    assert modules is not None
    return built(key, lambda: modules.entry.build(make(), 1))


def _noted(key: Any, build: Callable[[], Any]) -> Any:
    """`build()`, or what it was in another process; "strict" has all made anew."""
    from tocha.inductor import memo

    what = repr(key)
    plain = " at 0x" not in what and os.environ.get("TOCHA_COMPILE") != "strict"
    return memo.builtin(f"eager {what}" if plain else None, lambda: (build(), None), lambda _: True)[0]


def built(key: Any, build: Callable[[], Any]) -> Any:
    """`build()`, done in the background and remembered; None until then, and if it fails."""
    modules = inductor()
    assert modules is not None
    service = modules.service
    if key not in _built:
        _cpu_memory.enter()
        _built[key] = None
        try:
            service.request(lambda: _noted(key, build), lambda got: _built.__setitem__(key, got))
        except BaseException:  # an interrupt, after which it may be asked for again
            _built.pop(key, None)
            raise
    found = _built.get(key)
    if found is None and service.now():  # another thread is at it
        service.settle(lambda: _built.get(key, service.FAILED) is not None)
        found = _built.get(key)
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
    """A kernel asked for: `builtin` is None while it is compiled, and if it can't be."""

    def __init__(self, params: dict[str, Any], holds: Any) -> None:
        self.builtin: Any = None
        self.made: Any = None
        self.pending = True
        self.params, self.holds = params, holds

    def settle(self) -> None:
        """Wait for another thread that compiles it, unless that happens in the background."""
        modules = inductor()
        if modules and modules.service.now():
            modules.service.settle(lambda: not self.pending)

    def serves(self, params: dict[str, Any]) -> bool:
        """Whether it computes the call with these parameters."""
        if not params:
            return True
        if self.made is None:
            return self.params == params
        statics = self.params
        for name, value in params.items():
            if (value.__class__ is not float or statics[name].__class__ is not float) and (
                statics[name].__class__ is not value.__class__ or statics[name] != value
            ):
                return False
        return bool(self.holds(self.made.guards, params))


def pointwise(
    rule: Any, operands: list[Any], compute: Any, target: Any, params: dict[str, Any], broadcast: Callable[..., tuple[int, ...]], kind: str,
    into: Any = None,
) -> Any:  # fmt: skip
    """`rule.impl` on arrays and numbers, computed in dtype `compute` and stored as `target`; None if NumPy shall do it.

    With `into` the result is written there; operands are that very array or lie elsewhere.
    """
    call: tuple[Any, ...] | None = None
    if into is None and not params:
        call = (rule.name, compute, target)
        for a in operands:
            if a.__class__ is not _ndarray:
                call = None
                break
            call += (a.dtype, a.shape, a.strides)
        known = _calls.get(call)
        if known is not None and known[3] >= LEAST[known[4]]:
            builtin, like, work = known[:3]
            out = np.empty(like, target) if like.__class__ is tuple else np.empty_like(like, target)
            builtin(out, *operands, work)
            return out
    arrays = [a for a in operands if a.__class__ is _ndarray]
    shape, size, flat = arrays[0].shape, arrays[0].size, True
    for a in arrays:
        if a.dtype in HALF_NP:
            kind = "half"
        if flat and (a.shape != shape or not a.flags.c_contiguous):
            flat = False
    if not flat:
        shape = broadcast([a.shape for a in arrays])
        size = math.prod(shape)
    if size < LEAST[kind] or size == 0:
        return None
    if into is not None:
        if into.shape != shape or into.dtype is not target or _overlaps(into, arrays):
            return None
        flat = flat and into.flags.c_contiguous
    types = tuple([a.dtype if a.__class__ is _ndarray else None for a in operands])
    place = None
    if not flat:
        given = arrays if into is None else [into, *arrays]
        place = remember(
            (shape, target, into is None, *[(a.shape, a.strides, a.dtype) for a in given]),
            lambda: _place(given, shape, target, into),
        )
        if not place:
            return None
    key = (rule.name, types, compute, target, None if place is None else place.key)
    variants = _kernels.get(key)
    if variants is None:
        variants = _kernels[key] = []
    for variant in variants:
        if variant.serves(params):
            break
    else:
        variant = _new_variant(variants, rule, types, compute, target, params, place)
        if variant is None:
            return None
    if variant.pending:
        variant.settle()
    builtin = variant.builtin
    if builtin is None:
        return None
    if into is not None and variant.made.again:  # what it reads again mustn't be written yet
        got = pointwise(rule, operands, compute, target, params, broadcast, kind)
        if got is None:
            return None
        into[...] = got
        return into
    if place is None:
        out = np.empty(shape, target) if into is None else into
        work = size
    else:
        out, work = place.output(target) if into is None else into, place.work(variant.made)
    if call is not None:
        if len(_calls) > 4096:
            _calls.clear()
        _calls[call] = (builtin, shape if place is None or place.like.flags.c_contiguous else place.like, work, size, kind)
    if params:
        params_given = [params[n] for n in variant.made.params]
        builtin(out, *arrays, *[_number(a) for a in operands if a.__class__ is not _ndarray], *params_given, work)
    elif len(arrays) == len(operands):
        builtin(out, *arrays, work)
    else:
        builtin(out, *arrays, *[_number(a) for a in operands if a.__class__ is not _ndarray], work)
    return out


def _number(a: Any) -> Any:
    return a.item() if isinstance(a, np.generic) else a


def _new_variant(
    variants: list[_Variant], rule: Any, types: Any, compute: Any, target: Any, params: dict[str, Any], place: Any
) -> Any:
    """A kernel asked for; None if there are too many or none can be made."""
    modules = inductor()
    if modules is None or len(variants) >= _VARIANTS:
        return None
    _cpu_memory.enter()
    variant = _Variant(dict(params), modules.lower.holds)
    variants.append(variant)
    try:
        _ask(modules, variant, rule, types, compute, target, place)
    except BaseException:  # an interrupt
        variants.remove(variant)
        raise
    return variant


def _overlaps(into: Any, arrays: list[Any]) -> bool:
    """Whether an array shares memory with `into` without being the same view."""
    for a in arrays:
        if a is not into and np.may_share_memory(a, into):
            if (
                a.strides != into.strides
                or a.shape != into.shape
                or a.__array_interface__["data"] != into.__array_interface__["data"]
            ):
                return True
    return False


class _Place(NamedTuple):
    """Where results of calls of certain shapes and strides go."""

    key: tuple[int, str]
    layout: Any
    like: Any  # an array (of no memory) with the result's order of strides
    works: dict[int, Any]

    def output(self, target: Any) -> Any:
        """A new array in the operands' memory order, owning its memory."""
        return np.empty_like(self.like, target)

    def work(self, made: Any) -> Any:
        """What the kernel is told about sizes: the number of elements if it is flat."""
        if not made.kernel.sizes:
            return self.layout.shape[0]
        found = self.works.get(made.grain)
        if found is None:
            modules = inductor()
            assert modules is not None
            found = self.works[made.grain] = modules.layout.work(self.layout, made.grain)
        return found


def _place(given: list[Any], shape: tuple[int, ...], target: Any, into: Any) -> _Place | tuple[()]:
    """The layout of arrays, `into` first if there is one; () if their strides are no multiples of an element."""
    modules = inductor()
    if modules is None:
        return ()
    dims = len(shape)
    strides = []
    for a in given:
        item, lead = a.dtype.itemsize, dims - a.ndim
        steps = [0] * lead
        for n, s in zip(a.shape, a.strides, strict=True):
            if n != 1 and s % item:
                return ()
            steps.append(0 if n == 1 else s // item)
        strides.append(tuple(steps))
    order = modules.layout.memory_order(shape, strides)
    steps = [0] * dims
    step = 1
    for d in reversed(order):
        steps[d], step = step, step * shape[d]
    if into is None:
        strides.insert(0, tuple(steps))
    found = modules.layout.merge(shape, strides, order)
    like = np.lib.stride_tricks.as_strided(np.empty(1, np.bool_), shape, steps, writeable=False)
    return _Place((len(found.shape), found.inner), found, like, {})


def _ask(modules: Any, variant: _Variant, rule: Any, types: Any, compute: Any, target: Any, place: Any) -> None:
    entry, lower, kernels, service = modules.entry, modules.lower, modules.pointwise, modules.service
    arrays = 1 + sum(t is not None for t in types)
    dimensions, inner = (1, "1" * arrays) if place is None else place.key

    def make() -> Any:
        names = lower.NP_TYPES
        try:
            spelled = tuple(["number" if t is None else names[t] for t in types])
            made = kernels.make(rule.name, rule.impl, spelled, names[compute], names[target], variant.params, dimensions, inner)
        except KeyError as error:
            raise lower.Unsupported(f"{rule.name} of {error}") from None
        return made, entry.build(made.kernel, made.grain)

    def put(result: Any) -> None:
        if result is not service.FAILED:
            variant.made = result[0]
            variant.builtin = result[1]
        variant.pending = False

    service.request(make, put)


def total(name: str, rule: Any, arrays: list[Any], shape: tuple[int, ...]) -> Any:
    """The sum of a scalar rule's values, of the shape of the first array, to `shape`, which was broadcast to it; None if NumPy shall do it."""
    from tocha.backends._native_prims import total

    return total(name, rule, arrays, shape)


def reduced(kind: str, x: Any, axis: int | None) -> Any:
    """The reduction of a float array along a dimension, or of all its elements; None if NumPy shall do it."""
    key = "reduced", kind, axis, x.dtype, x.shape, x.strides
    found = _remembered.get(key) or remember(key, lambda: _reduction(kind, x, axis))
    return None if found is None else found.run([x])


def _reduction(kind: str, x: Any, axis: int | None) -> Any:
    from tocha.backends._native_prims import reduction

    return reduction(kind, [x], tuple(range(x.ndim)) if axis is None else (axis % x.ndim,), False, x.dtype)


def prim(name: str, arrays: list[Any], params: dict[str, Any]) -> Any:
    """The result of a primitive that isn't pointwise, as its kernel returns it; None if NumPy shall compute it."""
    return runs()[name](arrays, params)


@functools.cache
def runs() -> dict[str, Callable[[list[Any], dict[str, Any]], Any]]:
    """What computes each primitive that has a kernel."""
    from tocha.backends import (
        _native_attention,
        _native_borders,
        _native_grid,
        _native_index,
        _native_moves,
        _native_norm,
        _native_pool,
        _native_prims,
        _native_products,
        _native_recurrent,
        _native_rows,
        _native_search,
    )
    from tocha.backends import _native_conv as conv
    from tocha.backends import _native_scan as scan

    families = (
        _native_prims,
        _native_rows,
        _native_norm,
        _native_grid,
        _native_index,
        _native_moves,
        _native_borders,
        scan,
        _native_products,
        _native_recurrent,
        _native_attention,
        _native_pool,
        _native_search,
        conv,
    )
    return {name: in_rows(name, run) for family in families for name, run in family.RUNS.items()}


@functools.cache
def indexing() -> Any:
    """The module of reading and writing at indices."""
    from tocha.backends import _native_index

    return _native_index


def copy_transposed(target: Any, source: Any) -> bool:
    """Copy between arrays of different memory orders; False for NumPy to do it."""
    if source.__class__ is not _ndarray or source.size < LEAST["copy"]:
        return False
    from tocha.backends import _native_moves

    return _native_moves.copy_transposed(target, source)


def fill(target: Any, value: Any) -> None:
    """`target[...] = value`, a number."""
    if target.size >= LEAST["copy"]:
        from tocha.backends import _native_moves

        if _native_moves.fill(target, value):
            return
    target[...] = value


@functools.cache
def searching() -> Any:
    """The module of search in sorted rows."""
    from tocha.backends import _native_search

    return _native_search


@functools.cache
def resampling() -> Any:
    """The module of resampling by tables of taps."""
    from tocha.backends import _native_taps

    return _native_taps


@functools.cache
def convolutions() -> Any:
    """The module of convolutions on kernels."""
    from tocha.backends import _native_conv

    return _native_conv


@functools.cache
def products() -> Any:
    """The module of products on kernels."""
    from tocha.backends import _native_products

    return _native_products


def linear(x: Any, weight: Any, bias: Any) -> Any:
    """A linear layer with few outputs, of matrices, in torch's order; None where that is left to BLAS."""
    few = 1 < weight.shape[0] <= FEW and x.size * weight.shape[0] >= LEAST["few"]
    return products().few(x, weight, bias) if few else None


def linear_gradients(g: Any, x: Any, weight: Any = None) -> tuple[Any, ...]:
    """The gradients of a linear layer's input, if `weight` is given, weight and bias from matrices; small ones in torch's order."""
    of_bias = _cpu_sums.total(g, (0,), False) if g.size < LEAST["column"] else column_sums(g)
    of_input = of_weight = None
    if g.size * x.shape[1] >= LEAST["few"] and g.shape[1] <= FEW:
        of_weight = products().sweep(g.T, x)
        of_input = None if weight is None else products().sweep(g, weight)
    if of_weight is None:
        of_weight = g.T.dot(x)
    if weight is None:
        return of_weight, of_bias
    return g.dot(weight) if of_input is None else of_input, of_weight, of_bias


def column_sums(x: Any) -> Any:
    """The sums of a matrix's columns, small ones in torch's order."""
    found = products().column_sums(x) if x.size >= LEAST["column"] else None
    return _cpu_sums.total(x, (0,), False) if found is None else found


def fma(x: Any, y: float, z: Any) -> Any:
    """x * y + z, rounded once in float32 (but for one case in 2^29): in float64 the product is exact."""
    if x.dtype != np.float32:
        return x * y + z
    return (np.multiply(x, np.float64(np.float32(y)), dtype=np.float64) + z).astype(np.float32)


# Primitives that have a kernel (tocha.backends._native_prims, _native_products, _native_pool), with the kind that says from which size on.
_BY_KIND = {
    "row": """
        softmax_backward log_softmax_backward cross_entropy
        cross_entropy_backward batch_norm_given rms_norm rms_norm_backward""",
    "model": "standardize standardize_backward softmax log_softmax logsumexp flash_attention flash_attention_backward",
    "reduce": """
        all amax amin any argmax argmin batch_norm_given_backward count_nonzero max_dim mean min_dim mse mse_backward prod std sum var
        vector_norm""",
    "spread": "nll nll_backward place_one searchsorted",
    "copy": "cast clone conv conv_input keep where tril triu flip",
    "index": """
        bag_maximum_place bag_sum cat stack constant_pad resample roll topk embedding gather index cumsum reversed_cumsum cumprod cummax
        cummin""",
    "mm": "mm mv linear linear_backward",
    "recurrent": "lstm_layer lstm_layer_backward gru_layer gru_layer_backward rnn_layer rnn_layer_backward",
    "pool": """
        place adaptive_max_pool grid_sample grid_sample_of_image grid_sample_of_grid""",
    "window": "max_pool max_pool_values max_pool_coded max_pool_backward avg_pool avg_pool_backward",
}
PRIMS = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}
