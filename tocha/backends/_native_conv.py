"""Convolutions on native kernels (tocha.inductor.templates): arrays in, arrays out, or None for NumPy to compute it.

`end`: an epilogue (tocha.backends._native_products.hole) of the call, with its operands and the arrays for its results, of which the first is
returned. Any strides of the input will do, channels-last included: packing reads it as it lies. Half types become float32 there, or pairs of
bfloat16 on a CPU that multiplies those, and sums are rounded as they are stored; depthwise ones are left to the primitive, which casts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tocha import threads
from tocha.backends import native
from tocha.backends.meta import contiguous_strides
from tocha.backends.pooling import out_sizes
from tocha.dtypes import HALF_NP

Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
_FLOAT32 = np.dtype(np.float32)
_HALVES = {d: "f16" if d == np.float16 else "bf16" for d in HALF_NP if d.itemsize == 2}
_FEW = 4  # channels of a group that the depthwise kernels take


class End(NamedTuple):
    """An epilogue's code, the arrays for its results, and its operands, which lie as it has it."""

    hole: Any
    outs: tuple[Any, ...]
    operands: tuple[Any, ...]


def _serves(a: Any, b: Any, result: Shape, work: int, halves: bool = False) -> bool:
    """Whether a convolution of `work` multiply-adds is worth a kernel, and has one."""
    return (
        work >= native.LEAST["conv"] and (a.dtype in native.SCALARS or (halves and a.dtype in _HALVES)) and b.dtype is a.dtype
        and math.prod(result) > 0 and a.size > 0 and b.size > 0
        and a.ndim <= 5
        and ((a.flags.c_contiguous and b.flags.c_contiguous) or not any(s % a.dtype.itemsize for s in (*a.strides, *b.strides)))
    )  # fmt: skip


