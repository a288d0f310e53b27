"""Contractions: the matrix product in one primitive with transposition flags, so that its gradients are itself, and
the linear layer. Batch dimensions broadcast; float16 and bfloat16 accumulate in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tocha.autograd.mode import state
from tocha.backends import cpu
from tocha.backends.meta import MetaArray
from tocha.dispatch.override import INTERPRETERS, NO_DISPATCH
from tocha.dispatch.prim import prim
from tocha.prims.elementary import conj
from tocha.prims.pointwise import broadcast_shapes
from tocha.prims.reduce import sum_
from tocha.tensor import wrap

Shape = tuple[int, ...]


def recording(*tensors: Any) -> bool:
    """Whether a gradient rule is itself on the tape (create_graph): it then uses ordinary operators, not fused kernels."""
    if state.grad:
        for t in tensors:
            if t is not None and t._rg:
                return True
    return False


def constant(x: Any) -> Any:
    """A saved output as a constant of a gradient rule: nothing to do unless rules are being recorded."""
    return x.detach() if state.grad else x


def rows(x: Any) -> Any:
    """x with all dimensions but the last made one."""
    shape = x._a.shape
    count = math.prod(shape[:-1])
    return x.reshape(count, shape[-1])


def _mm_infer(a: Any, b: Any, *, ta: bool, tb: bool) -> MetaArray:
    rows, columns = a.shape[-1 if ta else -2], b.shape[-2 if tb else -1]
    return MetaArray((*broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2]), rows, columns), a.dtype)


def _grad_a(g: Any, b: Any, a_shape: Shape, *, ta: bool, tb: bool) -> Any:
    got = mm(conj(b), g, ta=tb, tb=True) if ta else mm(g, conj(b), ta=False, tb=not tb)
    return got if got._a.shape == a_shape else got.sum_to_size(a_shape)


def _grad_b(g: Any, a: Any, b_shape: Shape, *, ta: bool, tb: bool) -> Any:
    if len(b_shape) == 2 and a._a.ndim > 2 and not ta:  # the batch is summed over: one product instead of many
        a, g = rows(a), rows(g)
    got = mm(g, conj(a), ta=True, tb=ta) if tb else mm(conj(a), g, ta=not ta, tb=False)
    return got if got._a.shape == b_shape else got.sum_to_size(b_shape)


@prim("mm", "contract", vjp=(_grad_a, _grad_b), infer=_mm_infer)
def mm(xp: Any, a: Any, b: Any, *, ta: bool, tb: bool) -> Any:
    """Matrix product over the last two dimensions; `ta`, `tb` transpose an operand first."""
    if tb:
        b = b.T if b.ndim == 2 else b.swapaxes(-1, -2)
    if ta:
        a = a.T if a.ndim == 2 else a.swapaxes(-1, -2)
    return product(xp, a, b)


def product(xp: Any, a: Any, b: Any) -> Any:
    """a @ b; a batch of matrices against one matrix is one large product."""
    if a.ndim == 2 and b.ndim == 2 and a.dtype.kind in "fc":
        # Half the entry cost of matmul; with a single number NumPy scales, and then 0 times NaN is 0.
        return a.dot(b) if a.size != 1 != b.size else a * b
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous and a.size:
        return xp.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return xp.matmul(a, b)


@prim(
    "mv", "contract", infer=lambda a, x: MetaArray(a.shape[:-1], a.dtype),
    vjp=(lambda g, x: g.unsqueeze(-1) * conj(x), lambda g, a: mv(conj(a).transpose(-1, -2), g)),
)  # fmt: skip
def mv(xp: Any, a: Any, x: Any) -> Any:
    """Matrix (n, m) times vector (m)."""
    return xp.matmul(a, x)


@prim("dot", "contract", infer=lambda x, y: MetaArray((), x.dtype), vjp=(lambda g, y: g * conj(y), lambda g, x: g * conj(x)))
def dot(xp: Any, x: Any, y: Any) -> Any:
    """Sum of products of two vectors, without conjugation."""
    return xp.dot(x, y)


def _linear_weight(g: Any, input: Any) -> Any:
    if input._a.ndim != 2:
        if input._a.ndim == 1:
            return g.unsqueeze(-1) * conj(input)
        input, g = rows(input), rows(g)
    return mm(g, conj(input), ta=True, tb=False)


def _linear_input(g: Any, weight: Any) -> Any:
    if g._a.ndim == 1:
        return mv(conj(weight).transpose(0, 1), g)
    return mm(g, conj(weight), ta=False, tb=False)


def _linear_infer(input: Any, weight: Any, bias: Any) -> MetaArray:
    return MetaArray((*input.shape[:-1], weight.shape[0]), input.dtype)


def _linear_all(g: Any, input: Any, weight: Any) -> Any:
    """All three gradients at once where the call is plain: one kernel in place of three."""
    small = _small_matrices(g, input, weight)
    if small is not None:
        return tuple([wrap(a) for a in cpu.linear_gradients(*small)])
    if g._a.ndim != 2 or recording(g, input, weight) or g._a.dtype.kind == "c":
        return _linear_input(g, weight), _linear_weight(g, input), _linear_bias(g)
    return linear_backward(g, input, weight)


def _linear_parameters(g: Any, input: Any) -> Any:
    """The gradients of weight and bias."""
    small = _small_matrices(g, input)
    if small is None:
        return None, _linear_weight(g, input), _linear_bias(g)
    return None, *[wrap(a) for a in cpu.linear_gradients(*small)]


def _small_matrices(*tensors: Any) -> list[Any] | None:
    """The arrays of plain CPU matrices of one float type, too small for a kernel, that a gradient rule may work on directly: for them
    the way through the primitive is half the time. None for anything else."""
    arrays = plain_arrays(2, *tensors)
    if arrays is None or arrays[0].size >= linear_backward.native or arrays[0].dtype.char not in "fd":
        return None
    return arrays


def plain_arrays(dims: int, *tensors: Any) -> list[Any] | None:
    """The arrays of plain CPU tensors of one type and so many dimensions, that a gradient rule may work on directly; None for anything else."""
    if state.grad or INTERPRETERS:
        return None
    dtype, arrays = tensors[0]._a.dtype, []
    for t in tensors:
        a = t._a
        if t.__class__ not in NO_DISPATCH or a.__class__ is not np.ndarray or a.ndim != dims or a.dtype is not dtype or a.size == 1:
            return None
        arrays.append(a)
    return arrays


def _linear_bias(g: Any) -> Any:
    return g if g._a.ndim == 1 else sum_(g, dim=tuple(range(g._a.ndim - 1)), keepdim=False)


@prim(
    "linear_backward", "contract", outputs=("input", "weight", "bias"),
    infer=lambda g, x, w: [MetaArray(x.shape, x.dtype), MetaArray(w.shape, w.dtype), MetaArray(w.shape[:1], w.dtype)],
)  # fmt: skip
def linear_backward(xp: Any, g: Any, x: Any, w: Any) -> Any:
    """Gradients of linear for matrices g (n, out) and x (n, in)."""
    return product(xp, g, w), product(xp, g.T, x), xp.total(g, (0,), False)


@prim(
    "linear", "contract", infer=_linear_infer, vjp=(_linear_input, _linear_weight, _linear_bias),
    joint={(True, True, True): _linear_all, (False, True, True): _linear_parameters},
)  # fmt: skip
def linear(xp: Any, input: Any, weight: Any, bias: Any) -> Any:
    """input @ weight.T + bias over input's last dimension."""
    out = product(xp, input, weight.T)
    if bias is not None:
        out = xp.add(out, bias, out=out) if input.ndim > 1 else out + bias
    return out
