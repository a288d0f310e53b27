"""Convolution over any number of spatial dimensions, and its two gradients. The three are bilinear and closed under
differentiation, so double backward needs nothing more; transposed convolution is the input gradient.

A backend may have kernels for them (`xp.convolve`, …: on the CPU those of tocha.backends._native_conv take all but small ones). Otherwise
windows are gathered into columns for a piece of the batch at a time and multiplied by BLAS; with one channel to a group, shifted
arrays are multiplied where many calls cost less than the columns' memory.
Source of the column method: Chellapilla et al. 2006, "High Performance Convolutional Neural Networks for Document Processing".
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from tocha.backends import cpu
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.contract import plain_arrays
from tocha.prims.elementary import conj
from tocha.prims.reduce import sum_
from tocha.prims.windows import Pairs, Shape, crop_spatial, out_sizes, pad_spatial, scatter_windows, windows
from tocha.tensor import wrap


def _bias_vjp(g: Any) -> Any:
    return sum_(g, dim=(0, *range(2, g._a.ndim)), keepdim=False)


def _parameters(g: Any, input: Any, weight_shape: Shape, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> Any:
    """The gradients of weight and bias, which a kernel finds together."""
    params = {"kernel": weight_shape[2:], "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    arrays = plain_arrays(len(weight_shape), g, input)
    found = None if arrays is None else cpu.convolve_weight(*arrays, bias=True, **params)
    if found is None:
        return None, conv_weight(g, conj(input), **params), _bias_vjp(g)
    return None, wrap(found[0]), wrap(found[1])


def _all(
    g: Any, input: Any, weight: Any, input_shape: Shape, weight_shape: Shape, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Any:  # fmt: skip
    params: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return conv_input(g, conj(weight), None, size=input_shape[2:], **params), *_parameters(g, input, weight_shape, **params)[1:]


def _conv_infer(input: Any, weight: Any, bias: Any, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> MetaArray:
    sizes = out_sizes(input.shape[2:], weight.shape[2:], stride, dilation, padding)
    return MetaArray((input.shape[0], weight.shape[0], *sizes), input.dtype)


@prim(
    "conv", "contract", infer=_conv_infer,
    vjp=(
        lambda g, weight, input_shape, *, stride, padding, dilation, groups: conv_input(
            g, conj(weight), None, size=input_shape[2:], stride=stride, padding=padding, dilation=dilation, groups=groups
        ),
        lambda g, input, weight_shape, *, stride, padding, dilation, groups: conv_weight(
            g, conj(input), kernel=weight_shape[2:], stride=stride, padding=padding, dilation=dilation, groups=groups
        ),
        _bias_vjp,
    ),
    joint={(False, True, True): _parameters, (True, True, True): _all},
)  # fmt: skip
def conv(xp: Any, input: Any, weight: Any, bias: Any, *, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> Any:
    """(N, C, *spatial) with (O, C/groups, *kernel) and (O) -> (N, O, *sizes), a cross-correlation."""
    n, o, kernel = input.shape[0], weight.shape[0], weight.shape[2:]
    sizes = out_sizes(input.shape[2:], kernel, stride, dilation, padding)
    found = xp.convolve(input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, sizes=sizes)
    if found is not None:
        return found
    x = pad_spatial(xp, input, padding)
    if not x.size or not weight.size:  # an empty sum
        out = xp.zeros((n, o, *sizes), x.dtype)
    elif groups > 1 and weight.shape[1] == 1 and xp.shifts_pay():
        out = _depthwise(xp, x, weight, stride, dilation, sizes)
    else:
        out = _conv_columns(xp, x, weight, stride, dilation, groups, sizes)
    out = out.reshape(n, o, *sizes)
    if bias is not None:
        out += bias.reshape(o, *(1,) * len(kernel))
    return out


def _conv_columns(xp: Any, x: Any, weight: Any, stride: Shape, dilation: Shape, groups: int, sizes: Shape) -> Any:
    n, o, kernel, length = x.shape[0], weight.shape[0], weight.shape[2:], math.prod(sizes)
    rows = weight.shape[1] * math.prod(kernel)
    matrix = weight.reshape(groups, o // groups, rows)
    if groups == 1:
        matrix = matrix[0]
    if math.prod(kernel) == 1 and all(s == 1 for s in stride) and x.flags.c_contiguous:
        columns = x.reshape((n, rows, length) if groups == 1 else (n, groups, rows, length))
        return xp.matmul(matrix, columns)
    view = windows(xp, x, kernel, stride, dilation, sizes)
    out = xp.empty((n, o, length) if groups == 1 else (n, groups, o // groups, length), x.dtype)
    if groups == 1 and length < 128 and n > 1:  # few positions: one product over several samples
        for part in xp.pieces(n, rows * length * x.itemsize):
            several = view[part].transpose(1, *range(2, 2 + len(kernel)), 0, *range(2 + len(kernel), view.ndim))
            columns = xp.ascontiguousarray(several).reshape(rows, -1)
            out[part] = xp.matmul(matrix, columns).reshape(o, -1, length).transpose(1, 0, 2)
        return out
    for part in xp.pieces(n, groups * rows * length * x.itemsize):
        columns = xp.ascontiguousarray(view[part]).reshape((-1, rows, length) if groups == 1 else (-1, groups, rows, length))
        xp.matmul(matrix, columns, out=out[part])
    return out


def _depthwise(xp: Any, x: Any, weight: Any, stride: Shape, dilation: Shape, sizes: Shape) -> Any:
    """One input channel for each group: a shifted product for each place in the kernel."""
    n, c, kernel = x.shape[0], x.shape[1], weight.shape[2:]
    per = weight.shape[0] // c
    taps = weight.reshape(c, per, *kernel)
    view = windows(xp, x, kernel, stride, dilation, sizes)
    ones = (1,) * len(sizes)
    out = xp.zeros((n, c, per, *sizes), x.dtype)
    for part in xp.pieces(n, out[0].nbytes):
        total = out[part]
        product = xp.empty(total.shape, x.dtype)
        for position in itertools.product(*map(range, kernel)):
            tap = taps[(slice(None), slice(None), *position)].reshape(c, per, *ones)
            xp.multiply(view[(part, slice(None), *position)][:, :, None], tap, out=product)
            total += product
    return out


def _cropped(x: Any, shape: Shape) -> Any:
    """The first places of each dimension: output padding may make room for more windows than there were."""
    for i, n in enumerate(shape):
        if x._a.shape[i] != n:
            x = x.narrow(i, 0, n)
    return x


def _input_infer(
    g: Any, weight: Any, bias: Any, *, size: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> MetaArray:
    return MetaArray((g.shape[0], weight.shape[1] * groups, *size), g.dtype)


@prim(
    "conv_input", "contract", infer=_input_infer,
    vjp=(
        lambda g_out, g_shape, weight, *, stride, padding, dilation, groups: _cropped(
            conv(g_out, conj(weight), None, stride=stride, padding=padding, dilation=dilation, groups=groups), g_shape
        ),
        lambda g_out, g, weight_shape, *, stride, padding, dilation, groups: conv_weight(
            conj(g), g_out, kernel=weight_shape[2:], stride=stride, padding=padding, dilation=dilation, groups=groups
        ),
        _bias_vjp,
    ),
)  # fmt: skip
def conv_input(
    xp: Any, g: Any, weight: Any, bias: Any, *, size: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Any:
    """The transpose of `conv`: (N, O, *sizes) with (O, C/groups, *kernel) -> (N, C, *size), plus a bias (C)."""
    found = xp.convolve_input(g, weight, bias, size=size, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if found is not None:
        return found
    n, o, kernel = g.shape[0], weight.shape[0], weight.shape[2:]
    sizes, length, per = g.shape[2:], math.prod(g.shape[2:]), weight.shape[1]
    padded = tuple(m + low + high for m, (low, high) in zip(size, padding, strict=True))
    if not g.size or not weight.size:  # an empty sum
        out = xp.zeros((n, groups * per, *size), g.dtype)
    elif math.prod(kernel) == 1 and all(s == 1 for s in stride) and padded == size == sizes and groups == 1:
        out = xp.matmul(weight.reshape(o, per).T, xp.ascontiguousarray(g).reshape(n, o, length)).reshape(n, per, *size)
    else:
        whole = xp.zeros((n, groups, per, *padded), g.dtype)
        if groups > 1 and per == 1 and xp.shifts_pay():
            _scatter_depthwise(xp, whole, g, weight, stride, dilation)
        else:
            matrix = weight.reshape(groups, o // groups, per * math.prod(kernel)).swapaxes(1, 2)
            gradient = xp.ascontiguousarray(g).reshape(n, groups, o // groups, length)
            for part in xp.pieces(n, groups * matrix.shape[1] * length * g.itemsize):
                columns = xp.matmul(matrix, gradient[part]).reshape(-1, groups, per, *kernel, *sizes)
                scatter_windows(xp, whole[part], columns, kernel, stride, dilation)
        out = crop_spatial(whole.reshape(n, groups * per, *padded), padding)
    if bias is not None:
        out = out + bias.reshape(-1, *(1,) * len(kernel))
    return out


def _scatter_depthwise(xp: Any, whole: Any, g: Any, weight: Any, stride: Shape, dilation: Shape) -> None:
    n, groups, sizes, kernel = g.shape[0], whole.shape[1], g.shape[2:], weight.shape[2:]
    taps = weight.reshape(groups, weight.shape[0] // groups, *kernel)
    gradient = g.reshape(n, groups, g.shape[1] // groups, *sizes)
    ones = (1,) * len(sizes)
    for part in xp.pieces(n, gradient[0].nbytes):
        for position in itertools.product(*map(range, kernel)):
            place = tuple(
                slice(k * d, k * d + (m - 1) * s + 1, s) for k, d, s, m in zip(position, dilation, stride, sizes, strict=True)
            )
            tap = taps[(slice(None), slice(None), *position)].reshape(groups, -1, *ones)
            product = gradient[part] * tap
            target = whole[(part, slice(None), 0, *place)]
            target += product[:, :, 0] if product.shape[2] == 1 else product.sum(axis=2)


def _weight_infer(g: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> MetaArray:
    return MetaArray((g.shape[1], input.shape[1] // groups, *kernel), g.dtype)


@prim(
    "conv_weight", "contract", infer=_weight_infer,
    vjp=(
        lambda g_out, g_shape, input, *, stride, padding, dilation, groups: _cropped(
            conv(conj(input), g_out, None, stride=stride, padding=padding, dilation=dilation, groups=groups), g_shape
        ),
        lambda g_out, g, input_shape, *, stride, padding, dilation, groups: conv_input(
            conj(g), g_out, None, size=input_shape[2:], stride=stride, padding=padding, dilation=dilation, groups=groups
        ),
    ),
)  # fmt: skip
def conv_weight(
    xp: Any, g: Any, input: Any, *, kernel: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> Any:
    """The weight's gradient of `conv`: (N, O, *sizes) with (N, C, *spatial) -> (O, C/groups, *kernel)."""
    found = xp.convolve_weight(g, input, kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if found is not None:
        return found
    n, o, c = g.shape[0], g.shape[1], input.shape[1]
    sizes, length, per = g.shape[2:], math.prod(g.shape[2:]), c // groups
    x = pad_spatial(xp, input, padding)
    view = windows(xp, x, kernel, stride, dilation, sizes)
    if groups > 1 and per == 1 and xp.shifts_pay():
        return _weight_depthwise(xp, g, view, kernel, groups)
    rows, k = per * math.prod(kernel), len(kernel)
    out = xp.zeros((groups, o // groups, rows), g.dtype)
    if not g.size or not x.size:
        return out.reshape(o, per, *kernel)
    order = (1, *range(2, 2 + k), 0, *range(2 + k, view.ndim))
    for part in xp.pieces(n, groups * rows * length * g.itemsize):
        columns = xp.ascontiguousarray(view[part].transpose(order)).reshape(groups, rows, -1)
        gradient = xp.ascontiguousarray(g[part].swapaxes(0, 1)).reshape(groups, o // groups, -1)
        out += xp.matmul(gradient, columns.swapaxes(1, 2))
    return out.reshape(o, per, *kernel)


def _weight_depthwise(xp: Any, g: Any, view: Any, kernel: Shape, groups: int) -> Any:
    n, sizes = g.shape[0], g.shape[2:]
    gradient = g.reshape(n, groups, g.shape[1] // groups, *sizes)
    out = xp.zeros((groups, gradient.shape[2], *kernel), g.dtype)
    axes = tuple(range(3, 3 + len(sizes)))
    for part in xp.pieces(n, gradient[0].nbytes if n else 0):
        for position in itertools.product(*map(range, kernel)):
            shifted = view[(part, slice(None), *position)][:, :, None]
            out[(slice(None), slice(None), *position)] += (gradient[part] * shifted).sum(axis=axes).sum(axis=0)
    return out.reshape(-1, 1, *kernel)
