"""Matrix products and what is made of them: matmul, addmm and kin, einsum's relatives, linear (torch docs: BLAS operations)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import state
from tocha.backends import native
from tocha.dispatch.override import INTERPRETERS, PLAIN
from tocha.dispatch.prim import record
from tocha.dispatch.registry import op
from tocha.ops.arguments import Number, check_tensor, wrap_dim
from tocha.ops.whole import whole
from tocha.prims import contract as prims
from tocha.prims.elementary import unread
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor, wrap

_ZERO_BETA = (0, 0.0)
_ndarray = np.ndarray
_BLAS_NP = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))


def short_product(input: Any, other: Any) -> Tensor | None:
    """The product of two plain float matrices in the fewest steps (8x8 in 1 µs); None when it takes more care."""
    if input.__class__ in PLAIN and other.__class__ in PLAIN and not INTERPRETERS:
        a, b = input._a, other._a
        if a.__class__ is _ndarray and b.__class__ is _ndarray and not (input._rg or other._rg):
            dtype, left, right = a.dtype, a.shape, b.shape
            if len(left) == 2 == len(right) and dtype is b.dtype and dtype in _BLAS_NP and left[1] == right[0]:
                if left[0] * left[1] * right[1] < native.SHORT_PRODUCT:
                    return wrap(a.dot(b) if a.size != 1 != b.size else a * b)
    return None


def _same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    """RuntimeError unless both have one type that products are defined for."""
    check_tensor(a, name)
    check_tensor(b, name, "mat2", 2)
    if a._a.dtype is not b._a.dtype:
        raise RuntimeError(f"{name}: expected m1 and m2 to have the same dtype, but got: {a.dtype.name} != {b.dtype.name}")
    if a._a.dtype.kind == "b" and a._a.size and b._a.size:
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


def _check_mm(name: str, a: Tensor, b: Tensor) -> None:
    _same_dtype(name, a, b)
    if a._a.ndim != 2 or b._a.ndim != 2:
        raise RuntimeError(f"{name}: mat1 and mat2 must be matrices, got {a.ndim}-D and {b.ndim}-D tensors")
    if a._a.shape[1] != b._a.shape[0]:
        (n, m), (k, p) = a._a.shape, b._a.shape
        raise RuntimeError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({n}x{m} and {k}x{p})")


def _check_bmm(name: str, a: Tensor, b: Tensor) -> None:
    _same_dtype(name, a, b)
    for which, x in (("batch1", a), ("batch2", b)):
        if x._a.ndim != 3:
            raise RuntimeError(f"{name}: {which} must be a 3D tensor, got {x.ndim}-D")
    if a._a.shape[0] != b._a.shape[0] or a._a.shape[2] != b._a.shape[1]:
        raise RuntimeError(
            f"{name}: Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {a.shape[2]}] but got: "
            f"[{b.shape[0]}, {b.shape[1]}]."
        )


@op("torch method strictout", short=short_product)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices (n, m) @ (m, p) (torch docs: torch.mm)."""
    _check_mm("mm", input, mat2)
    return prims.mm(input, mat2, ta=False, tb=False)


@op("torch method strictout")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two batches of matrices (b, n, m) @ (b, m, p) (torch docs: torch.bmm)."""
    _check_bmm("bmm", input, mat2)
    return prims.mm(input, mat2, ta=False, tb=False)


@op("torch method strictout linalg", short=short_product)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product with broadcast batch dimensions; vectors are allowed on either side (torch docs: torch.matmul)."""
    _same_dtype("matmul", input, other)
    a, b = input._a, other._a
    if a.ndim == 2 == b.ndim:
        if a.shape[1] != b.shape[0]:
            _check_mm("matmul", input, other)
        return prims.mm(input, other, ta=False, tb=False)
    if a.ndim == 0 or b.ndim == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise RuntimeError(
            f"matmul: shapes cannot be multiplied: {list(a.shape)} and {list(b.shape)} (inner sizes {a.shape[-1]} and "
            f"{b.shape[-2 if b.ndim > 1 else 0]} differ)"
        )
    if b.ndim == 1:
        if a.ndim == 1:
            return prims.dot(input, other)
        if a.ndim == 2:
            return prims.mv(input, other)
        return prims.mm(input, other.unsqueeze(-1), ta=False, tb=False).squeeze(-1)
    if a.ndim == 1:
        return prims.mm(input.unsqueeze(0), other, ta=False, tb=False).squeeze(-2)
    broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    return prims.mm(input, other, ta=False, tb=False)


_HALF = (dtypes.float16, dtypes.bfloat16)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    return prims.mm(a, b, ta=False, tb=False)