def _steps(a: Any) -> Shape:
    """Strides in elements as (n, c, d, h, w): leading spatial dimensions are added."""
    item = a.dtype.itemsize
    n, c, *rest = [s // item for s in a.strides]
    return (n, c, *(0,) * (3 - len(rest)), *rest)


def _three(values: Any, filling: Any) -> list[Any]:
    return [filling] * (3 - len(values)) + list(values)


def tile(dtype: Any, pairs: bool = False) -> Any:
    from tocha.inductor.templates import gemm

    if dtype in _HALVES:
        return replace(gemm.geometry("float"), memory=_HALVES[dtype], pairs=pairs)
    return gemm.geometry(native.SCALARS[dtype])


def builtin(name: str, dtype: Any, pairs: bool = False) -> Any:
    """The builtin of a kernel; None until it is compiled. `pairs`: products of pairs of bfloat16."""
    modules = native.inductor()
    if modules is None:
        return None

    def build() -> Any:
        from tocha.inductor.templates import conv, depthwise, weight, windows, winograd

        make, g = modules.entry.build_template, tile(dtype, pairs)
        if name.startswith("winograd_pack"):
            return make(name, winograd.PACK_BUFFERS, winograd.PACK_SIZES, winograd.pack_weight(g, int(name[-1])))
        if name.startswith("winograd"):
            return make(name, winograd.BUFFERS, winograd.SIZES, winograd.code(g, int(name[-1])), hole=True)
        if name == "pack":
            return make(name, conv.PACK_BUFFERS, conv.PACK_SIZES, conv.pack_weight(g))
        if name == "weight":
            return make(name, weight.BUFFERS, weight.SIZES, weight.code(g))
        if name == "weight_sum":
            return make(name, weight.SUM_BUFFERS, weight.SUM_SIZES, weight.sum_code(g))
        code = {"conv": conv.code, "depthwise": depthwise.code, "depthwise_weight": depthwise.weight_code}[name]
        return make(name, windows.BUFFERS, windows.SIZES, code(g), hole=True)

    return native.built((name, dtype, pairs), build)


def _merged(x: Any, kernel: Shape, stride: Shape, padding: Pairs) -> bool:
    """Whether taps and positions don't interact, and a channel's elements lie in a row: all spatial dimensions can be one."""
    if math.prod(kernel) != 1 or any(s != 1 for s in stride) or any(low or high for low, high in padding):
        return False
    step = x.itemsize
    for n, s in zip(reversed(x.shape[2:]), reversed(x.strides[2:]), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def _lines(
    line: Callable[..., Any], size: Shape, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, outputs: Shape
) -> list[Any]:
    lows = [low for low, _ in padding]
    each = (_three(v, 1) for v in (size, kernel, stride, dilation))
    return [line(*numbers) for numbers in zip(*each, _three(lows, 0), _three(outputs, 1), strict=True)]


def forward(
    x: Any,
    weight: Any,
    bias: Any,
    *,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
    sizes: Shape,
    kept: dict[Any, Any] | None = None,
    end: End | None = None,
) -> Any:
    """`conv` (tocha.prims.convolution) with outputs of `sizes`. `kept`: where a call with a constant weight and bias keeps them packed."""
    o, per, kernel = weight.shape[0], weight.shape[1], weight.shape[2:]
    shape = (x.shape[0], o, *sizes)
    taps = math.prod(kernel)
    if not _serves(x, weight, shape, math.prod(shape) * per * taps, True):
        return None
    if end is not None and not _is_deep(per, o // groups, groups):
        return None
    key = ("conv", x.dtype, x.shape, x.strides, weight.shape, stride, padding, dilation, groups, threads.get_num_threads())

    def lines(merge: bool) -> Any:
        from tocha.inductor.templates import conv

        if merge:
            return _lines(conv.forward_line, (math.prod(sizes),), (1,), (1,), ((0, 0),), (1,), (math.prod(sizes),))
        return _lines(conv.forward_line, x.shape[2:], kernel, stride, padding, dilation, sizes)

    steps = (o // groups * per * taps, per * taps, taps)
    return _convolve(key, lines, _merged(x, kernel, stride, padding), x, weight, bias, shape, groups, steps, kept, end)


def takes_epilogue(x: Any, weight: Any, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int, sizes: Shape) -> bool:
    """Whether `forward` computes this convolution (of arrays with these shapes, strides and types), through an epilogue if there is one."""
    o, per = weight.shape[:2]
    shape = (x.shape[0], o, *sizes)
    return _serves(x, weight, shape, math.prod(shape) * math.prod(weight.shape[1:]), True) and _is_deep(per, o // groups, groups)


def _is_deep(channels: int, outputs: int, groups: int) -> bool:
    """Whether a group's channels and outputs are enough for matrix products."""
    return outputs > 2 or channels > _FEW or (groups < 8 and channels * outputs > 1)


# Multiply-adds that cost as much as transforming an input or an output (a vector of tiles of a channel: vectors of them), and as a
# filter: transformed in each call, or read where it takes 16 numbers in place of 9. Measured on Zen 4 (58 G multiply-adds a second). On Zen 5
# (131 G) a transform cost 160: with that the fewest channels for which these choose Winograd's, about 16, break even.
_TRANSFORM, _FILTER, _KEPT_FILTER = 90, 130, 100


def takes_winograd(x: Any, weight: Shape, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int, sizes: Shape) -> bool:
    """Whether `winograd` computes this convolution (of an array with this shape, strides and type, and a weight of this shape and type)."""
    item = x.dtype.itemsize
    if weight[2:] != (3, 3) or stride not in ((1, 1), (2, 2)) or dilation != (1, 1) or groups != 1 or x.dtype not in native.SCALARS:
        return False
    return x.strides[3] == item and not any(s % item for s in x.strides) and min(*x.shape, *weight, *sizes) >= 1


def gains_by_winograd(x: Any, weight: Shape, sizes: Shape, kept: bool, stride: int = 1) -> bool:
    """Whether `winograd` takes less time for a convolution that it takes, by a count of operations; `kept`: weights are transformed once."""
    lanes, (outputs, channels), samples = tile(x.dtype).lanes, weight[:2], x.shape[0]
    high, wide = (-(-n // 2) for n in sizes)
    along = [[-(-n // 2)] * 3 + [n // 2] * stride for n in sizes]  # tiles that have a point
    columns = [-(-(samples * h * w - 1) // lanes) * lanes + 1 for h in along[0] for w in along[1]]
    direct = 9 * samples * math.prod(sizes) * channels * outputs
    moved = samples * high * -(-wide // lanes) * (channels + outputs) * _TRANSFORM * lanes * len(columns) // 16
    filters = (_KEPT_FILTER if kept else _FILTER) * channels * outputs
    return sum(columns) * channels * outputs + moved + filters < direct and direct >= native.LEAST["conv"]


def winograd(
    x: Any,
    weight: Any,
    bias: Any,
    *,
    padding: Pairs,
    sizes: Shape,
    stride: int = 1,
    kept: dict[Any, Any] | None = None,
    end: End | None = None,
) -> Any:
    """A convolution that suits, with a weight of any strides; None if a sum isn't finite, where `forward` says what it is. Rounding differs
    from `forward`'s."""
    item = x.itemsize
    if any(s % item for s in weight.strides):
        weight = np.ascontiguousarray(weight)
    if x.strides[3] != item or any(s % item for s in x.strides):  # a view, which its graph knows by the strides that it would have of its own
        x = np.ascontiguousarray(x)
    main, pack = builtin(f"winograd{stride}", x.dtype), builtin(f"winograd_pack{stride}", x.dtype)
    if main is None or pack is None:
        return None
    shape = (x.shape[0], weight.shape[0], *sizes)
    out = np.empty(shape, x.dtype) if end is None else end.outs[0]
    key = ("winograd", x.dtype, x.shape, x.strides, weight.shape, weight.strides, padding, sizes, stride, kept is None, threads.get_num_threads())

    def make() -> Any:
        from tocha.inductor.templates import winograd

        steps, weight_steps = (tuple([s // x.dtype.itemsize for s in strides]) for strides in (x.strides[:3], weight.strides))
        lows = tuple(low for low, _ in padding)
        return winograd.plan(
            tile(x.dtype), x.shape[0], x.shape[1], weight.shape[0], x.shape[2:], lows, sizes, steps, contiguous_strides(shape, 1)[:3],
            weight_steps, threads.get_num_threads(), before=kept is not None, stride=stride,
        )  # fmt: skip

    plan = native.remember(key, make)
    found = None if kept is None else kept.get("winograd")
    if found is None:
        packed, row = weight, np.zeros(plan.bias_size, x.dtype)
        if plan.packed_size:
            packed = np.empty(plan.packed_size, x.dtype)
            pack(packed, weight, plan.words, plan.pack_work)
        if bias is not None:
            row[: bias.size] = bias
        found = packed, row
        if kept is not None:
            kept["winograd"] = found
    slots, bad = int(plan.work[-1]), np.zeros(1, np.int64)
    room = np.zeros(slots, np.int64), np.empty(slots * plan.scratch, x.dtype)
    main(out, x, *found, *room, plan.table, bad, *_ending(end, plan))
    return None if bad[0] else out


def input_gradient(
    g: Any, weight: Any, bias: Any, *, size: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Any:
    """`conv_input` (tocha.prims.convolution)."""
    o, per, kernel = weight.shape[0], weight.shape[1], weight.shape[2:]
    shape = (g.shape[0], per * groups, *size)
    taps = math.prod(kernel)
    if not _serves(g, weight, shape, math.prod(g.shape) * per * taps, True):
        return None
    key = (
        "conv_input",
        g.dtype,
        g.shape,
        g.strides,
        weight.shape,
        size,
        stride,
        padding,
        dilation,
        groups,
        threads.get_num_threads(),
    )

    def lines(merge: bool) -> Any:
        from tocha.inductor.templates import conv

        if merge:
            return _lines(conv.gradient_line, (math.prod(size),), (1,), (1,), ((0, 0),), (1,), (math.prod(size),))
        line = functools.partial(conv.gradient_line, rising=not _is_deep(o // groups, per, groups))
        return _lines(line, size, kernel, stride, padding, dilation, g.shape[2:])

    steps = (o // groups * per * taps, taps, per * taps)
    return _convolve(
        key, lines, _merged(g, kernel, stride, padding) and size == g.shape[2:], g, weight, bias, shape, groups, steps
    )


def _convolve(
    key: Any,
    lines: Callable[[bool], Any],
    merge: bool,
    x: Any,
    weight: Any,
    bias: Any,
    shape: Shape,
    groups: int,
    steps: tuple[int, int, int],
    kept: dict[Any, Any] | None = None,
    end: End | None = None,
) -> Any:
    """The result of `shape`. `steps`: from a group's, an output's and a channel's weight to the next."""
    channels, outputs = x.shape[1] // groups, shape[1] // groups
    deep = _is_deep(channels, outputs, groups)
    if x.dtype in _HALVES and not deep:
        return None
    pairs = _HALVES.get(x.dtype) == "bf16" and not channels % 2 and x.strides[1] != x.itemsize and _multiplies_bfloat16()
    main, pack = builtin("conv" if deep else "depthwise", x.dtype, pairs), builtin("pack", x.dtype, pairs) if deep else None
    if main is None or (deep and pack is None):
        return None
    out = np.empty(shape, x.dtype) if end is None else end.outs[0]

    def make() -> Any:
        from tocha.inductor.templates import conv, depthwise

        n, c, *rest = contiguous_strides(shape, 1)
        x_steps, out_steps = _steps(x), (n, c, *_three(rest, 0))
        if merge:
            length = math.prod(shape[2:])
            x_steps, out_steps = ((*s[:2], length, length, 1) for s in (x_steps, out_steps))
        geometry, found, each = tile(x.dtype, pairs), lines(merge), 2 if pairs else 1
        x_steps = (x_steps[0], x_steps[1] * each, *x_steps[2:])
        return conv.plan(
            geometry if deep else depthwise.single(geometry), found, shape[0], groups, channels // each, outputs, x_steps, out_steps, steps[0],
            (steps[1], steps[2] * each), threads.get_num_threads(), tall=1 if deep else depthwise.tall(found),
            before=kept is not None, hole=end is not None, **({} if deep else {"together": 1}),
        )  # fmt: skip

    plan, compute = native.remember((key, kept is not None, end is not None), make), _compute(x.dtype)
    if kept and key in kept:
        packed, row = kept[key]
        call(main, plan, out, x, packed, row, end)
        return out
    if deep and not plan.packed_size:
        packed = np.ascontiguousarray(weight)
    elif pack is not None:
        packed = np.empty(plan.packed_size, compute)
        pack(packed, np.ascontiguousarray(weight), plan.taps, plan.pack_work)
    else:
        packed = _packed_taps(weight, plan.taps, groups, steps[1] < steps[2])
    row = np.zeros(plan.bias_size, compute)
    if bias is not None:
        given = bias.reshape(groups, -1)
        row.reshape(groups, -1)[:, : given.shape[1]] = given
    if kept is not None:
        kept[key] = packed, row
    call(main, plan, out, x, packed, row, end)
    return out


def call(main: Any, plan: Any, out: Any, x: Any, weight: Any, bias: Any, end: End | None = None) -> None:
    slots = int(plan.work[-1])
    room = np.zeros(slots, np.int64), np.empty(slots * plan.scratch, _compute(x.dtype))
    main(out, x, weight, bias, *room, plan.table, *_ending(end, plan))


def _ending(end: End | None, plan: Any) -> tuple[Any, ...]:
    """A kernel's arguments from its epilogue on."""
    return (0, plan.work) if end is None else (end.hole.finish, plan.work, *end.outs, *end.operands)


def _compute(dtype: Any) -> Any:
    return _FLOAT32 if dtype in _HALVES else dtype


@functools.cache
def _multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies pairs of bfloat16, adding in float32."""
    from tocha.inductor.templates import matmul

    return matmul.pairs_of_bfloat16()


def _half_forward(arrays: list[Any], params: dict[str, Any]) -> Any:
    """`conv` of half types, converted as they are packed and computed in float32; other types have their call in the primitive."""
    x, weight, bias = arrays
    if x.dtype not in _HALVES or weight.dtype is not x.dtype:
        return None
    sizes = out_sizes(x.shape[2:], weight.shape[2:], params["stride"], params["dilation"], params["padding"])
    return forward(x, weight, bias, sizes=sizes, **params)


def _half_input(arrays: list[Any], params: dict[str, Any]) -> Any:
    """`conv_input` of half types."""
    g, weight, bias = arrays
    return input_gradient(g, weight, bias, **params) if g.dtype in _HALVES and weight.dtype is g.dtype else None


RUNS = {"conv": _half_forward, "conv_input": _half_input}


def _packed_taps(weight: Any, taps: Any, groups: int, swap: bool) -> Any:
    """Weights as [group][phase][output][channel][tap] (`taps` as for the packing kernel); `swap` if weight has channels first."""
    each = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    if swap:
        each = each.swapaxes(1, 2)
    words = taps.tolist()
    parts, at = [], 0
    while at < len(words):
        end = at + 2 + words[at]
        parts.append(each[..., words[at + 2 : end]].reshape(groups, -1))
        at = end
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))


def weight_gradient(
    g: Any, x: Any, *, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int, bias: bool = False
) -> Any:
    """`conv_weight` (tocha.prims.convolution); with `bias` that one's gradient too."""
    o, per, taps = g.shape[1], x.shape[1] // groups, math.prod(kernel)
    if not _serves(x, g, (o, per, *kernel), math.prod(g.shape) * per * taps):
        return None
    outputs = o // groups
    deep = groups < 8 or per != 1 or outputs > 8
    main, add = builtin("weight" if deep else "depthwise_weight", x.dtype), builtin("weight_sum", x.dtype) if deep else None
    if main is None or (deep and add is None) or (bias and not deep):
        return None
    g = np.ascontiguousarray(g)
    out = np.empty((o, per, *kernel), x.dtype)
    key = (
        "conv_weight",
        x.dtype,
        x.shape,
        x.strides,
        g.shape,
        kernel,
        stride,
        padding,
        dilation,
        groups,
        bias,
        threads.get_num_threads(),
    )

    def make() -> Any:
        from tocha.inductor.templates import conv, depthwise
        from tocha.inductor.templates import weight as products

        x_steps, g_steps, spread = _steps(x), _steps(g), tuple(_three(dilation, 1))
        if _merged(x, kernel, stride, padding):
            length = math.prod(g.shape[2:])
            lines = _lines(conv.forward_line, (length,), (1,), (1,), ((0, 0),), (1,), (length,))
            x_steps, g_steps = ((*s[:2], length, length, 1) for s in (x_steps, g_steps))
        else:
            lines = _lines(conv.forward_line, x.shape[2:], kernel, stride, padding, dilation, g.shape[2:])
        geometry, slots = tile(x.dtype), threads.get_num_threads()
        if deep:
            return products.plan(geometry, lines, spread, x.shape[0], groups, per, outputs, x_steps, g_steps, slots, bias)
        geometry = depthwise.single(geometry)
        plan = conv.plan(
            geometry,
            lines,
            x.shape[0],
            groups,
            1,
            outputs,
            x_steps,
            g_steps,
            0,
            (0, 0),
            slots,
            aside=taps * outputs * geometry.lanes,
            together=1,
        )
        plan.work[0] = groups
        return plan

    plan = native.remember(key, make)
    if not deep:
        call(main, plan, out, x, g, out)
        return out
    partial = np.empty(plan.partial, x.dtype)
    slots = int(plan.work[-1])
    main(partial, x, g, np.zeros(slots, np.int64), np.empty(slots * plan.scratch, x.dtype), plan.table, plan.work)
    assert add is not None
    of_bias = np.empty(o if bias else 0, x.dtype)
    add(out, of_bias, partial, plan.sum_work)
    return (out, of_bias) if bias else out
