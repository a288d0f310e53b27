"""Random values drawn into arrays by kernels: the Mersenne Twister (tocha.rng.mt19937) and what is made of its words, in one pass.

The bits are those of tocha.rng's NumPy forms, so a draw may take either; the compiler isn't loaded for a few small ones. One thread draws:
every word depends on those before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.backends import native
from tocha.rng import box_muller, continuous, discrete
from tocha.rng.mt19937 import MT19937

Into = Callable[[MT19937, Any], bool]  # fills a C-contiguous array, or returns False with nothing drawn
_PIECE = 1 << 16  # elements drawn without letting other threads of Python run
_SMALL = 1 << 14  # elements that the compiler is loaded for
_UNIT = (2.0**-24, 0.0, 2.0, 0.0)  # parameters of "uniform32" on [0, 1)
_known: dict[str, Any] = {}


def _ready() -> bool:
    """Whether kernels may draw."""
    return native.LEAST["row"] < 1 << 62 and native.inductor() is not None


def draw(kind: str, engine: MT19937, out: Any, *params: Any) -> bool:
    """Fill the C-contiguous array `out` with the engine's next values; False, and nothing drawn, where NumPy shall do it."""
    builtin = _known.get(kind)
    if builtin is None:
        builtin = _builtin(kind) if native.at_hand() or (out.size >= _SMALL and _ready()) else None
        if builtin is None:
            return False
        _known[kind] = builtin
    words, size = engine.memory(), out.size
    if kind == "permutation":
        builtin(out, words, size - 1, 1)
        return True
    if size <= _PIECE:
        builtin(out, words, *params, size, 1)
        return True
    flat = out.reshape(-1)
    for start in range(0, size, _PIECE):
        part = flat[start : start + _PIECE]
        builtin(part, words, *params, part.size, 1)
    return True


def _normal(engine: MT19937, out: Any, mean: float, std: float) -> bool:
    """`draw` of float32 normals in blocks of 16, at least one; a ragged end has its last block drawn anew."""
    if not draw("uniform32", engine, out, *_UNIT):
        return False
    flat = out if out.ndim == 1 else out.reshape(-1)
    ragged = flat.size % box_muller.BLOCK
    _transform(flat[: flat.size - ragged] if ragged else flat, mean, std)
    if ragged:
        last = flat[-box_muller.BLOCK :]
        draw("uniform32", engine, last, *_UNIT)
        _transform(last, mean, std)
    return True


def _transform(u: Any, mean: float, std: float) -> None:
    builtin = _known.get("normal")
    if builtin is None:
        box_muller.normal_blocks32(u, mean, std)
    else:
        builtin(u, u, mean, std, u.size // box_muller.BLOCK)


def transform(u: Any, mean: float, std: float) -> bool:
    """`box_muller.normal_blocks32` on a kernel; False where its bits would be others, and for few before the compiler is there."""
    builtin = _known.get("normal")
    if builtin is None or not u.flags.c_contiguous:
        there = u.size >= native.LEAST["row"] or native.inductor.cache_info().currsize
        if not (there and u.flags.c_contiguous and _ready()):
            return False
        from tocha.inductor import entry, jit, normal

        builtin = native.built("normal", lambda: entry.build(normal.make(), 512)) if jit.has_fma() else None
        if builtin is None:
            return False
        _known["normal"] = builtin
    builtin(u, u, mean, std, u.size // box_muller.BLOCK)
    return True


box_muller.kernel = transform
continuous.kernel = lambda engine, out: draw("uniform64", engine, out, 1.0, 0.0, 2.0)


# ---- distributions: how an array of a type is filled, None where there is no kernel


def uniform(dtype: Any, low: float, high: float) -> Into | None:
    """On [low, high); where rounding reaches `high`, it becomes `low`."""
    if dtype == np.float32:
        start, span = float(np.float32(low)), float(np.float32(high) - np.float32(low))
        return lambda engine, out: draw("uniform32", engine, out, 2.0**-24 * span, start, high, low)
    return (lambda engine, out: draw("uniform64", engine, out, high - low, low, high)) if dtype == np.float64 else None


def normal(dtype: Any, mean: float, std: float) -> Into | None:
    if dtype != np.float32:
        return None
    mean, std = float(np.float32(mean)), float(np.float32(std))
    return lambda engine, out: out.size >= box_muller.BLOCK and _normal(engine, out, mean, std)


def bernoulli(dtype: Any, p: float, value: float = 1.0) -> Into | None:
    """`value` with probability p, else 0."""
    kind = {"?": "bernoulli8", "f": "bernoulli32", "d": "bernoulli64"}.get(dtype.char)
    bound = math.ceil(p * 2.0**53)
    return None if kind is None else lambda engine, out: draw(kind, engine, out, bound, value)


def integers(dtype: Any, low: int, span: int) -> Into | None:
    """low + word % span; from 2**28 on torch takes words of 64 bits."""
    kind = "integers64" if span >= 1 << 28 else "integers32"
    return (lambda engine, out: draw(kind, engine, out, low, span)) if dtype == np.int64 and span < 1 << 64 else None


def permutation(engine: MT19937, out: Any) -> bool:
    """The numbers up to out's size in the order that Fisher and Yates give them, from the front."""
    return bool(1 < out.size < discrete.UNIFORM_64_FROM and out.dtype == np.int64 and draw("permutation", engine, out))


def _builtin(kind: str) -> Any:
    """The builtin(out, state, parameters…, number of elements, 1); None until it is compiled, and where its bits would be others."""
    from tocha.inductor import jit
    from tocha.inductor.templates import draws

    modules = native.inductor()
    if modules is None or (kind == "uniform64" and not jit.has_fma()):
        return None
    make = modules.entry.build_template
    return native.built(("random", kind), lambda: make(kind, draws.BUFFERS, (), draws.code(kind), short_loops=True, params=draws.params(kind)))
