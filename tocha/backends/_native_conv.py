"""Convolutions on native kernels (tocha.inductor.templates): arrays in, arrays out, or None for NumPy to compute it.

Any strides of the input will do, channels-last included: packing reads it as it lies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import threads
from tocha.backends import native

Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
_SCALARS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def _product(sizes: Any) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


def _serves(a: Any, b: Any, result: Shape, work: int) -> bool:
    """Whether a product of `work` multiply-adds is worth a kernel, and has one."""
    return (
        work >= native.LEAST["conv"] and a.dtype in _SCALARS and b.dtype is a.dtype and _product(result) > 0 and a.size > 0 and b.size > 0
        and a.ndim <= 5 and not any(s % a.dtype.itemsize for s in a.strides)
    )  # fmt: skip


def _steps(a: Any) -> Shape:
    """Strides in elements as (n, c, d, h, w): leading spatial dimensions are added."""
    item = a.dtype.itemsize
    n, c, *rest = [s // item for s in a.strides]
    return (n, c, *(0,) * (3 - len(rest)), *rest)


def _three(values: Any, filling: Any) -> list[Any]:
    return [filling] * (3 - len(values)) + list(values)


def _builtins(scalar: str) -> Any:
    """(convolution, packing of weights), None until compiled."""
    modules = native.inductor()
    if modules is None:
        return None
    from tocha.inductor.templates import conv, gemm, windows

    make = modules.entry.build_template
    main = native.built(("conv", scalar), lambda: make("conv", windows.BUFFERS, windows.SIZES, conv.code(gemm.geometry(scalar))))
    pack = native.built(("conv_pack", scalar), lambda: make("pack", conv.PACK_BUFFERS, conv.PACK_SIZES, conv.pack_weight(gemm.geometry(scalar))))
    return None if main is None or pack is None else (main, pack)


def _merged(x: Any, kernel: Shape, stride: Shape, padding: Pairs) -> bool:
    """Whether taps and positions don't interact, and a channel's elements lie in a row: all spatial dimensions can be one."""
    if _product(kernel) != 1 or any(s != 1 for s in stride) or any(low or high for low, high in padding):
        return False
    step = x.itemsize
    for n, s in zip(reversed(x.shape[2:]), reversed(x.strides[2:]), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def forward(x: Any, weight: Any, bias: Any, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int, sizes: Shape) -> Any:
    """`conv` (tocha.prims.convolution) with outputs of `sizes`."""
    n, o, per = x.shape[0], weight.shape[0], weight.shape[1]
    kernel = weight.shape[2:]
    shape = (n, o, *sizes)
    if not _serves(x, weight, shape, _product(shape) * per * _product(kernel)):
        return None
    builtins = _builtins(_SCALARS[x.dtype])
    if builtins is None:
        return None
    out = np.empty(shape, x.dtype)
    taps = _product(kernel)
    key = ("conv", x.dtype, x.shape, x.strides, weight.shape, stride, padding, dilation, groups, threads.get_num_threads())

    def make() -> Any:
        from tocha.inductor.templates import conv, gemm

        x_steps, out_steps = _steps(x), _steps(out)
        if _merged(x, kernel, stride, padding):
            length = _product(sizes)
            lines = [conv.forward_line(m, 1, 1, 1, 0, m) for m in (1, 1, length)]
            x_steps, out_steps = ((*s[:2], length, length, 1) for s in (x_steps, out_steps))
        else:
            lows = [low for low, _ in padding]
            each = (_three(v, 1) for v in (x.shape[2:], kernel, stride, dilation))
            lines = [conv.forward_line(*line) for line in zip(*each, _three(lows, 0), _three(sizes, 1), strict=True)]
        return conv.plan(
            gemm.geometry(_SCALARS[x.dtype]), lines, n, groups, per, o // groups, x_steps, out_steps, o // groups * per * taps,
            (per * taps, taps), threads.get_num_threads(),
        )  # fmt: skip

    _run(builtins, native.remember(key, make), out, x, weight, bias, groups)
    return out


def input_gradient(
    g: Any, weight: Any, bias: Any, *, size: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Any:
    """`conv_input` (tocha.prims.convolution)."""
    n, o, per, kernel = g.shape[0], weight.shape[0], weight.shape[1], weight.shape[2:]
    shape = (n, per * groups, *size)
    if not _serves(g, weight, shape, _product(g.shape) * per * _product(kernel)):
        return None
    builtins = _builtins(_SCALARS[g.dtype])
    if builtins is None:
        return None
    out = np.empty(shape, g.dtype)
    taps = _product(kernel)
    key = ("conv_input", g.dtype, g.shape, g.strides, weight.shape, size, stride, padding, dilation, groups, threads.get_num_threads())

    def make() -> Any:
        from tocha.inductor.templates import conv, gemm

        g_steps, out_steps = _steps(g), _steps(out)
        if _merged(g, kernel, stride, padding) and size == g.shape[2:]:
            length = _product(size)
            lines = [conv.gradient_line(m, 1, 1, 1, 0, m) for m in (1, 1, length)]
            g_steps, out_steps = ((*s[:2], length, length, 1) for s in (g_steps, out_steps))
        else:
            lows = [low for low, _ in padding]
            each = (_three(v, 1) for v in (size, kernel, stride, dilation))
            lines = [conv.gradient_line(*line) for line in zip(*each, _three(lows, 0), _three(g.shape[2:], 1), strict=True)]
        return conv.plan(
            gemm.geometry(_SCALARS[g.dtype]), lines, n, groups, o // groups, per, g_steps, out_steps, o // groups * per * taps,
            (taps, per * taps), threads.get_num_threads(),
        )  # fmt: skip

    _run(builtins, native.remember(key, make), out, g, weight, bias, groups)
    return out


def _run(builtins: Any, plan: Any, out: Any, x: Any, weight: Any, bias: Any, groups: int) -> None:
    main, pack = builtins
    packed = np.empty(plan.packed_size, x.dtype)
    pack(packed, np.ascontiguousarray(weight), plan.taps, plan.pack_work)
    row = np.zeros(plan.bias_size, x.dtype)
    if bias is not None:
        given = bias.reshape(groups, -1)
        row.reshape(groups, -1)[:, : given.shape[1]] = given
    slots = int(plan.work[-1])
    main(out, x, packed, row, np.zeros(slots, np.int64), np.empty(slots * plan.scratch, x.dtype), plan.table, plan.work)
