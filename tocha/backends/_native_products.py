"""Matrix products on native kernels (tocha.inductor.templates.matmul): arrays in, arrays out, or None for NumPy to compute it.

`multiply` is the one way in; the primitives' functions (`RUNS`) bring their arguments to it. NumPy's BLAS keeps what `LEAST` leaves to
it, small products, whose call costs less there, and complex ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tocha import threads
from tocha.backends import _cpu_sums, _native_prims, native
from tocha.dtypes import HALF_NP

# From how many multiply-adds on, of a batch together, the kernel is faster, measured beside OpenBLAS and NumPy's loops on
# one core with AVX-512 (OpenBLAS's threads also wait for each other where CPUs are shared). NumPy has no BLAS for the types of the second line.
LEAST = {
    "f32": native.SHORT_PRODUCT, "f64": native.SHORT_PRODUCT,
    "bf16": 1 << 10, "f16": 1 << 10, **dict.fromkeys(("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"), 1 << 13),
}  # fmt: skip
LEAST_IN_BATCH = 1 << 13  # each product of a batch
# Up to so many rows the right factor is not packed, if its columns or its rows are dense (tocha.inductor.templates.thin).
DOTS, SWEEPS = 16, 4
NAMES = {np.dtype(t): n for t, n in (
    (np.float32, "f32"), (np.float64, "f64"), (np.float16, "f16"), (ml_dtypes.bfloat16, "bf16"), (np.int8, "i8"), (np.uint8, "u8"), (np.int16, "i16"),
    (np.uint16, "u16"), (np.int32, "i32"), (np.uint32, "u32"), (np.int64, "i64"), (np.uint64, "u64"),
)}  # fmt: skip
_BLOCK = 20  # rows of a product with few columns that are a unit of work
_COMPUTED = {"f64": np.dtype(np.float64), "i64": np.dtype(np.int64), "i32": np.dtype(np.int32)}
_FLOAT32 = np.dtype(np.float32)
_OF_BLAS = frozenset((_FLOAT32, np.dtype(np.float64)))
MOST_PACKED = 1 << 25  # words of a packed right factor; larger ones are taken a range of columns at a time
Shape = tuple[int, ...]


def worth(name: str | None, batch: int, m: int, n: int, k: int) -> bool:
    """Whether `batch` products of these sizes are for the kernel."""
    each = m * n * k
    return name is not None and each > 0 and batch * each >= LEAST[name] and (batch == 1 or each >= LEAST_IN_BATCH)


class Hole(NamedTuple):
    """An epilogue (tocha.inductor.templates.epilogue) made ready: its code's address, the results' types, and where its operands lie."""

    finish: int
    dtypes: tuple[Any, ...]
    places: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def hole(epilogue: Any, dtype: Any, dtypes: tuple[Any, ...]) -> Hole:
    """An epilogue of products of `dtype`, whose results are of `dtypes`, compiled. Unsupported, CompileError."""
    from tocha.inductor.templates import epilogue as holes

    spec = spec_of(NAMES[dtype])
    return Hole(holes.build(epilogue, spec.compute, spec.tile.lanes), dtypes, tuple([x.place for x in epilogue.operands]))


def _bias_hole(name: str, dtype: Any) -> Any:
    """The sum of a product and one number for each column."""

    def build() -> Hole:
        from tocha.inductor.templates.epilogue import Epilogue, Operand

        compute = spec_of(name).compute
        return hole(Epilogue.of(lambda o, x, b: o.add(x, b), compute, name, (Operand("column", name),)), dtype, (dtype,))

    return native.built(("mm bias", name), build)


def spec_of(name: str) -> Any:
    """What products of a type are to their kernels."""
    from tocha.inductor.templates import matmul

    return matmul.Spec(name, name, name == "bf16" and matmul.pairs_of_bfloat16())


def kernel_of(name: str, pack: bool) -> Any:
    """The kernel of a type's products, or the one that packs their right factors; None until it is compiled."""
    modules = native.inductor()
    if modules is None:
        return None

    def build() -> Any:
        from tocha.inductor.templates import matmul

        make, spec = modules.entry.build_template, spec_of(name)
        if pack:
            return make("pack", matmul.PACK_BUFFERS, matmul.PACK_SIZES, matmul.pack_code(spec))
        return make("mm", matmul.BUFFERS, matmul.SIZES, matmul.code(spec), hole=True)

    return native.built(("mm pack", name) if pack else ("mm", name), build)


def multiply(a: Any, b: Any, bias: Any = None) -> Any:
    """a @ b (+ bias, one for each column) over the last two dimensions, batches broadcast; None if NumPy shall compute it.

    Integers wrap around; float16 and bfloat16 are summed in float32 and rounded once, after the bias is added.
    """
    if bias is None:
        found = finished(a, b)
        return None if found is None else found[0]
    if not _suits(a, b) or bias.dtype is not a.dtype or bias.shape != (b.shape[-1],) or not bias.flags.c_contiguous:
        return None
    end = None if native.inductor() is None else _bias_hole(NAMES[a.dtype], a.dtype)
    found = None if end is None else finished(a, b, end, (bias,))
    return None if found is None else found[0]