def _scaled_sum(
    name: str, input: Tensor, rule: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, beta: Any, alpha: Any
) -> Tensor:
    """beta * input + alpha * rule(a, b), input broadcast to the product; beta 0 ignores NaN in input, alpha 0 in the product.

    Half precision rounds once, at the end, as torch does.
    """
    check_tensor(input, name)
    dtype = a.dtype
    if input._a.dtype is not a._a.dtype:
        raise RuntimeError(
            f"{name}: expected input and product to have the same dtype, but got: {input.dtype.name} != {dtype.name}"
        )
    if a._a.dtype.kind in "iu":
        beta, alpha = int(beta), int(alpha)
    if dtype in _HALF:
        a, b, input = a.to(dtypes.float32), b.to(dtypes.float32), input.to(dtypes.float32)
    product = rule(a, b)
    shape = broadcast_shapes(name, input._a.shape, product._a.shape)
    if shape != product._a.shape:
        raise RuntimeError(
            f"{name}: The expanded size of the tensor {list(product.shape)} must match the existing size: input has shape "
            f"{list(input.shape)}"
        )
    if alpha.__class__ is not int or alpha != 1:
        product = product * alpha
        if not alpha and dtype not in _HALF and (a._a.ndim < 3 or math.prod(a._a.shape[1:]) * b._a.shape[2] >= 400):
            product = product.nan_to_num(0.0, 0.0, 0.0)  # BLAS, but not torch's loop for small batches, ignores NaN in a and b
    if beta in _ZERO_BETA:
        product = unread(input, product) if input._rg and state.grad else product
    elif dtype in _HALF and beta != 1:  # the sum of an exact multiple and the product, as by fused multiply-add
        product = (input.double() * float(np.float32(beta)) + product).float()
    else:
        product = (input if beta.__class__ is int and beta == 1 else input * beta) + product
    return product.to(dtype) if dtype in _HALF else product