def _suits(a: Any, b: Any) -> bool:
    (m, k), n = a.shape[-2:], b.shape[-1]
    many = worth(NAMES.get(a.dtype), a.size // (m * k) if m * k else 0, m, n, k)
    return bool(many and b.dtype is a.dtype and a.flags.aligned and b.flags.aligned)


def finished(
    a: Any, b: Any, end: Hole | None = None, operands: tuple[Any, ...] = (), outs: Sequence[Any] | None = None
) -> Sequence[Any] | None:
    """a @ b over the last two dimensions, batches broadcast, through an epilogue: its results, or None if NumPy shall compute it.

    `operands`, and `outs` where the results have memory already, must lie as the epilogue has it, which isn't checked."""
    if not _suits(a, b):
        return None
    name, m, n = NAMES[a.dtype], a.shape[-2], b.shape[-1]
    if a.ndim == 2 == b.ndim:
        if n <= SWEEPS < m and end is None and outs is None:
            turned = finished(b.T, a.T)
            return None if turned is None else [np.ascontiguousarray(turned[0].T)]
        dots = m <= DOTS and (a.shape[1] == 1 or b.strides[0] == b.dtype.itemsize)
        if dots or (m <= SWEEPS and (n == 1 or b.strides[1] == b.dtype.itemsize)):
            return _thin(name, a, b, dots, end, operands, outs)
    slots = threads.get_num_threads()
    key = ("mm", name, a.shape, b.shape, a.strides, b.strides, slots, end is None)
    found = native.remember(key, lambda: _plan(name, a, b, end is not None, slots))
    if found == ():
        return None
    shape, word, offsets, ranges = found
    main, pack = kernel_of(name, False), None
    if ranges[0][2].packed:
        pack = kernel_of(name, True)
    if main is None or (pack is None and ranges[0][2].packed):
        return None
    if outs is None:
        outs = [np.empty(shape, dtype) for dtype in ((a.dtype,) if end is None else end.dtypes)]
    for start, stop, plan in ranges:
        columns = b if stop - start == n else b[..., start:stop]
        packed = np.empty(plan.packed, word)
        if pack is not None:
            pack(packed, columns, plan.pack_work)
        flags, scratch = np.zeros(plan.slots, np.int64), np.empty(plan.slots * plan.scratch, word)
        arrays, finish = outs, 0
        if end is not None:
            arrays, finish = [*outs, *operands], end.finish
        if len(ranges) > 1:
            places = [*["full"] * len(outs), *(end.places if end is not None else ())]
            arrays = [_part(x, place, start) for x, place in zip(arrays, places, strict=True)]
        main(arrays[0], a, columns, packed, flags, scratch, offsets, finish, plan.work, *arrays)
    return outs


def _part(x: Any, place: str, start: int) -> Any:
    """An epilogue's array from a column on; only its address counts."""
    from tocha.backends.cpu import restride

    return restride(x, (1,), (x.itemsize,), start * x.itemsize) if place in ("column", "full") else x


def packing(name: str) -> Callable[[Any], Any] | None:
    """A function that packs right factors, the matrices of a batch (count, k, n) one after the other, as `matmul` reads them."""
    pack = kernel_of(name, True)
    if pack is None:
        return None

    def packed(b: Any) -> Any:
        (count, k, n), steps = b.shape, tuple([s // b.itemsize for s in b.strides[1:]])
        plan = native.remember(("mm packing", name, k, n, steps), lambda: _packing_plan(name, k, n, steps))
        out = np.empty((count, plan.packed), b.dtype)
        for matrix, to in zip(b, out, strict=True):
            pack(to, matrix, plan.pack_work)
        return out

    return packed


def _packing_plan(name: str, k: int, n: int, steps: tuple[int, int]) -> Any:
    from tocha.inductor.templates import matmul

    return matmul.plan(spec_of(name), 1, 1, n, k, (k, 1), steps, n, 1, True)


def thin_kernel_of(name: str, dots: bool) -> Any:
    """The kernel of products of few rows, by how the right factor lies; None until it is compiled."""
    modules = native.inductor()
    if modules is None:
        return None

    def build() -> Any:
        from tocha.inductor.templates import thin

        code = (thin.dots_code if dots else thin.sweeps_code)(spec_of(name))
        return modules.entry.build_template("thin", thin.BUFFERS, thin.SIZES, code, hole=True)

    return native.built(("thin", name, dots), build)


def _thin(
    name: str, a: Any, b: Any, dots: bool, end: Hole | None, operands: tuple[Any, ...], outs: Sequence[Any] | None
) -> Sequence[Any] | None:
    """`finished` of few rows."""
    if odd(a) or odd(b):
        return None
    main = thin_kernel_of(name, dots)
    if main is None:
        return None
    spec = native.remember(("mm spec", name), lambda: spec_of(name))
    word: Any = _COMPUTED.get(spec.compute, _FLOAT32)
    a = np.ascontiguousarray(a, b.dtype if dots and spec.pairs else word)
    (m, k), n, step, slots = a.shape, b.shape[1], b.strides[dots] // b.dtype.itemsize, threads.get_num_threads()

    def make() -> Any:
        from tocha.inductor.templates import thin

        return thin.plan(spec, dots, m, n, k, k, step, slots)

    work, scratch = native.remember(("thin", name, dots, m, n, k, step, slots), make)
    if outs is None:
        outs = [np.empty((m, n), dtype) for dtype in ((b.dtype,) if end is None else end.dtypes)]
    finish = 0 if end is None else end.finish
    main(outs[0], a, b, np.zeros(slots, np.int64), np.empty(slots * scratch, word), finish, work, *outs, *operands)
    return outs


def _plan(name: Any, a: Any, b: Any, finish: bool, slots: int) -> Any:
    """(shape of the result, type computed with, where factors start in each batch, [(first column, end, plan)]); () for odd strides."""
    from tocha.inductor.templates import matmul

    item = a.dtype.itemsize
    if odd(a) or odd(b):
        return ()
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        return ()
    count = 1
    for size in lead:
        count *= size
    if count == 0:
        return ()
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    steps = [tuple([s // item for s in x.strides[-2:]]) for x in (a, b)]
    offsets = np.stack([starts(x, lead, item) for x in (a, b)], axis=-1)
    spec = spec_of(name)
    width = n if count > 1 else max(1 << 10, MOST_PACKED // k >> 10 << 10)
    ranges = []
    for start in range(0, n, width):
        stop = min(n, start + width)
        ranges.append((start, stop, matmul.plan(spec, count, m, stop - start, k, steps[0], steps[1], n, slots, False, finish)))
    return (*lead, m, n), _COMPUTED.get(spec.compute, _FLOAT32), np.ascontiguousarray(offsets), ranges


def odd(x: Any) -> bool:
    """Whether elements lie at no multiple of an element from the first; strides of single elements don't count."""
    item = x.dtype.itemsize
    return any(s % item and n > 1 for n, s in zip(x.shape, x.strides, strict=True))


def starts(x: Any, lead: Shape, item: int) -> Any:
    """The first element of every batch's matrix."""
    strides = [0] * (len(lead) - x.ndim + 2) + [
        0 if n == 1 else s // item for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True)
    ]
    found = np.zeros((1,) * len(lead), np.int64)
    for axis, (size, stride) in enumerate(zip(lead, strides, strict=True)):
        along = np.arange(size, dtype=np.int64) * stride
        found = found + along.reshape((-1,) + (1,) * (len(lead) - axis - 1))
    return found.reshape(-1)


# ---- primitives


def _swap(x: Any) -> Any:
    return x.T if x.ndim == 2 else x.swapaxes(-1, -2)


def product(a: Any, b: Any, bias: Any = None) -> Any:
    """`multiply`, for a batch of matrices against one matrix as one large product."""
    if b.ndim == 2 and a.ndim > 2:
        flat = _rows(a)
        if flat is not None:
            out = multiply(flat, b, bias)
            return None if out is None else out.reshape(*a.shape[:-1], b.shape[-1])
    return multiply(a, b, bias)


def _rows(x: Any) -> Any:
    """x with all dimensions but the last made one, a view; None if that takes a copy."""
    try:
        return x.reshape(-1, x.shape[-1], copy=False)
    except ValueError:
        return None


def _short(a: Any, columns: int) -> bool:
    """Whether a product by `columns` is left to BLAS: asked first, since small calls count the microseconds of all other questions."""
    return a.dtype in _OF_BLAS and a.size * columns < native.SHORT_PRODUCT


def _few_kernel(name: str) -> Any:
    """The builtin of a kernel of tocha.inductor.templates.few."""

    def build() -> Any:
        from tocha.inductor.templates import few

        modules = native.inductor()
        assert modules is not None
        buffers, sizes, code = few.KERNELS[name]
        return modules.entry.build_template(name, buffers, sizes, code())

    return native.built((name,), build) if native.inductor() else None


_known_calls: dict[Any, tuple[Any, Any]] = {}  # of calls as made before: the kernel and its work array, found by one question


def _known_call(name: str, key: Any, work: list[int]) -> tuple[Any, Any] | None:
    """Keep a call's kernel and work array; None without a kernel."""
    kernel = _few_kernel(name)
    if kernel is None:
        return None
    if len(_known_calls) > 4096:
        _known_calls.clear()
    found = _known_calls[key] = kernel, np.array(work, np.int64)
    return found


def few(x: Any, weight: Any, bias: Any) -> Any:
    """`linear` with few outputs; None for other types and memory."""
    key = ("few", x.dtype, x.shape, x.strides, weight.dtype, weight.shape, weight.strides)
    found = _known_calls.get(key) or _few_call(x, weight, key)
    if found is None:
        return None
    out = np.empty((x.shape[0], weight.shape[0]), _FLOAT32)
    found[0](out, x, weight, _zeros(weight.shape[0]) if bias is None else bias if bias.flags.c_contiguous else bias.copy(), found[1])
    return out


def _few_call(x: Any, weight: Any, key: Any) -> tuple[Any, Any] | None:
    (n, k), o, steps = x.shape, weight.shape[0], (*x.strides, *weight.strides)
    if not x.dtype is weight.dtype is _FLOAT32 or n < 2 or steps[1] != 4 or steps[3] != 4 or (steps[0] | steps[2]) & 3:
        return None
    return _known_call("few", key, [-(-n // _BLOCK), max(1, 2048 // k), n, o, k, steps[0] // 4, steps[2] // 4, _BLOCK])


def sweep(a: Any, b: Any) -> Any:
    """a @ b for the gradients of `few`; None for other types and memory."""
    key = ("sweep", a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides)
    found = _known_calls.get(key) or _sweep_call(a, b, key)
    if found is None:
        return None
    out = np.empty((a.shape[0], b.shape[1]), _FLOAT32)
    found[0](out, a, b, found[1])
    return out


def _sweep_call(a: Any, b: Any, key: Any) -> tuple[Any, Any] | None:
    steps = (*a.strides, *b.strides)
    if not a.dtype is b.dtype is _FLOAT32 or steps[3] != 4 or any(step & 3 for step in steps):
        return None
    (m, k), n = a.shape, b.shape[1]
    return _known_call("sweep", key, [-(-m // 5), max(1, (1 << 16) // (5 * k * n)), m, k, n, *[step // 4 for step in steps[:3]]])


@functools.cache
def _zeros(n: int) -> Any:
    return np.zeros(n, _FLOAT32)


def column_sums(x: Any) -> Any:
    """The sums of a float32 matrix's columns; None for other arrays."""
    rows, columns = x.shape
    if x.dtype is not _FLOAT32 or rows > 1 << 17 or columns < 8 or not x.flags.c_contiguous:
        return None
    kernel = _few_kernel("column_sums")
    if kernel is None:
        return None
    key = ("column sums", x.shape)
    work = native.remember(key, lambda: np.array([-(-columns // 8), max(1, 8192 // rows), rows, columns, columns], np.int64))
    out = np.empty(columns, _FLOAT32)
    kernel(out, x, work)
    return out


def _mm(arrays: list[Any], params: dict[str, Any]) -> Any:
    a, b = arrays
    if b.ndim == 2 and _short(a, b.shape[0 if params["tb"] else 1]):
        return None
    return product(_swap(a) if params["ta"] else a, _swap(b) if params["tb"] else b)


def _mv(arrays: list[Any], params: dict[str, Any]) -> Any:
    a, x = arrays
    if _short(a, 1):
        return None
    out = multiply(x[None], a.T) if a.ndim == 2 else None
    return None if out is None else out[0]


def _linear(arrays: list[Any], params: dict[str, Any]) -> Any:
    x, weight, bias = arrays
    found = native.linear(x, weight, bias) if x.ndim == weight.ndim == 2 else None
    if found is not None:
        return found
    if x.ndim < 2 or weight.ndim != 2 or _short(x, weight.shape[0]):
        return None
    return product(x, weight.T, bias)


def _linear_backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    g, x, weight = arrays
    if _short(g, x.shape[1]):
        return native.linear_gradients(g, x, weight) if g.dtype is _FLOAT32 else None
    of_input = multiply(g, weight)
    of_weight = None if of_input is None else multiply(g.T, x)
    if of_weight is None:
        return None
    of_bias = column_sums(g) if native.LEAST["column"] <= g.size < native.LEAST["reduce"] else None
    if of_bias is None:
        of_bias = _native_prims.RUNS["sum"]([g], {"dim": (0,)}) if g.size >= native.LEAST["reduce"] or g.dtype in HALF_NP else None
    if of_bias is None:
        if g.dtype in HALF_NP:
            return None
        of_bias = _cpu_sums.total(g, (0,), False)
    return of_input, of_weight, of_bias


RUNS: dict[str, Callable[[list[Any], dict[str, Any]], Any]] = {
    "mm": _mm, "mv": _mv, "linear": _linear, "linear_backward": _linear_backward,
}  # fmt: skip