def _old_order(args: tuple[Any, ...], beta: Any, alpha: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """The deprecated positional order `f(beta, input, alpha, a, b)`, or `f(beta, input, a, b)`."""
    if len(args) == 5:
        return args[0], args[2], (args[1], args[3], args[4])
    if len(args) == 4:
        return args[0], alpha, args[1:]
    return beta, alpha, args


@op("torch method inplace strictout")
def addmm(input: Tensor, mat1: Any, mat2: Any, *rest: Any, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) (torch docs: torch.addmm)."""
    if rest:
        beta, alpha, (input, mat1, mat2) = _old_order((input, mat1, mat2, *rest), beta, alpha)
    _check_mm("addmm", mat1, mat2)
    if beta == 1 == alpha and check_tensor(input, "addmm")._a.shape == mat2._a.shape[1:] and input._a.dtype is mat1._a.dtype:
        return prims.linear(mat1, mat2.t(), input)
    return _scaled_sum("addmm", input, _mm, mat1, mat2, beta, alpha)


@op("torch method inplace strictout")
def baddbmm(input: Tensor, batch1: Any, batch2: Any, *rest: Any, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2) (torch docs: torch.baddbmm)."""
    if rest:
        beta, alpha, (input, batch1, batch2) = _old_order((input, batch1, batch2, *rest), beta, alpha)
    _check_bmm("baddbmm", batch1, batch2)
    return _scaled_sum("baddbmm", input, _mm, batch1, batch2, beta, alpha)


@op("torch method inplace strictout")
def addbmm(input: Tensor, batch1: Any, batch2: Any, *rest: Any, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * the sum of bmm(batch1, batch2) over the batch (torch docs: torch.addbmm)."""
    if rest:
        beta, alpha, (input, batch1, batch2) = _old_order((input, batch1, batch2, *rest), beta, alpha)
    _check_bmm("addbmm", batch1, batch2)
    b, n, m = batch1._a.shape
    wide = batch1.permute(1, 0, 2).reshape(n, b * m)
    return _scaled_sum("addbmm", input, _mm, wide, batch2.reshape(b * m, batch2._a.shape[2]), beta, alpha)


def _check_mv(name: str, a: Tensor, x: Tensor) -> None:
    _same_dtype(name, a, x)
    if a._a.ndim != 2 or x._a.ndim != 1:
        raise RuntimeError(f"{name}: vector + matrix @ vector expected, got {a.ndim}-D and {x.ndim}-D tensors")
    if a._a.shape[1] != x._a.shape[0]:
        raise RuntimeError(
            f"{name}: size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x{a.shape[1]}), vec ({x.shape[0]})"
        )


@op("torch method strictout")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix (n, m) times vector (m) (torch docs: torch.mv)."""
    _check_mv("mv", input, vec)
    return prims.mv(input, vec)


@op("torch method inplace strictout")
def addmv(input: Tensor, mat: Any, vec: Any, *rest: Any, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec) (torch docs: torch.addmv)."""
    if rest:
        beta, alpha, (input, mat, vec) = _old_order((input, mat, vec, *rest), beta, alpha)
    _check_mv("addmv", mat, vec)
    return _scaled_sum("addmv", input, prims.mv, mat, vec, beta, alpha)


def _check_dot(name: str, x: Tensor, y: Tensor) -> None:
    check_tensor(x, name)
    check_tensor(y, name, "tensor", 2)
    if x._a.ndim != 1 or y._a.ndim != 1:
        raise RuntimeError(f"{name}: 1D tensors expected, but got {x.ndim}D and {y.ndim}D tensors")
    if x._a.dtype is not y._a.dtype:
        raise RuntimeError(f"{name}: expected both vectors to have same dtype, but found {x.dtype.name} and {y.dtype.name}")
    if x._a.shape != y._a.shape:
        raise RuntimeError(
            f"{name}: inconsistent tensor size, expected tensor [{x.shape[0]}] and src [{y.shape[0]}] to have the same number of elements"
        )
    if x._a.dtype.kind == "b":
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


@op("torch method strictout")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Sum of products of two vectors (torch docs: torch.dot)."""
    _check_dot("dot", input, tensor)
    return prims.dot(input, tensor)


@op("torch method strictout")
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """`dot` with the first vector conjugated (torch docs: torch.vdot)."""
    _check_dot("vdot", input, other)
    return prims.dot(prims.conj(input), other)


@op("torch method strictout")
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sum of products over both last dimensions; a 0-d operand scales (torch docs: torch.inner)."""
    if check_tensor(input, "inner")._a.ndim == 0 or check_tensor(other, "inner", "other", 2)._a.ndim == 0:
        return input * other
    if input._a.shape[-1] != other._a.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


@op("torch method out", alias=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of two vectors' elements, (n, m) (torch docs: torch.outer)."""
    for x in (input, vec2):
        if check_tensor(x, "outer")._a.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument self, but got {x.ndim}-D")
    return input.unsqueeze(-1) * vec2


@op("torch method inplace out")
def addr(input: Tensor, vec1: Any, vec2: Any, *rest: Any, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2) (torch docs: torch.addr)."""
    if rest:
        beta, alpha, (input, vec1, vec2) = _old_order((input, vec1, vec2, *rest), beta, alpha)
    for x in (vec1, vec2):
        if x._a.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument vec, but got {x.ndim}-D")
    bools = input._a.dtype.kind == "b" and vec1._a.dtype.kind == "b" and vec2._a.dtype.kind == "b"
    for factor, label in ((beta, "beta"), (alpha, "alpha")):
        if isinstance(factor, bool) and not bools:
            raise RuntimeError(f"addr: Boolean {label} only supported for Boolean results.")
    kind = dtypes.promote_types(input.dtype, dtypes.promote_types(vec1.dtype, vec2.dtype))
    if kind.category < dtypes.FLOATING and any(isinstance(s, float) for s in (beta, alpha)):
        raise RuntimeError("addr: For integral input tensors, argument beta and alpha must not be floating point numbers.")
    shape = (vec1._a.shape[0], vec2._a.shape[0])
    if broadcast_shapes("addr", input._a.shape, shape) != shape:
        raise RuntimeError(f"addr: The expanded size of the tensor {list(shape)} must match input's {list(input.shape)}")
    if bools:
        product = vec1.unsqueeze(-1) & vec2 if alpha else vec1.new_zeros(shape)
        return (input | product) if beta else product
    product = vec1.unsqueeze(-1) * vec2
    product = product if alpha.__class__ is int and alpha == 1 else product * alpha
    if beta in _ZERO_BETA:
        return unread(input, product).to(kind) if input._rg and state.grad else product.to(kind)
    return input * beta + product


@op("torch strictout")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sum of products over given dimensions of each tensor: the last `dims` of a with the first of b, or two lists of
    dimensions (torch docs: torch.tensordot)."""
    da, db = _tensordot_dims(check_tensor(a, "tensordot", "a"), check_tensor(b, "tensordot", "b", 2), dims)
    if len(da) != len(db):
        raise RuntimeError(f"both dimension lists should have same length, got {list(da)} and {list(db)}")
    for i, (x, y) in enumerate(zip(da, db, strict=True)):
        if a._a.shape[x] != b._a.shape[y]:
            if a._a.shape[x] == 1:
                b = b.sum(y, keepdim=True)
            elif b._a.shape[y] == 1:
                a = a.sum(x, keepdim=True)
            else:
                raise RuntimeError(
                    f"contracted dimensions need to match, but first has size {a.shape[x]} in dim {x} and second has size "
                    f"{b.shape[y]} in dim {y} (pair {i})"
                )
    if a._a.dtype is not b._a.dtype:
        raise RuntimeError(f"tensordot: both inputs should have same dtype, got {a.dtype.name} and {b.dtype.name}")
    free_a = [i for i in range(a.ndim) if i not in da]
    free_b = [i for i in range(b.ndim) if i not in db]
    size = math.prod([a._a.shape[x] for x in da])
    shape = [a._a.shape[i] for i in free_a] + [b._a.shape[i] for i in free_b]
    rows, columns = 1, 1
    for i in free_a:
        rows *= a._a.shape[i]
    for i in free_b:
        columns *= b._a.shape[i]
    left = a.permute(*free_a, *da).reshape(rows, size) if a.ndim else a.reshape(1, 1)
    right = b.permute(*db, *free_b).reshape(size, columns) if b.ndim else b.reshape(1, 1)
    return mm(left, right).reshape(shape)


def _tensordot_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))
    first, second = dims
    as_tuple = lambda d: (d,) if isinstance(d, int) else tuple(d)  # noqa: E731
    da = tuple(wrap_dim(d, a.ndim, "tensordot") for d in as_tuple(first))
    db = tuple(wrap_dim(d, b.ndim, "tensordot") for d in as_tuple(second))
    return da, db


@op("torch method out")
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product; the smaller rank is padded with leading ones (torch docs: torch.kron)."""
    n = max(check_tensor(input, "kron").ndim, check_tensor(other, "kron", "other", 2).ndim)
    a = (1,) * (n - input.ndim) + tuple(input._a.shape)
    b = (1,) * (n - other.ndim) + tuple(other._a.shape)
    left = input.reshape([s for x in a for s in (x, 1)])
    right = other.reshape([s for x in b for s in (1, x)])
    return (left * right).reshape([x * y for x, y in zip(a, b, strict=True)])


@op("torch strictout linalg")
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Product of matrices in the cheapest order; the first and last may be vectors (torch docs: torch.linalg.multi_dot)."""
    if len(tensors) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(tensors)))
    mats = list(tensors)
    for i, x in enumerate(mats):
        check_tensor(x, "multi_dot", "tensors", i)
        wanted = (1, 2) if i in (0, len(mats) - 1) else (2,)
        if x.ndim not in wanted:
            raise RuntimeError(f"multi_dot(): tensor {i} must be {' or '.join(map(str, wanted))}-D but got {x.ndim}-D")
        if x._a.dtype is not mats[0]._a.dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have the same dtype but tensor 0 is {mats[0].dtype} and tensor {i} is {x.dtype}"
            )
    first, last = mats[0].ndim == 1, mats[-1].ndim == 1
    if first:
        mats[0] = mats[0].unsqueeze(0)
    if last:
        mats[-1] = mats[-1].unsqueeze(-1)
    for i in range(len(mats) - 1):
        if mats[i]._a.shape[1] != mats[i + 1]._a.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(mats[i].shape)} and {list(mats[i + 1].shape)} cannot be multiplied"
            )
    out = _chain(mats, _chain_order([m._a.shape[0] for m in mats] + [mats[-1]._a.shape[1]]), 0, len(mats) - 1)
    if first:
        out = out.squeeze(0)
    return out.squeeze(-1) if last else out


def _chain_order(sizes: list[int]) -> list[list[int]]:
    """Where to split each run of matrices: the classic dynamic programme (Cormen et al., Introduction to Algorithms)."""
    n = len(sizes) - 1
    cost = [[0.0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best = None
            for k in range(i, j):
                total = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if best is None or total < best:
                    best, split[i][j] = total, k
            cost[i][j] = best or 0.0
    return split


def _chain(mats: list[Tensor], split: list[list[int]], i: int, j: int) -> Tensor:
    if i == j:
        return mats[i]
    k = split[i][j]
    return mm(_chain(mats, split, i, k), _chain(mats, split, k + 1, j))


@op("torch")
def chain_matmul(*matrices: Tensor) -> Tensor:
    """Product of 2-d tensors in the cheapest order (torch docs: torch.chain_matmul)."""
    mats = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)) else matrices
    if not mats:
        raise ValueError("chain_matmul: Expected one or more matrices")
    return mats[0] if len(mats) == 1 else multi_dot(mats)


def short_linear(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """linear on plain float matrices in the fewest steps; None when it takes more care."""
    if input.__class__ in PLAIN and weight.__class__ in PLAIN and (bias is None or bias.__class__ in PLAIN) and not INTERPRETERS:
        x, w, b = input._a, weight._a, None if bias is None else bias._a
        if x.__class__ is _ndarray and w.__class__ is _ndarray:
            dtype, rows, shape = x.dtype, x.shape, w.shape
            if not (len(rows) == 2 == len(shape) and dtype is w.dtype and dtype in _BLAS_NP and rows[1] == shape[1]):
                return None
            if (
                x.size == 1
                or w.size == 1
                or (work := rows[0] * rows[1] * shape[0]) >= native.SHORT_PRODUCT
                or (b is not None and (b.dtype is not dtype or b.shape != shape[:1]))
            ):
                return None
            found = native.linear(x, w, b) if work >= native.LEAST["few"] else None
            product = x.dot(w.T) if found is None else found
            out = wrap(product if b is None or found is not None else state.run(np.add, product, b, product))
            if (input._rg or weight._rg or (bias is not None and bias._rg)) and state.grad:
                record(prims.linear, (input, weight, bias), (out,), {})
            return out
    return None


@op("F", short=short_linear)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (…, in), (out, in) or (in), (out) -> (…, out) (torch docs: torch.nn.functional.linear)."""
    x, w = check_tensor(input, "linear")._a, check_tensor(weight, "linear", "weight", 2)._a
    if (
        w.ndim == 2
        and x.ndim
        and x.shape[-1] == w.shape[1]
        and x.dtype is w.dtype
        and x.dtype.kind != "b"
        and (bias is None or (bias._a.dtype is x.dtype and bias._a.shape == w.shape[:1]))
    ):
        return prims.linear(input, weight, bias)
    return _linear_other(input, weight, bias)


def _linear_other(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Odd shapes (vector weight, broadcast bias), and errors."""
    _same_dtype("linear", input, weight)
    if weight.ndim not in (1, 2) or input.ndim == 0 or input._a.shape[-1] != weight._a.shape[-1]:
        rows = input.numel() // max(input._a.shape[-1] if input.ndim else 1, 1)
        raise RuntimeError(
            f"linear: mat1 and mat2 shapes cannot be multiplied ({rows}x{input._a.shape[-1] if input.ndim else 1} and "
            f"{'x'.join(str(n) for n in reversed(weight.shape))}): input {list(input.shape)}, weight {list(weight.shape)}"
        )
    if weight.ndim == 1 and bias is not None and bias.ndim:
        raise RuntimeError(f"linear: bias must be 0-d where weight is 1-d, got shape {list(bias.shape)}")
    if bias is None:
        return matmul(input, weight.t())
    if bias._a.dtype is not input._a.dtype:
        raise RuntimeError(f"linear: self and mat2 must have the same dtype, but got {bias.dtype.name} and {input.dtype.name}")
    return _scaled_sum("linear", bias, matmul, input, weight.t(), 1, 1)


@whole("Trilinear")
def _trilinear(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """x (N, n), weight (out, n, m), y (N, m) -> (N, out)."""
    outputs, n, m = weight._a.shape
    half = prims.mm(x, weight.permute(1, 0, 2).reshape(n, outputs * m), ta=False, tb=False)
    return (half.reshape(x._a.shape[0], outputs, m) * y.unsqueeze(1)).sum(-1)


@op("F torch")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1ᵀ A x2 + b for each output: (…, in1), (…, in2), (out, in1, in2) -> (…, out) (torch docs: torch.nn.functional.bilinear)."""
    if input1.ndim != input2.ndim or input1._a.shape[:-1] != input2._a.shape[:-1]:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}")
    if weight.ndim != 3 or input1._a.shape[-1] != weight._a.shape[1] or input2._a.shape[-1] != weight._a.shape[2]:
        raise RuntimeError(
            f"bilinear(): input1 and input2 sizes do not match weight: got {list(input1.shape)}, {list(input2.shape)} and {list(weight.shape)}"
        )
    if bias is not None and bias._a.shape != weight._a.shape[:1]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {list(bias.shape)}")
    _same_dtype("bilinear", input1, weight)
    lead, outputs = tuple(input1._a.shape[:-1]), weight._a.shape[0]
    x, y = prims.rows(input1), prims.rows(input2)
    out = _trilinear(x, weight, y)
    return (out if bias is None else out + bias).reshape((*lead, outputs))
